"""Parallel files and running text."""

import gzip
import os
import re
from pathlib import Path

import pytest

from training.data import parallel, prose, tables


def write(file, text):
    data = text if isinstance(text, bytes) else text.encode()
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)
    return file


def test_pairs_of_lines(tmp_path):
    write(tmp_path / "train.en", tables.BOM + b"one\r\ntwo\r\n")
    write(tmp_path / "train.de.gz", "eins\nzwei\u2028drei\n")
    pairs = parallel.load_folder(tmp_path, "train", "en", "de")
    assert pairs.source == ["one", "two"] and pairs.target == ["eins", "zwei\u2028drei"]
    back = parallel.load([tmp_path / "train.de.gz"] * 2, [tmp_path / "train.en"] * 2)
    assert len(back) == 4 and back.target == ["one", "two"] * 2


@pytest.mark.parametrize(("source", "target", "short"), [("a\nb\n", "x\n", "de"), ("a\n", "x\ny\nz\n", "en")])
def test_different_numbers_of_lines_are_an_error_at_the_end_of_the_shorter(tmp_path, source, target, short):
    files = [write(tmp_path / "t.en", source), write(tmp_path / "t.de", target)]
    for on_error in ("raise", "skip"):
        with pytest.raises(
            ValueError,
            match=rf"{re.escape(str(tmp_path))}/t\.{short}:2: .*as many lines.*received the end of the file after 1",
        ):
            parallel.load(*files, on_error=on_error)


def test_a_pair_with_an_empty_side_is_left_out_and_reported(tmp_path):
    files = [write(tmp_path / "t.en", "a\n\nc\nd\n"), write(tmp_path / "t.de", "x\ny\n \nz\n")]
    problems = tables.Problems()
    pairs = parallel.load(*files, on_error=problems)
    assert list(zip(pairs.source, pairs.target)) == [("a", "x"), ("d", "z")]
    assert [(name, line) for name, line, _ in problems.found] == [(str(files[0]), 2), (str(files[1]), 3)]


def test_an_undecodable_line_does_not_shift_the_others(tmp_path):
    files = [write(tmp_path / "t.en", b"a\n\xff\nc\n"), write(tmp_path / "t.de", "x\ny\nz\n")]
    with pytest.raises(ValueError, match=r"t\.en:2: expected UTF-8, received the bytes b'\\xff'"):
        parallel.load(*files)
    pairs = parallel.load(*files, on_error="skip")
    assert list(zip(pairs.source, pairs.target)) == [("a", "x"), ("c", "z")]


def test_an_undecodable_last_line_is_a_pair_less(tmp_path):
    files = [write(tmp_path / "t.en", b"a\n\xff\n"), write(tmp_path / "t.de", "x\ny\n")]
    assert parallel.load(*files, on_error="skip").source == ["a"]


def test_truncated_gzip_and_missing_files(tmp_path):
    files = [write(tmp_path / "t.en.gz", "a\nb\n"), write(tmp_path / "t.de", "x\ny\n")]
    files[0].write_bytes(files[0].read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"t\.en\.gz:\d: the gzip data end"):
        parallel.load(*files)
    with pytest.raises(FileNotFoundError, match="None of dev.en"):
        parallel.load_folder(tmp_path, ["dev"], "en", "de")
    with pytest.raises(ValueError, match="Received: 1 and 2"):
        parallel.load(files[0], [files[1]] * 2)


def test_documents_end_with_a_blank_line(tmp_path):
    write(tmp_path / "a.txt.gz", "\n\nFirst. One.\nsecond\r\n \nThird\n\n\n")
    write(tmp_path / "b.txt", "Fourth")
    files = [tmp_path / "a.txt.gz", tmp_path / "b.txt"]
    assert list(prose.documents(files)) == [["First. One.", "second"], ["Third"], ["Fourth"]]
    assert next(prose.documents_of_sentences(files)) == ["First.", "One.", "second"]


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. Smith saw Dr. A. B. Jones at 3 p.m. Tuesday.", "He ran!", "Why?", '"No," he said.'],
        ["It cost $3.50, i.e. nothing.", '"Go."', "(She went.)", "1984 came."],
        ["Das ist z.B. Unsinn.", "Der Sprecher sagte: «Nein!»", "Danach ging er."],
        ["他说：“不。”", "然后走了！", "真的？"],
        ["Wait... what is it?", "I am I.", "You are."],
        ["¿Qué?", "¡No!", "Él se fue."],
        ["यह है।", "वह है।"],
    ],
)
def test_sentences(sentences):
    joined = ("" if sentences[0][0] == "他" else " ").join(sentences)
    assert prose.sentences(joined) == sentences


@pytest.mark.skipif(not os.environ.get("KERAS_POSENC_DATA"), reason="KERAS_POSENC_DATA is not set")
@pytest.mark.parametrize(
    ("folder", "split", "target", "count"),
    [
        ("multi30k", "train", "de", 29000),
        ("multi30k", "test_2016_flickr", "cs", 1000),
        ("wmt/en-de", "newstest2018", "de", 2998),
        ("wmt/en-cs", "newstest2017", "cs", 3005),
        ("wmt/en-de", "newstest2009", "de", 2525),
    ],
)
def test_real_parallel_files_have_the_official_number_of_pairs(folder, split, target, count):
    """The German side of newstest2009 has Unicode line separators in it."""
    folder = Path(os.environ["KERAS_POSENC_DATA"]) / folder
    assert len(parallel.load_folder(folder, split, "en", target)) == count


@pytest.mark.skipif(not os.environ.get("KERAS_POSENC_DATA"), reason="KERAS_POSENC_DATA is not set")
def test_the_brown_corpus_has_500_documents():
    """Its lines are sentences, so that few may be split."""
    file = Path(os.environ["KERAS_POSENC_DATA"]) / "english_prose" / "brown.txt"
    documents = list(prose.documents(file))
    lines = sum(map(len, documents))
    assert len(documents) == 500
    assert sum(len(prose.sentences(line)) for document in documents for line in document) < 1.02 * lines
