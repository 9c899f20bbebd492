"""Fine-tuning makes the steps that transformers makes on torch: loss, norm of the gradient, weights."""

import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_posenc import checkpoints
from training import engine
from training.engine import optimizer as optimizers
from training.engine import strategy as strategies
from training.engine.step import Step
from training.tasks.classify import Classify

sys.path.insert(0, str(Path(__file__).parent.parent / "checkpoints"))
import tiny_hf  # noqa: E402

pytestmark = pytest.mark.integration
STEPS, ROWS = 8, 3
OPTIONS = engine.TrainOptions(
    steps=STEPS, batch=ROWS, learning_rate=5e-3, schedule="constant", weight_decay=0.1, epsilon=1e-8, clip_norm=1.0
)


class Loss(Classify):
    """Only the loss of the task."""

    def __init__(self):
        self.label_names = ("no", "yes")


def by_torch(torch_model, batches):
    """Losses and norms of the steps, as `transformers.Trainer` makes them."""
    import torch

    decayed = [weight for weight in torch_model.parameters() if weight.ndim > 1]
    others = [weight for weight in torch_model.parameters() if weight.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": OPTIONS.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=OPTIONS.learning_rate, eps=OPTIONS.epsilon)
    names = {"token_ids": "input_ids", "segment_ids": "token_type_ids", "padding_mask": "attention_mask"}
    found = []
    for batch in batches:
        given = {names.get(name, name): torch.tensor(value).long() for name, value in batch.items()}
        loss = torch_model(**given).loss
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(torch_model.parameters(), OPTIONS.clip_norm)
        optimizer.step()
        found.append((loss.item(), norm.item()))
    return found


def test_steps_are_those_of_transformers(tmp_path, rng):
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_labels": 2}
    torch_model = tiny_hf.model("bert", "ForSequenceClassification", **none).train()
    folder = tiny_hf.save(torch_model, tmp_path / "model")
    batches = [{**tiny_hf.inputs(rng, ROWS), "labels": rng.integers(0, 2, ROWS).astype("int32")} for _ in range(STEPS)]
    strategy = strategies.make("one_device")
    with strategy.scope():
        model = checkpoints.load(folder, "classify").model
        step = Step(Loss(), model, optimizers.make(model, OPTIONS, STEPS), OPTIONS, strategy)
    found = []
    for number, batch in enumerate(batches):
        gradients, table = step.gradients(tf.nest.map_structure(tf.constant, batch), tf.constant(number, tf.int64))
        table = dict(zip(("loss", *step.row_names[1:]), step.update(gradients, table).numpy()))
        found.append((table["loss"][0] / table["loss"][1], table["gradient_norm"][0]))
    expected = by_torch(torch_model, batches)
    assert min(norm for _, norm in expected) < OPTIONS.clip_norm < max(norm for _, norm in expected)
    np.testing.assert_allclose(found, expected, rtol=2e-4)
    theirs = torch_model.bert.pooler.dense.weight.detach().numpy().T
    np.testing.assert_allclose(model.backbone.pooler.kernel, theirs, atol=1e-4)
