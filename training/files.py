"""Files that are whole or not there."""

from pathlib import Path


def write_text(file, text):
    """Writes a text beside its place and moves it there; folders on the way are made."""
    file = Path(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(file.name + ".part")
    partial.write_text(text, encoding="utf-8", newline="\n")
    partial.replace(file)
