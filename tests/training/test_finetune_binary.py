"""`python -m training.finetune`: tables in, runs, medians and a model out; and what it refuses."""

import json

import numpy as np
import pytest
from absl import flags

from keras_posenc import checkpoints, models
from keras_posenc.checkpoints.tokenizer import WordPiece
from training import finetune, model_flags, sweep
from training.data import word_order
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


def test_best_rate_is_that_of_the_highest_median():
    def trial(rate, score):
        return sweep.Trial(rate, 0, None, {"best": {"primary": score, "step": 1, "dev": {"f1": score}}})

    trials = [trial(1e-5, s) for s in (0.5, 0.6, 0.9)] + [trial(2e-5, s) for s in (0.7, 0.7, 0.1)]
    assert sweep.best_rate(trials) == (2e-5, {1e-5: 0.6, 2e-5: 0.7})
    assert sweep.best_trial(trials).score == 0.9
    assert "median of 3 at 2e-05: 0.7000" in sweep.table(trials, "dev/f1")
