"""Token ids of the graph are those of the Python tokenizers, on text of every kind."""

import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from serving_export_subject import VOCABULARY, tokenizer

from keras_posenc import checkpoints
from keras_posenc.checkpoints.tokenizer import WordPiece
from serving.exporting import texts

UGLY = [
    "Héllo, WÖRLD! naïve café Café",
    "東京 中文abc漢字, 한국어 \U00020000豈",
    "emoji 😀👨\u200d👩\u200d👧 ok",
    "a" * 100,
    "a" * 101,
    "привет" * 16,  # 96 letters, 192 bytes
    "привет" * 17,
    "😀" * 100,
    "สวัสดีครับ" * 5,
    "Straße ΣΊΣΥΦΟΣ İstanbul ΑΣ. Σ ΣΣΣ",
    "tab\tnew\nline\r\x0bvertical\x85next\u00a0hard\u2009thin\u3000wide\u2028line\u2029paragraph",
    "zero\u200bwidth soft\u00adhyphen \ufeffbom \ufffd \x00nul \ue000private \U000f0000\U0010ffff",
    "$100 ^_^ `x` ``quoted'' <a=b> ~| don't U.S.A. 3.14",
    "[MASK] the[MASK]world [mask] [SEP] [UNK][PAD] [MA\u200bSK] [[MASK]] <pad> [CLS",
    "cafe\u0301 e\u0301 a\u0323\u0307 a\u0307\u0323 ﬁ ½ ² ① ¨ ﷺ",
    "##the ## \\1 \\",
    "",
    " \n ",
]
# Each alone, inside a word and before a combining mark: all that changes, and a sample of the rest.
CHARACTERS = [
    chr(code)
    for code in range(0x110000)
    if not 0xD800 <= code < 0xE000
    and (
        code % 61 == 0
        if unicodedata.category(chr(code)) in ("Lo", "Cn", "Co", "So")
        else code < 0x3000 or code % 3 == 0
    )
]


def test_word_pieces(tmp_path):
    ours = tokenizer()
    graph = texts.in_graph(ours, 12, tmp_path)
    given = UGLY + [f"{char} a{char}b{char}\u0301" for char in CHARACTERS]
    found, expected = graph.tokenize(tf.constant([text.encode() for text in given])).to_list(), ours.tokenize(given)
    differing = [text for text, a, b in zip(given, found, expected) if a != b]
    assert not differing, differing[:5]


def test_word_pieces_of_a_cased_vocabulary(tmp_path):
    """And one without [MASK], whose places are unknown then."""
    pieces = [piece for piece in VOCABULARY if piece != "[MASK]"]
    ours = WordPiece(pieces, lowercase=False, strip_accents=True, split_ideographs=False)
    graph = texts.in_graph(ours, 12, tmp_path)
    found = graph.tokenize(tf.constant([text.encode() for text in UGLY])).to_list()
    for text, ids, expected in zip(UGLY, found, ours.tokenize(UGLY)):
        assert ids == expected, repr(text)


def test_pairs_truncation_and_padding(tmp_path):
    ours = tokenizer()
    graph = texts.in_graph(ours, 40, tmp_path)
    rows = [
        ("the hello world the hello", "world"),
        ("the", "hello world the hello the"),
        ("the hello world the", "a b c d"),
        ("", "the"),
        ("the hello world the hello world", ""),
        ("", ""),
    ]
    for max_length in (3, 4, 7, 8, 12, 40):
        graph.max_length = max_length
        found = graph(*(tf.constant([row[i] for row in rows]) for i in (0, 1)))
        expected = ours.encode([row if row[1] else row[0] for row in rows], max_length)
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=f"{name}, {max_length}")


def test_bytes_that_are_no_text(tmp_path):
    """What is not UTF-8 is dropped as U+FFFD is, and does not reach the marks between special tokens."""
    graph = texts.in_graph(tokenizer(), 12, tmp_path)
    found = graph.tokenize(tf.constant([b"the\xff[MASK]\xffworld\xc3", b"\xff\xfe"])).to_list()
    assert found == tokenizer().tokenize(["the[MASK]world", ""])


def test_what_cannot_be_exported(tmp_path):
    with pytest.raises(ValueError, match="at least 3"):
        texts.in_graph(tokenizer(), 2, tmp_path)
    with pytest.raises(ValueError, match="Received: str"):
        texts.in_graph("tokenizer", 12, tmp_path)


@pytest.mark.parametrize("options", ["{}", '{"do_lower_case": false, "keep_accents": true}'])
def test_sentence_pieces(options, tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    sentences = ["the quick brown fox jumps over the lazy dog", "pack my box with five dozen jugs", "cafe σίσυφος"]
    with open(tmp_path / "spiece.model", "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences * 10),
            model_writer=file,
            vocab_size=60,
            hard_vocab_limit=False,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            user_defined_symbols=["[CLS]", "[SEP]", "[MASK]"],
            minloglevel=2,
        )
    (tmp_path / "tokenizer_config.json").write_text(options)
    ours = checkpoints.load_tokenizer(tmp_path)
    graph = texts.in_graph(ours, 9, tmp_path)
    given = UGLY + [f"{char} a{char}b" for char in CHARACTERS[::4]]
    found, expected = graph.tokenize(tf.constant([text.encode() for text in given])).to_list(), ours.tokenize(given)
    differing = [text for text, a, b in zip(given, found, expected) if a != b]
    assert not differing, differing[:5]
    rows = [("The  QUICK fox", "café Society"), ("box", "")]
    found = graph(*(tf.constant([row[i] for row in rows]) for i in (0, 1)))
    for name, value in ours.encode([rows[0], "box"], 9).items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    assert found["tokens"].numpy()[1].tolist()[0] == b"[CLS]"
