"""The part-of-speech probe and the CoNLL-U reader."""

import os
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_posenc.analysis.tagging import ProbeTagger, parse_conllu, read_conllu, split_words
from keras_posenc.checkpoints import installed
from keras_posenc.checkpoints.tokenizer import WordPiece
from keras_posenc.models import Bert

LEXICON = {
    "DET": ["the", "a", "this"],
    "ADJ": ["red", "small", "unseenly"],
    "NOUN": ["cat", "dog", "house", "tokenizer", "book"],
    "VERB": ["sees", "buys", "reads", "books"],
    "PUNCT": ["."],
}
PIECES = "token ##izer unseen ##ly book ##s the a this red small cat dog house sees buys reads .".split()
FRAME = "DET ADJ NOUN VERB DET NOUN PUNCT".split()


def row(*fields):
    return "\t".join([*fields, *["_"] * (10 - len(fields))])


UGLY = [
    "# text = They can't.",
    row("1", "They", "they", "PRON", "PRP"),
    row("2-3", "can't"),
    row("2", "ca", "can", "AUX", "MD") + "\r\n",
    row("3", "n't", "not", "PART", "RB"),
    row("3.1", "leave", "leave", "VERB", "VB"),
    row("4", ".", ".", "PUNCT", "."),
    "",
    "",
    "# a comment alone",
    "   ",
    row("1", "\u00c9t\u00e9", "\u00e9t\u00e9", "NOUN", "NN"),
]


def test_multiword_tokens_empty_nodes_and_blank_lines():
    assert parse_conllu(UGLY) == [
        [("They", "PRON"), ("ca", "AUX"), ("n't", "PART"), (".", "PUNCT")],
        [("\u00c9t\u00e9", "NOUN")],
    ]
    assert parse_conllu(UGLY, tags="xpos")[0][:2] == [("They", "PRP"), ("ca", "MD")]
    assert parse_conllu([]) == []


@pytest.mark.parametrize(
    "line,what",
    [
        ("2 too few", "1 fields where CoNLL-U has 10"),
        (row("two", "b", "b", "NOUN"), "no word number: 'two'"),
        (row("3", "b", "b", "NOUN"), "word 3 where 2 is due"),
        (row("2", " ", "b", "NOUN"), "an empty word"),
    ],
)
def test_bad_lines_are_reported_by_number_and_their_sentence_left_out(tmp_path, line, what):
    lines = ["# 1", row("1", "a", "a", "DET"), line, "more rubbish", "", row("1", "good", "good", "ADJ"), ""]
    with pytest.raises(ValueError, match=f"line:3: {what}"):
        parse_conllu(lines)
    file, problems = tmp_path / "bad.conllu", []
    file.write_text("\ufeff" + "\n".join(lines), encoding="utf-8")
    assert read_conllu(file, problems=problems) == [[("good", "ADJ")]]
    assert len(problems) == 1 and f"bad.conllu:3: {what}" in problems[0]


def test_words_are_cut_as_in_treebanks():
    assert split_words("She didn't pay $2,500.50 (it's the U.S. way)!") == (
        "She did n't pay $ 2,500.50 ( it 's the U.S. way ) !".split()
    )


@pytest.fixture(scope="module")
def subject():
    """An untrained model, its tokenizer, and sentences of a small grammar."""
    keras.utils.set_random_seed(0)  # how well a probe does depends on the weights
    tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES])
    model = Bert(len(tokenizer.vocabulary), 2, 2, 32, 32, max_length=16, dropout=0.0)
    model.build()
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(weight + 0.1 * rng.normal(size=weight.shape))
    return model, tokenizer, [[(str(rng.choice(LEXICON[tag])), tag) for tag in FRAME] for _ in range(80)]


def test_the_probe_learns_the_tags_of_a_grammar(subject):
    model, tokenizer, sentences = subject
    tagger = ProbeTagger.fit(model, tokenizer, sentences[:60])
    majority = 2 / 7  # nouns, or determiners
    accuracy = tagger.accuracy(sentences[60:])
    # "book" is a noun and the first piece of "books", a verb: the last piece tells them apart.
    assert accuracy > 0.97 > majority
    assert set(tagger.report.validation) == {0, 1, 2, "chosen"} and tagger.report.words == 60 * 7
    assert tagger.tag(["The red tokenizer reads a book."])[0] == [
        ("The", "DET"), ("red", "ADJ"), ("tokenizer", "NOUN"), ("reads", "VERB"), ("a", "DET"), ("book", "NOUN"),
        (".", "PUNCT"),
    ]  # fmt: skip


def test_every_word_of_a_long_text_is_tagged(subject):
    """Longer than the model: in windows. A word without a piece is X."""
    model, tokenizer, sentences = subject
    tagger = ProbeTagger.fit(model, tokenizer, sentences[:60], layers=[0])
    words = [word for sentence in sentences[60:64] for word, _ in sentence]
    tagged = tagger.tag([words, [], ["\u200b", "cat"]])
    assert [word for word, _ in tagged[0]] == words
    right = [x[1] == y[1] for x, y in zip(tagged[0], sum(sentences[60:64], []))]
    assert np.mean(right) > 0.9
    assert tagged[1] == [] and tagged[2][0] == ("\u200b", "X")
    assert tagger.report.layers == (0,)


def test_wrong_arguments(subject):
    model, tokenizer, sentences = subject
    with pytest.raises(ValueError, match="two tagged sentences"):
        ProbeTagger.fit(model, tokenizer, sentences[:1])
    with pytest.raises(ValueError, match="a list of texts"):
        ProbeTagger.fit(model, tokenizer, sentences[:20], layers=[0]).tag("one text")


@pytest.mark.slow
def test_minilm_tags_english(subject):
    """A tenth of UD English EWT's dev set suffices for 85 percent of test; all of it gives 94."""
    data = os.environ.get("KERAS_POSENC_DATA")
    folder = Path(data or "", "ud_english_ewt")
    if not data or not folder.is_dir():
        pytest.skip("KERAS_POSENC_DATA names no folder with ud_english_ewt")
    if installed.find("minilm") is None:
        pytest.skip("minilm is not installed")
    made = installed.load("minilm")
    tagger = ProbeTagger.fit(made.model, made.tokenizer, read_conllu(folder / "en_ewt-ud-dev.conllu")[::10], layers=[2])
    assert tagger.accuracy(read_conllu(folder / "en_ewt-ud-test.conllu")[::20]) > 0.85
