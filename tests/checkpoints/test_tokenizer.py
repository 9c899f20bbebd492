"""Token ids are those of transformers' tokenizers, and of sentencepiece."""

import json
import unicodedata

import numpy as np
import pytest

from keras_posenc import checkpoints
from keras_posenc.checkpoints import bert_text, tokenizer

pytest.importorskip("keras_hub")

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = list("abcdefghijklmnopqrstuvwxyz0123456789.,!?$^`~|<>=+-_'\"[]()東中文漢字éïßςσ한привет😀สวัดีคร")
WORDS = ["the", "hello", "world", "cafe", "naive", "The", "Hello", "café", "привет", "—", "…"]

UGLY = [
    "Héllo, WÖRLD! naïve café Café",
    "東京 中文abc漢字, 한국어",
    "emoji 😀👨\u200d👩\u200d👧 ok",
    "a" * 100,
    "a" * 101,
    "привет" * 16,  # 96 letters, 192 bytes
    "привет" * 17,
    "สวัสดีครับ" * 5,
    "Straße ΣΊΣΥΦΟΣ İstanbul",
    "tab\tnew\nline\r\x0bvertical\x85next\u00a0hard\u2009thin\u3000wide\u2028line\u2029paragraph",
    "zero\u200bwidth soft\u00adhyphen \ufeffbom \ufffd \x00nul \ue000private",
    "$100 ^_^ `x` <a=b> ~| don't U.S.A. 3.14",
    "[MASK] the[MASK]world [mask] [SEP] [UNK]",
    "cafe\u0301 e\u0301 ﬁ ½ ² ①",
    "",
    " \n ",
    "##the ##",
]


@pytest.fixture
def vocabulary():
    return SPECIAL + WORDS + LETTERS + ["##" + piece for piece in LETTERS + ["the", "world", "привет"]]


def write(folder, vocabulary, **options):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    return folder


def theirs(vocabulary, **options):
    transformers = pytest.importorskip("transformers")
    return transformers.BertTokenizer(vocab={piece: i for i, piece in enumerate(vocabulary)}, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"do_lower_case": True},
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
    ],
    ids=str,
)
def test_ugly_text(options, vocabulary, tmp_path):
    ours, other = tokenizer.load_tokenizer(write(tmp_path, vocabulary, **options)), theirs(vocabulary, **options)
    for text in UGLY:
        found = ours.encode(text)["token_ids"][0].tolist()
        assert ours.tokens(found) == other.convert_ids_to_tokens(other(text)["input_ids"]), repr(text)


def test_every_character_of_unicode_3(vocabulary):
    """Each alone and inside a word. Later versions of Unicode are left out: transformers does not know all of them."""
    pytest.importorskip("transformers")
    old = unicodedata.ucd_3_2_0.category
    characters = [
        chr(code)
        for code in range(0x20000)
        if old(chr(code)) not in ("Cn", "Cs")
        and old(chr(code)) == unicodedata.category(chr(code))
        and (old(chr(code)) not in ("Lo", "Co") or code % 10 == 0)  # a tenth of the many ideographs
    ]
    assert len(characters) > 5000
    ours, other = tokenizer.WordPiece(vocabulary), theirs(vocabulary)
    texts = [f"{char} a{char}b" for char in characters]
    expected = other(texts, add_special_tokens=False)["input_ids"]
    differing = [char for char, a, b in zip(characters, ours.tokenize(texts), expected) if a != b]
    assert not differing, [f"U+{ord(char):04X}" for char in differing]


@pytest.mark.parametrize("max_length", [None, 3, 4, 7, 8, 12, 40])
def test_pairs_padding_and_truncation(max_length, vocabulary):
    ours, other = tokenizer.WordPiece(vocabulary), theirs(vocabulary)
    texts = [
        ("the hello world the hello", "world"),
        ("the", "hello world the hello the"),
        ("the hello world the", "a b c d"),
        ("", "the"),
    ]
    for rows in (texts, [a for a, _ in texts]):
        found = ours.encode(rows, max_length)
        columns = list(zip(*rows)) if rows is texts else [rows]
        expected = other(
            *(list(column) for column in columns),
            padding=True,
            truncation=max_length is not None,
            max_length=max_length,
        )
        for name, key in (
            ("token_ids", "input_ids"),
            ("segment_ids", "token_type_ids"),
            ("padding_mask", "attention_mask"),
        ):
            assert found[name].dtype == np.int32
            np.testing.assert_array_equal(found[name], expected[key], err_msg=name)


def test_decode_and_tokens(vocabulary):
    ours = tokenizer.WordPiece(vocabulary)
    ids = ours.encode(["Hello theworld", "the"])["token_ids"]
    assert ours.tokens(ids[0]) == ["[CLS]", "hello", "the", "##world", "[SEP]"]
    assert ours.decode(ids[0]) == "hello theworld"
    assert ours.decode(ids[1]) == "the"  # padding is no text
    assert ours.vocabulary == vocabulary and ours.mask_id == 4


def test_tokenizer_json_alone(vocabulary, tmp_path):
    """The vocabulary and the treatment of case are read from `tokenizer.json` where there is no `vocab.txt`."""
    for lowercase in (True, False):
        folder = tmp_path / str(lowercase)
        theirs(vocabulary, do_lower_case=lowercase).save_pretrained(folder)
        (folder / "tokenizer_config.json").unlink()
        assert not (folder / "vocab.txt").exists()
        ours = tokenizer.load_tokenizer(folder)
        assert ours.vocabulary == vocabulary and ours.lowercase == lowercase
        assert ours.tokens(ours.encode("The Hello")["token_ids"])[1:-1] == (
            ["the", "hello"] if lowercase else ["The", "Hello"]
        )


def test_ids_with_gaps_are_refused(vocabulary, tmp_path):
    """Numbered by their order, the pieces behind a gap would have the embeddings of others."""
    theirs(vocabulary).save_pretrained(tmp_path)
    whole = json.loads((tmp_path / "tokenizer.json").read_text())
    del whole["model"]["vocab"][vocabulary[7]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    with pytest.raises(ValueError, match=r"must be 0 to \d+. Missing: 7. Put a vocab.txt"):
        tokenizer.load_tokenizer(tmp_path)


def test_case_is_guessed_from_the_vocabulary_alone(vocabulary, tmp_path):
    lowered = [piece for piece in vocabulary if piece in SPECIAL or piece == piece.lower()]
    for pieces, lowercase in ((vocabulary, False), (lowered, True)):
        folder = write(tmp_path / str(lowercase), pieces)
        (folder / "tokenizer_config.json").unlink()
        assert tokenizer.load_tokenizer(folder).lowercase == lowercase


def test_a_saved_tokenizer_is_the_same(vocabulary, tmp_path):
    ours = tokenizer.WordPiece(vocabulary, lowercase=False, strip_accents=True)
    ours.save(tmp_path)
    again = tokenizer.load_tokenizer(tmp_path)
    assert again.tokenize(UGLY) == ours.tokenize(UGLY)


def test_vocabularies_that_are_no_word_pieces(tmp_path):
    """The SMILES vocabularies of chemistry models are cut by regular expressions, not into word pieces."""
    folder = write(tmp_path / "smiles", SPECIAL + list("CNO=#()"))
    assert not tokenizer.found(folder)
    with pytest.raises(ValueError, match="not one of word pieces"):
        tokenizer.load_tokenizer(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="vocab.txt, tokenizer.json, spiece.model"):
        tokenizer.load_tokenizer(tmp_path / "empty")


def test_what_encode_refuses(vocabulary):
    ours = tokenizer.WordPiece(vocabulary)
    with pytest.raises(ValueError, match="strings and pairs"):
        ours.encode([("a", "b", "c")])
    with pytest.raises(ValueError, match="at least 3"):
        ours.encode(["a"], max_length=2)


def test_words_by_hand():
    assert bert_text.words("Don't, 東京!") == ["don", "'", "t", ",", "東", "京", "!"]
    assert bert_text.words("ÀÉ x\u200dy", lowercase=False) == ["ÀÉ", "xy"]


def train_pieces(folder, special):
    """Writes a `spiece.model`; returns it as the sentencepiece package reads it."""
    sentencepiece = pytest.importorskip("sentencepiece")
    sentences = ["the quick brown fox jumps over the lazy dog", "pack my box with five dozen jugs", "cafe society"]
    with open(folder / "spiece.model", "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences * 10),
            model_writer=file,
            vocab_size=50,
            hard_vocab_limit=False,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            user_defined_symbols=special,
            minloglevel=2,
        )
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))


def test_special_tokens_that_sentence_pieces_lack_are_unknown(tmp_path):
    reference = train_pieces(tmp_path, ["[CLS]", "[SEP]"])
    ours = checkpoints.load_tokenizer(tmp_path)
    assert ours.mask_id is None
    assert ours.tokenize(["the [MASK] fox"]) == [[*reference.encode("the"), 1, *reference.encode("fox")]]


def test_sentence_pieces(tmp_path):
    """ALBERT's `spiece.model`: ids of the sentencepiece package on lowered text without accents; and transformers'."""
    reference = train_pieces(tmp_path, ["[CLS]", "[SEP]", "[MASK]"])
    ours = checkpoints.load_tokenizer(tmp_path)
    found = ours.encode([("The  QUICK fox", "café Society"), "box"])
    first, second = reference.encode("the quick fox"), reference.encode("cafe society")
    cls, sep = reference.piece_to_id("[CLS]"), reference.piece_to_id("[SEP]")
    length = len(first) + 2
    assert found["token_ids"][0].tolist() == [cls, *first, sep, *second, sep]
    assert found["segment_ids"][0].tolist() == [0] * length + [1] * (len(second) + 1)
    assert found["token_ids"][1, -1] == 0 and found["padding_mask"][1].sum() == len(reference.encode("box")) + 2
    assert ours.decode(found["token_ids"][0, :length]) == "the quick fox"
    (tmp_path / "again").mkdir()
    ours.save(tmp_path / "again")
    assert checkpoints.load_tokenizer(tmp_path / "again").tokenize(["jugs"]) == [reference.encode("jugs")]
    transformers = pytest.importorskip("transformers")
    other = transformers.AlbertTokenizer.from_pretrained(tmp_path)
    for text in ("The  QUICK fox", "café ``Society''", "Żółw ½ ﬁ [MASK] dog [SEP]", "lazy, dog 12,3", "", " jugs "):
        assert ours.encode(text)["token_ids"][0].tolist() == other(text)["input_ids"], text
