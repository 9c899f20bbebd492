"""What a study has finished, so that a run that was stopped goes on where it was."""

import hashlib
import io
import json
import os
import shutil
import time
import zipfile
from pathlib import Path

import numpy as np

WORK, SETTINGS = "work", "settings.json"
TREE, ARRAY = "tree", "array:"


class Store:
    """Finished pieces in `folder/work`, a file each.

    A piece appears under its name only when it is complete. The folder belongs to the settings it was begun with:
    others are refused, so that pieces of two studies do not mix.

    A piece is a dict of arrays, numbers, strings, and lists and dicts of them.

    Args:
        folder: of the study's output.
        settings: dict of all that results depend on.
        fresh: whether to throw away what another run left.
    """

    def __init__(self, folder, settings, fresh=False):
        self.folder = Path(folder)
        self.work = self.folder / WORK
        if fresh and self.work.exists():
            shutil.rmtree(self.work)
        kept = self.work / SETTINGS
        settings = json.loads(json.dumps(settings))
        if kept.is_file():
            old = json.loads(kept.read_text(encoding="utf-8"))
            changed = sorted(name for name in {*old, *settings} if old.get(name) != settings.get(name))
            if changed:
                which = "; ".join(f"{name}: {old.get(name)!r} there, {settings.get(name)!r} now" for name in changed)
                raise ValueError(
                    f"{folder} holds a study with other settings ({which}). Choose another folder, or --fresh."
                )
        self.work.mkdir(parents=True, exist_ok=True)
        if not kept.is_file():
            self._write(kept, json.dumps(settings, indent=2).encode())

    def has(self, name):
        return self._path(name).is_file()

    def get(self, name):
        """A finished piece. One that cannot be read is removed, and an error says so."""
        path = self._path(name)
        try:
            with np.load(path) as arrays:
                return _join(json.loads(str(arrays[TREE])), arrays)
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            path.unlink()
            raise ValueError(f"{path} is damaged ({error}) and was removed: start again to compute it anew.") from error

    def put(self, name, piece):
        arrays, content = {}, io.BytesIO()
        tree = json.dumps(_split(piece, arrays))
        np.savez(content, **arrays, **{TREE: np.array(tree)})
        self._write(self._path(name), content.getvalue())

    def _path(self, name):
        return self.work / f"{name}.npz"

    @staticmethod
    def _write(path, content):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(path.name + ".part")
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


class Pieces:
    """Small pieces of an experiment, many to a file: those of earlier runs in `done`, new ones by `keep`.

    Args:
        store: a `Store`.
        name: of the files.
        seconds: how much work a stopped run may lose.
    """

    def __init__(self, store, name, seconds=10):
        self.store, self.name, self.seconds = store, name, seconds
        self.done, self.new, self.number = [], [], 0
        while store.has(self._file()):
            self.done += store.get(self._file())["pieces"]
            self.number += 1
        self.written = time.monotonic()

    def _file(self):
        return f"{self.name}-{self.number:05d}"

    def keep(self, piece):
        """`piece` has `row()`, a flat dict."""
        self.new.append(piece.row())
        if time.monotonic() - self.written > self.seconds:
            self.write()

    def write(self):
        if self.new:
            self.store.put(self._file(), {"pieces": self.new})
            self.new, self.number = [], self.number + 1
        self.written = time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.write()


def _split(piece, arrays):
    """The piece as JSON has it: arrays are moved to `arrays`, with their place there in their stead."""
    if isinstance(piece, np.ndarray):
        arrays[f"array{len(arrays)}"] = piece
        return f"{ARRAY}array{len(arrays) - 1}"
    if isinstance(piece, dict):
        return {str(key): _split(value, arrays) for key, value in piece.items()}
    if isinstance(piece, (list, tuple)):
        return [_split(value, arrays) for value in piece]
    if isinstance(piece, np.generic):
        return piece.item()
    return piece


def _join(tree, arrays):
    if isinstance(tree, str) and tree.startswith(ARRAY):
        return arrays[tree.removeprefix(ARRAY)]
    if isinstance(tree, dict):
        return {key: _join(value, arrays) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_join(value, arrays) for value in tree]
    return tree


def fingerprint(path):
    """A short digest of a file, or of the names, sizes and times of the files of a folder."""
    path, digest = Path(path), hashlib.sha256()
    if path.is_file():
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    else:
        for file in sorted(item for item in path.rglob("*") if item.is_file()):
            about = file.stat()
            digest.update(f"{file.relative_to(path)} {about.st_size} {about.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
