"""What a training step of each encoding costs, as a ratio to the first.

Runs side by side disturb one another, and so does the machine. So after the runs, in one process, each encoding and the
first take turns with short compiled loops over the same batches, and the median of the ratios of the turns is reported.
"""

import json
from pathlib import Path

from keras_posenc.benchmark.timing import compare, interleave
from training.comparing import subjects
from training.files import write_text

TIMING, FILE = "timing", "timing.json"
SETTINGS = ("task", "model", "checkpoint", "model_options", "sharing", "segments", "dropout", "batch", "max_length")
SETTINGS += ("static", "xla", "strategy", "precision", "accumulation", "threads", "timing_rounds", "timing_steps")


def settings(values):
    """What the times depend on, as JSON."""
    return {name: values[name].value for name in SETTINGS}


def timed(positions):
    """The encodings that have steps; the first is the one that others are compared with."""
    return [position for position in positions if position != subjects.BAG]


def read(values):
    """Dict of encodings to times as `benchmark.timing.compare` has them; those measured otherwise are left out."""
    path = Path(values.output) / FILE
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    same = found.get("settings") == settings(values) and found.get("baseline") == timed(values.positions)[0]
    return found["times"] if same else {}


def missing(values):
    """Encodings that have no times yet."""
    known = read(values)
    return [position for position in timed(values.positions) if position not in known]


def measure(values, options):
    """Measures what is missing and writes each time as it is known."""
    import tensorflow as tf

    from training.throughput import make_trainer

    subject, steps = subjects.make(values, options), tf.constant(values.timing_steps)

    def loop(position):
        trainer = make_trainer(subject.task(position, options.seed), options)
        for _ in range(2):  # traces, and warms up
            trainer.train(steps)
        return lambda: trainer.train(steps)

    baseline = timed(values.positions)[0]
    first, times = loop(baseline), read(values)
    for position in missing(values):
        # Two at a time: however many encodings, memory holds two models. The first has itself to compare with.
        pair = {"first": first, "other": loop(position)}
        seconds = interleave(pair, values.timing_rounds)
        times[position] = compare(seconds["other"] / values.timing_steps, seconds["first"] / values.timing_steps)
        print(f"{position}: {times[position]['ratio']:.3f} of {baseline}", flush=True)
        known = {"settings": settings(values), "baseline": baseline, "times": times}
        write_text(Path(values.output) / FILE, json.dumps(known, indent=1) + "\n")
