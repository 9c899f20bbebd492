"""The demo from trained models to its page, resumed, and served, with models that have learned nothing."""

import dataclasses
import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from absl import flags

from serving import demo
from serving.demoing import settings as demo_settings
from serving.demoing import training
from serving.demoing.stages import EXPECTED
from training import compare
from training.comparing import runs, worker
from training.engine import flags as train_flags

ROOT = Path(__file__).parents[2]
SETTINGS = demo_settings.quick(demo_settings.Settings())
HEAD_SIZE = 8  # of its models: longer texts have a null space


def parsed(*arguments):
    values = flags.FlagValues()
    demo.define(values)
    values(["demo", *arguments])
    return values


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A demo that was stopped after its training, and then went on. The runs are trained here to save processes."""
    folder = tmp_path_factory.mktemp("demo")
    values = training.parsed(SETTINGS, folder)
    compare.set_defaults(values)
    for position in SETTINGS.positions:
        worker.train(values, train_flags.options(values), runs.Run(position, 0, values.output))
    return folder, demo.run(parsed("--quick", f"--output={folder}"))


@pytest.mark.integration
def test_the_page_has_everything_and_needs_nothing(made):
    folder, path = made
    page = path.read_text(encoding="utf-8")
    assert path == folder / "index.html"
    for title in ("In short", "The task", "Served", "Raw against effective attention", "Look for yourself"):
        assert f">{title}</h2>" in page, title
    for position in SETTINGS.positions:
        assert re.search(rf'<td class="text">{position}</td>', page)
    assert page.count("data:image/png;base64,") >= 5
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", page)  # nothing from elsewhere
    examples = json.loads(re.search(r'id="examples">(.*?)</script>', page, re.DOTALL)[1])
    assert examples[0]["tokens"][0] == "[CLS]" and len(examples[0]["tokens"]) > HEAD_SIZE


@pytest.mark.integration
def test_the_stages_found_what_they_should(made):
    folder, _ = made
    found = {name: json.loads((folder / "stages" / f"{name}.json").read_text())["found"] for name in EXPECTED}
    assert [row["positions"] for row in found["train"]["rows"]] == list(SETTINGS.positions)
    for ways in found["serve"]["differences"].values():
        assert set(ways) == {"grpc", "rest"} and max(ways.values()) < 1e-5
    for name, ways in found["serve"]["latency"].items():
        assert set(ways) == {"in process", "grpc", "rest"} and name in SETTINGS.positions
        assert all(0 < each["p50"] <= each["p95"] for each in ways.values())
    assert found["study"]["head_size"] == HEAD_SIZE
    for row in found["study"]["lengths"]:
        assert row["null_dimension"] >= row["tokens"] - HEAD_SIZE
        assert row["null_dimension"] > 0 or row["correlation"] == pytest.approx(1.0, abs=1e-5)
    for row in found["study"]["masses"]:
        assert 0 <= row["raw"] <= 1
    assert sum(row["raw"] for row in found["study"]["masses"]) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.integration
def test_what_is_finished_is_not_made_again(made, capsys):
    folder, path = made
    assert demo.run(parsed("--quick", f"--output={folder}")) == path
    assert "Finished before" in capsys.readouterr().out
    with pytest.raises(ValueError, match="other settings"):
        demo.run(parsed(f"--output={folder}"))
    kept = [*folder.glob("training/runs/*/*/result.json"), *folder.glob("served/*/1"), folder / "stages" / "serve.json"]
    before = {each: each.stat().st_mtime_ns for each in kept}
    for name in ("index.html", "stages/study.json", "stages/pictures.npz"):
        (folder / name).unlink()
    assert demo.run(parsed("--quick", f"--output={folder}")) == path and path.is_file()
    assert {each: each.stat().st_mtime_ns for each in kept} == before and len(before) == 5


@pytest.mark.integration
def test_serve_prints_a_command_that_works_and_stops_with_its_server(made):
    folder, _ = made
    port = two_free_ports()
    command = [sys.executable, "-m", "serving.demo", "--serve", f"--output={folder}", f"--port={port}"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        lines = []
        while not lines or not lines[-1].startswith("Ctrl-C"):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            lines.append(line)
        (curl,) = [line for line in lines if line.startswith("curl ")]
        asked = subprocess.run(curl, shell=True, text=True, capture_output=True, timeout=60)
        (answer,) = json.loads(asked.stdout)["predictions"]
        assert len(answer["logits"]) == 2 and answer["tokens"][0] == "[CLS]" and "[UNK]" not in answer["tokens"]
        assert f"http://localhost:{port}/viewer/" in "".join(lines)
        process.send_signal(signal.SIGKILL)  # the server must not outlive whoever started it
        process.wait()
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("localhost", port)):
                    return
            time.sleep(0.1)
        pytest.fail("the server goes on without the process that started it")
    finally:
        process.kill()
        process.communicate()


def two_free_ports():
    """A port whose predecessor is free too."""
    for port in range(18601, 18999, 2):
        with socket.socket() as one, socket.socket() as other:
            if one.connect_ex(("localhost", port)) and other.connect_ex(("localhost", port - 1)):
                return port
    pytest.skip("no two free ports side by side")


def test_the_whole_demo_trains_seven_encodings_and_a_bag_of_words():
    whole = demo_settings.Settings()
    assert whole.positions == ("learned", "shaw", "t5", "tupe_rel", "tisa", "diet_rel", "diet_abs") and whole.real
    arguments = training.arguments(dataclasses.replace(whole, runs=2), Path("out"))
    assert "--task=word_order:acceptability" in arguments and "--runs=2" in arguments and "--jobs=2" in arguments
    assert f"--positions={','.join(whole.positions)},bag_of_words" in arguments
