"""F1 and exact match of answers, with the normalisation of SQuAD or of MLQA.

Answers are compared without case, punctuation, articles and superfluous space. SQuAD's script knows ASCII's punctuation
and English articles; XTREME scores XQuAD and TyDi QA with it, whatever their language. MLQA (Lewis et al.,
https://arxiv.org/abs/1910.07475) extends the definition to other languages: punctuation is what Unicode says, the
articles are those of the language, and Chinese is compared character by character.

The functions take a `language`, two letters, for MLQA's rules, or `None` for SQuAD's.
"""

import collections
import functools
import re
import string
import unicodedata

import numpy as np

# What MLQA leaves out in each of its languages. Vietnamese has classifiers, Hindi and Chinese no articles.
ARTICLES = {
    "en": ("a", "an", "the"),
    "de": ("ein", "eine", "einen", "einem", "eines", "einer", "der", "die", "das", "den", "dem", "des"),
    "es": ("un", "una", "unos", "unas", "el", "la", "los", "las"),
    "vi": ("của", "là", "cái", "chiếc", "những"),
}
ARABIC_ARTICLE = "\u0627\u0644"
# Languages that are compared by characters.
BY_CHARACTER = ("zh",)
_CHINESE = re.compile("[\u4e00-\u9fa5]")


@functools.lru_cache(65536)
def _is_punctuation(char):
    return char in string.punctuation or unicodedata.category(char).startswith("P")


def tokens(text, language=None):
    """What is compared: the words of an answer, in order, after normalisation.

    Languages that MLQA does not have keep all of their words. In Chinese each ideograph is a word, and so is a run of
    other letters.
    """
    if language is None:
        text = "".join(char for char in text.lower() if char not in string.punctuation)
        return re.sub(r"\b(a|an|the)\b", " ", text).split()
    text = "".join(char for char in text.lower() if not _is_punctuation(char))
    if language in ARTICLES:
        text = re.sub(rf"\b({'|'.join(ARTICLES[language])})\b", " ", text)
    elif language == "ar":
        # The article is written together with its noun; MLQA takes the two letters away wherever they are.
        text = text.replace(ARABIC_ARTICLE, " ")
    if language in BY_CHARACTER:
        text = _CHINESE.sub(lambda found: f" {found.group()} ", text)
    return text.split()


def normalise(text, language=None):
    """The normalised answer, as one string."""
    return " ".join(tokens(text, language))


def exact_match(prediction, answer, language=None):
    """1.0 or 0.0."""
    return float(normalise(prediction, language) == normalise(answer, language))


def f1(prediction, answer, language=None):
    """Harmonic mean of precision and recall over words, each counted as often as it occurs."""
    ours, theirs = tokens(prediction, language), tokens(answer, language)
    same = sum((collections.Counter(ours) & collections.Counter(theirs)).values())
    return 2.0 * same / (len(ours) + len(theirs)) if same else 0.0


def evaluate(questions, predictions, language=None):
    """The scores of a set of questions, in percent.

    Args:
        questions: list of `Question`. The best of its answers counts for each; a question without answers is right if
            nothing is predicted.
        predictions: dict from ids to texts. A question that has none counts as wrong; an empty text is compared like
            any other, and matches an answer of which normalisation leaves nothing, as in the official script.
        language: two letters, of the contexts, for MLQA's rules; `None` for SQuAD's.

    Returns: dict of `f1` and `exact_match`.
    """
    strange = sorted(set(predictions) - {question.id for question in questions})
    if strange:
        raise ValueError(f"Predictions for {len(strange)} ids that are no question's, such as {strange[0]!r}.")
    if not questions:
        raise ValueError("Expected questions, received none.")
    totals = np.zeros(2)
    for question in questions:
        text = predictions.get(question.id)
        if not question.answers:
            totals += float(text is not None and not tokens(text, language))
        elif text is not None:
            answers = [answer for answer, _ in question.answers]
            totals += [max(score(text, answer, language) for answer in answers) for score in (f1, exact_match)]
    return dict(zip(("f1", "exact_match"), (100 * totals / len(questions)).tolist()))
