"""What every binary does with its command line."""

import subprocess
import sys

import pytest

PROGRAM = """
from absl import flags
from keras_posenc.utils.binary import start
import other

def run(values):
    if values.test_number > 3:
        raise ValueError(f"{values.test_number} is too large.")
    print("number", values.test_number)

start(other.define, run)
"""
OTHER = """
from absl import flags

def define(values):
    flags.DEFINE_integer("test_number", 0, "A number of another module.", flag_values=values)
"""


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    folder = tmp_path_factory.mktemp("binary")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "other.py").write_text(OTHER)

    def run(*arguments):
        command = [sys.executable, str(folder / "program.py"), *arguments]
        found = subprocess.run(command, capture_output=True, text=True)
        return found.returncode, found.stdout, found.stderr.strip().splitlines()[-1:]

    return run


@pytest.mark.integration
def test_flags_of_other_modules_are_in_the_help(call):
    assert "A number of another module." in call("--help")[1]


@pytest.mark.integration
def test_what_is_wrong_is_one_line(call):
    assert call("--test_number=2")[:2] == (0, "number 2\n")
    assert call("--test_number=4") == (1, "", ["error: 4 is too large."])
    code, _, last = call("test_number=4")
    assert code == 1 and last == ["error: Unknown arguments: test_number=4. Flags are written as --name=value."]
