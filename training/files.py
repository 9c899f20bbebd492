"""Files that are whole or not there, how to tell them apart, and folders that one process writes to."""

import contextlib
import fcntl
import hashlib
from pathlib import Path


def write_text(file, text):
    """Writes a text beside its place and moves it there; folders on the way are made."""
    file = Path(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(file.name + ".part")
    partial.write_text(text, encoding="utf-8", newline="\n")
    partial.replace(file)


def digest(file):
    """A short name of what is in a file, the same for the same content wherever it is."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:16]


@contextlib.contextmanager
def alone(folder):
    """Holds a folder that two processes would write the same files to. The lock ends with the process."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"Another process writes to {folder}. Wait for it, or use another folder.") from None
        yield
