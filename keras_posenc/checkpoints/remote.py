"""Checkpoints on file systems that TensorFlow knows and Python does not, such as `gs://`."""

import atexit
import shutil
import tempfile
from pathlib import Path, PurePosixPath


def is_remote(path):
    """Whether `path` is a URI."""
    return "://" in str(path)


def exists(uri):
    """Whether there is such a folder or file."""
    from tensorflow.io import gfile

    return gfile.exists(str(uri))


def fetch(uri):
    """The folder or file `uri`, with all that is in it, copied to this machine until the process ends."""
    from tensorflow.io import gfile

    uri = str(uri).rstrip("/")
    if not gfile.exists(uri):
        raise FileNotFoundError(f"There is no folder or file '{uri}'.")
    place = tempfile.mkdtemp(prefix="checkpoint-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    copy = Path(place, PurePosixPath(uri).name)
    if not gfile.isdir(uri):
        gfile.copy(uri, str(copy))
        return copy
    for folder, _, files in gfile.walk(uri):
        target = copy / folder.rstrip("/")[len(uri) :].lstrip("/")
        target.mkdir(parents=True, exist_ok=True)
        for name in files:
            gfile.copy(f"{folder.rstrip('/')}/{name}", str(target / name))
    return copy


def send(folder, uri, last):
    """Copies the files of a local folder to the folder `uri`, in place of what is there, and the file `last` last."""
    from tensorflow.io import gfile

    if gfile.exists(uri):
        gfile.rmtree(uri)
    gfile.makedirs(uri)
    for file in sorted(Path(folder).iterdir(), key=lambda file: file.name == last):
        gfile.copy(str(file), f"{uri}/{file.name}")
