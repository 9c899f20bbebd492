"""BLEU and chrF of translations, computed by sacreBLEU (Post, https://arxiv.org/abs/1804.08771)."""


def _sacrebleu():
    try:
        from sacrebleu import metrics
    except ImportError as error:
        raise ImportError("BLEU needs sacrebleu: pip install sacrebleu.") from error
    return metrics


def evaluate(hypotheses, references, tokenize="13a", lowercase=False, chrf=False):
    """Corpus scores of detokenised text.

    Args:
        hypotheses: list of texts.
        references: list of texts, or several such lists, one for each set of references.
        tokenize: sacreBLEU's tokenizer; `"13a"` is what WMT's figures are made with, `"zh"` for Chinese.
        lowercase: whether case is ignored.
        chrf: whether chrF is computed too.

    Returns: dict of `bleu` and `bleu_signature`, the string to quote with it; `brevity_penalty`; with `chrf` also
        `chrf` and `chrf_signature`.
    """
    references = [references] if all(isinstance(text, str) for text in references) else list(references)
    lengths = [len(texts) for texts in references]
    if not hypotheses or any(length != len(hypotheses) for length in lengths):
        raise ValueError(f"Expected as many references as hypotheses. Received: {lengths} for {len(hypotheses)}")
    metrics, hypotheses = _sacrebleu(), list(hypotheses)
    bleu = metrics.BLEU(tokenize=tokenize, lowercase=lowercase)
    found = bleu.corpus_score(hypotheses, references)
    scores = {"bleu": found.score, "bleu_signature": str(bleu.get_signature()), "brevity_penalty": found.bp}
    if chrf:
        other = metrics.CHRF(lowercase=lowercase)
        scores["chrf"] = other.corpus_score(hypotheses, references).score
        scores["chrf_signature"] = str(other.get_signature())
    return scores
