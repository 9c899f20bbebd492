"""Offsets of pieces, sliding windows and the decoding of answers, against other tokenizers and a brute-force search."""

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

from keras_posenc.checkpoints.tokenizer import SentencePiece, WordPiece
from training.data import offsets, squad, windows
from training.data.records import Question
from training.metrics.squad import normalise

pytest.importorskip("keras_hub")

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = list("abcdefghijklmnopqrstuvwxyz0123456789.,!?'\"()-«»中文äöüéß")
UGLY = [
    "Héllo, WÖRLD!  naïve Cafe\u0301s",
    "(中文)abc漢 18.5% don't",
    "zero\u200bwidth soft\u00adhyphen \ufffd \x00nul",
    "tab\tnew\nline\u3000wide\u2028line",
    "İstanbul ﬁne ½ Ⅷ …",
    "unknown ☃☃ ☃ snow☃man",
    "a" * 101 + " b",
    "",
]
TEXTS = [
    "the quick brown fox jumps over the lazy dog .",
    "she sells sea shells ; by the sea shore (in 1984) !",
    "pack my box with five dozen liquor jugs , please ?",
    "中文 字 漢字 东京 大学",
    "straße über äpfel et cœur ça",
] * 8


@pytest.fixture(scope="module")
def word_piece():
    pieces = ["hello", "world", "cafe", "don", "soft", "##hyphen", "zero", "##width", "sea", "shore"]
    return WordPiece(SPECIAL + pieces + LETTERS + ["##" + letter for letter in LETTERS])


def train_pieces(file, texts, **options):
    sentencepiece = pytest.importorskip("sentencepiece")
    with open(file, "wb") as stream:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=stream,
            hard_vocab_limit=False,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            user_defined_symbols=["[CLS]", "[SEP]", "[MASK]"],
            num_threads=1,
            minloglevel=2,
            **options,
        )
    return SentencePiece(file)


@pytest.fixture(scope="module")
def sentence_piece(tmp_path_factory):
    return train_pieces(tmp_path_factory.mktemp("pieces") / "spiece.model", TEXTS, vocab_size=120)


def test_offsets_of_word_pieces_are_those_of_transformers(word_piece):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertTokenizer(vocab={piece: i for i, piece in enumerate(word_piece.vocabulary)})
    for text, (ids, spans) in zip(UGLY, offsets.tokenize(word_piece, UGLY)):
        expected = theirs(text, add_special_tokens=False, return_offsets_mapping=True)
        assert ids == expected["input_ids"], text
        # Accents that are taken away belong to their letter here; there they belong to nothing at the end of a word.
        assert [start for start, _ in spans] == [start for start, _ in expected["offset_mapping"]], text
        ends = [end for _, end in expected["offset_mapping"]]
        assert all(ours == end or "\u0301" in text[end:ours] for (_, ours), end in zip(spans, ends)), text


def test_special_tokens_in_a_text_are_words(word_piece):
    text = "sea[MASK] shore"
    ((_, spans),) = offsets.tokenize(word_piece, [text])
    assert [text[start:end] for start, end in spans] == ["sea", "[MASK]", "shore"]


def test_offsets_of_sentence_pieces_are_those_of_sentencepiece(sentence_piece):
    """On text that our own normalisation leaves alone; pieces that are only a space come from no character here."""
    sentencepiece = pytest.importorskip("sentencepiece")
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(sentence_piece.file))
    texts = [*TEXTS[:4], "lazy ☃☃ sea ☃ ☃ dog☃s ☃", "☃", "fox 雪 雪男 (1984) dog", "a", "se\x00a sho\u00adre"]
    for text, (ids, spans) in zip(texts, offsets.tokenize(sentence_piece, texts)):
        expected = theirs.encode(text, return_type="proto").pieces
        assert ids == [piece.id for piece in expected]
        surfaces = [text.encode()[piece.begin : piece.end].decode().strip() for piece in expected]
        assert [text[start:end] for start, end in spans] == surfaces


def test_offsets_of_sentence_pieces_in_ugly_text(sentence_piece):
    """Every letter of the text is in exactly one piece, in order, whatever the normalisation did to it."""
    for text, (_, spans) in zip(UGLY, offsets.tokenize(sentence_piece, UGLY)):
        real = [(start, end) for start, end in spans if start < end]
        # One character can give several pieces ("½" is 1/2), so spans may repeat but not go back.
        assert all(left[0] <= right[0] and left[1] <= right[1] for left, right in itertools.pairwise(real)), text
        covered = {i for start, end in real for i in range(start, end)}
        assert all(i in covered for i, char in enumerate(text) if char.isalnum()), text


def test_accents_that_are_kept_can_be_unknown(sentence_piece):
    text = "sea\u0331 se\u0331a e\u0301t"
    keeping = SentencePiece(sentence_piece.file, keep_accents=True)
    ((ids, spans),) = offsets.tokenize(keeping, [text])
    unknown = [text[start:end] for i, (start, end) in zip(ids, spans) if i == keeping.ids["<unk>"]]
    assert unknown == ["\u0331", "\u0331", "e\u0301"]


def test_quotes_that_albert_joins(sentence_piece):
    text = "the ''lazy'' dog"
    ((ids, spans),) = offsets.tokenize(sentence_piece, [text])
    whole = "".join(text[start:end] for start, end in spans)
    assert whole == "the''lazy''dog" and len(ids) == len(spans)


def test_offsets_need_a_known_tokenizer():
    with pytest.raises(ValueError, match="Received: object"):
        offsets.tokenize(object(), ["x"])


CONTEXT = " ".join("abcdefghijklmnopqrstuvwxyz")
QUESTION = Question("1", "sea?", CONTEXT, [("n o", CONTEXT.index("n o"))])


def test_windows_cover_the_context_and_mark_the_answer(word_piece):
    made = windows.make([QUESTION], word_piece, max_length=15, stride=5, max_question=2)
    # Room for 15 - 3 - 2 = 10 tokens of 26: windows at 0, 5, 10, 15 and 20.
    shown = ["".join(word_piece.tokens(ids[4:])).split("[SEP]")[0] for ids in made.token_ids]
    assert shown == ["abcdefghij", "fghijklmno", "klmnopqrst", "pqrstuvwxy", "uvwxyz"]
    assert made.token_ids[:, :4].tolist() == [[word_piece.ids[t] for t in ("[CLS]", "sea", "?", "[SEP]")]] * 5
    assert made.segment_ids.tolist()[0] == [0] * 4 + [1] * 11
    assert made.padding_mask.sum(1).tolist() == [15, 15, 15, 15, 11]
    # n o are the letters 13 and 14: at the end of the second window and in the middle of the third.
    assert made.starts.tolist() == [0, 4 + 8, 4 + 3, 0, 0] and made.ends.tolist() == [0, 4 + 9, 4 + 4, 0, 0]
    assert made.question.tolist() == [0] * 5
    for w in range(5):
        for place in range(15):
            start, end = made.offsets[w, place]
            if start >= 0:
                assert CONTEXT[start:end] == word_piece.tokens([made.token_ids[w, place]])[0]


def test_each_token_is_scored_in_the_window_that_shows_most_around_it(word_piece):
    made = windows.make([QUESTION], word_piece, max_length=15, stride=5, max_question=2)
    places = made.offsets[made.scored][:, 0] // 2
    assert sorted(places) == list(range(26))
    # The margins of letter 7 are 2 in the first window (7 to 9) and 2 in the second (5 to 7); of 8, 1 and 3.
    assert [made.scored[0, 4 + 7], made.scored[1, 4 + 2], made.scored[0, 4 + 8], made.scored[1, 4 + 3]] == [1, 0, 0, 1]


@pytest.mark.parametrize("length", [1, 9, 10, 11, 14, 15, 16, 26])
@pytest.mark.parametrize("stride", [1, 3, 10, 40])
def test_no_token_is_skipped_and_no_window_is_idle(word_piece, length, stride):
    context = " ".join("abcdefghijklmnopqrstuvwxyz"[:length])
    made = windows.make([Question("1", "sea?", context, [])], word_piece, 15, stride, 2)
    last = [int(row.max()) for row in made.offsets[:, :, 1]]
    assert sorted(made.offsets[made.scored][:, 0] // 2) == list(range(length))
    assert last[-1] == len(context) and all(end < len(context) for end in last[:-1])


@pytest.mark.parametrize("length", [318, 319, 320, 640])
def test_a_token_is_scored_in_a_window_that_holds_it(length):
    """The hundredth that a long window has for its length must not win tokens that lie just behind it."""
    pieces = windows._cut(length, 317, 256)
    best = windows._best_window(length, pieces)
    assert all(pieces[w][0] <= place < pieces[w][1] for place, w in enumerate(best))


def test_best_answers_are_those_of_a_brute_force_search(word_piece, rng):
    questions = [QUESTION, Question("2", "shore", "hello world , sea", [])]
    made = windows.make(questions, word_piece, max_length=15, stride=5, max_question=2)
    start, end = rng.normal(size=(2, *made.token_ids.shape))
    start[:, 0], end[:, -1] = 50, 50  # [CLS], and a token that is padding or [SEP]
    found = windows.n_best(questions, made, start, end, n=5, max_answer_length=3)
    for index, question in enumerate(questions):
        best = {}
        for w in np.flatnonzero(made.question == index):
            for first, last in itertools.product(range(15), repeat=2):
                inside = made.offsets[w, first, 0] >= 0 and made.offsets[w, last, 0] >= 0
                if inside and made.scored[w, first] and 0 <= last - first < 3:
                    text = question.context[made.offsets[w, first, 0] : made.offsets[w, last, 1]]
                    best[text] = max(best.get(text, -np.inf), start[w, first] + end[w, last])
        (text, score), *_ = sorted(best.items(), key=lambda item: -item[1])
        assert found[question.id][0].text == text
        np.testing.assert_allclose(found[question.id][0].score, score, rtol=1e-5)
        assert len({answer.text for answer in found[question.id]}) == len(found[question.id]) <= 5
        assert all(question.context[a.start : a.end] == a.text for a in found[question.id])
    assert windows.predictions(found).keys() == {"1", "2"}


def test_logits_that_point_at_the_marked_span_give_the_answer(word_piece):
    made = windows.make([QUESTION], word_piece, max_length=15, stride=5, max_question=2)
    start, end = np.zeros((2, *made.token_ids.shape), "float32")
    start[np.arange(5), made.starts] = end[np.arange(5), made.ends] = 9
    assert windows.predictions(windows.n_best([QUESTION], made, start, end)) == {"1": "n o"}


def test_no_answer_is_chosen_where_it_is_allowed(word_piece):
    made = windows.make([QUESTION], word_piece, max_length=15, stride=5, max_question=2)
    start, end = np.zeros((2, *made.token_ids.shape), "float32")
    start[:, 0] = 3
    assert windows.n_best([QUESTION], made, start, end, allow_none=True)["1"][0].text == ""
    start[2, 0] = -3  # one window sees an answer
    assert windows.n_best([QUESTION], made, start, end, allow_none=True)["1"][0].text != ""


def test_wrong_arguments(word_piece):
    with pytest.raises(ValueError, match="Received: max_length=66, stride=5, max_question=64"):
        windows.make([QUESTION], word_piece, max_length=66, stride=5)
    made = windows.make([QUESTION], word_piece, max_length=15, stride=5, max_question=2)
    with pytest.raises(ValueError, match=r"Expected logits of shape \(5, 15\). Received: \(5, 14\)"):
        windows.n_best([QUESTION], made, np.zeros((5, 14)), np.zeros((5, 14)))


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("KERAS_POSENC_DATA"), reason="KERAS_POSENC_DATA is not set")
@pytest.mark.parametrize("language", ["en", "de", "zh", "ar"])
@pytest.mark.parametrize("kind", ["word", "sentence"])
def test_answers_of_xquad_survive_tokenisation(language, kind, word_piece, tmp_path):
    """The text between the offsets of the marked tokens is the answer, but for answers that end inside a piece.

    Word pieces know next to nothing here of any language: the hardest case for offsets.
    """
    questions = squad.read(Path(os.environ["KERAS_POSENC_DATA"]) / "xquad" / f"xquad.{language}.json")[::3]
    tokenizer = word_piece
    if kind == "sentence":
        texts = sorted({question.context for question in questions})
        tokenizer = train_pieces(tmp_path / "spiece.model", texts, vocab_size=4000, character_coverage=0.999)
    made = windows.make(questions, tokenizer, max_length=384, stride=128)
    texts = {}
    for w in np.flatnonzero(made.starts):
        question = questions[made.question[w]]
        texts[question.id] = question.context[made.offsets[w, made.starts[w], 0] : made.offsets[w, made.ends[w], 1]]
    right = [
        normalise(texts.get(question.id, ""), language) == normalise(question.answers[0][0], language)
        for question in questions
    ]
    assert np.mean(right) > 0.97
