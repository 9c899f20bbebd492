"""Results on disk, so that an interrupted run goes on where it stopped."""

import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path

from keras_posenc.version import __version__


class Store:
    """Finished measurements by key, written to `results.json` after every `save`.

    Args:
        directory: where the file is; `None` keeps results in memory only.
        settings: dict of what the measurements depend on. Results made with others are not mixed with new ones: that
            is a `ValueError`.
        fresh: start over, whatever is there.
    """

    def __init__(self, directory, settings, fresh=False):
        self.path = None if directory is None else Path(directory) / "results.json"
        self.data = {"command": command(), "machine": machine(), "settings": settings, "results": {}}
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and not fresh:
            self._resume()

    def _resume(self):
        old = json.loads(self.path.read_text())
        for part in ("settings", "machine"):
            now, before = self.data[part], old[part]
            changed = [name for name in {**now, **before} if now.get(name) != before.get(name)]
            if changed:
                raise ValueError(
                    f"{self.path} was measured with other {part} ("
                    + ", ".join(f"{name}: {before.get(name)!r}, now {now.get(name)!r}" for name in sorted(changed))
                    + "). Pass --fresh to start over, or another --output."
                )
        self.data["results"] = old["results"]

    def __contains__(self, key):
        return _text(key) in self.data["results"]

    def get(self, key):
        """The measurement under `key`, or `None`."""
        return self.data["results"].get(_text(key))

    def put(self, key, value):
        self.data["results"][_text(key)] = value

    def save(self):
        if self.path is not None:
            partial = self.path.with_suffix(".partial")
            partial.write_text(json.dumps(self.data, indent=1))
            os.replace(partial, self.path)


def _text(key):
    return "/".join(map(str, key))


def command():
    """What was typed, without the path that Python makes of `-m`."""
    return " ".join(["python -m keras_posenc.benchmark", *sys.argv[1:]])


def machine():
    """Processor, cores and versions."""
    versions = {package: importlib.metadata.version(package) for package in ("keras", "tensorflow", "numpy")}
    versions["keras_posenc"] = __version__
    return {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version(), **versions}


def _processor():
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
