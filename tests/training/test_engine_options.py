"""Schedules against their formulas, options that are refused, and flags."""

import math

import pytest
from absl import flags as absl_flags

from training.engine import TrainOptions, flags, schedules
from training.engine.checkpoints import remove_unfinished
from training.engine.folder import RunFolder
from training.engine.progress import Progress


def rate(step, **given):
    return float(schedules.make(TrainOptions(learning_rate=2.0, **given), total=given["steps"])(step))


def test_linear():
    given = dict(steps=100, warmup=10)
    assert [rate(t, **given) for t in (0, 4, 9, 10)] == pytest.approx([0.2, 1.0, 2.0, 2.0])
    assert [rate(t, **given) for t in (55, 99)] == pytest.approx([1.0, 2.0 / 90])
    assert rate(0, steps=100, warmup=0.1) == pytest.approx(0.2)  # a share of all steps
    assert rate(0, steps=100) == pytest.approx(2.0)


def test_constant():
    assert [rate(t, steps=9, schedule="constant", warmup=4) for t in (1, 3, 8)] == pytest.approx([1.0, 2.0, 2.0])


def test_inverse_sqrt():
    given = dict(steps=10**6, schedule="inverse_sqrt", warmup=100)
    assert [rate(t, **given) for t in (49, 99, 399, 9_999)] == pytest.approx([1.0, 2.0, 1.0, 0.2])


@pytest.mark.parametrize("number", [1, 100, 4000, 4001, 100_000])
def test_noam(number):
    """The formula of Vaswani et al., 2017, section 5.3; steps are counted from 1 there."""
    expected = 2.0 * 512**-0.5 * min(number**-0.5, number * 4000**-1.5)
    found = rate(number - 1, steps=10**6, schedule="noam", warmup=4000, model_width=512)
    assert found == pytest.approx(expected, rel=1e-5)
    assert math.isclose(
        rate(3999, steps=9999, schedule="noam", warmup=4000, model_width=512), 2 / math.sqrt(512 * 4000), rel_tol=1e-5
    )


@pytest.mark.parametrize(
    "given, replicas, examples, message",
    [
        (dict(), 1, None, "Give either steps or epochs. Received: steps=None, epochs=None"),
        (dict(steps=1, epochs=1), 1, None, "Give either steps or epochs"),
        (dict(steps=0), 1, None, "steps must be positive. Received: steps=0"),
        (dict(steps=9, weight_decay=-1.0), 1, None, "weight_decay must not be negative"),
        (dict(steps=9, learning_rate=math.nan), 1, None, "learning_rate must be a finite number. Received: .*=nan"),
        (dict(steps=9, warmup=math.inf), 1, None, "warmup must be a finite number"),
        (dict(steps=9, beta_2=1.0), 1, None, "beta_2 is from 0 to below 1"),
        (dict(steps=9, epsilon=0.0), 1, None, "epsilon must be positive"),
        (dict(steps=9, schedule="cosine"), 1, None, "schedule must be one of linear, .*'cosine'"),
        (dict(steps=9, precision="half"), 1, None, "precision must be one of float32"),
        (dict(steps=9, ema=1.5), 1, None, "ema is a momentum between 0 and 1"),
        (dict(steps=9, schedule="noam", warmup=2), 1, None, "give model_width"),
        (dict(steps=9, schedule="inverse_sqrt"), 1, None, "give warmup"),
        (dict(steps=9, warmup=10), 1, None, "warmup=10 is longer than the whole training of 9 steps"),
        (dict(steps=9, batch=12), 8, None, r"A batch of 12 cannot be divided over 8 device.* e.g. batch=16"),
        (dict(steps=9, batch=8, accumulation=3), 2, None, r"in 3 micro-batch.*Choose a multiple of 6, e.g. batch=12"),
        (dict(epochs=1, batch=32), 1, 20, "20 training examples, fewer than batch=32"),
        (dict(steps=9, strategy="tpu", virtual_devices=2), 1, None, "virtual_devices splits the CPU"),
    ],
)
def test_options_that_are_refused(given, replicas, examples, message):
    with pytest.raises(ValueError, match=message):
        TrainOptions(**given).validate(replicas, examples)


def test_steps_of_epochs():
    options = TrainOptions(epochs=3, batch=8).validate(examples=44)
    assert options.total_steps(44) == 15
    assert options.evaluation_steps(44) == [5, 10, 15]
    assert TrainOptions(epochs=0.5, batch=8).evaluation_steps(44) == [2]
    assert TrainOptions(steps=10, eval_every=4).evaluation_steps() == [4, 8, 10]
    assert TrainOptions(steps=10).evaluation_steps() == [10]
    with pytest.raises(ValueError, match="does not know its number of examples: give steps"):
        options.total_steps()


def test_flags():
    values = absl_flags.FlagValues()
    flags.define(values, epochs=3.0, learning_rate=5e-5)
    values(["binary", "--batch=16", "--xla", "--schedule=constant", "--output=out", "--tpu=local"])
    assert values.output == "out"
    expected = TrainOptions(epochs=3.0, learning_rate=5e-5, batch=16, xla=True, schedule="constant", tpu="local")
    assert flags.options(values) == expected
    assert flags.options(values, seed=4).seed == 4
    values(["binary", "--steps=7"])
    assert (flags.options(values).steps, flags.options(values).epochs) == (7, None)
    with pytest.raises(absl_flags.IllegalFlagValueError, match="schedule"):
        values(["binary", "--schedule=cosine"])
    with pytest.raises(ValueError, match="No such options: rate"):
        flags.define(absl_flags.FlagValues(), rate=1)


def test_an_output_that_is_not_on_this_machine_is_refused():
    """Python would write to a folder `gs:`; pretraining writes all files with TensorFlow."""
    values = absl_flags.FlagValues()
    flags.define(values, steps=1)
    values(["binary", "--output=gs://bucket/run"])
    with pytest.raises(ValueError, match="file system of this machine. Received: --output=gs://bucket/run"):
        flags.options(values)
    assert flags.options(values, remote=True).steps == 1


def test_a_folder_that_is_no_run(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "checkpoint").touch()
    with pytest.raises(ValueError, match="has checkpoints but no run.json"):
        RunFolder(str(tmp_path), {}).check()
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match="run.json is not JSON"):
        RunFolder(str(tmp_path), {})


def test_unfinished_checkpoints_are_removed(tmp_path):
    """What the list names stays, and so does what is no checkpoint."""
    named = ["ckpt-1.index", "ckpt-1.data-00000-of-00001"]
    for name in [*named, "ckpt-2.data-00000-of-00001", "notes.txt"]:
        (tmp_path / name).touch()
    (tmp_path / "ckpt-2_temp").mkdir()
    (tmp_path / "ckpt-2_temp" / "part-0").touch()
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "ckpt-1"\nall_model_checkpoint_paths: "ckpt-1"\n')
    remove_unfinished(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*named, "checkpoint", "notes.txt"])


class Stream:
    """A stream that says whether it is a terminal."""

    def __init__(self, terminal):
        self.terminal, self.text = terminal, ""

    def isatty(self):
        return self.terminal

    def write(self, text):
        self.text += text

    def flush(self):
        pass


@pytest.mark.parametrize("terminal", [False, True])
def test_progress(terminal):
    stream = Stream(terminal)
    progress = Progress(100, done=20, stream=stream)
    for step in (30, 40, 100):
        progress.update(step, {"loss": 0.5, "learning_rate": 1e-3, "examples_per_second": 12.3})
    progress.say("step 100: dev/accuracy 1")
    progress.close()
    assert "dev/accuracy 1\n" in stream.text and "loss 0.5, lr 0.001, 12.3 examples/s" in stream.text
    if not terminal:  # the second line comes too soon after the first
        assert [line.split(",")[0] for line in stream.text.splitlines()[:2]] == ["step 30/100", "step 100/100"]
