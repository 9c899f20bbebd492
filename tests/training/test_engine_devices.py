"""Several devices and several workers make the step of one device."""

import json

import engine_subject as subject
import numpy as np
import pytest

from training import engine
from training.engine import strategy as strategies

pytestmark = pytest.mark.integration

SETTINGS = dict(steps=6, eval_every=3, checkpoint_every=3, clip_norm=0.05, ema=0.5)
PLAIN = {"dropout": 0.0}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Folders of the same training on one device, on two virtual ones, and by two worker processes at once."""
    folder = tmp_path_factory.mktemp("devices")
    given = dict(task_options=PLAIN, **SETTINGS)
    children = [
        subject.spawn(output=str(folder / "mirrored"), strategy="mirrored", virtual_devices=2, accumulation=2, **given)
    ]
    for index, tf_config in enumerate(subject.cluster()):
        # Workers share a folder; here each has its own, to see what each of them does with it.
        children.append(
            subject.spawn(
                output=str(folder / f"worker_{index}"),
                strategy="multi_worker_mirrored",
                tf_config=tf_config,
                dump=str(folder / f"worker_{index}.npz"),
                **given,
            )
        )
    engine.run(subject.Toy(**PLAIN), subject.options(**SETTINGS), str(folder / "one"), stream=False)
    assert [subject.join(child) for child in children] == [0, 0, 0]
    return folder


def history(path):
    with open(path / "metrics.jsonl") as file:
        return [json.loads(line) for line in file]


def assert_close(found, expected):
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("which", ["newest", "best"])
@pytest.mark.parametrize("name", ["mirrored", "worker_0"])
def test_weights_are_those_of_one_device(outputs, name, which):
    """Examples have unequal weights, so that a mean of the replicas' means would be another step; `best` has the
    averaged weights."""
    expected = subject.weights(str(outputs / "one"), which, **PLAIN)
    assert_close(subject.weights(str(outputs / name), which, **PLAIN), expected)


@pytest.mark.parametrize("name", ["mirrored", "worker_0"])
def test_figures_are_those_of_one_device(outputs, name):
    """Outputs of uneven batches are gathered in the order of the rows."""
    for ours, theirs in zip(history(outputs / name), history(outputs / "one"), strict=True):
        assert ours["eval"]["dev"] == pytest.approx(theirs["eval"]["dev"], abs=1e-5)
        assert ours["train"] == pytest.approx(theirs["train"], abs=1e-5)


def test_workers_agree_and_only_the_first_writes(outputs):
    first, second = (dict(np.load(outputs / f"worker_{index}.npz")) for index in range(2))
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=name)
    assert_close(first, subject.weights(str(outputs / "one"), **PLAIN))
    assert not (outputs / "worker_1").exists()


def test_what_a_strategy_is_missing(monkeypatch):
    with pytest.raises(ValueError, match="strategy must be one of one_device.*Received: strategy='all'"):
        strategies.make("all")
    with pytest.raises(ValueError, match="here is only CPU:0. Use 'one_device', or virtual_devices=2"):
        strategies.make("mirrored", devices=["CPU:0"])
    with pytest.raises(ValueError, match="virtual_devices=3 must be set before TensorFlow runs anything"):
        strategies.make("mirrored", virtual_devices=3)
    with pytest.raises(ValueError, match="needs the name or address of a TPU"):
        strategies.make("tpu")
    with pytest.raises(ValueError, match="needs the environment variable TF_CONFIG.*Received: TF_CONFIG=None"):
        strategies.make("multi_worker_mirrored")
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}')
    with pytest.raises(ValueError, match="names one worker only"):
        strategies.make("multi_worker_mirrored")


def test_precision():
    assert strategies.set_precision(None, "tpu") == "mixed_bfloat16"
    assert strategies.set_precision("mixed_float16", "tpu") == "mixed_float16"
    assert strategies.set_precision(None, "one_device") == "float32"
