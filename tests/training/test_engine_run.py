"""A run that is killed and started again is the run that was not killed."""

import glob
import json
import os
import signal

import engine_subject as subject
import numpy as np
import pytest
import tensorflow as tf

from training import engine
from training.engine.folder import RunFolder

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The folder of a run that nothing happened to."""
    output = str(tmp_path_factory.mktemp("engine") / "straight")
    engine.run(subject.Toy(), subject.options(), output, stream=False)
    return output


def read(output, name="run.json"):
    with open(os.path.join(output, name)) as file:
        return json.load(file) if name.endswith(".json") else [json.loads(line) for line in file]


def assert_same_run(output, other):
    """Weights, best weights, optimizer slots and history, bit for bit."""
    for folder in ("checkpoints", "best"):
        ours, theirs = (tf.train.latest_checkpoint(os.path.join(path, folder)) for path in (output, other))
        assert os.path.basename(ours) == os.path.basename(theirs)
        ours, theirs = tf.train.load_checkpoint(ours), tf.train.load_checkpoint(theirs)
        names = sorted(ours.get_variable_to_shape_map())
        assert names == sorted(theirs.get_variable_to_shape_map())
        for name in names:
            if not name.startswith("_CHECKPOINTABLE") and "save_counter" not in name:
                np.testing.assert_array_equal(ours.get_tensor(name), theirs.get_tensor(name), err_msg=name)
    assert read(output, "metrics.jsonl") == read(other, "metrics.jsonl")
    assert read(output)["results"] == read(other)["results"]


def test_killed_in_a_loop_in_a_checkpoint_and_in_an_evaluation(straight, tmp_path):
    output = str(tmp_path / "run")
    child = subject.spawn(output=output, task=subject.DyingInLoop, task_options={"at_step": 14})
    assert subject.join(child) == -signal.SIGKILL
    assert read(output)["state"] == "running"
    assert tf.train.latest_checkpoint(os.path.join(output, "checkpoints")) is not None

    child = subject.spawn(output=output, checkpoint=16)
    assert subject.join(child) == -signal.SIGKILL
    left = os.listdir(os.path.join(output, "checkpoints"))
    assert any("ckpt-16" in name for name in left)
    newest = tf.train.latest_checkpoint(os.path.join(output, "checkpoints"))
    assert int(newest.rsplit("-")[-1]) < 16
    assert [entry["step"] for entry in read(output, "metrics.jsonl")] == [8]

    child = subject.spawn(output=output, task=subject.DyingInEvaluation)
    assert subject.join(child) == -signal.SIGKILL
    assert [entry["step"] for entry in read(output, "metrics.jsonl")] == [8, 16]
    assert tf.train.latest_checkpoint(os.path.join(output, "checkpoints")).endswith("ckpt-24")

    engine.run(subject.Toy(), subject.options(), output, stream=False)
    assert read(output)["starts"] == 4
    assert_same_run(output, straight)


def test_dropout_and_order_depend_on_the_seed(straight, tmp_path):
    """The equality above would be empty if nothing was random."""
    engine.run(subject.Toy(), subject.options(steps=8, seed=1), str(tmp_path), stream=False)
    assert read(str(tmp_path), "metrics.jsonl")[0]["train"] != read(straight, "metrics.jsonl")[0]["train"]


def test_a_finished_run_returns_its_results(straight):
    before = os.stat(os.path.join(straight, "run.json"))
    results = engine.run(subject.Toy(), subject.options(), straight, stream=False)
    assert results == read(straight)["results"]
    assert engine.finished("toy", subject.Toy().config(), subject.options(), straight) == results
    assert os.stat(os.path.join(straight, "run.json")).st_mtime_ns == before.st_mtime_ns


def test_results(straight):
    history, results = read(straight, "metrics.jsonl"), read(straight)["results"]
    assert [entry["step"] for entry in history] == [8, 16, 24]
    assert results["last"] == history[-1]["eval"]
    assert results["best"]["primary"] == max(entry["eval"]["dev"]["accuracy"] for entry in history)
    assert results["last"]["dev"]["rows"] == 30  # five batches of 7, without the padding rows
    best, newest = (subject.weights(straight, which)["0 amplitudes"] for which in ("best", "newest"))
    assert np.array_equal(best, newest) == (results["best"]["step"] == 24)


def test_run_json(straight):
    run = read(straight)
    assert run["state"] == "finished" and run["starts"] == 1 and run["seconds"] > 0
    assert set(run["versions"]) == {"python", "tensorflow", "keras", "keras_posenc"}
    assert run["seed"] == 0 and run["options"]["steps_per_loop"] == 3
    assert 0 <= run["speed"]["input_wait"] <= 1
    assert run["speed"]["measured_steps"] == 21  # 24 without those of the first loop, which compiles
    ratio = run["speed"]["tokens_per_second"] / run["speed"]["examples_per_second"]
    assert ratio == pytest.approx(subject.LENGTH)


def test_the_folder_of_another_run_is_refused(straight):
    with pytest.raises(ValueError, match="another run: learning_rate was 0.003 and is 0.01; position was 'tisa'"):
        engine.run(subject.Toy(position="t5"), subject.options(learning_rate=0.01), straight)
    with pytest.raises(ValueError, match="another run: dropout was 0.1 and is 0.2"):
        engine.finished("toy", {"dropout": 0.2, "position": "tisa"}, subject.options(), straight)
    engine.run(subject.Toy(), subject.options(steps_per_loop=7, keep=9), straight, stream=False)


def test_event_files(straight):
    """Scalars of training and evaluation, and a picture of the positions at each evaluation."""
    found = {}
    for path in glob.glob(os.path.join(straight, "tensorboard", "**", "events*"), recursive=True):
        part = os.path.relpath(os.path.dirname(path), os.path.join(straight, "tensorboard"))
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                found.setdefault((part, value.tag), {})[event.step] = tf.make_ndarray(value.tensor)
    scalars = "loss accuracy learning_rate gradient_norm examples_per_second tokens_per_second input_wait".split()
    for name in scalars:
        assert ("train", name) in found, name
    assert any(tag.startswith("positions/") and tag.endswith("amplitudes") for part, tag in found if part == "train")
    assert found["eval/dev", "accuracy"][24] == pytest.approx(read(straight)["results"]["last"]["dev"]["accuracy"])
    images = found["eval", "positions"]
    assert sorted(images) == [8, 16, 24]
    pictures = [tf.io.decode_png(image[2]).numpy() for image in images.values()]
    assert pictures[0].shape[-1] == 3 and not np.array_equal(pictures[0], pictures[-1])


def test_a_torn_line_is_repaired(tmp_path):
    folder = RunFolder(str(tmp_path), {})
    folder.write_history([{"step": 1}, {"step": 2}, {"step": 3}])
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 4, "ev')
    assert folder.history() == [{"step": 1}, {"step": 2}, {"step": 3}]
    assert folder.history(until=2) == [{"step": 1}, {"step": 2}]
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write("\n")
    with pytest.raises(ValueError, match="metrics.jsonl, line 4: expected JSON"):
        folder.history()


def test_patience_and_averages(tmp_path):
    """With a learning rate of almost nothing no evaluation is better than the first."""
    output = str(tmp_path)
    given = subject.options(steps=40, eval_every=2, patience=2, learning_rate=1e-12, ema=0.9, keep=3)
    results = engine.run(subject.Toy(), given, output, stream=False)
    assert results["steps"] == 6 and results["best"]["step"] == 2
    model = engine.restore_average(subject.Toy().build_model(), output, 3)
    newest = subject.weights(output, "newest")
    for name, weight in subject.named(model).items():
        np.testing.assert_allclose(weight, newest[name], atol=1e-7)
    with pytest.raises(ValueError, match="has 3 checkpoint.* and 4 are to be averaged"):
        engine.restore_average(model, output, 4)
