"""A server that was killed and started again by the same command gives the same answers, bit for bit.

One that is told to stop does not wait for models that are being loaded.
"""

import contextlib
import os
import shutil
import signal
import threading

import pytest
import serving_export_subject as subject
from serving_models import add_version, until
from serving_process_subject import ALL, Process

from serving.client import Client, ClientError, Retry
from serving.exporting import export_model
from serving.server import servable, warmup

pytestmark = pytest.mark.integration
VERSIONS = (1, 2)
SIGNATURES = ("serving_default", "effective_attention")


def answers(addresses, given):
    """Everything that the server says of the model, as bytes where there are numbers."""
    found = {}
    for protocol, address in addresses.items():
        for version in (None, *VERSIONS):
            with Client(address, "m", version, timeout=120.0) as client:
                for signature in SIGNATURES:
                    outputs = client.predict(given, signature).items()
                    found[protocol, version, signature] = {name: value.tobytes() for name, value in outputs}
        with Client(address, "m") as client:
            found[protocol, "status"], found[protocol, "metadata"] = client.status(), client.metadata()
    return found


def ask_until_it_fails(address, given, seen):
    with Client(address, "m", retry=Retry(1), timeout=120.0) as client, contextlib.suppress(ClientError):
        while True:
            client.predict(given, SIGNATURES[-1])
            seen.append(address)


def test_killed_and_started_again(rng, tmp_path):
    """Killed while it answers, with two versions that differ; the same ports, versions and bits afterwards."""
    for factor in VERSIONS:
        model = subject.make("diet_abs", layers=1)
        model.weights[0].assign(model.weights[0] * factor)
        export_model(model, tmp_path / "m", signatures=SIGNATURES[1:], warmup_lengths=(4,))
    server, given, seen = Process(tmp_path, tmp_path / "m", policy=ALL), subject.inputs(rng), []
    with server.running(*VERSIONS) as process:
        before = answers(server.addresses, given)
        addresses = set(server.addresses.values())
        threads = [threading.Thread(target=ask_until_it_fails, args=(each, given, seen)) for each in addresses]
        for thread in threads:
            thread.start()
        until(lambda: set(seen) == addresses)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
        for thread in threads:
            thread.join(180)
            assert not thread.is_alive()
    with server.running(*VERSIONS):
        after = answers(server.addresses, given)
    assert before["rest", "status"] == {1: ("AVAILABLE", ""), 2: ("AVAILABLE", "")}
    assert before["rest", 1, SIGNATURES[0]] != before["rest", 2, SIGNATURES[0]]
    assert before["rest", None, SIGNATURES[0]] == before["rest", 2, SIGNATURES[0]]
    for key, value in before.items():
        assert after[key] == value, key
    for version in VERSIONS:  # JSON carries all the bits that gRPC does
        for signature in SIGNATURES:
            assert before["rest", version, signature] == before["grpc", version, signature]


def add_endless(source, base, number):
    """A version whose load begins with a pipe, which is returned, and ends with another that nobody writes to."""
    folder = base / f"writing-{number}"
    shutil.copytree(source, folder)
    (folder / "assets.extra").mkdir()
    for file in (servable.DESCRIPTION, warmup.FILE):
        os.mkfifo(folder / file)
    return folder.rename(base / str(number)) / servable.DESCRIPTION


def is_read(pipe):
    """Whether somebody waits for what is in it, which is nothing."""
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_while_the_first_model_is_loaded(saved_model, tmp_path, number):
    pipe = add_endless(saved_model, tmp_path / "m", 1)
    with Process(tmp_path, tmp_path / "m").started() as process:
        until(lambda: is_read(pipe), 120)
        process.send_signal(number)
        assert process.wait(60) == 128 + number


def test_told_to_stop_while_a_new_version_is_loaded(saved_model, tmp_path):
    (tmp_path / "m").mkdir()
    add_version(saved_model, tmp_path / "m", 1)
    with Process(tmp_path, tmp_path / "m").running(1) as process:
        pipe = add_endless(saved_model, tmp_path / "m", 2)
        until(lambda: is_read(pipe), 60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stdout.read() == "Stopped.\n"
