"""Checkpoints on file systems that TensorFlow knows and Python does not, such as `gs://`."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path, PurePosixPath

PARTIAL = "keras_posenc.partial"  # in a folder that is being written
BESIDE = (".json", ".txt", ".model")  # what belongs to a file of weights: its config, vocabulary and tokenizer


def is_remote(path):
    """Whether `path` is a URI."""
    return "://" in str(path)


def exists(uri):
    """Whether there is such a folder or file."""
    from tensorflow.io import gfile

    return gfile.exists(str(uri))


def fetch(uri):
    """The folder `uri` with all that is in it, or the file and what belongs to it, copied to this machine.

    The copy stays until the process ends, and is made again only if something there has changed.
    """
    from tensorflow.io import gfile

    uri = str(uri).rstrip("/")
    if not gfile.exists(uri):
        raise FileNotFoundError(f"There is no folder or file '{uri}'.")
    if gfile.isdir(uri):
        files = [f"{folder.rstrip('/')}/{name}" for folder, _, names in gfile.walk(uri) for name in names]
        base = uri
    else:
        base = uri.rpartition("/")[0]
        beside = (name for name in gfile.listdir(base) if name.endswith(BESIDE))
        files = [uri, *(f"{base}/{name}" for name in beside if f"{base}/{name}" != uri)]
    states = [gfile.stat(file) for file in files]
    known = tuple((file, state.length, state.mtime_nsec) for file, state in zip(files, states))
    return _copy(base, known) if base == uri else _copy(base, known) / PurePosixPath(uri).name


@functools.cache
def _copy(base, files):
    """A folder with copies of `files`, `(path, size, time)`, at the places that they have below `base`."""
    from tensorflow.io import gfile

    place = tempfile.mkdtemp(prefix="checkpoint-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    copy = Path(place, PurePosixPath(base).name or "files")
    copy.mkdir()
    for file, _, _ in files:
        target = copy / file[len(base) :].lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        gfile.copy(file, str(target))
    return copy


def send(folder, uri, last):
    """Copies the files of a local folder to the folder `uri`, in place of what is there, and the file `last` last.

    Until that is done there is a file `PARTIAL`, by which a folder that was left half written is known.
    """
    from tensorflow.io import gfile

    gfile.makedirs(uri)
    with gfile.GFile(f"{uri}/{PARTIAL}", "w") as stream:
        stream.write("This folder is being written.\n")
    for name in gfile.listdir(uri):
        old = f"{uri}/{name.rstrip('/')}"
        if not old.endswith(f"/{PARTIAL}"):
            gfile.rmtree(old) if gfile.isdir(old) else gfile.remove(old)
    for file in sorted(Path(folder).iterdir(), key=lambda file: file.name == last):
        gfile.copy(str(file), f"{uri}/{file.name}")
    gfile.remove(f"{uri}/{PARTIAL}")
