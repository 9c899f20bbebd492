"""XNLI in its three layouts."""

import os
import re

import pytest

from training.data import tables, xnli
from training.data.cross_lingual import Source

OFFICIAL = "language\tgold_label\tsentence1_binary_parse\tsentence1\tsentence2\tpromptID"


def write(folder, name, rows, end="\n"):
    (folder / name).write_bytes("".join(row + end for row in rows).encode())
    return folder / name


def load(folder, language, split):
    return Source("xnli", folder, [language], split, train=False).load(language)


def test_layout_of_xtreme(tmp_path):
    write(tmp_path, "dev-de.tsv", ['"Ja", sagte er.\tEr sprach.\tentailment', "A\tB\tcontradiction"], end="\r\n")
    data = load(tmp_path, "de", "dev")
    assert data.texts == [('"Ja", sagte er.', "Er sprach."), ("A", "B")]
    assert data.labels.tolist() == [0, 2] and data.label_names == ("entailment", "neutral", "contradiction")


def test_official_layout_has_all_languages_in_one_file(tmp_path):
    (tmp_path / "XNLI-1.0").mkdir()
    rows = [OFFICIAL, "ar\tneutral\t\tx\ty\t1", "de\tcontradiction\t\tu\tv\t1", "de\tentailment\t\ts\tt\t2"]
    file = write(tmp_path / "XNLI-1.0", "xnli.dev.tsv", rows)
    assert load(tmp_path, "de", "dev").texts == [("u", "v"), ("s", "t")]
    assert len(xnli.read(file)) == 3
    with pytest.raises(ValueError, match="language th.*expected examples, received none"):
        load(tmp_path, "th", "dev")


def test_translated_training_sets_write_contradictory(tmp_path):
    write(tmp_path, "multinli.train.de.tsv", ["premise\thypo\tlabel", "a\tb\tcontradictory"])
    assert load(tmp_path, "de", "train").labels.tolist() == [2]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a\tb", "expected 3 tab-separated columns, received 2"),
        ("a\t\tneutral", "expected a text, received nothing in second"),
        ("a\tb\tmaybe", "expected entailment, neutral, contradiction, received 'maybe'"),
        ("a\tb\tneutral\t", "expected 3 tab-separated columns, received 4"),
    ],
)
def test_ugly_rows_name_file_and_line(tmp_path, row, message):
    file = write(tmp_path, "test-sw.tsv", ["p\th\tneutral", row])
    with pytest.raises(ValueError, match=f"{re.escape(str(file))}:2: .*{message}"):
        load(tmp_path, "sw", "test")
    problems = tables.Problems("skip")
    assert len(xnli.read(file, "sw", problems)) == 1
    assert [(name, line) for name, line, _ in problems.found] == [(str(file), 2)]


@pytest.mark.skipif(not os.environ.get("KERAS_POSENC_DATA"), reason="KERAS_POSENC_DATA is not set")
@pytest.mark.parametrize("language", ["en", "de", "es", "ar", "ru", "zh", "sw"])
def test_real_files_have_as_many_rows_of_each_class(language):
    """XNLI has 830 and 1670 pairs of each class in each language."""
    for split, count in (("dev", 830), ("test", 1670)):
        labels = load(os.environ["KERAS_POSENC_DATA"], language, split).labels.tolist()
        assert [labels.count(index) for index in range(3)] == [count] * 3
