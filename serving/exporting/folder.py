"""Version folders `<base>/<number>/`, which are there whole or not at all.

TF-Serving loads every folder whose name is a number. A model is therefore written under a hidden name, brought to the
disk, and renamed. An export that was killed leaves a hidden folder that no server looks at; the next export removes it.
"""

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from pathlib import Path

PREFIX = ".export-"


def versions(base):
    """The version numbers in a folder, in order."""
    base = Path(base)
    names = [entry.name for entry in base.iterdir() if entry.is_dir()] if base.is_dir() else []
    return sorted(int(name) for name in names if re.fullmatch("[0-9]+", name))


def newest(path):
    """A version folder: `path` itself if it holds a SavedModel, else the highest version in it."""
    path = Path(path)
    if (path / "saved_model.pb").is_file():
        return path
    found = [version for version in versions(path) if (path / str(version) / "saved_model.pb").is_file()]
    if not found:
        raise FileNotFoundError(f"'{path}' holds no SavedModel, and no version folder with one.")
    return path / str(found[-1])


@contextlib.contextmanager
def new_version(base, version=None):
    """A new version of a model, to be written by the body of a `with` statement.

    Args:
        base: folder of the model, made if there is none.
        version: a number, or `None` for the one after the highest.

    Yields: a `Pending`, with the folder to write into as `path`. If the body fails it is removed. Otherwise it gets its
        version for a name when the body ends, and then `final` says where it is.
    """
    base = Path(base)
    if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 1):
        raise ValueError(f"`version` must be a number of at least 1. Received: {version!r}")
    if version is not None:
        _refuse(base / str(version))
    base.mkdir(parents=True, exist_ok=True)
    with _locked(base):
        # Nobody else takes a folder for a leftover between its making and its locking.
        _remove_leftovers(base)
        partial = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        lock = _lock(partial)
    pending = Pending(partial)
    try:
        yield pending
        umask = os.umask(0)
        os.umask(umask)
        partial.chmod(0o777 & ~umask)  # temporary folders are for their owner only
        _to_disk(partial)
        with _locked(base):
            pending.final = base / str(version or (versions(base) or [0])[-1] + 1)
            _refuse(pending.final)
            os.rename(partial, pending.final)
            _sync(base)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)


class Pending:
    """A version that is being written: `path` until it is there, `final` after."""

    def __init__(self, path):
        self.path, self.final = path, None


def _refuse(path):
    if path.exists():
        raise FileExistsError(
            f"'{path}' exists, and versions are not overwritten: servers may be using it. Choose another version, or "
            "none for the next free one."
        )


def _remove_leftovers(base):
    """Removes what killed exports left. A running export holds a lock on its folder, which dies with its process."""
    for entry in base.glob(PREFIX + "*"):
        try:
            lock = _lock(entry, wait=False)
        except OSError:  # in use, or gone already, or a file system without locks: it does no harm
            continue
        shutil.rmtree(entry, ignore_errors=True)
        os.close(lock)


@contextlib.contextmanager
def _locked(folder):
    descriptor = _lock(folder)
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(folder, wait=True):
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        if wait:  # a file system without locks: two exports at once are then the user's concern
            return descriptor
        os.close(descriptor)
        raise
    return descriptor


def _to_disk(folder):
    for place, _, files in os.walk(folder):
        for name in files:
            _sync(os.path.join(place, name))
        _sync(place)


def _sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
