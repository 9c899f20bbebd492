"""The stages of the demo: what each found is kept as a file, so that one that was stopped goes on."""

import dataclasses
import importlib.metadata
import json
import os
import shutil
import sys
import time
from pathlib import Path

from training.files import write_text

# Seconds on two quiet cores, for the estimate of what is left; finished stages tell how much slower this machine is.
EXPECTED = {"train": 235, "export": 55, "serve": 77, "study": 5, "real": 2, "page": 10}
PAGE, CONFIG, SERVED, TRAINING, STAGES = "index.html", "models.config", "served", "training", "stages"
LOG, NOISE = "server.log", "demo.log"
MADE = (STAGES, SERVED, TRAINING, PAGE, CONFIG, LOG)  # what the demo puts into its folder, beside NOISE and its lock


class Stages:
    """Runs stages in order, once each.

    Args:
        folder: of the demo.
        settings: `Settings`. A folder made with others is a `ValueError`.
        fresh: remove what is there.
        stream: for progress, one line at the beginning and one at the end of a stage, and what stages say between.
    """

    def __init__(self, folder, settings, fresh=False, stream=None):
        self.folder, self.stream = Path(folder), sys.stderr if stream is None else stream
        if fresh:
            remove(self.folder)
        self._settle(settings)
        self.begin, self.spent, self.expected = time.monotonic(), 0.0, 0.0
        self.name = None

    def _settle(self, settings):
        """Writes the settings, or compares them with those that are there."""
        now = json.loads(json.dumps(dataclasses.asdict(settings)))
        now["version"] = importlib.metadata.version("keras_posenc")
        path = self.folder / STAGES / "settings.json"
        before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else now
        changed = sorted(name for name in {**now, **before} if now.get(name) != before.get(name))
        if changed:
            told = "; ".join(f"{name}: {before.get(name)!r}, now {now.get(name)!r}" for name in changed)
            raise ValueError(
                f"{self.folder} has a demo with other settings ({told}). Start over with --fresh (make demo "
                "ARGS=--fresh), or use another --output."
            )
        write_text(path, json.dumps(now, indent=1) + "\n")

    def path(self, name):
        return self.folder / STAGES / f"{name}.json"

    def read(self, name):
        """What a stage found, or `None` if it is not finished."""
        try:
            return json.loads(self.path(name).read_text(encoding="utf-8"))["found"]
        except FileNotFoundError:
            return None

    @property
    def seconds(self):
        """Dict of the time that each finished stage took when it was last started."""
        names = [name for name in EXPECTED if self.path(name).is_file()]
        return {name: json.loads(self.path(name).read_text(encoding="utf-8"))["seconds"] for name in names}

    def finished(self):
        """Whether there is nothing left to do."""
        folders = [self.folder / SERVED / name / "1" for name in (self.read("export") or {}).get("models", {})]
        files = [self.folder / PAGE, self.folder / CONFIG, *folders, *map(self.path, EXPECTED)]
        return all(path.exists() for path in files) and not self.missed_real()

    def missed_real(self):
        """Whether a real model was looked for and not found. It may be there by now."""
        return "requirement" in (self.read("real") or {})

    def run(self, name, what, function, again=False):
        """What `function` returns, or what it returned before.

        Args:
            name: one of `EXPECTED`.
            what: the stage, in words.
            function: without arguments; returns what JSON can hold.
            again: run it although it is finished.
        """
        self.name, found = name, self.read(name)
        if found is not None and not again:
            self.say("finished before")
            return found
        self.say(what)
        begin = time.monotonic()
        found = function()
        seconds = time.monotonic() - begin
        write_text(self.path(name), json.dumps({"seconds": seconds, "found": found}, indent=1) + "\n")
        self.spent, self.expected = self.spent + seconds, self.expected + EXPECTED[name]
        self.say(f"done in {clock(seconds)}{self._left(name)}")
        return found

    def say(self, text):
        """A line with the stage and the time since the start."""
        number = list(EXPECTED).index(self.name) + 1
        passed = clock(time.monotonic() - self.begin)
        print(f"[{number}/{len(EXPECTED)} {self.name:<6} {passed:>5}] {text}", file=self.stream, flush=True)

    def _left(self, name):
        names = list(EXPECTED)
        rest = [other for other in names[names.index(name) + 1 :] if not self.path(other).is_file()]
        if not rest:
            return ""
        pace = max(self.spent / self.expected, 1.0)  # a stage that was resumed seems faster than it is
        return f"; about {clock(pace * sum(EXPECTED[other] for other in rest))} left"


def remove(folder):
    """Deletes what a demo made, and nothing else that is in its folder. What it writes its noise to stays, empty."""
    for path in (Path(folder) / name for name in MADE):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    if (Path(folder) / NOISE).exists():
        os.truncate(Path(folder) / NOISE, 0)


def clock(seconds):
    """Minutes and seconds, `4:07`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
