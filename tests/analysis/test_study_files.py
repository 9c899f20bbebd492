"""Reading texts with ugly lines, and keeping finished pieces."""

import gzip
import json

import numpy as np
import pytest

from keras_posenc.analysis.study.store import Store, fingerprint
from keras_posenc.analysis.study.texts import add_tags, read_texts


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_lines_are_texts(tmp_path):
    path = write(tmp_path / "a.txt", '\ufeffFirst one.\r\n\r\n  "quoted" and\ttabbed  \nlast without end')
    texts, skipped = read_texts(path)
    assert [text.parts for text in texts] == [("First one.",), ('"quoted" and\ttabbed',), ("last without end",)]
    assert [text.line for text in texts] == [1, 3, 4]
    assert [(line.line, line.reason) for line in skipped] == [(2, "empty")]


def test_bad_lines_are_set_aside_with_their_reasons(tmp_path):
    path = write(tmp_path / "a.tsv", b"id\tone\ttwo\n1\ta b\tc\n2\tonly\n3\t\tc\n4\t\xff\xfe\tc\n5\tx\0\tc\n6\td\te\n")
    texts, skipped = read_texts(path, columns=["one", "two"])
    assert [text.row for text in texts] == [("a b", "c"), ("d", "e")]
    assert [(line.line, line.reason.split(":")[0]) for line in skipped] == [
        (3, "2 columns, and column 3 is needed"),
        (4, "an empty text"),
        (5, "not UTF-8"),
        (6, "a NUL character"),
    ]


def test_columns_by_number_and_compressed(tmp_path):
    with gzip.open(tmp_path / "a.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("h\th\n1\tä\n2\tb\n3\tc\n")
    texts, skipped = read_texts(tmp_path / "a.tsv.gz", columns=["2"], header=True, limit=2)
    assert [text.row for text in texts] == ["ä", "b"] and not skipped


def test_unknown_column_is_named(tmp_path):
    path = write(tmp_path / "a.tsv", "one\ttwo\n1\t2\n")
    with pytest.raises(ValueError, match="line 1: no column 'three'. Columns: one, two"):
        read_texts(path, columns=["one", "three"])
    with pytest.raises(ValueError, match="by number or by name"):
        read_texts(path, columns=["1", "two"])
    for columns in (["0"], ["1", "0"], [0]):
        with pytest.raises(ValueError, match="numbers from 1"):
            read_texts(path, columns=columns)


def test_a_header_that_is_not_utf8_has_no_names(tmp_path):
    path = write(tmp_path / "a.tsv", b"one\tzw\xf6lf\n1\t2\n")
    with pytest.raises(ValueError, match=r"a.tsv, line 1: not UTF-8"):
        read_texts(path, columns=["one"])
    texts, _ = read_texts(path, columns=["2"], header=True)
    assert [text.row for text in texts] == ["2"]


def test_conllu_brings_its_tags(tmp_path):
    rows = "# text = Dogs bark.\n1\tDogs\tdog\tNOUN" + "\t_" * 6 + "\n2\tbark\tbark\tVERB" + "\t_" * 6 + "\n\n"
    texts, skipped = read_texts(write(tmp_path / "a.conllu", rows))
    assert texts[0].parts == ("Dogs bark",) and texts[0].tags == ([("Dogs", "NOUN"), ("bark", "VERB")],)
    assert not skipped


def test_tags_from_a_file_beside(tmp_path):
    texts, _ = read_texts(write(tmp_path / "a.tsv", "dogs bark\tthey run\nx y\tz\n"), columns=["1", "2"])
    skipped = add_tags(texts, write(tmp_path / "tags", "NOUN VERB\tPRON VERB\nX\tX\n"))
    assert texts[0].tags == ([("dogs", "NOUN"), ("bark", "VERB")], [("they", "PRON"), ("run", "VERB")])
    assert texts[1].tags is None
    assert [(line.line, line.reason) for line in skipped] == [(2, "1 and 1 tags for 2 and 1 words; used without tags")]


def test_a_piece_comes_back_as_it_was(tmp_path):
    piece = {
        "a": np.arange(6.0).reshape(2, 3),
        "b": [1, 2.5, "text", None, {"c": np.int64(3)}],
        "d": np.array([], "int8"),
    }
    store = Store(tmp_path, {"seed": 0})
    assert not store.has("piece")
    store.put("piece", piece)
    again = Store(tmp_path, {"seed": 0}).get("piece")
    np.testing.assert_array_equal(again["a"], piece["a"])
    assert again["b"] == [1, 2.5, "text", None, {"c": 3}] and again["d"].dtype == np.int8


def test_another_study_is_refused(tmp_path):
    Store(tmp_path, {"seed": 0, "text": "a"})
    with pytest.raises(ValueError, match="seed: 0 there, 1 now"):
        Store(tmp_path, {"seed": 1, "text": "a"})
    Store(tmp_path, {"seed": 1, "text": "a"}, fresh=True)
    assert json.loads((tmp_path / "work" / "settings.json").read_text())["seed"] == 1


def test_a_damaged_piece_is_named_and_made_again(tmp_path):
    store = Store(tmp_path, {})
    store.put("x", {"n": np.arange(100)})
    path = tmp_path / "work" / "x.npz"
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(ValueError, match="x.npz is damaged"):
        store.get("x")
    assert not store.has("x")


def test_fingerprints_follow_the_content(tmp_path):
    file = write(tmp_path / "a", "text")
    first = fingerprint(file)
    assert fingerprint(write(tmp_path / "b", "text")) == first
    write(file, "texts")
    assert fingerprint(file) != first
