"""The real TensorFlow Serving, installed on this machine."""

import os
import shutil

from serving.backends.flags import spelled

PROGRAM = "tensorflow_model_server"


def find():
    """Path of the program and what was found, or `None` and why not."""
    program = shutil.which(PROGRAM)
    if program is None:
        return None, f"{PROGRAM} is not on the PATH"
    return program, f"{PROGRAM} is at {program}"


def command(program, given):
    """Command line for flags `given`, in which paths are absolute as TF-Serving wants them.

    Flags that were not given are left to the program: its release may have other defaults, or not know them.
    """
    return [program, *(spelled(name, value) for name, value in absolute(given).items())]


def absolute(given):
    """The flags with an absolute `model_base_path`, unless it is a URI."""
    base = given.get("model_base_path", "")
    if not base or "://" in base:
        return dict(given)
    return {**given, "model_base_path": os.path.abspath(base)}
