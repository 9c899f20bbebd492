"""When the client tries again, how long it waits, and what it refuses to send."""

import itertools
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import serving_export_subject as subject
import serving_models

from keras_posenc.models import TokenClassifier
from serving.client import Client, ClientError, Result, Retry, inputs
from serving.client.errors import Failure
from serving.client.rest import Rest, array, body, loads
from serving.server.batching import MIXED_SHAPES
from serving.server.embedded import EmbeddedServer
from serving.server.options import Options


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


class Clock:
    """Time that passes only by waiting."""

    def __init__(self):
        self.now, self.pauses = 0.0, []

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


def test_pauses_double_up_to_the_largest_and_are_spread():
    retry = Retry(attempts=9, first=0.1, factor=2.0, largest=1.0)
    assert [retry.pause(n, lambda low, high: high) for n in range(1, 7)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    drawn = np.array([retry.pause(5) for _ in range(2000)])
    assert drawn.min() >= 0 and drawn.max() <= 1.0
    np.testing.assert_allclose([drawn.mean(), drawn.std()], [0.5, 12**-0.5], atol=0.05)  # of a uniform distribution


@pytest.mark.parametrize(
    ("code", "said", "attempts"),
    [
        ("UNAVAILABLE", "no", 4),
        ("RESOURCE_EXHAUSTED", "no", 4),
        ("NOT_FOUND", "no", 1),
        ("FAILED_PRECONDITION", "no", 1),
        ("FAILED_PRECONDITION", MIXED_SHAPES.format("token_ids"), 4),
    ],
)
def test_what_is_tried_again(code, said, attempts):
    clock, seen = Clock(), []

    def attempt(left):
        seen.append(left)
        raise Failure(code, said)

    with pytest.raises(ClientError) as caught:
        Retry(4, 0.1).call(attempt, 10.0, "here", lambda: clock.now, clock.sleep)
    assert len(seen) == attempts == caught.value.attempts and caught.value.code == code
    np.testing.assert_allclose(seen, 10.0 - np.cumsum([0.0, *clock.pauses]))


def test_no_pause_goes_beyond_the_deadline():
    clock = Clock()

    def attempt(left):
        clock.now += 0.4
        raise Failure("UNAVAILABLE", "no", wait=0.4)

    with pytest.raises(ClientError) as caught:
        Retry(100, 0.0).call(attempt, 1.5, "here", lambda: clock.now, clock.sleep)
    assert caught.value.attempts == 2 and clock.now <= 1.5


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_a_server_that_comes_late(saved_model, tmp_path, protocol):
    serving_models.add_version(saved_model, tmp_path, 1)
    port = free_port()
    ports = {"port": None, "rest_api_port": port} if protocol == "rest" else {"port": port}
    server = EmbeddedServer(Options(model_name="m", model_base_path=str(tmp_path), **ports))
    address = f"localhost:{port}" if protocol == "rest" else f"grpc://localhost:{port}"
    with Client(address, "m", retry=Retry(1)) as client, pytest.raises(ClientError) as caught:
        client.predict({"x": serving_models.ROW})
    assert caught.value.code == "UNAVAILABLE" and "Check that a server is running" in str(caught.value)
    thread = threading.Thread(target=server.start)
    thread.start()
    try:
        with Client(address, "m", retry=Retry(100, first=0.2, factor=1.0)) as client:
            np.testing.assert_array_equal(client.predict({"x": serving_models.ROW})["y"], 2 * serving_models.ROW)
    finally:
        thread.join()
        server.stop(0)


class Busy(BaseHTTPRequestHandler):
    """Has no time for the first requests, and then the version 3."""

    protocol_version = "HTTP/1.1"
    answers = ()
    connections = set()

    def do_GET(self):
        self.connections.add(self.client_address)
        status, headers, content = next(self.answers)
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def busy():
    state = b'{"model_version_status": [{"version": "3", "state": "AVAILABLE", "status": {"error_message": ""}}]}'
    wait = [("retry-after", "1")]
    Busy.answers = itertools.chain(
        [(503, (), b'{"error": "loading"}'), (429, wait, b'{"error": "later"}')], itertools.repeat((200, (), state))
    )
    Busy.connections.clear()
    with ThreadingHTTPServer(("localhost", 0), Busy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_statuses_503_and_429_with_a_wish_to_wait_on_one_connection(busy):
    begin = time.monotonic()
    with Client(f"localhost:{busy}", retry=Retry(3, first=0.0)) as client:
        assert client.status() == {3: ("AVAILABLE", "")}
        client.status()
    assert time.monotonic() - begin >= 1.0  # what the second answer asked for
    assert len(Busy.connections) == 1


def test_the_last_failure_is_told(busy):
    with Client(f"localhost:{busy}", retry=Retry(2, first=0.0)) as client:
        with pytest.raises(ClientError, match=r"RESOURCE_EXHAUSTED: later \(HTTP 429\) \(2 attempts\)"):
            client.status()


def test_padding():
    found = inputs.batch([[5, 6, 7], [8]], segment_ids=[[0, 1, 1], [1]])
    assert {name: value.tolist() for name, value in found.items()} == {
        "token_ids": [[5, 6, 7], [8, 0, 0]],
        "segment_ids": [[0, 1, 1], [1, 0, 0]],
        "padding_mask": [[1, 1, 1], [1, 0, 0]],
    }
    assert all(value.dtype == np.int32 for value in found.values())
    assert inputs.batch(np.array([3, 4]))["padding_mask"].tolist() == [[1, 1]]


def test_padding_to_lengths():
    given = inputs.batch([[5, 6, 7], [8]])
    found = inputs.pad(given, (8, 4, 2))
    assert found["token_ids"].tolist() == [[5, 6, 7, 0], [8, 0, 0, 0]]
    assert found["padding_mask"].tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]
    assert found["segment_ids"].shape == (2, 4) and found["segment_ids"].dtype == np.int32
    for lengths in ((), (2,), (3, 4)):
        np.testing.assert_array_equal(inputs.pad(given, lengths)["token_ids"], given["token_ids"])
    with pytest.raises(ValueError, match=r"whole numbers above 0.*Received: \(16, 0\)"):
        Client("localhost:1", lengths=[16, 0])


@pytest.mark.parametrize("position", ["diet_abs", "diet_abs_lin"])
def test_what_was_added_is_cut_off_again(position):
    """Four places, and four compressed keys of the Linformer, which stay."""
    model = subject.make(position, lambda backbone: TokenClassifier(backbone, 3))

    def ask(ids):
        found = model(ids, return_intermediates=True, training=False)
        maps = np.stack(found["attention"], 1)
        return Result(np.array(found["logits"]), **ids, raw=maps, effective=-maps)

    given = inputs.batch([[5, 6, 7], [8, 9]], padding_mask=[[1, 1, 1], [0, 0]])
    cut, alone = ask(inputs.pad(given, (4,))).cut(3), ask(given)
    assert cut.attention().shape[-1] == (4 if position == "diet_abs_lin" else 3)
    for name in ("logits", "token_ids", "segment_ids", "padding_mask", "raw", "effective"):
        np.testing.assert_allclose(getattr(cut, name)[:1], getattr(alone, name)[:1], atol=1e-5)
        assert getattr(cut, name).shape == getattr(alone, name).shape


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(token_ids=[]), "none of them empty"),
        (dict(token_ids=[[1], []]), "none of them empty"),
        (dict(token_ids=[[0.5]]), "whole numbers"),
        (dict(token_ids=[[1, 2]], segment_ids=[[0]]), "must have the lengths of token_ids"),
    ],
)
def test_inputs_that_make_no_sense(given, message):
    with pytest.raises(ValueError, match=message):
        inputs.batch(**given)


def test_json():
    assert loads(b'{"a": [NaN, -Infinity, 1.5]}')["a"][1:] == [-np.inf, 1.5]
    assert body({"x": np.array([[1, 2]], np.int32)}, "s") == b'{"signature_name":"s","inputs":{"x":[[1,2]]}}'
    sent = loads(body({"t": np.array(["é", b"\xff"], object), "n": np.array([3])}, "s"))["inputs"]
    assert sent == {"t": ["é", {"b64": "/w=="}], "n": [3]}
    assert array([["a"], [{"b64": "/w=="}]], "object").tolist() == [[b"a"], [b"\xff"]]
    with pytest.raises(Failure, match="no JSON"):
        loads(b"<html>")


def knowing(*types):
    """A transport that has the first of these types for its output `y`, and gets the others when it asks again."""
    signatures = ({"s": {"inputs": {}, "outputs": {"y": {"dtype": each, "tensor_shape": {}}}}} for each in types)
    answers = (json.dumps({"metadata": {"signature_def": {"signature_def": each}}}) for each in signatures)
    transport = Rest("http://localhost", "m")
    transport._exchange = lambda *_: next(answers)
    transport._outputs("s", 1)
    return transport


def decode(transport, answer):
    return transport.decode(f'{{"outputs": {answer}}}', "s", 1)["y"]


@pytest.mark.parametrize(
    ("known", "answer", "fresh", "expected"),
    [
        ("DT_INT32", "[1.5, 2.0]", "DT_FLOAT", np.float32([1.5, 2.0])),
        ("DT_INT32", "[[], []]", "DT_FLOAT", np.zeros((2, 0), np.float32)),
        ("DT_INT32", "[1, 1099511627776]", "DT_INT64", np.array([1, 2**40])),
        ("DT_UINT8", "[3, -3]", "DT_INT32", np.int32([3, -3])),
        ("DT_BOOL", "[5]", "DT_INT64", np.array([5])),
        ("DT_FLOAT", "[16777217]", "DT_INT64", np.array([2**24 + 1])),  # no float32 is that number
        ("DT_FLOAT", '["a"]', "DT_STRING", np.array([b"a"], object)),
        ("DT_STRING", "[1.5]", "DT_FLOAT", np.float32([1.5])),
    ],
)
def test_a_new_version_with_other_types(known, answer, fresh, expected):
    found = decode(knowing(known, fresh), answer)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


@pytest.mark.parametrize(
    ("known", "answer", "expected"),
    [("DT_FLOAT", "[1, 2.5]", [1.0, 2.5]), ("DT_DOUBLE", "[null, 0]", [np.nan, 0.0]), ("DT_STRING", "[]", [])],
)
def test_values_that_do_not_tell_their_type(known, answer, expected):
    """Not every server writes whole floats as TF-Serving does; the metadata decide."""
    np.testing.assert_array_equal(decode(knowing(known, known), answer), expected)


@pytest.mark.parametrize(
    ("known", "answer", "said"),
    [
        ("DT_INT32", "[1099511627776]", "(y: int32): Python integer 1099511627776 out of bounds for int32."),
        ("DT_INT32", "[1.5]", "(y: int32): 'y' has 1.5."),
        ("DT_BOOL", "[2]", "(y: bool): 'y' has 2."),
        ("DT_FLOAT", "[[1.0], 2.0]", "inhomogeneous"),
        ("DT_STRING", '["a", 1]', "'int' object has no attribute 'encode'"),
    ],
)
def test_an_answer_that_is_not_of_the_type_of_the_metadata(known, answer, said):
    with pytest.raises(Failure) as caught:
        decode(knowing(known, known), answer)
    assert caught.value.code == "INTERNAL" and said in caught.value.message and "'s'" in caught.value.message


def test_addresses():
    with pytest.raises(ValueError, match=r"http\(s\)://"):
        Client("ftp://localhost")
    with pytest.raises(ValueError, match="not by both"):
        Client("localhost:1", version=1, label="stable")
    assert Client("https://host/behind/", "a/b", label="x y").transport.url == (
        "https://host/behind/v1/models/a%2Fb/labels/x%20y"
    )
