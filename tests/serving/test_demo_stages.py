"""Stages of the demo: kept, resumed, removed; a console without the noise of libraries; settings."""

import dataclasses
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from absl import flags

from serving import demo
from serving.demoing import settings as demo_settings
from serving.demoing.console import native_messages_to
from serving.demoing.settings import Settings
from serving.demoing.stages import EXPECTED, MADE, Stages, clock, remove
from serving.demoing.training import best
from training.files import alone

SETTINGS = Settings(runs=2)


def make(folder, **given):
    stream = io.StringIO()
    return Stages(folder, SETTINGS, stream=stream, **given), stream


def test_a_stage_runs_once_and_one_that_failed_runs_again(tmp_path):
    calls = []

    def fails():
        calls.append("export")
        raise RuntimeError("stopped here")

    stages, _ = make(tmp_path)
    assert stages.run("train", "training", lambda: calls.append("train") or {"score": [0.5]}) == {"score": [0.5]}
    with pytest.raises(RuntimeError, match="stopped here"):
        stages.run("export", "exporting", fails)
    again, stream = make(tmp_path)
    assert again.run("train", "training", fails) == {"score": [0.5]}
    assert again.run("export", "exporting", lambda: calls.append("again") or {}) == {}
    assert calls == ["train", "export", "again"]
    assert "[1/6 train " in stream.getvalue() and "finished before" in stream.getvalue()
    assert set(again.seconds) == {"train", "export"}


def test_a_result_that_was_not_written_to_its_end_is_no_result(tmp_path):
    stages, _ = make(tmp_path)
    stages.path("train").with_name("train.json.part").write_text('{"seconds": 1, "fou')
    assert stages.read("train") is None and not stages.finished()


def test_a_demo_is_finished_when_results_models_and_page_are_there(tmp_path):
    stages, _ = make(tmp_path)
    for name in EXPECTED:
        stages.run(name, name, lambda: {"models": {"tisa": {}}})
    for missing in ("served/tisa/1", "models.config", "index.html"):
        assert not stages.finished(), missing
        (tmp_path / missing).mkdir(parents=True)
    assert stages.finished()
    stages.run("real", "a real model", lambda: {"installed": False, "requirement": "weights==1"}, again=True)
    assert stages.missed_real() and not stages.finished()  # it is looked for again
    stages.run("real", "a real model", lambda: {"installed": True}, again=True)
    assert stages.finished()
    stages.path("serve").unlink()
    assert not stages.finished()


def test_what_is_left_is_estimated_by_the_pace_so_far(tmp_path):
    stages, _ = make(tmp_path)
    stages.spent, stages.expected = 2.0 * EXPECTED["train"], EXPECTED["train"]
    rest = 2 * sum(seconds for name, seconds in EXPECTED.items() if name != "train")
    assert stages._left("train") == f"; about {clock(rest)} left"
    for name in EXPECTED:
        stages.path(name).write_text("{}")
    assert stages._left("train") == ""
    assert (clock(7), clock(247)) == ("0:07", "4:07")


def test_other_settings_are_not_mixed_and_fresh_removes_only_what_the_demo_made(tmp_path):
    make(tmp_path)[0].run("train", "training", lambda: {})
    with pytest.raises(ValueError, match=r"runs: 2, now 3.*--fresh"):
        Stages(tmp_path, dataclasses.replace(SETTINGS, runs=3))
    for name in MADE:
        if not (tmp_path / name).exists():
            (tmp_path / name).write_text("")
    (tmp_path / "notes.txt").write_text("mine")
    fresh = Stages(tmp_path, dataclasses.replace(SETTINGS, runs=3), fresh=True)
    assert fresh.read("train") is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "stages"]
    remove(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_fresh_empties_the_log_that_is_open(tmp_path):
    log = tmp_path / "demo.log"
    log.write_text("of an earlier demo\n")
    with native_messages_to(log):
        make(tmp_path, fresh=True)
        os.write(2, b"of this one\n")
    assert log.read_text() == "of this one\n"


def test_a_demo_that_runs_keeps_its_files_when_another_starts_over(tmp_path):
    values = flags.FlagValues()
    demo.define(values)
    values(["demo", "--quick", "--fresh", f"--output={tmp_path}"])
    with alone(tmp_path):
        make(tmp_path)[0].run("train", "training", lambda: {"score": 1})
        with pytest.raises(ValueError, match="Another process writes to"):
            demo.run(values)
        assert make(tmp_path)[0].read("train") == {"score": 1}


def test_settings_survive_their_file(tmp_path):
    """Tuples come back from JSON as lists: the second start must not take that for a change."""
    make(tmp_path)
    make(tmp_path)
    known = json.loads((tmp_path / "stages" / "settings.json").read_text())
    assert known["positions"] == list(demo_settings.ENCODINGS) and len(known["positions"]) == 7


def test_native_messages_go_to_the_log_and_python_s_to_the_console(tmp_path, capfd):
    log = tmp_path / "new" / "demo.log"
    before = sys.stderr
    with native_messages_to(log):
        os.write(2, b"I0000 Compiled cluster using XLA!\n")
        print("progress", file=sys.stderr)
    os.write(2, b"after\n")
    assert log.read_text() == "I0000 Compiled cluster using XLA!\n"
    assert capfd.readouterr().err == "progress\nafter\n" and sys.stderr is before


def test_a_finished_demo_says_so_without_tensorflow(tmp_path):
    """What the binary imports before it knows whether there is anything to do."""
    stages = Stages(tmp_path, demo_settings.quick(Settings()))
    for name in EXPECTED:
        stages.path(name).write_text(json.dumps({"seconds": 10.0, "found": {}}))
    for name in ("models.config", "index.html"):
        (tmp_path / name).write_text("")
    code = (
        "import sys; from absl import flags; from serving import demo; values = flags.FlagValues(); "
        f"demo.define(values); values(['demo', '--quick', '--output={tmp_path}']); print(demo.run(values)); "
        "sys.exit('tensorflow' in sys.modules)"
    )
    root = Path(demo.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    said, path = done.stdout.splitlines()
    assert said.startswith("Finished before, in 1:00;") and path == f"{tmp_path}/index.html"


def test_the_model_that_is_studied_leaves_the_values_alone():
    """Effective attention is all that a head does then."""
    rows = [{"positions": name, "test": score} for name, score in (("shaw", 0.9), ("tisa", 0.8), ("t5", 0.7))]
    assert best({"rows": rows}, ["shaw", "tisa", "t5"]) == "tisa"
    assert best({"rows": rows}, ["shaw", "t5"]) == "t5"
    assert best({"rows": rows}, ["shaw"]) == "shaw"
