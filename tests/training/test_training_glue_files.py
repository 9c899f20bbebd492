"""GLUE's files and tables of one's own: official layouts, real counts, and every ugly row with its file and line."""

import gzip
import os
import re
from pathlib import Path

import numpy as np
import pytest

from training.data import glue, tables

MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"


def write(folder, name, rows, end="\n", prefix=b""):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    data = prefix + "".join(row + end for row in rows).encode()
    file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return file


def fails(match_file, line, expected, received):
    """The error names file and line, what was expected and what was received."""
    return pytest.raises(
        ValueError, match=f"{re.escape(match_file)}:{line}: .*{re.escape(expected)}.*{re.escape(received)}"
    )


def test_quotes_are_letters(tmp_path):
    """A quote that opens and never closes, which the csv module would read on over the next lines."""
    rows = [MRPC, '1\t1\t2\t" He said so .\tHe " said " so .', '0\t3\t4\t"a"\t"b']
    write(tmp_path, "MRPC/train.tsv", rows)
    data = glue.load("mrpc", tmp_path, "train")
    assert data.texts == [('" He said so .', 'He " said " so .'), ('"a"', '"b')]
    assert data.labels.tolist() == [1, 0] and data.labels.dtype == np.int32
    assert data.label_names == ("not_equivalent", "equivalent")


@pytest.mark.parametrize("name", ["train.tsv", "train.tsv.gz"])
def test_byte_order_mark_crlf_gzip_and_blank_end(tmp_path, name):
    write(tmp_path, f"MRPC/{name}", [MRPC, "1\t1\t2\ta\tb", "", ""], end="\r\n", prefix=tables.BOM)
    assert glue.load("MRPC", tmp_path, "train").texts == [("a", "b")]
    assert glue.load("mrpc", tmp_path / "MRPC", "train").texts == [("a", "b")]


def test_unicode_line_separators_do_not_end_a_line(tmp_path):
    write(tmp_path, "SST-2/dev.tsv", ["sentence\tlabel", "one\u2028two\x85three\t1"])
    assert glue.load("sst2", tmp_path, "validation").first == ["one\u2028two\x85three"]


@pytest.mark.parametrize(
    ("row", "expected", "received"),
    [
        ("1\t1\t2\ta", "5 tab-separated columns", "received 4"),
        ("1\t1\t2\ta\tb\tc", "5 tab-separated columns", "received 6"),
        ("1\t1\t2\t\tb", "a text", "nothing in first"),
        ("1\t1\t2\ta\t \u00a0", "a text", "nothing in second"),
        ("\t1\t2\ta\tb", "a text", "nothing in label"),
        ("2\t1\t2\ta\tb", "0, 1 or not_equivalent, equivalent", "received '2'"),
        ("", "5 tab-separated columns", "a blank line"),
    ],
)
def test_ugly_rows_name_file_and_line(tmp_path, row, expected, received):
    good = "1\t1\t2\ta\tb"
    file = write(tmp_path, "MRPC/train.tsv", [MRPC, good, row, good])
    with fails(str(file), 3, expected, received):
        glue.load("mrpc", tmp_path, "train")
    problems = tables.Problems("skip")
    assert len(glue.load("mrpc", tmp_path, "train", on_error=problems)) == 2
    ((where, line, message),) = problems.found
    assert (where, line) == (str(file), 3) and received in message
    assert f"1 rows left out: {file}:3" in problems.report()


def test_undecodable_bytes(tmp_path):
    file = write(tmp_path, "SST-2/train.tsv", ["sentence\tlabel", "fine\t1"])
    file.write_bytes(file.read_bytes() + "caf\u00e9\t0\n".encode("latin-1") + b"good\t0\n")
    with fails(str(file), 3, "UTF-8", "b'\\xe9' at byte 4"):
        glue.load("sst2", tmp_path, "train")
    assert glue.load("sst2", tmp_path, "train", on_error="skip").first == ["fine", "good"]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_truncated_gzip_is_an_error_at_the_line_where_it_ends(tmp_path, on_error):
    rng = np.random.default_rng(0)
    rows = [f"{rng.integers(1 << 60)} {rng.integers(1 << 60)}\t1" for _ in range(2000)]
    file = write(tmp_path, "SST-2/train.tsv.gz", ["sentence\tlabel", *rows])
    file.write_bytes(file.read_bytes()[:20000])
    with pytest.raises(ValueError, match=rf"{re.escape(str(file))}:(\d+): the gzip data end") as error:
        glue.load("sst2", tmp_path, "train", on_error=on_error)
    line = int(re.search(r"gz:(\d+):", str(error.value)).group(1))
    assert 500 < line < 2000


@pytest.mark.parametrize(
    ("name", "rows", "expected", "received"),
    [
        ("mrpc", ["a\tb\tc", "1\t2\t3"], "'#1 String' or 'sentence1'", "['a', 'b', 'c']"),
        ("mrpc", [], "a header", "an empty file"),
        ("cola", ["gj04\t1\tA sentence."], "4 tab-separated columns", "received 3"),
    ],
)
def test_wrong_headers(tmp_path, name, rows, expected, received):
    file = write(tmp_path, "train.tsv", rows)
    with fails(str(file), 1, expected, received):
        glue.load(name, tmp_path, "train")


def test_cola_has_a_header_in_its_test_set_only(tmp_path):
    write(tmp_path, "CoLA/train.tsv", ["gj04\t1\t\tOne.", "gj04\t0\t*\tTwo one."])
    write(tmp_path, "CoLA/test.tsv", ["index\tsentence", "0\tThree."])
    train, test = (glue.load("CoLA", tmp_path, split) for split in ("train", "test"))
    assert train.first == ["One.", "Two one."] and train.labels.tolist() == [1, 0] and train.second is None
    assert test.first == ["Three."] and test.labels is None


def test_qqp_broken_rows_are_left_out_and_empty_questions_kept(tmp_path):
    """The official file has questions with a line break in them, and one that is empty: others' counts are without
    the former and with the latter."""
    rows = [QQP, "1\t1\t2\twhy\twhy not\t0", "2\t3\t4\tbroken", "in two\tx\t1", "3\t5\t6\twhat?\t\t0"]
    file = write(tmp_path, "QQP/dev.tsv", rows)
    problems = tables.Problems()
    data = glue.load("qqp", tmp_path, "dev", on_error=problems)
    assert data.texts == [("why", "why not"), ("what?", "")]
    assert [(where, line) for where, line, _ in problems.found] == [(str(file), 3), (str(file), 4)]


def test_stsb_scores(tmp_path):
    header = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
    row = "0\tg\tf\t2012\t1\ts\ts\tA plane.\tAn air plane.\t"
    file = write(tmp_path, "STS-B/train.tsv", [header, row + "5.000", row + "0.25"])
    data = glue.load("sts-b", tmp_path, "train")
    assert data.labels.dtype == np.float32 and data.labels.tolist() == [5.0, 0.25] and data.label_names is None
    for bad in ("5.5", "nan", "high"):
        write(tmp_path, "STS-B/train.tsv", [header, row + bad])
        with fails(str(file), 2, "a number from 0 to 5", f"'{bad}'"):
            glue.load("sts-b", tmp_path, "train")


def test_mnli_has_two_dev_sets_and_rows_without_agreement(tmp_path):
    header = "index\tpairID\tsentence1\tsentence2\tlabel1\tgold_label"
    for name, label in (("matched", "contradiction"), ("mismatched", "neutral")):
        write(tmp_path, f"MNLI/dev_{name}.tsv", [header, f"0\tx\tp\th\tneutral\t{label}", "1\tx\tp\th\tneutral\t-"])
    assert glue.task("mnli").dev_splits == ("dev_matched", "dev_mismatched")
    loaded = {split: glue.load("mnli", tmp_path, split).labels.tolist() for split in ("dev", "dev_mismatched")}
    assert loaded == {"dev": [2], "dev_mismatched": [1]}


def test_rte_and_qnli(tmp_path):
    write(tmp_path, "RTE/dev.tsv", ["index\tsentence1\tsentence2\tlabel", "0\ta\tb\tnot_entailment"])
    write(tmp_path, "QNLI/dev.tsv", ["index\tquestion\tsentence\tlabel", "0\tWhat?\tThat.\tentailment"])
    assert glue.load("rte", tmp_path, "dev").labels.tolist() == [1]
    assert glue.load("qnli", tmp_path, "dev").texts == [("What?", "That.")]


def test_unknown_tasks_splits_and_files(tmp_path):
    with pytest.raises(ValueError, match="Unknown task 'wnlx'. Known: mnli, qqp"):
        glue.load("wnlx", tmp_path, "dev")
    with pytest.raises(ValueError, match="has no split 'evaluation'. It has: train, dev, test"):
        glue.load("rte", tmp_path, "evaluation")
    with pytest.raises(FileNotFoundError, match="None of dev.tsv.*in .*RTE"):
        glue.load("rte", tmp_path, "dev")
    with pytest.raises(ValueError, match="'raise' or 'skip'"):
        glue.load("rte", tmp_path, "dev", on_error="ignore")


def test_custom_single_texts(tmp_path):
    write(tmp_path, "mine/train.tsv", ["good\tpos", "bad\tneg", "fair\tneutral"])
    dev = write(tmp_path, "mine/dev.tsv", ["so\tneutral", "ugh\tterrible"])
    write(tmp_path, "mine/test.tsv", ["no label"])
    train = glue.load("custom:mine", tmp_path, "train")
    assert train.label_names == ("neg", "neutral", "pos") and train.labels.tolist() == [2, 0, 1]
    with fails(str(dev), 2, "one of the training file (neg, neutral, pos)", "'terrible'"):
        glue.load("custom:mine", tmp_path, "dev")
    assert glue.load("custom:mine", tmp_path, "dev", on_error="skip").labels.tolist() == [1]
    test = glue.load("custom:mine", tmp_path, "test")
    assert test.first == ["no label"] and test.labels is None


def test_custom_pairs_header_numbers_and_scores(tmp_path):
    write(tmp_path, "train.tsv", ["a\tb\tLabel", "x\ty\t10", "x\tz\t9"])
    data = glue.load("custom:", tmp_path, "train")
    assert data.texts == [("x", "y"), ("x", "z")] and data.label_names == ("9", "10")
    file = write(tmp_path, "train.tsv", ["x\ty\t1", "x\tz\t0.5"])
    data = glue.load("custom:", tmp_path, "train")
    assert data.label_names is None and data.labels.tolist() == [1.0, 0.5]
    for rows, line, expected, received in (
        (["x\ty\ta", "x\tb"], 2, "3 tab-separated columns", "received 2"),
        (["x\ty\ta", "x\t\tb"], 2, "a text", "nothing in second"),
        (["alone"], 1, "text<TAB>label", "1 columns"),
        ([f"text\t{i} words" for i in range(1100)], 1001, "labels in column 2", "more than 1000"),
    ):
        write(tmp_path, "train.tsv", rows)
        with fails(str(file), line, expected, received):
            glue.load("custom:", tmp_path, "train")


COUNTS = {
    ("mrpc", "train"): 3668,
    ("mrpc", "dev"): 408,
    ("mrpc", "test"): 1725,
    ("cola", "train"): 8551,
    ("cola", "dev"): 1043,
    ("cola", "test"): 1063,
    ("sst2", "train"): 67349,
    ("sst2", "dev"): 872,
    ("sst2", "test"): 1821,
    ("qnli", "dev"): 5463,
    ("qnli", "test"): 5463,
    ("mnli", "dev_matched"): 9815,
}


@pytest.mark.skipif(not os.environ.get("KERAS_POSENC_DATA"), reason="KERAS_POSENC_DATA is not set")
@pytest.mark.parametrize(("name", "split"), COUNTS)
def test_real_files_have_the_official_number_of_rows(name, split):
    folder = Path(os.environ["KERAS_POSENC_DATA"]) / "glue"
    problems = tables.Problems()
    assert len(glue.load(name, folder, split, on_error=problems)) == COUNTS[name, split]
    assert not problems.found


@pytest.mark.skipif(not os.environ.get("KERAS_POSENC_DATA"), reason="KERAS_POSENC_DATA is not set")
def test_subsets_of_real_files_are_found_by_their_names():
    folder = Path(os.environ["KERAS_POSENC_DATA"]) / "glue"
    assert len(glue.load("qqp", folder, "train")) == 20000 and len(glue.load("qqp", folder, "dev")) == 3496
    assert len(glue.load("mnli", folder, "train")) == 23681
