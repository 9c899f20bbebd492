"""The processes of `training.compare`: killed and resumed, extended, failing, one or two at a time."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from training.comparing import pool
from training.files import alone

ROOT = Path(__file__).parents[2]
TINY = ["--model_options=hidden_dim=8,num_heads=2,intermediate_dim=8,num_layers=1", "--batch=8", "--threads=1"]
TINY += ["--steps=4", "--eval_every=2", "--per_length=0", "--timing_rounds=2", "--timing_steps=1", "--runs=1"]


def start(output, *more):
    arguments = ["--task=word_order:acceptability", f"--output={output}", *TINY, *more]
    return subprocess.Popen(
        [sys.executable, "-m", "training.compare", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


@pytest.mark.integration
@pytest.mark.slow
def test_a_killed_comparison_goes_on_and_a_finished_one_is_only_printed(tmp_path):
    """Killed in a run, then one at a time or two at a time: the scores are those of one that was not disturbed."""
    killed = start(tmp_path / "a", "--positions=learned,tisa", "--jobs=2")
    begun = tmp_path / "a" / "runs" / "tisa" / "seed0" / "metrics.jsonl"
    while killed.poll() is None and not begun.is_file():
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    code, out, _ = finish(start(tmp_path / "a", "--positions=learned,tisa", "--jobs=2"))
    assert code == 0 and out.splitlines()[1].startswith("learned")
    code, *_ = finish(start(tmp_path / "b", "--positions=learned,tisa", "--jobs=1"))
    assert code == 0

    def found(name):
        rows = json.loads((tmp_path / name / "results.json").read_text())
        return [(run["position"], run["score"], run["sets"]) for run in rows["runs"]], rows["curves"]

    assert found("a") == found("b")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("a/runs/*/*/run.json")}
    code, again, err = finish(start(tmp_path / "a", "--positions=learned,tisa", "--jobs=2"))
    assert code == 0 and again == out and "runs to make" not in err
    code, more, err = finish(start(tmp_path / "a", "--positions=learned,tisa,bag_of_words", "--jobs=2"))
    assert code == 0 and "1 runs to make, 2 finished before" in err and "bag_of_words" in more
    assert before == {path: path.stat().st_mtime_ns for path in before}


def progress(names):
    class Silent:
        def isatty(self):
            return False

        def write(self, text):
            lines.append(text)

        def flush(self):
            pass

    lines = []
    return pool.Progress({name: lambda: 0.0 for name in names}, Silent()), lines


def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path):
    code = "import sys; print('about', sys.argv[1]); sys.exit(3 if sys.argv[1] == 'b' else 0)"
    said, lines = progress("abc")
    workers = pool.Pool(lambda name: [sys.executable, "-c", code, name], 2, None)
    assert workers.run({name: tmp_path / name / "log.txt" for name in "abc"}, said) == ["b"]
    assert "b FAILED, exit code 3" in "".join(lines) and "about b" in "".join(lines)
    assert (tmp_path / "c" / "log.txt").read_text() == "about c\n"


def test_processes_end_with_the_one_that_started_them(tmp_path):
    """The pool's child sees the end of its standard input when the pool's process is killed."""
    child = (
        "import os, time\nfrom keras_posenc.utils.following import follow_parent\nfollow_parent()\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(100)"
    )
    parent = (
        "import sys\nfrom training.comparing import pool\n"
        f"workers = pool.Pool(lambda name: [sys.executable, '-c', {child!r}], 1, None)\n"
        f"workers.run({{'a': {str(tmp_path / 'log.txt')!r}}}, pool.Progress({{'a': lambda: 0.0}}))"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=ROOT)
    pid = tmp_path / "pid"
    while process.poll() is None and not (pid.is_file() and pid.read_text()):
        time.sleep(0.02)
    stat = Path("/proc") / pid.read_text() / "stat"
    if not stat.exists():
        pytest.skip("no /proc to see processes in")
    process.kill()
    process.wait()
    for _ in range(500):
        if not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.02)
    pytest.fail("the child of a killed process goes on")


def test_a_folder_has_one_process_at_a_time(tmp_path):
    with alone(tmp_path), pytest.raises(ValueError, match="Another process"), alone(tmp_path):
        pass
    with alone(tmp_path):
        pass
