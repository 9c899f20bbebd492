"""`python -m training.finetune`: tables in, runs, medians and a model out; and what it refuses."""

import json
import os
import runpy

import engine_subject as subject
import keras
import numpy as np
import pytest
from absl import flags

from keras_posenc import checkpoints, models
from keras_posenc.checkpoints.tokenizer import WordPiece
from keras_posenc.utils import binary
from training import engine, finetune, model_flags, sweep
from training.data import word_order
from training.engine import TrainOptions
from training.engine import optimizer as optimizers
from training.tasks.models import ModelSource, with_segments

WORDS = "the a dog cat bird sees hears big small".split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small model and a table in MRPC's layout: the label says whether the two texts are equal."""
    root = tmp_path_factory.mktemp("finetune")
    model = models.Bert(len(VOCABULARY), 1, 2, 16, 32, max_length=32, segments="none", position="diet_rel")
    model.build()
    checkpoints.save(model, root / "model", WordPiece(VOCABULARY))
    rng = np.random.default_rng(0)
    (root / "MRPC").mkdir()
    for split, size in (("train", 40), ("dev", 12)):
        rows = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        for number in range(size):
            first = " ".join(rng.choice(WORDS, 4))
            second = first if number % 2 else " ".join(rng.choice(WORDS, 4))
            rows.append(f"{number % 2}\t{number}\t{number}\t{first}\t{second}")
        (root / "MRPC" / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    (root / "SST-2").mkdir()
    (root / "SST-2" / "train.tsv").write_text("sentence\tlabel\n" + "some words\t0\nothers\t1\n" * 8)
    (root / "SST-2" / "dev.tsv").write_text("sentence\tlabels\n" + "some words\t0\nothers\t1\n" * 8)
    return root


def run(*arguments):
    """The binary, in this process."""
    values = flags.FlagValues()
    finetune.define(values)
    values(["finetune", *arguments])
    return finetune.run(values)


def common(folder, output, *more):
    return [
        "--task=mrpc",
        f"--data_dir={folder}",
        f"--checkpoint={folder / 'model'}",
        f"--output={output}",
        "--batch=8",
        "--steps=4",
        "--max_length=16",
        *more,
    ]


@pytest.mark.integration
def test_a_sweep_reports_the_median_of_the_best_rate_and_is_not_run_again(folder, tmp_path, capsys):
    arguments = common(folder, tmp_path / "out", "--learning_rates=1e-3,1e-2", "--runs=2", "--segments=per_head")
    run(*arguments)
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    scores = {}
    for trial in found["runs"]:
        scores.setdefault(f"{trial['learning_rate']:g}", []).append(trial["results"]["best"]["dev"]["f1"])
    assert {rate: len(values) for rate, values in scores.items()} == {"0.001": 2, "0.01": 2}
    assert found["medians"] == pytest.approx({rate: np.median(values) for rate, values in scores.items()})
    assert found["reported"] == pytest.approx(max(found["medians"].values()))
    loaded = checkpoints.load(tmp_path / "out" / "model")
    assert loaded.model.num_classes == 2 and loaded.model.backbone.segments == "per_head"
    capsys.readouterr()
    run(*arguments)
    assert capsys.readouterr().err.count("is a finished run") == 4


@pytest.mark.integration
def test_a_run_knows_its_data(folder, tmp_path):
    """As many examples with other labels are another run, and not one that is finished."""
    (tmp_path / "data" / "MRPC").mkdir(parents=True)
    for split in ("train", "dev"):
        text = (folder / "MRPC" / f"{split}.tsv").read_text()
        (tmp_path / "data" / "MRPC" / f"{split}.tsv").write_text(text)
    asked = common(folder, tmp_path / "out", f"--data_dir={tmp_path / 'data'}")
    found = run(*asked)
    assert run(*asked) == found
    swapped = text.replace("\n0\t", "\n?\t").replace("\n1\t", "\n0\t").replace("\n?\t", "\n1\t")
    (tmp_path / "data" / "MRPC" / "dev.tsv").write_text(swapped)
    with pytest.raises(ValueError, match="data"):
        run(*asked)


@pytest.mark.integration
def test_a_rate_at_which_training_diverges_does_not_end_the_sweep(folder, tmp_path, capsys):
    """It is not tried again either, and is the worst of all rates."""
    arguments = common(folder, tmp_path / "out", "--learning_rates=1e30,1e-3", "--warmup=0", "--steps_per_loop=1")
    found = run(*arguments)
    assert found["learning_rate"] == 1e-3 and found["medians"]["1e+30"] is None
    assert "The loss is not finite" in found["runs"][0]["results"]["diverged"]
    assert checkpoints.load(tmp_path / "out" / "model").model.num_classes == 2
    state = tmp_path / "out" / "runs" / "lr1e+30-seed0" / "run.json"
    before = state.read_text()
    assert run(*arguments) == found == json.loads((tmp_path / "out" / "results.json").read_text())
    said = capsys.readouterr().out
    assert state.read_text() == before and f"It is not trained again unless {state.parent} is deleted" in said
    assert "median of 0 of 1 at 1e+30: diverged\n" in said
    with pytest.raises(engine.Diverged, match="All 1 runs diverged. The last one: The loss is not finite"):
        run(*arguments, "--learning_rates=1e30")


def work(tf_config, arguments):
    """Body of a child process."""
    os.environ["TF_CONFIG"] = tf_config
    run(*arguments)


@pytest.mark.integration
def test_of_two_workers_one_writes(folder, tmp_path):
    """They share a folder; here each has its own, to see what each of them does with it."""
    children = []
    for index, tf_config in enumerate(subject.cluster()):
        asked = common(folder, tmp_path / f"worker_{index}", "--steps=2", "--strategy=multi_worker_mirrored")
        children.append(subject.spawn(work, tf_config=tf_config, arguments=asked))
    assert [subject.join(child) for child in children] == [0, 0]
    assert {path.name for path in (tmp_path / "worker_0").iterdir()} == {"runs", "model", "results.json", "results.txt"}
    assert not (tmp_path / "worker_1").exists()


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")
@pytest.mark.parametrize("name", ["cross_lingual", "finetune", "pretrain", "translate"])
def test_a_run_that_diverges_ends_with_a_line(name, monkeypatch):
    given = {}
    monkeypatch.setattr(binary, "start", lambda define, run, errors: given.update(errors=errors))
    runpy.run_module(f"training.{name}", run_name="__main__")
    assert {ValueError, OSError, engine.Diverged} == set(given["errors"])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--checkpoint=nowhere"], "no folder 'nowhere'"),
        (["--task=else"], "Unknown task 'else'"),
        (["--data_dir=nowhere"], "nowhere"),
        (["--batch=64"], "fewer than batch=64"),
        (["--positions=tisa"], "are those it was trained with"),
        (["--model_options=dropout"], "name=value"),
        (["--warmup=50"], "longer than the whole training"),
        (["--learning_rates=1e-3,-1"], "learning_rate must be positive. Received: learning_rate=-1.0"),
        (["--learning_rates=1e-3,fast"], "takes numbers, joined by commas. Received: 1e-3,fast"),
        (["--max_length=64"], "64 tokens are too many: give a smaller --max_length.*max_length=32"),
        (["--task=word_order:questions"], "word_order:acceptability and word_order:entailment are done here"),
        (["--by_length", "--static"], "--by_length is for batches of different lengths"),
        (["--task=sst-2"], "the file of dev has no column of labels"),
    ],
)
def test_wrong_flags_are_named_before_training(folder, tmp_path, more, message):
    with pytest.raises((ValueError, OSError), match=message):
        run(*common(folder, tmp_path / "out", *more))
    assert not (tmp_path / "out").exists()


def test_segments_are_added_and_all_else_is_kept(folder):
    model = checkpoints.load(folder / "model", "classify", num_classes=2).model
    new = with_segments(model, "per_head")
    added = [weight for weight in new.weights if "segment" in weight.path]
    assert len(new.weights) == len(model.weights) + len(added) and added
    inputs = {"token_ids": np.arange(5, 11)[None], "segment_ids": np.array([[0, 0, 0, 1, 1, 1]])}
    # Segment biases begin at zero, so the model begins as what it was.
    np.testing.assert_allclose(new(inputs)["logits"], model(inputs)["logits"], atol=1e-6)


@pytest.mark.parametrize("segments", [None, "per_head"])
def test_a_checkpoint_of_our_own_is_trained_in_the_precision_of_the_run(folder, segments):
    """It was saved in float32, and is not what decides; the loss is scaled if the model is in float16."""
    source = ModelSource(str(folder / "model"), segments=segments)
    for policy in ("mixed_bfloat16", "mixed_float16", "float32"):
        keras.config.set_dtype_policy(policy)
        model = source.build("classify", 2)
        layers = [model, model.backbone, *model.backbone.encoder.blocks]
        assert {layer.dtype_policy.name for layer in layers} == {policy}
        optimizer = optimizers.make(model, TrainOptions(steps=1), 1)
        assert isinstance(optimizer, keras.optimizers.LossScaleOptimizer) == (policy == "mixed_float16")


def test_options_are_read_as_what_they_are():
    written = ["rank=64", "dropout=0.5", "position_options=none", "tie_layers=True", "activation=gelu_tanh"]
    assert model_flags.parse_options(written) == {
        "rank": 64,
        "dropout": 0.5,
        "position_options": None,
        "tie_layers": True,
        "activation": "gelu_tanh",
    }


def test_a_model_comes_from_one_place():
    with pytest.raises(ValueError, match="give one of the two"):
        ModelSource()
    source = ModelSource(preset="bert_tiny", tokenizer=WordPiece(word_order.vocabulary()), position="tisa")
    assert source.build("classify", 2).backbone.vocab_size == len(word_order.vocabulary())


def test_a_checkpoint_has_its_own_vocabulary(folder, monkeypatch):
    """Also in the word-order benchmark, which has one for fresh weights."""
    with pytest.raises(ValueError, match="a vocabulary of its own, of 15 pieces. Received another, of .*--tokenizer"):
        ModelSource(str(folder / "model"), tokenizer=WordPiece(word_order.vocabulary()))
    made = []
    source = model_flags.source
    monkeypatch.setattr(model_flags, "source", lambda *given: made.append(source(*given)))
    monkeypatch.setattr(finetune, "load", lambda *_: None)
    with pytest.raises(TypeError):  # there is no data to go on with
        run("--task=word_order:acceptability", f"--checkpoint={folder / 'model'}", "--output=never")
    assert made[0].tokenizer.vocabulary == VOCABULARY


def test_a_vocabulary_that_is_larger_than_the_model_is_refused():
    source = ModelSource(preset="bert_tiny", tokenizer=WordPiece(VOCABULARY), options={"vocab_size": 9})
    with pytest.raises(ValueError, match="has 15 pieces, and bert_tiny has embeddings for 9"):
        source.build("classify", 2)


def trial(rate, score):
    """A run of a sweep; `None` for one that diverged."""
    if score is None:
        return sweep.Trial(rate, 0, None, {"best": None, "diverged": "The loss is not finite."})
    return sweep.Trial(rate, 0, None, {"best": {"primary": score, "step": 1, "dev": {"f1": score}}})


def test_best_rate_is_that_of_the_highest_median():
    trials = [trial(1e-5, s) for s in (0.5, 0.6, 0.9)] + [trial(2e-5, s) for s in (0.7, 0.7, 0.1)]
    assert sweep.best_rate(trials) == (2e-5, {1e-5: 0.6, 2e-5: 0.7})
    assert sweep.best_trial(trials).score == 0.9
    assert "median of 3 at 2e-05: 0.7000" in sweep.table(trials, "dev/f1")


def test_medians_are_of_the_runs_that_did_not_diverge_and_say_so(tmp_path):
    """When a rate is chosen, a run that diverged is worse than any other."""
    trials = [trial(1e-5, s) for s in (0.5, 0.6, 0.4)] + [trial(2e-5, s) for s in (0.7, None, None)]
    trials += [trial(3e-5, s) for s in (0.8, None, 0.6)]
    assert sweep.best_rate(trials) == (3e-5, {1e-5: 0.5, 2e-5: 0.7, 3e-5: pytest.approx(0.7)})
    assert [each.score for each in sweep.counted(trials, 3e-5)] == [0.8, 0.6]
    found = sweep.write(trials, "dev/f1", tmp_path)
    assert found["reported"] == pytest.approx(0.7)
    table = (tmp_path / "results.txt").read_text()
    assert "median of 2 of 3 at 3e-05: 0.7000, from 0.6000 to 0.8000  <- reported" in table
    assert "median of 1 of 3 at 2e-05: 0.7000\n" in table and "inf" not in table


def test_what_is_not_a_number_is_no_score():
    """Of any order: the median of figures with a NaN is one, and NaN compares with nothing."""
    nan = float("nan")
    for scores in ((nan, 0.2, 0.1), (0.2, nan, 0.1), (0.1, 0.2, nan)):
        trials = [trial(1e-5, s) for s in scores] + [trial(2e-5, s) for s in (0.3, 0.3, 0.3)]
        for each in (trials, trials[::-1]):
            assert sweep.best_rate(each) == (2e-5, {1e-5: pytest.approx(0.15), 2e-5: 0.3})
        assert sweep.best_trial(trials[:3]).score == 0.2
    only = [trial(1e-5, None), trial(2e-5, nan)]
    assert sweep.best_rate(only) == (2e-5, {1e-5: None, 2e-5: None})
    assert sweep.counted(only, 2e-5) == only[1:]
    assert "median of 0 of 1 at 2e-05: not a number" in sweep.table(only, "dev/f1")
