"""Models by name."""

import numpy as np
import pytest

from keras_posenc import models
from keras_posenc.models.tables import count


@pytest.mark.parametrize(
    "name,parameters",
    [  # of the published checkpoints of these sizes, with pooler
        ("bert_tiny", 4_385_920),
        ("bert_small", 28_763_648),
        ("bert_base", 109_482_240),
        ("minilm_l6", 22_713_216),
        ("minilm_l12", 33_360_000),
        ("albert_base", 11_683_584),
    ],
)
def test_sizes_are_those_of_the_published_models(name, parameters):
    assert count(name).total == parameters


def test_list_names_all_sizes():
    assert set(models.list()) == {
        "albert_base",
        "bert_base",
        "bert_base_multilingual",
        "bert_small",
        "bert_tiny",
        "minilm_l12",
        "minilm_l6",
        "transformer_base",
        "transformer_tiny",
    }


def test_builds_with_options_of_model_and_encoding():
    model = models.build("bert_tiny", position="learned+diet_abs", rank=3, sharing="layer", max_length=16, vocab_size=9)
    assert model.built and model.vocab_size == 9
    assert model.encoder.position.rank == 3
    assert model.encoder.position_options == {"rank": 3}
    assert model({"token_ids": np.array([[1, 2]])})["pooled_output"].shape == (1, 128)


@pytest.mark.parametrize(
    "task,options,outputs",
    [
        ("masked_lm", {}, {"logits": (1, 3, 50)}),
        ("classify", {"num_classes": 4}, {"logits": (1, 4)}),
        ("regress", {}, {"logits": (1, 1)}),
        ("span", {}, {"start_logits": (1, 3), "end_logits": (1, 3)}),
        ("token_classify", {"num_classes": 2}, {"logits": (1, 3, 2)}),
    ],
)
def test_tasks(task, options, outputs):
    model = models.build("bert_tiny", vocab_size=50, max_length=8, task=task, **options)
    assert model.built
    found = model({"token_ids": np.array([[1, 2, 3]])})
    assert {name: tuple(output.shape) for name, output in found.items()} == outputs


@pytest.mark.parametrize(
    "arguments,message",
    [
        (dict(name="bert_huge"), "Unknown model: 'bert_huge'. Known: albert_base, bert_base"),
        (dict(name="bert_tiny", position="shew"), "Unknown position encoding: 'shew'"),
        (dict(name="bert_tiny", rank=4), "'rank' is an option of diet_abs"),
        (dict(name="bert_tiny", layers=4), "Unknown option 'layers'. Bert takes: vocab_size, num_layers"),
        (dict(name="bert_tiny", task="parse"), "Unknown task: 'parse'. Known: masked_lm, classify"),
        (dict(name="bert_tiny", task="classify"), "needs `num_classes`"),
        (dict(name="bert_tiny", task="span", num_classes=2), "takes no `num_classes`"),
        (dict(name="bert_tiny", num_classes=2), "goes with a task"),
    ],
)
def test_errors_list_what_exists(arguments, message):
    with pytest.raises(ValueError) as error:
        models.build(**arguments)
    assert message in str(error.value)
