"""Clients that are slow, vanish, ask too much or send too much, and what the others notice of it: nothing."""

import gc
import gzip
import json
import socket
import threading
import time
import types

import pytest
from serving_memory import in_use, needs_counters
from serving_models import until
from serving_rest_subject import Client, save, serve

from serving.server import sessions
from serving.server.batching import Parameters
from serving.server.loading import Loader
from serving.server.rest import asgi, connection, encode

HEAD = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
SLOW = b'{"signature_name": "slow", "inputs": [%g]}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rest_faults")
    save(folder, 1, offset=1)
    return folder


def request(body):
    return HEAD % len(body) + body


def dial(server):
    return socket.create_connection(("localhost", server.port), timeout=60)


def serves(server):
    client = Client(server.port)
    try:
        return client.post({"inputs": [0]}) == (200, {"outputs": [1.0]})
    finally:
        client.close()


def read_all(raw):
    data = b""
    while chunk := raw.recv(1 << 16):
        data += chunk
    return data


def test_a_request_that_takes_too_long(folder):
    with serve(folder, timeout=0.3, threads=2) as server:
        client = Client(server.port)
        status, answer = client.post(SLOW % 1)
        assert (status, answer) == (504, {"error": "Timed out waiting for notification"})
        assert server.requests_in_work == 1  # TensorFlow cannot be interrupted: its place stays taken
        until(lambda: server.requests_in_work == 0)
        until(lambda: serves(server))
        client.close()


def test_over_capacity_and_after(folder):
    with serve(folder, threads=1, max_in_work=2) as server:
        waiting = [dial(server), dial(server)]
        for raw in waiting:
            raw.sendall(request(SLOW % 0.5))
        until(lambda: server.requests_in_work == 2)
        client = Client(server.port)
        status, headers, answer = client("POST", "/v1/models/m:predict", {"inputs": [0]})
        assert status == 429 and headers["retry-after"] == "1" and "2 requests are in work" in answer["error"]
        assert client("GET", "/v1/models/m")[0] == 200  # a probe is answered all the same
        for raw in waiting:
            assert raw.recv(1000).startswith(b"HTTP/1.1 200 ")
            raw.close()
        until(lambda: server.requests_in_work == 0)
        assert client.post({"inputs": [0]}) == (200, {"outputs": [1.0]})
        client.close()


def test_bodies_that_are_too_large(folder):
    with serve(folder, max_body_bytes=1000) as server:
        client = Client(server.port)
        for body in (b" " * 3000, iter([b" " * 600] * 5)):
            status, headers, answer = client("POST", "/v1/models/m:predict", body)
            assert (status, answer) == (413, {"error": "Request body is larger than 1000 bytes."})
            assert headers["connection"] == "close"
        raw = dial(server)
        raw.sendall((HEAD % 10**30).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        assert raw.recv(1000).startswith(b"HTTP/1.1 4")  # 413 before anything is sent; 400 for no such length
        raw = dial(server)
        raw.sendall(HEAD % 10**9)
        raw.sendall(b" " * 5000)  # a body without an end in sight is not read to it
        assert raw.recv(1000).startswith(b"HTTP/1.1 413 ")
        assert serves(server)


def test_a_hundred_megabytes(folder):
    with serve(folder) as server:
        done = threading.Event()
        answers = []

        def upload():
            client = Client(server.port)
            answers.append(client.post(b'{"inputs": [' + b"1.5," * 25_000_000 + b"1]}")[0])
            client.close()
            done.set()

        threading.Thread(target=upload).start()
        while not done.is_set():
            assert serves(server)
        assert answers == [413]
        until(lambda: server.bytes_uploaded == 0)


def test_uploads_share_a_budget(folder):
    with serve(folder, max_upload_bytes=1 << 20) as server:
        slow = dial(server)
        slow.sendall(HEAD % 2_000_000 + b" " * 900_000)
        until(lambda: server.bytes_uploaded > 800_000)
        client = Client(server.port)
        assert client.post(b" " * 500_000)[0] == 429
        assert serves(server)
        slow.close()
        until(lambda: server.bytes_uploaded == 0)
        assert client.post(b" " * 500_000)[0] == 400
        client.close()


def test_compressed_uploads_count_with_their_full_size(folder):
    with serve(folder, max_upload_bytes=1 << 20, max_body_bytes=3 << 20) as server:
        client, headers = Client(server.port), {"Content-Encoding": "gzip"}
        status, answer = client.post(gzip.compress(b" " * (2 << 20)), **headers)
        assert (status, answer) == (429, {"error": "Too many bytes of requests are being received."})
        status, answer = client.post(gzip.compress(b" " * (4 << 20)), **headers)
        assert (status, answer) == (413, {"error": f"Request body is larger than {3 << 20} bytes after decompression."})
        assert client.post(gzip.compress(b'{"inputs": [0]}'), **headers) == (200, {"outputs": [1.0]})
        until(lambda: server.bytes_uploaded == 0)
        client.close()


MAPS = b'{"signature_name": "maps", "inputs": [%d]}'


def test_answers_that_are_being_sent_share_a_budget(folder):
    with serve(folder, max_download_bytes=1 << 20) as server:
        raw, client = dial(server), Client(server.port)
        raw.sendall(request(MAPS % 2000))  # more than the budget, but alone
        assert raw.recv(15) == b"HTTP/1.1 200 OK"
        assert server.bytes_sending == 2000 * 2000 * 2 * 4
        status, headers, answer = client("POST", "/v1/models/m:predict", MAPS % 300)
        assert status == 429 and headers["retry-after"] == "1" and "answers are being sent" in answer["error"]
        assert serves(server)
        raw.close()
        until(lambda: server.bytes_sending == 0)
        assert client.post(MAPS % 300)[0] == 200
        until(lambda: server.bytes_sending == 0)
        client.close()


def test_probes_are_answered_while_large_answers_are_written(folder, monkeypatch):
    finish, writing = threading.Event(), []

    def chunks(*_):
        yield b" " * encode.CHUNK
        writing.append(None)
        assert finish.wait(60)
        yield b"{}"

    monkeypatch.setattr(encode, "encode_predictions", chunks)
    with serve(folder) as server:
        readers = [dial(server) for _ in range(asgi.WRITERS)]
        for raw in readers:
            raw.sendall(request(b'{"inputs": [0]}'))
        until(lambda: len(writing) == asgi.WRITERS)
        client = Client(server.port)
        try:
            assert client("GET", "/v1/models/m")[0] == 200
        finally:
            finish.set()
        for raw in [*readers, client]:
            raw.close()


def test_slow_uploads_and_slow_headers(folder, monkeypatch):
    monkeypatch.setattr(asgi, "PATIENCE", 0.3)
    monkeypatch.setattr(connection, "HEADER_SECONDS", 0.3)
    with serve(folder) as server:
        silent, headers, body = dial(server), dial(server), dial(server)
        headers.sendall(b"POST /v1/models/m:predict HTTP/1.1\r\nHo")
        body.sendall(HEAD % 100 + b'{"inputs": ')
        assert serves(server)
        assert read_all(silent) == b""
        assert read_all(headers) == b""
        assert read_all(body).startswith(b"HTTP/1.1 408 ")
        until(lambda: server.bytes_uploaded == 0)
        assert serves(server)


def test_headers_without_an_end(folder):
    with serve(folder) as server:
        raw = dial(server)
        raw.sendall(b"GET /v1/models/m HTTP/1.1\r\n")
        with pytest.raises(OSError):
            for _ in range(1000):
                raw.sendall(b"X-Header: " + b"a" * 5000 + b"\r\n")
                time.sleep(0.001)
        assert serves(server)


def test_a_client_that_does_not_read(folder, monkeypatch):
    """It gets what fits into the buffers of the network and is cut off; meanwhile it holds no thread."""
    monkeypatch.setattr(asgi, "PATIENCE", 0.5)
    monkeypatch.setattr(asgi, "RATE", 1 << 30)
    with serve(folder, threads=1) as server:
        raw = dial(server)
        raw.sendall(request(b'{"signature_name": "maps", "inputs": [2000]}'))
        assert raw.recv(15) == b"HTTP/1.1 200 OK"
        assert serves(server)
        until(lambda: server.connections == 0)
        raw.close()


def test_clients_that_vanish(folder):
    """Requests of clients that left before their turn are not begun, and nothing of them stays."""
    with serve(folder, threads=1) as server:
        first = dial(server)
        first.sendall(request(SLOW % 1))
        until(lambda: server.requests_in_work == 1)
        for part in (b"", HEAD % 50, HEAD % 50 + b"{", request(SLOW % 60), request(b'{"inputs": [1]}')):
            raw = dial(server)
            raw.sendall(part)
            raw.close()
        assert first.recv(1000).startswith(b"HTTP/1.1 200 ")
        first.close()
        assert serves(server)
        until(lambda: server.requests_in_work == server.bytes_uploaded == server.connections == 0)


@pytest.fixture
def held(monkeypatch):
    """Models wait for `finish` before they run; `ran` has the first numbers they were given."""
    make, ran, finish = sessions.function, [], threading.Event()

    def function(*arguments):
        run = make(*arguments)

        def counted(arrays):
            ran.append(float(arrays[0][0]))
            assert finish.wait(60)
            return run(arrays)

        return counted

    monkeypatch.setattr(sessions, "function", function)
    yield ran, finish
    finish.set()


def test_requests_that_nobody_waits_for_leave_the_queue_of_batches(folder, held):
    ran, finish = held
    loader = Loader(Parameters(max_batch_size=1, max_enqueued_batches=10, num_batch_threads=1))
    with serve(folder, loader, timeout=1.0) as server:
        first, gone = dial(server), dial(server)
        first.sendall(request(b'{"inputs": [1]}'))
        until(lambda: ran == [1])
        gone.sendall(request(b'{"inputs": [2]}'))
        until(lambda: server.requests_in_work == 2)
        gone.close()
        client = Client(server.port)
        assert client.post({"inputs": [3]})[0] == 504
        finish.set()
        until(lambda: server.requests_in_work == 0)
        assert client.post({"inputs": [4]}) == (200, {"outputs": [3.0]})
        assert ran == [1, 4]
        first.close()
        client.close()


def test_whether_a_request_is_late_is_for_the_event_loop_to_say(folder, monkeypatch):
    """With a clock of its own a batch could be late for a request that is not, whose client would try again."""

    def clock():
        return time.monotonic() + 1000 * (threading.current_thread().name == "batches")

    monkeypatch.setattr(asgi, "time", types.SimpleNamespace(monotonic=clock))
    with serve(folder, Loader(Parameters(num_batch_threads=1))) as server:
        assert serves(server)


def test_a_late_request_counts_until_its_worker_is_done(folder, held):
    ran, finish = held
    with serve(folder, timeout=1.5, threads=1, max_upload_bytes=1 << 20) as server:
        client = Client(server.port)
        assert client.post(b'{"inputs": [1]}' + b" " * 900_000)[0] == 504
        assert ran == [1] and server.requests_in_work == 1 and server.bytes_uploaded == 900_015
        assert client.post(b" " * 500_000)[0] == 429
        finish.set()
        until(lambda: server.requests_in_work == server.bytes_uploaded == 0)
        assert client.post(b" " * 500_000)[0] == 400
        client.close()


@needs_counters
def test_a_late_request_that_was_not_begun_is_not_kept(folder, held):
    """Its turn in the queue of the workers comes when they have done all that was before it."""
    ran, finish = held
    body = b'{"inputs": [2]}' + b" " * (32 << 20)
    with serve(folder, timeout=1.5, threads=1) as server:
        first, client = dial(server), Client(server.port)
        first.sendall(request(b'{"inputs": [1]}'))
        until(lambda: ran == [1])
        before = in_use()[0]
        assert client.post(body)[0] == 504
        until(lambda: server.bytes_uploaded < 100)
        until(lambda: in_use()[0] < before + (16 << 20))
        assert server.requests_in_work == 1
        finish.set()
        until(lambda: server.requests_in_work == 0)
        assert ran == [1]
        first.close()
        client.close()


def test_what_has_no_place_is_not_decompressed(folder, held, monkeypatch):
    ran, finish = held
    monkeypatch.setattr(asgi.api, "unzip", lambda *_: pytest.fail("decompressed"))
    with serve(folder, max_in_work=1) as server:
        raw, client = dial(server), Client(server.port)
        raw.sendall(request(b'{"inputs": [1]}'))
        until(lambda: ran == [1])
        status, answer = client.post(gzip.compress(b"{}"), **{"Content-Encoding": "gzip"})
        assert status == 429 and "1 requests are in work" in answer["error"]
        finish.set()
        until(lambda: server.requests_in_work == server.bytes_uploaded == 0)
        raw.close()
        client.close()


def test_wrong_lengths_and_requests_in_a_row(folder):
    with serve(folder) as server:
        short = dial(server)
        short.sendall(HEAD % 100 + b'{"inputs": [0]}')
        short.shutdown(socket.SHUT_WR)
        assert read_all(short) == b""
        long = dial(server)
        long.sendall(HEAD % 15 + b'{"inputs": [0]}garbage\r\n\r\n')
        assert b"HTTP/1.1 400 " in read_all(long)
        row = dial(server)
        row.sendall(
            request(b'{"inputs": [0]}') * 5 + request(b"{").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        )
        answers = read_all(row)
        assert answers.count(b'{"outputs":[1.0]}') == 5 and answers.count(b"HTTP/1.1 400 ") == 1
        for line in (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
            b"GET\r\n\r\n",
            b"GET /\xff HTTP/1.1\r\n\r\n",
        ):
            raw = dial(server)
            raw.sendall(line + b"\r\n\r\n")
            answer = read_all(raw)
            assert answer.startswith(b"HTTP/1.1 400 ") and json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
        assert serves(server)


def test_stopping_finishes_what_is_in_work(folder):
    with serve(folder) as server:
        raw = dial(server)
        raw.sendall(request(SLOW % 0.5))
        until(lambda: server.requests_in_work == 1)
        server.stop(30)
        assert raw.recv(1000).startswith(b"HTTP/1.1 200 ")
        with pytest.raises(OSError):
            dial(server)


def test_requests_leave_nothing_behind(folder):
    with serve(folder) as server:
        client = Client(server.port)
        before = None
        for _ in range(3):
            for _ in range(20):
                client.post(b'{"inputs": [0]}')
                client.post(b'{"inputs": ["a"]}')
            gc.collect()
            before, count = (before, len(gc.get_objects())) if before else (len(gc.get_objects()), None)
        assert count < before + 200
        client.close()
