"""The files of a run: `run.json` and `metrics.jsonl`."""

import json
import os
import platform
import subprocess
import time

import keras
import tensorflow as tf

from keras_posenc.version import __version__

RUN, METRICS = "run.json", "metrics.jsonl"


class RunFolder:
    """What is known about a run, on disk.

    Files are written beside their place and moved there, so that they are old or new but never half.

    Args:
        path: the folder; made when it is first written to.
        config: dict of what makes the run what it is.
        chief: whether this process writes.
    """

    def __init__(self, path, config, chief=True):
        self.path, self.chief = path, chief
        self.config = json.loads(json.dumps(config, default=str))
        self.begin = time.monotonic()
        self.run = self._read_run()
        self.seconds_before = self.run.get("seconds", 0.0)

    def check(self):
        """Raises a `ValueError` if the folder holds another run."""
        if not self.run:
            if tf.io.gfile.exists(os.path.join(self.path, "checkpoints", "checkpoint")):
                raise ValueError(f"{self.path} has checkpoints but no {RUN}: it is not a run. Choose another folder.")
            return
        before, now = self.run["config"], self.config
        changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        if changed:
            listed = "; ".join(f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in changed)
            raise ValueError(
                f"{self.path} is the folder of another run: {listed}. Give the same options to continue it, or "
                "another folder."
            )

    @property
    def results(self):
        """The results of a finished run, else `None`."""
        return self.run["results"] if self.run.get("state") == "finished" else None

    @property
    def diverged(self):
        """What was said when the run diverged, if that is how it ended, else `None`."""
        return self.run["diverged"] if self.run.get("state") == "diverged" else None

    def write(self, **known):
        """Adds to what `run.json` says."""
        self.run = {**self.run, **known, "seconds": self.seconds_before + time.monotonic() - self.begin}
        if self.chief:
            self._replace(RUN, json.dumps(self.run, indent=1, default=str) + "\n")

    def start(self, **known):
        started = self.run.get("started", time.strftime("%Y-%m-%dT%H:%M:%S%z"))
        starts = self.run.get("starts", 0) + 1
        self.write(
            state="running",
            config=self.config,
            versions=versions(),
            git_commit=git_commit(),
            started=started,
            starts=starts,
            **known,
        )

    def history(self, until=None):
        """The lines of `metrics.jsonl`, up to a step: a later one is of a step that is made again.

        A last line without its end is what a killed writer left, and does not count.
        """
        path = os.path.join(self.path, METRICS)
        lines = tf.io.gfile.GFile(path).read().splitlines(keepends=True) if tf.io.gfile.exists(path) else []
        found = {}
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line) if line.endswith("\n") else None
            except ValueError:
                raise ValueError(f"{path}, line {number}: expected JSON, found {line[:80]!r}.") from None
            if entry is not None and (until is None or entry["step"] <= until):
                found[entry["step"]] = entry
        return [found[step] for step in sorted(found)]

    def write_history(self, entries):
        if self.chief:
            self._replace(METRICS, "".join(json.dumps(entry) + "\n" for entry in entries))

    def _read_run(self):
        path = os.path.join(self.path, RUN)
        if not tf.io.gfile.exists(path):
            return {}
        try:
            return json.loads(tf.io.gfile.GFile(path).read())
        except ValueError as error:
            raise ValueError(f"{path} is not JSON ({error}). Is it the folder of a run?") from None

    def _replace(self, name, text):
        tf.io.gfile.makedirs(self.path)
        path = os.path.join(self.path, name)
        with tf.io.gfile.GFile(path + ".tmp", "w") as file:
            file.write(text)
        tf.io.gfile.rename(path + ".tmp", path, overwrite=True)


def versions():
    return {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "keras_posenc": __version__,
    }


def git_commit():
    """The commit of this source tree, with `-dirty` if files were changed, or `None` outside of git."""
    command = ["git", "-C", os.path.dirname(__file__), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
