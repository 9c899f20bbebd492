"""Types of tokens (delimiters, punctuation, nouns, verbs, pronouns) and how much attention goes to each.

References: Sun & Marasović, 2021 (arXiv:2105.08855), section 3.2, figures 1, 5 and 6; Brunner et al., 2020
(arXiv:1908.04211), section 3.5, figures 1b and 1c.
"""

import dataclasses
import unicodedata

import numpy as np
from keras import ops

from keras_posenc.analysis.similarity import stacked
from keras_posenc.analysis.sums import Sums

TYPES = ("[CLS]", "[SEP]", "punctuation", "noun", "verb", "pronoun", "other")
CLS, SEP, PUNCTUATION, NOUN, VERB, PRONOUN, OTHER = range(len(TYPES))
NO_TYPE = -1  # padding

# Universal tags and Penn's. The papers do not say whether auxiliaries are verbs; they are here, since Penn's tags of
# forms of "be", "have" and "do" are the same for both. Penn's `$` and `#` are symbols, no punctuation, as in Unicode.
TAGS = {
    **dict.fromkeys("NOUN PROPN NN NNS NNP NNPS".split(), NOUN),
    **dict.fromkeys("VERB AUX VB VBD VBG VBN VBP VBZ MD".split(), VERB),
    **dict.fromkeys("PRON PRP PRP$ WP WP$ EX".split(), PRONOUN),
    **dict.fromkeys("PUNCT . , : `` '' \" ( ) -LRB- -RRB- HYPH NFP".split(), PUNCTUATION),
}
HIDDEN = ("[PAD]", "<pad>")
UNKNOWN = ("[UNK]", "<unk>")


@dataclasses.dataclass
class TokenTypes:
    """Of the tokens of one input.

    Attributes:
        types: `(n,)`, indices into `TYPES`, -1 for padding.
        first: `(n,)`, whether a token is the first of its word.
    """

    types: np.ndarray
    first: np.ndarray

    @property
    def names(self):
        return [TYPES[t] if t >= 0 else "" for t in self.types]


def token_types(tokens, sentences=None, tags=None):
    """The type of each token of one input.

    `[CLS]`, `[SEP]` and padding are known by their names. With tags, all pieces of a word have the type of its tag.
    Without, tokens of punctuation marks only are punctuation, and all others, of which nothing is known, `other`.

    Args:
        tokens: strings as a tokenizer's `tokens` gives them: `[CLS] ... [SEP]`, or `[CLS] ... [SEP] ... [SEP]`.
        sentences: for each text of the input, its `(word, tag)` pairs, the tags universal or Penn's. Inputs that were
            cut have fewer tokens than words.
        tags: dict from tag to index into `TYPES`, to replace `TAGS`. Tags that are not in it are `other`.

    Returns: a `TokenTypes`.

    Example:

    >>> found = token_types(["[CLS]", "we", "tok", "##en", "##ize", ".", "[SEP]"],
    ...                     [[("We", "PRON"), ("tokenize", "VERB"), (".", "PUNCT")]])
    >>> found.names
    ['[CLS]', 'pronoun', 'verb', 'verb', 'verb', 'punctuation', '[SEP]']
    """
    tokens, tags = list(tokens), TAGS if tags is None else tags
    types = np.full(len(tokens), OTHER, "int32")
    first = np.array([not token.startswith("##") for token in tokens], bool)
    texts = [[]]
    for index, token in enumerate(tokens):
        if token in HIDDEN:
            types[index] = NO_TYPE
        elif token == "[CLS]":
            types[index] = CLS
        elif token == "[SEP]":
            types[index] = SEP
            texts.append([])
        else:
            types[index] = PUNCTUATION if is_punctuation(_letters(token)) else OTHER
            texts[-1].append(index)
    if sentences is None:
        return TokenTypes(types, first)
    if any(texts[len(sentences) :]):
        raise ValueError(
            f"The input has {sum(map(bool, texts))} texts, each ended by [SEP], but words of {len(sentences)} were "
            f"given: {tokens}"
        )
    for where, sentence in zip(texts, sentences):
        owner = align_words([word for word, _ in sentence], [tokens[index] for index in where])
        types[where] = [tags.get(sentence[word][1], OTHER) for word in owner]
        first[where] = np.diff(owner, prepend=-1) > 0
    return TokenTypes(types, first)


def stack_types(inputs, length):
    """`TokenTypes` of a batch as two arrays `(batch, length)`: types, -1 after the end of each, and first pieces."""
    types, first = np.full((len(inputs), length), NO_TYPE, "int32"), np.zeros((len(inputs), length), bool)
    for row, found in enumerate(inputs):
        types[row, : len(found.types)], first[row, : len(found.first)] = found.types, found.first
    return types, first


def align_words(words, pieces):
    """For each piece, the index of the word with its first letter.

    Words and pieces are compared as runs of letters without spaces, case and accents, so that words may be cut
    otherwise than the tokenizer does (`do` + `n't`, pieces `don`, `'`, `t`). An unknown piece stands for as many
    letters as let the pieces after it fit.

    Args:
        words: strings.
        pieces: strings, without special tokens; `##` and the sentence-piece mark are understood. They may end early.

    Returns: int array, one per piece.
    """
    letters = [_letters(word) for word in words]
    text = "".join(letters)
    owner = np.repeat(np.arange(len(words)), [len(word) for word in letters])
    starts = np.cumsum([len(word) for word in letters], dtype=int)
    parts = [None if piece in UNKNOWN else _letters(piece) for piece in pieces]
    place, found = 0, []
    for index, part in enumerate(parts):
        if part is None:
            found.append(place)
            rest = parts[index + 1 :]
            known = "".join(rest[: rest.index(None)] if None in rest else rest)
            # It ends where a word ends, if the pieces up to the next unknown one fit there.
            fitting = (start for start in starts if start > place and text.startswith(known, start))
            place = next(fitting, text.find(known, place + 1))
        elif text.startswith(part, place):
            found.append(place)
            place += len(part)
        else:
            place = -1
        if place < 0 or found[-1] >= len(text):
            raise ValueError(f"The pieces are not those of the words, from piece {index} on: {pieces} of {words}")
    return owner[found] if found else np.zeros(0, int)


def is_punctuation(text):
    """Whether all characters are punctuation in Unicode, which `$` and `+` are not."""
    return bool(text) and all(unicodedata.category(char).startswith("P") for char in text)


def _letters(piece):
    piece = piece[2:] if piece.startswith("##") and len(piece) > 2 else piece
    shown = unicodedata.normalize("NFKD", piece.replace("\u2581", ""))
    hidden = ("Mn", "Cc", "Cf", "Co", "Cs", "Zs", "Zl", "Zp")
    return "".join(char.lower() for char in shown if unicodedata.category(char) not in hidden and char != "\ufffd")


KINDS = ("raw", "effective")
SOURCES = ("cls", "all", "others")
MEASURES = ("mass", "absolute", "largest")


@dataclasses.dataclass
class AttentionByTypeResult:
    """Mean attention to types of tokens.

    Attributes:
        values: `(kinds, sources, measures, layers, heads, types)`, in the orders of `KINDS`, `SOURCES`, `MEASURES` and
            `TYPES`; NaN for a type that no sentence has.
        tokens: `(types,)`, the mean share of the types among the tokens of a sentence: the mass that they would have
            if attention were uniform.
        sentences: how many.
    """

    values: np.ndarray
    tokens: np.ndarray
    sentences: int

    def get(self, kind="raw", source="all", measure="absolute"):
        """`(layers, heads, types)`."""
        return self.values[KINDS.index(kind), SOURCES.index(source), MEASURES.index(measure)]

    def rows(self):
        """One per source, layer, head and type, all measures, raw beside effective."""
        layers, heads = self.values.shape[3:5]
        rows = []
        for source, name in enumerate(SOURCES):
            for layer, head, t in np.ndindex(layers, heads, len(TYPES)):
                row = {"from": name, "layer": layer + 1, "head": head + 1, "to": TYPES[t]}
                for measure, kind in np.ndindex(len(MEASURES), len(KINDS)):
                    value = self.values[kind, source, measure, layer, head, t]
                    row[f"{MEASURES[measure]}_{KINDS[kind]}"] = float(value)
                rows.append({**row, "tokens": float(self.tokens[t])})
        return rows


class AttentionByType(Sums):
    """Attention to each type of token, raw against effective, per layer and head, averaged over sentences.

    Whose attention (`SOURCES`): `cls`, that of the first [CLS] (figure 1 of Sun & Marasović is its last layer); `all`,
    the mean over the tokens of a sentence; `others`, the mean over tokens that are not of the type attended to
    (figures 5 and 6).

    How it is measured (`MEASURES`), as effective attention has negative weights and rows of any sum:

    - `mass`: the sum over tokens of the type, with signs. What figures 1b and 1c of Brunner et al. average.
    - `absolute`: the sum of absolute values.
    - `largest`: the weight of the token of the type with the largest one, of first pieces only: footnote 5 of Sun &
      Marasović. With signs, too. Sentences without the type do not count.
    """

    def add(self, attention, effective, types, padding_mask=None, first=None):
        """A batch.

        Args:
            attention, effective: `(batch, layers, heads, n, n)`.
            types: `(batch, n)`, indices into `TYPES`, -1 for padding.
            padding_mask: `(batch, n)`; by default tokens with a type are no padding.
            first: `(batch, n)`, whether a token is the first of its word; all are by default.
        """
        maps = [stacked("AttentionByType", "attention", attention), stacked("AttentionByType", "effective", effective)]
        types = ops.convert_to_numpy(types)
        if types.shape != (maps[0].shape[0], maps[0].shape[-1]) or types.max(initial=0) >= len(TYPES):
            raise ValueError(
                f"AttentionByType: `types` must be (batch, n) numbers below {len(TYPES)}, -1 for padding. Received: "
                f"shape {types.shape} with maps {tuple(maps[0].shape)}, largest {types.max(initial=0)}"
            )
        real = types >= 0 if padding_mask is None else ops.convert_to_numpy(padding_mask).astype(bool) & (types >= 0)
        member = ((types[..., None] == np.arange(len(TYPES))) & real[..., None]).astype("float32")
        headed = member if first is None else member * ops.convert_to_numpy(first).astype("float32")[..., None]
        weights = _query_weights(member, real)
        present = (headed.sum(axis=1) > 0).astype("float32")
        sums = np.stack([_sums(each, member, headed, weights, present) for each in maps])
        asked = weights.sum(axis=1) > 0  # (batch, sources, types)
        counts = np.stack([asked, asked, asked & (present[:, None] > 0)], axis=2).sum(axis=0)
        share = (member.sum(axis=1) / np.maximum(real.sum(axis=1, keepdims=True), 1)).sum(axis=0)
        self._add(sums=sums, counts=counts, share=share, sentences=len(types))

    def result(self):
        self._needs_batches()
        counts = self.state["counts"][None, :, :, None, None]
        with np.errstate(invalid="ignore"):
            values = np.where(counts > 0, self.state["sums"] / np.maximum(counts, 1), np.nan)
        sentences = int(self.state["sentences"])
        return AttentionByTypeResult(values, self.state["share"] / sentences, sentences)


def _query_weights(member, real):
    """`(batch, n, sources, types)`: how much each query counts in the mean of its sentence, for each type attended."""
    cls = member[..., CLS] * (np.cumsum(member[..., CLS], axis=1) == 1)
    queries = np.stack(
        [np.broadcast_to(x[..., None], member.shape) for x in (cls, real.astype("float32"))]
        + [real[..., None] * (1.0 - member)],
        axis=2,
    )
    return (queries / np.maximum(queries.sum(axis=1, keepdims=True), 1.0)).astype("float32")


def _sums(maps, member, headed, weights, present):
    """Over the sentences of a batch, `(sources, measures, layers, heads, types)`."""
    mass = ops.einsum("blhij,bjt->blhit", maps, member)
    absolute = ops.einsum("blhij,bjt->blhit", ops.abs(maps), member)
    hide = (headed - 1.0) * 1e9
    largest = ops.stack([ops.max(maps + hide[:, None, None, None, :, t], axis=-1) for t in range(len(TYPES))], axis=-1)
    largest = largest * present[:, None, None, None, :]
    return np.stack(
        [ops.convert_to_numpy(ops.einsum("blhit,bist->slht", x, weights)) for x in (mass, absolute, largest)], axis=1
    )
