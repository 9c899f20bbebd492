"""Files that are whole or not there, and how to tell them apart."""

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
