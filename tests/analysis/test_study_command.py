"""`python -m keras_posenc.analysis` on a small model: what it writes, what it skips, and going on after a stop."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
import warnings

import keras
import numpy as np
import pytest

from keras_posenc import checkpoints, models
from keras_posenc.analysis.__main__ import main
from keras_posenc.analysis.effective import effective_attention
from keras_posenc.analysis.running import Runner, batches, select
from keras_posenc.checkpoints.tokenizer import WordPiece

WORDS = "the a dog cat bird sees hears they it . , big small red runs".split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s"]
QUICK = ["--folds", "3", "--pattern-maps", "60", "--examples", "2", "--max-length", "24"]


def save(folder, seed=0, **options):
    keras.utils.set_random_seed(seed)
    sizes = dict(num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32, max_length=32)
    model = models.Bert(len(VOCABULARY), **{**sizes, **options})
    model.build()
    for weight in model.weights:
        if weight.name == "kernel":
            weight.assign(weight * 10)  # attention that is not nearly even
    checkpoints.save(model, folder, WordPiece(VOCABULARY))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(0)
    lines = ["\t".join(" ".join(rng.choice(WORDS, rng.integers(4, 10))) for _ in range(2)) for _ in range(14)]
    lines[3] = "only one column"
    (root / "text.tsv").write_text("\n".join(["first\tsecond", *lines, ""]))
    return {"plain": save(root / "plain"), "tuned": save(root / "tuned", seed=1), "text": root / "text.tsv"}


def arguments(folders, output, *more):
    given = ["--checkpoint", str(folders["plain"]), "--text", str(folders["text"]), "--columns", "first,second"]
    return [*given, "--output", str(output), *QUICK, *more]


@pytest.mark.integration
def test_a_whole_study(folders, tmp_path, capsys):
    """Every analysis has its tables and figures; the page is whole; a bad line is named; a second start is quick."""
    begin = time.monotonic()
    main(arguments(folders, tmp_path / "out", "--finetuned", str(folders["tuned"])))
    took = time.monotonic() - begin
    out, err = capsys.readouterr()
    assert out.strip().endswith("report.html")
    assert "text.tsv:5: left out: 1 columns, and column 2 is needed" in err
    page = (tmp_path / "out" / "report.html").read_text()
    for word in ("Raw and effective attention", "Before and after fine-tuning", "Patterns", "Positions", "Maps"):
        assert word in page
    tables = {path.stem for path in (tmp_path / "out" / "tables").iterdir()}
    assert {"correlation", "types", "patterns", "similarity", "identify", "own", "gram", "skipped"} <= tables
    assert len(list((tmp_path / "out" / "figures").iterdir())) > 15
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["summary"]["texts"].startswith("13 of text.tsv")
    begin = time.monotonic()
    main(arguments(folders, tmp_path / "out", "--finetuned", str(folders["tuned"])))
    assert time.monotonic() - begin < took
    assert json.loads((tmp_path / "out" / "results.json").read_text())["tables"] == results["tables"]
    with pytest.raises(SystemExit, match="folds: 3 there, 4 now"):
        main(arguments(folders, tmp_path / "out", "--finetuned", str(folders["tuned"]), "--folds", "4"))


@pytest.mark.integration
def test_killed_and_started_again_it_gives_the_same(folders, tmp_path):
    """kill -9 as soon as the first pieces are there, then the same command: the tables are those of a whole run."""
    given = ["--analyses", "attention,identifiability,attribution"]
    command = [sys.executable, "-m", "keras_posenc.analysis", *arguments(folders, tmp_path / "killed", *given)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ})
    work = tmp_path / "killed" / "work"
    while process.poll() is None and not list(work.glob("attention*")):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(work.glob("attention*")) and not (tmp_path / "killed" / "report.html").exists()
    main(arguments(folders, tmp_path / "killed", *given))
    main(arguments(folders, tmp_path / "whole", *given))
    for name in ("correlation", "types", "identify", "own"):
        rows = [read(tmp_path / folder / "tables" / f"{name}.csv") for folder in ("killed", "whole")]
        assert rows[0] == rows[1], name


@pytest.mark.integration
def test_damaged_hidden_states_are_computed_again(folders, tmp_path):
    given = arguments(folders, tmp_path / "out", "--analyses", "identifiability")
    main(given)
    rows = read(tmp_path / "out" / "tables" / "identify.csv")
    path = sorted((tmp_path / "out" / "work" / "hidden").iterdir())[3]
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(SystemExit, match="damaged .* start again"):
        main(given)
    main(given)
    assert path.is_file() and read(tmp_path / "out" / "tables" / "identify.csv") == rows


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--checkpoint", "nowhere"], "nowhere does not exist"),
        (["--text", "nowhere"], "nowhere is no file"),
        (["--columns", "a,b,c"], "one column or two"),
        (["--analyses", "attention,else"], "unknown analysis 'else'"),
        (["--maps", "quadratic"], "unknown map 'quadratic'"),
        (["--max-length", "2"], "at least 3"),
        (["--tags", "nowhere"], "nowhere is no file"),
    ],
)
def test_wrong_options_are_named_before_any_work(folders, tmp_path, capsys, change, message):
    with pytest.raises(SystemExit):
        main(arguments(folders, tmp_path / "out", *change))
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_studied_is_said(folders, tmp_path):
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(SystemExit, match="no text that can be used"):
        main(arguments(folders, tmp_path / "out", "--text", str(tmp_path / "empty.txt"), "--columns", "1"))
    linformer = save(tmp_path / "linformer", num_keys=4)
    with pytest.raises(SystemExit, match="Linformer are mixtures of tokens"):
        main(arguments(folders, tmp_path / "out", "--checkpoint", str(linformer)))


def test_batches_hold_all_texts_once_and_keep_their_size(rng):
    lengths = rng.integers(1, 60, 50)
    mask = (np.arange(60) < lengths[:, None]).astype("int32")
    found = batches({"padding_mask": mask}, tokens=256)
    assert sorted(np.concatenate(found)) == list(range(50))
    for indices in found:
        cut = select({"token_ids": mask, "padding_mask": mask}, indices)["token_ids"]
        assert len(indices) == 1 or cut.size <= 256
        assert cut.sum() == lengths[indices].sum()


def test_the_runner_gives_what_the_model_computes(folders, rng):
    model = checkpoints.load(folders["plain"]).model
    inputs = {
        "token_ids": rng.integers(5, len(VOCABULARY), (3, 12)).astype("int32"),
        "segment_ids": np.repeat([[0] * 5 + [1] * 7], 3, axis=0).astype("int32"),
        "padding_mask": (np.arange(12) < np.array([[12], [9], [5]])).astype("int32"),
    }
    found, expected = Runner(model)(inputs), model(inputs, return_intermediates=True)
    for layer in range(2):
        attention, values = expected["attention"][layer], expected["values"][layer]
        np.testing.assert_allclose(found.attention[:, layer], attention, atol=1e-6)
        effective = effective_attention(attention, values, inputs["padding_mask"])
        np.testing.assert_allclose(found.effective[:, layer], effective, atol=1e-5)
    np.testing.assert_allclose(found.hidden_states[:, -1], expected["sequence_output"], atol=1e-5)


def test_inputs_that_are_none_are_left_out():
    model = models.Bert(20, 1, 2, 8, 8, max_length=16)
    model.build()
    run, token_ids = Runner(model), np.array([[3, 4, 5]])
    found = run({"token_ids": token_ids, "segment_ids": None, "padding_mask": None})
    np.testing.assert_array_equal(found.attention, run({"token_ids": token_ids}).attention)
    assert found.mask.all()


@pytest.mark.parametrize(("position", "warned"), [("shaw", 1), ("rotary+shaw", 1), ("learned", 0), ("diet_rel", 0)])
def test_positions_in_the_values_are_told(position, warned, rng):
    """Shaw's query i weighs V_j + R[j - i]: the output without null attention is A V, not all of A (V + R)."""
    model = models.Bert(20, 1, 2, 8, 8, max_length=16, position=position)
    model.build()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = Runner(model)({"token_ids": rng.integers(0, 20, (1, 12))})
    assert len([w for w in caught if "added to the values" in str(w.message)]) == warned
    np.testing.assert_allclose(found.effective @ found.values, found.attention @ found.values, atol=1e-5)


@pytest.mark.integration
def test_the_report_says_what_effective_attention_leaves_out(folders, tmp_path):
    shaw = save(tmp_path / "shaw", position="shaw")
    with pytest.warns(UserWarning, match="added to the values"):
        main(arguments(folders, tmp_path / "out", "--checkpoint", str(shaw), "--analyses", "attention"))
    assert "are also added to the values" in (tmp_path / "out" / "report.html").read_text()


def test_the_runner_refuses_a_linformer():
    model = models.Bert(20, 1, 2, 8, 8, max_length=16, num_keys=4)
    model.build()
    with pytest.raises(ValueError, match="Linformer are mixtures of tokens"):
        Runner(model)
