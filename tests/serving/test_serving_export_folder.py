"""A version folder is there whole or not at all, and needs nothing of this library."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from absl import flags
from serving_export_subject import inputs, make, tokenizer

from keras_posenc import checkpoints
from keras_posenc.models import heads
from serving import export
from serving.exporting import description, folder

ROOT = Path(export.__file__).parents[1]


def run(code, *arguments, **options):
    """A process of its own, from the top of the repository."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, **options)


def write(base, version=None, content="x"):
    with folder.new_version(base, version) as pending:
        (pending.path / "saved_model.pb").write_text(content)
    return pending.final


def test_versions_count_up(tmp_path):
    base = tmp_path / "m"
    assert [write(base).name, write(base).name, write(base, 7).name, write(base).name] == ["1", "2", "7", "8"]
    (base / "notes").mkdir()
    assert folder.versions(base) == [1, 2, 7, 8]
    assert folder.newest(base).name == "8" and folder.newest(base / "2").name == "2"
    with pytest.raises(FileNotFoundError, match="no SavedModel"):
        folder.newest(tmp_path / "none")


def test_nothing_is_overwritten(tmp_path):
    write(tmp_path, 3, "first")
    with pytest.raises(FileExistsError, match="versions are not overwritten"):
        write(tmp_path, 3, "second")
    assert (tmp_path / "3" / "saved_model.pb").read_text() == "first"
    (tmp_path / "4").mkdir()  # empty: renaming a folder onto it would succeed
    with pytest.raises(FileExistsError, match="4"):
        write(tmp_path, 4)


def test_a_version_that_appears_meanwhile(tmp_path):
    """Two exports at once: the numbers are given out at the end, and a number that was asked for stays taken."""
    with folder.new_version(tmp_path) as slow:
        (slow.path / "saved_model.pb").write_text("slow")
        assert write(tmp_path, content="fast").name == "1"
    assert slow.final.name == "2"
    with pytest.raises(FileExistsError), folder.new_version(tmp_path, 3):
        write(tmp_path, 3)
    assert folder.versions(tmp_path) == [1, 2, 3] and not list(tmp_path.glob(".*"))


def test_many_at_once(tmp_path):
    threads = [threading.Thread(target=write, args=(tmp_path,)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert folder.versions(tmp_path) == list(range(1, 13)) and not list(tmp_path.glob(".*"))


def test_a_failed_export_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), folder.new_version(tmp_path) as pending:
        (pending.path / "saved_model.pb").write_text("x")
        raise RuntimeError
    assert not list(tmp_path.iterdir())


# The module alone, as the package around it imports TensorFlow.
KILLED = """
import importlib.util, os, signal, sys
spec = importlib.util.spec_from_file_location("folder", sys.argv[3])
folder = importlib.util.module_from_spec(spec)
spec.loader.exec_module(folder)
with folder.new_version(sys.argv[1]) as pending:
    (pending.path / "saved_model.pb").write_text("whole or not, it has no number")
    if sys.argv[2] == "rename":
        os.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    else:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("when", ["writing", "rename"])
def test_killed(when, tmp_path):
    """Kill -9 leaves a hidden folder; a running export's is left alone, and a dead one's is removed by the next."""
    with folder.new_version(tmp_path) as running:
        (running.path / "saved_model.pb").write_text("running")
        child = run(KILLED, tmp_path, when, folder.__file__, timeout=120)
        assert child.returncode == -signal.SIGKILL, child.stderr
        assert folder.versions(tmp_path) == []
        left = [entry.name for entry in tmp_path.iterdir() if entry != running.path]
        assert len(left) == 1 and left[0].startswith(".")
    assert write(tmp_path).name == "2"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["1", "2"]


# Keras and this library are not found, as if they were not installed.
WITHOUT = """
import json, sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *arguments):
        blocked = ("keras", "keras_posenc", "keras_hub", "serving", "training", "tf_keras")
        return None if name.split(".")[0] in blocked else self.finder.find_spec(name, *arguments)

sys.meta_path = [Without(finder) for finder in sys.meta_path]
import tensorflow as tf

import importlib.util, pathlib

# The operation alone: tensorflow_text imports Keras, for layers of its own.
place = importlib.util.find_spec("tensorflow_text").submodule_search_locations[0]
tf.load_op_library(str(next(pathlib.Path(place).rglob("_wordpiece_tokenizer.so"))))
given = json.loads(sys.argv[2])
loaded = tf.saved_model.load(sys.argv[1])
answers = []
for name, inputs in given.items():
    answer = loaded.signatures[name](**{key: tf.constant(value) for key, value in inputs.items()})
    answers.append(answer["logits"].numpy().tolist())
assert not any(name.split(".")[0] in ("keras", "keras_posenc", "serving") for name in sys.modules)
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder as training leaves it: `model/` inside, with its tokenizer."""
    run_folder = tmp_path_factory.mktemp("run")
    model = make("tupe", lambda backbone: heads.Classifier(backbone, 2), layers=1)
    checkpoints.save(model, run_folder / "model", tokenizer())
    return run_folder, model


def from_flags(*arguments):
    values = flags.FlagValues()
    export.define(values)
    values(["export", *map(str, arguments)])
    return export.run(values)


@pytest.mark.integration
def test_the_command_and_a_process_without_this_library(trained, tmp_path, rng, capsys):
    run_folder, model = trained
    base = tmp_path / "classifier"
    path = from_flags(
        f"--checkpoint={run_folder}",
        f"--export_base={base}",
        "--labels=bad,good",
        "--warmup_lengths=4",
        "--signatures=text",
    )
    assert path == base / "1" and "Labels: bad, good" in capsys.readouterr().out
    about = description.read(path)
    assert about["position"] == "tupe" and about["folded_length"] == 12 and about["labels"] == ["bad", "good"]
    assert about["warmup"]["requests"] == 2 and about["tokenizer"]["kind"] == "word_piece"
    given = {name: value.tolist() for name, value in inputs(rng).items()}
    asked = {"serving_default": given, "text": {"text": ["Hello, the world"], "text_pair": [""]}}
    child = run(WITHOUT, path, json.dumps(asked), timeout=300)
    assert child.returncode == 0, child.stderr[-2000:]
    ids, text = json.loads(child.stdout.splitlines()[-1])
    np.testing.assert_allclose(ids, model(inputs(np.random.default_rng(3)))["logits"], rtol=0, atol=1e-5)
    expected = model(tokenizer().encode("Hello, the world"))["logits"]
    np.testing.assert_allclose(text, expected, rtol=0, atol=1e-5)
    with pytest.raises(FileExistsError):
        from_flags(f"--checkpoint={run_folder}", f"--export_base={base}", "--version=1", "--signatures=", "--nowarmup")


@pytest.mark.integration
def test_a_keras_file_by_command(trained, tmp_path):
    _, model = trained
    model.save(tmp_path / "model.keras")
    arguments = [f"--checkpoint={tmp_path / 'model.keras'}", f"--export_base={tmp_path / 'm'}", "--nowarmup"]
    path = from_flags(*arguments, "--version=5", "--signatures=", "--nofold", "--max_length=8")
    about = description.read(path)
    assert path.name == "5" and about["folded_length"] is None and about["max_length"] == 8
    assert about["signatures"] == ["serving_default"] and about["tokenizer"] is None


def test_what_the_command_refuses(trained, tmp_path):
    base = f"--export_base={tmp_path / 'm'}"
    for arguments, error, message in (
        ([base], ValueError, "--checkpoint and --export_base"),
        ([base, "--checkpoint=nowhere"], FileNotFoundError, "Known: minilm"),
        ([base, "--checkpoint=nowhere.keras"], FileNotFoundError, "no file"),
        ([base, f"--checkpoint={trained[0]}", "--warmup_lengths=a,b"], ValueError, "whole numbers"),
        ([base, f"--checkpoint={trained[0]}", "--task=masked_lm"], ValueError, "would be random"),
    ):
        with pytest.raises(error, match=message):
            from_flags(*arguments)
    assert not (tmp_path / "m").exists()
