"""The comparison with transformers on torch: it learns what can be learned, and refuses what it cannot compare."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from absl import flags

from keras_posenc.checkpoints.tokenizer import WordPiece
from training import finetune_torch

sys.path.insert(0, str(Path(__file__).parent.parent / "checkpoints"))
import tiny_hf  # noqa: E402

pytestmark = pytest.mark.integration
WORDS = ("sun", "rain", "wind", "snow")


def run(*arguments):
    values = flags.FlagValues()
    finetune_torch.define(values)
    values(["finetune_torch", *arguments])
    return finetune_torch.run(values)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sentences of two words or of two others, in CoLA's layout, and a tiny BERT."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    place = tmp_path_factory.mktemp("torch")
    rng = np.random.default_rng(0)
    (place / "CoLA").mkdir()
    for split, count in (("train", 96), ("dev", 21)):
        lines = []
        for _ in range(count):
            label = rng.integers(2)
            lines.append(f"s\t{label}\t\t{' '.join(rng.choice(WORDS[2 * label : 2 * label + 2], 4))}\n")
        (place / "CoLA" / f"{split}.tsv").write_text("".join(lines))
    model = tiny_hf.model("bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    tiny_hf.save(model, place / "model")
    WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s"]).save(place / "model")
    return place


def test_scores_of_every_epoch_and_their_median(folder, tmp_path, capsys):
    output = tmp_path / "results.json"
    found = run(
        "--task=cola",
        f"--data_dir={folder}",
        f"--checkpoint={folder / 'model'}",
        "--max_length=8",
        "--batch=8",
        "--learning_rate=0.02",
        "--epochs=6",
        "--runs=2",
        "--threads=1",
        f"--output={output}",
    )
    assert json.loads(output.read_text()) == found
    assert [run["seed"] for run in found["runs"]] == [0, 1] and len(found["runs"][0]["epochs"]) == 6
    best = [run["best"]["matthews"] for run in found["runs"]]
    assert found["median"]["matthews"] == np.mean(best) and max(best) > 0.8
    assert "median of 2: matthews" in capsys.readouterr().out


def test_what_is_missing_is_named(folder):
    with pytest.raises(ValueError, match="Needed: --data_dir, --checkpoint"):
        run("--task=cola")
