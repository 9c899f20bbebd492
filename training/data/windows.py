"""Long contexts as overlapping windows, and answers out of the logits of all of them.

A window is `[CLS] question [SEP] part of the context [SEP]`. Windows begin `stride` tokens apart. A token that is in
several is scored in the one that shows most around it on its shorter side (Devlin et al., BERT's SQuAD recipe).
"""

import dataclasses

import numpy as np

from training.data import offsets


@dataclasses.dataclass
class Windows:
    """Model inputs of `n` windows, and what is needed to read the answers.

    Attributes:
        token_ids, segment_ids, padding_mask: int32 `(n, max_length)`.
        starts, ends: int32 `(n,)`, the first and last token of the first answer; 0, the token `[CLS]`, in a window that
            does not hold it all, or if no answer is known.
        offsets: int32 `(n, max_length, 2)`, the characters of the context a token comes from; -1 outside the context.
        scored: bool `(n, max_length)`, the tokens of the context with which an answer may begin in this window.
        question: int32 `(n,)`, index of the question in the list.
    """

    token_ids: np.ndarray
    segment_ids: np.ndarray
    padding_mask: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    offsets: np.ndarray
    scored: np.ndarray
    question: np.ndarray

    def __len__(self):
        return len(self.token_ids)

    @property
    def inputs(self):
        """The dict that models take."""
        return {name: getattr(self, name) for name in ("token_ids", "segment_ids", "padding_mask")}


@dataclasses.dataclass(frozen=True)
class Answer:
    """A text of the context, `context[start:end]`, and the sum of its two logits. No text means: no answer."""

    text: str
    score: float
    start: int
    end: int


def make(questions, tokenizer, max_length=384, stride=128, max_question=64):
    """The `Windows` of a list of `Question`, those of a question in order, one after the other.

    Args:
        questions: list of `Question`.
        tokenizer: `WordPiece` or `SentencePiece`.
        max_length: tokens of a window.
        stride: tokens from the beginning of a window to that of the next.
        max_question: tokens that are kept of a question.
    """
    room = max_length - 3 - max_question
    if min(stride, max_question) < 1 or room < 1:
        raise ValueError(
            "Expected `stride` and `max_question` of 1 or more and a `max_length` that leaves room for the context. "
            f"Received: max_length={max_length}, stride={stride}, max_question={max_question}"
        )
    contexts = list(dict.fromkeys(question.context for question in questions))
    contexts = {
        context: (ids, np.array(spans, "int32").reshape(-1, 2))
        for context, (ids, spans) in zip(contexts, offsets.tokenize(tokenizer, contexts))
    }
    asked = tokenizer.tokenize([question.question for question in questions])
    parts = []
    for index, (question, tokens) in enumerate(zip(questions, asked)):
        ids, spans = contexts[question.context]
        answer = _token_span(question, spans)
        tokens = tokens[:max_question]
        pieces = _cut(len(ids), max_length - 3 - len(tokens), stride)
        best = _best_window(len(ids), pieces)
        parts += [(index, tokens, ids, spans, answer, piece, best == w) for w, piece in enumerate(pieces)]
    return _filled(parts, tokenizer, max_length)


def _filled(parts, tokenizer, max_length):
    n = len(parts)
    made = Windows(
        *(np.full((n, max_length), value, "int32") for value in (tokenizer.pad_id or 0, 0, 0)),
        *(np.zeros(n, "int32") for _ in range(2)),
        offsets=np.full((n, max_length, 2), -1, "int32"),
        scored=np.zeros((n, max_length), bool),
        question=np.array([part[0] for part in parts], "int32"),
    )
    for w, (_, tokens, ids, spans, answer, (begin, end), best) in enumerate(parts):
        row = [tokenizer.cls_id, *tokens, tokenizer.sep_id, *ids[begin:end], tokenizer.sep_id]
        first = len(tokens) + 2
        context = slice(first, first + end - begin)
        made.token_ids[w, : len(row)] = row
        made.segment_ids[w, first : len(row)] = 1
        made.padding_mask[w, : len(row)] = 1
        if begin < end:
            made.offsets[w, context] = spans[begin:end]
            made.scored[w, context] = best[begin:end]
        if answer is not None and begin <= answer[0] and answer[1] < end:
            made.starts[w], made.ends[w] = (first - begin + place for place in answer)
    return made


def _cut(length, room, stride):
    """Pieces `(begin, end)` of at most `room` tokens, none of which is skipped."""
    begins = range(0, max(length - room, 0) + min(stride, room), min(stride, room))
    return [(begin, min(begin + room, length)) for begin in begins]


def _best_window(length, pieces):
    """For each token, of the windows that hold it, the one with the greatest smaller margin around it.

    A longer window has a little more than its margin, as in BERT: a hundredth of its length. Of equal ones it is the
    first.
    """
    place = np.arange(length)
    margins = [np.minimum(place - begin, end - 1 - place) for begin, end in pieces]
    scores = [np.where(m < 0, -np.inf, m + 0.01 * (end - begin)) for m, (begin, end) in zip(margins, pieces)]
    return np.argmax(scores, axis=0)


def _token_span(question, spans):
    """First and last token of the first answer, or `None`."""
    if not question.answers:
        return None
    text, start = question.answers[0]
    # A piece that is only a space comes from no character.
    left, right = spans.T
    inside = np.flatnonzero((left < right) & (left < start + len(text)) & (right > start))
    return (inside[0], inside[-1]) if len(inside) else None


def n_best(questions, windows, start_logits, end_logits, n=20, max_answer_length=30, allow_none=False):
    """The best answers to each question over all of its windows.

    Args:
        questions: the list that `windows` were made from.
        windows: `Windows`.
        start_logits, end_logits: `(len(windows), max_length)`; a value is only read at tokens of the context.
        n: number of answers, and of beginnings and ends that are tried in a window.
        max_answer_length: tokens of the longest answer.
        allow_none: whether `[CLS]` stands for having no answer; its score is the least over the windows (SQuAD 2.0).

    Returns: dict from the id of a question to a list of at most `n` `Answer`, best first, no text twice.
    """
    start_logits, end_logits = (np.asarray(logits, "float32") for logits in (start_logits, end_logits))
    if start_logits.shape != windows.token_ids.shape or end_logits.shape != windows.token_ids.shape:
        raise ValueError(
            f"Expected logits of shape {windows.token_ids.shape}. Received: {start_logits.shape}, {end_logits.shape}"
        )
    candidates, nones = [{} for _ in questions], [np.inf] * len(questions)
    for w, index in enumerate(windows.question):
        best, context = candidates[index], questions[index].context
        nones[index] = min(nones[index], float(start_logits[w, 0] + end_logits[w, 0]))
        for score, first, last in _spans(windows, w, start_logits[w], end_logits[w], n, max_answer_length):
            start, end = int(windows.offsets[w, first, 0]), int(windows.offsets[w, last, 1])
            text = context[start:end].strip()
            if text and (text not in best or score > best[text].score):
                best[text] = Answer(text, score, start, end)
    found = {}
    for question, best, none in zip(questions, candidates, nones):
        answers = list(best.values()) + [Answer("", none, 0, 0)] * (allow_none or not best)
        found[question.id] = sorted(answers, key=lambda answer: (-answer.score, answer.start, answer.end))[:n]
    return found


def _spans(windows, w, start, end, n, max_answer_length):
    """`(score, first, last)` of the `n` best spans in the context, from as many beginnings and ends of one window."""
    inside = windows.offsets[w, :, 0] >= 0
    firsts, lasts = _top(start, windows.scored[w], n), _top(end, inside, n)
    lengths = lasts[None] - firsts[:, None]
    rows, columns = np.nonzero((lengths >= 0) & (lengths < max_answer_length))
    firsts, lasts = firsts[rows], lasts[columns]
    scores = start[firsts] + end[lasts]
    best = np.argsort(-scores, kind="stable")[:n]
    return zip(scores[best].tolist(), firsts[best], lasts[best])


def _top(logits, allowed, n):
    places = np.flatnonzero(allowed & np.isfinite(logits))
    return places[np.argsort(-logits[places], kind="stable")[:n]]


def predictions(answers):
    """Dict from ids to texts, of what `n_best` returns: what the metric takes."""
    return {name: best[0].text for name, best in answers.items()}
