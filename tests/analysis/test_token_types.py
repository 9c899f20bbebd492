"""Types of tokens by hand, and attention to types against sums written as loops."""

import json

import numpy as np
import pytest

from keras_posenc.analysis import token_types as tt
from keras_posenc.analysis.plots import token_types as plots
from keras_posenc.analysis.token_types import CLS, NO_TYPE, NOUN, OTHER, PRONOUN, PUNCTUATION, SEP, VERB

PAIR = "[CLS] she bought token ##izers , did she ? [SEP] yes ! [SEP] [PAD]".split()
WORDS = [
    [("She", "PRON"), ("bought", "VERB"), ("tokenizers", "NOUN"), (",", "PUNCT"), ("did", "AUX"), ("she", "PRON")]
    + [("?", "PUNCT")],
    [("Yes", "INTJ"), ("!", "PUNCT")],
]


def test_types_of_a_pair_with_tags():
    found = tt.token_types(PAIR, WORDS)
    expected = [CLS, PRONOUN, VERB, NOUN, NOUN, PUNCTUATION, VERB, PRONOUN, PUNCTUATION, SEP, OTHER, PUNCTUATION, SEP]
    np.testing.assert_array_equal(found.types, [*expected, NO_TYPE])
    assert [PAIR[i] for i in np.flatnonzero(~found.first)] == ["##izers"]


def test_without_tags_only_marks_and_delimiters_are_known():
    found = tt.token_types(PAIR)
    known = {"[CLS]": CLS, "[SEP]": SEP, ",": PUNCTUATION, "?": PUNCTUATION, "!": PUNCTUATION, "[PAD]": NO_TYPE}
    np.testing.assert_array_equal(found.types, [known.get(token, OTHER) for token in PAIR])


@pytest.mark.parametrize(
    "text,yes", [(".", True), ("...", True), ("\u2014", True), ("$", False), ("a.", False), ("", False), ("+", False)]
)
def test_punctuation_is_that_of_unicode(text, yes):
    assert tt.is_punctuation(text) is yes


def test_penn_and_universal_tags_agree():
    penn = [("They", "PRP"), ("may", "MD"), ("see", "VB"), ("Bonn", "NNP"), ("``", "``")]
    universal = [("They", "PRON"), ("may", "AUX"), ("see", "VERB"), ("Bonn", "PROPN"), ("``", "PUNCT")]
    tokens = ["[CLS]", "they", "may", "see", "bonn", "`", "`", "[SEP]"]
    first, second = (tt.token_types(tokens, [words]) for words in (penn, universal))
    np.testing.assert_array_equal(first.types, second.types)
    np.testing.assert_array_equal(first.types[1:-1], [PRONOUN, VERB, VERB, NOUN, PUNCTUATION, PUNCTUATION])


@pytest.mark.parametrize(
    "words,pieces,owners",
    [
        (["Tokenizers", "work"], ["token", "##izer", "##s", "work"], [0, 0, 0, 1]),
        (["do", "n't"], ["don", "'", "t"], [0, 1, 1]),  # cut elsewhere: the first letter decides
        (["Caf\u00e9", "\u00c9"], ["cafe", "e"], [0, 1]),
        (["banana", "a"], ["[UNK]", "a"], [0, 1]),  # not the first "a" of banana
        (["xx", "yy", "b"], ["[UNK]", "[UNK]", "b"], [0, 1, 2]),
        (["ab", "cd"], ["ab"], [0]),  # cut input
        (["a##b"], ["a", "#", "#", "b"], [0, 0, 0, 0]),
        (["Hello", "world"], ["\u2581hello", "\u2581", "world"], [0, 1, 1]),
        ([], [], []),
    ],
)
def test_alignment(words, pieces, owners):
    np.testing.assert_array_equal(tt.align_words(words, pieces), owners)


def test_pieces_of_other_words_are_an_error():
    with pytest.raises(ValueError, match="from piece 1 on"):
        tt.align_words(["one", "two"], ["one", "three"])
    with pytest.raises(ValueError, match="words of 1 were given"):
        tt.token_types(PAIR, WORDS[:1])


def batch(rng, size=3, layers=2, heads=3, n=9):
    """Random maps, one with negative weights; types with delimiters, and padding at the end of all but the first."""
    attention = rng.dirichlet(np.ones(n), size=(size, layers, heads, n)).astype("float32")
    effective = rng.normal(size=attention.shape).astype("float32")
    types = rng.integers(2, len(tt.TYPES) - 1, (size, n))  # no sentence has the type `other`
    types[:, 0] = CLS
    for row in range(size):
        types[row, n - row - 1] = SEP
        types[row, n - row :] = NO_TYPE
    return attention, effective, types, types >= 0, rng.random((size, n)) < 0.6


def by_loops(maps, types, first, source, measure):
    """Means `(layers, heads, types)`, sentence by sentence, query by query."""
    size, layers, heads, n, _ = maps.shape
    found = np.full((layers, heads, len(tt.TYPES)), np.nan)
    for layer, head, t in np.ndindex(found.shape):
        sentences = []
        for row in range(size):
            keys = [j for j in range(n) if types[row, j] == t]
            if measure == "largest":
                keys = [j for j in keys if first[row, j]]
                if not keys:
                    continue
            queries = []
            for i in range(n):
                asked = {"cls": i == 0, "all": types[row, i] >= 0, "others": types[row, i] not in (t, NO_TYPE)}
                if asked[source]:
                    weights = [float(maps[row, layer, head, i, j]) for j in keys]
                    queries.append(
                        {"mass": sum, "absolute": lambda w: sum(map(abs, w)), "largest": max}[measure](weights)
                    )
            if queries:
                sentences.append(np.mean(queries))
        if sentences:
            found[layer, head, t] = np.mean(sentences)
    return found


@pytest.mark.parametrize("source", tt.SOURCES)
@pytest.mark.parametrize("measure", tt.MEASURES)
def test_means_equal_loops(rng, source, measure):
    attention, effective, types, mask, first = batch(rng)
    sums = tt.AttentionByType()
    sums.add(attention, effective, types, mask, first)
    for kind, maps in (("raw", attention), ("effective", effective)):
        expected = by_loops(maps, types, first, source, measure)
        np.testing.assert_allclose(sums.result().get(kind, source, measure), expected, atol=1e-5)


def test_raw_masses_of_real_tokens_sum_to_one(rng):
    attention, effective, types, mask, _ = batch(rng)
    attention = attention * mask[:, None, None, None, :]
    attention /= attention.sum(axis=-1, keepdims=True)
    sums = tt.AttentionByType()
    sums.add(attention, effective, types)
    result = sums.result()
    for source in ("cls", "all"):
        np.testing.assert_allclose(result.get("raw", source, "mass").sum(axis=-1), 1.0, atol=1e-5)
    np.testing.assert_allclose(result.get("raw"), result.get("raw", measure="mass"), atol=1e-6)
    assert result.tokens.sum() == pytest.approx(1.0)


def test_batches_can_be_merged_kept_and_taken_up(rng):
    attention, effective, types, mask, first = batch(rng, size=5)
    whole, left, right = tt.AttentionByType(), tt.AttentionByType(), tt.AttentionByType()
    whole.add(attention, effective, types, mask, first)
    left.add(attention[:2], effective[:2], types[:2], mask[:2], first[:2])
    left = tt.AttentionByType.from_dict(json.loads(json.dumps(left.to_dict())))
    right.add(attention[2:], effective[2:], types[2:], mask[2:], first[2:])
    merged = left.merge(right).result()
    np.testing.assert_allclose(merged.values, whole.result().values, atol=1e-6)
    assert merged.sentences == 5


def test_rows_and_padding_of_types(rng):
    attention, effective, types, mask, first = batch(rng)
    sums = tt.AttentionByType()
    sums.add(attention, effective, types, mask, first)
    rows = sums.result().rows()
    assert len(rows) == len(tt.SOURCES) * 2 * 3 * len(tt.TYPES)
    row = next(r for r in rows if (r["from"], r["layer"], r["head"], r["to"]) == ("cls", 2, 3, "[SEP]"))
    assert row["mass_effective"] == pytest.approx(sums.result().get("effective", "cls", "mass")[1, 2, SEP])
    stacked, firsts = tt.stack_types([tt.token_types(["[CLS]", "a", "[SEP]"]), tt.token_types(["[CLS]"])], 4)
    np.testing.assert_array_equal(stacked, [[CLS, OTHER, SEP, NO_TYPE], [CLS, NO_TYPE, NO_TYPE, NO_TYPE]])
    assert firsts.sum() == 4


def test_shapes_are_checked(rng):
    attention, effective, types, _, _ = batch(rng)
    with pytest.raises(ValueError, match="shape"):
        tt.AttentionByType().add(attention, effective, types[:, :-1])
    with pytest.raises(ValueError, match="stack the layers"):
        tt.AttentionByType().add(attention[:, 0], effective[:, 0], types)
    with pytest.raises(ValueError, match="seen no batch"):
        tt.AttentionByType().result()


def test_pictures_show_what_was_measured(rng):
    attention, effective, types, mask, first = batch(rng)
    sums = tt.AttentionByType()
    sums.add(attention, effective, types, mask, first)
    result = sums.result()
    present = result.tokens > 0
    axes = plots.plot_cls_attention(result, "mass").axes[0]
    heights = [bar.get_height() for bar in axes.containers[0]]
    np.testing.assert_allclose(heights, result.get("raw", "cls", "mass")[-1].mean(axis=0)[present], atol=1e-6)
    assert len(plots.plot_attention_by_layer(result, types=("[CLS]", "[SEP]")).axes) == 2
    image = plots.plot_cls_heads(result).axes[1].images[0].get_array()
    np.testing.assert_allclose(image.filled(np.nan), result.get("effective", "cls", "largest")[-1].T[present])
