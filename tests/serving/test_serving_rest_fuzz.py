"""Random and malformed requests: every answer is JSON with a status of the client's fault, and nothing stays
behind, in memory neither.

A few hundred by default; ten thousand in the slow tier.
"""

import json
import random
import socket

import pytest
from serving_memory import growth, needs_counters
from serving_models import until
from serving_rest_subject import NAMES, Client, save, serve

BODIES = [
    {"instances": [1, 2.5]},
    {"inputs": {"x": [1, 2.5]}},
    {"signature_name": "ids", "instances": [{name: [1, 2, 3] for name in NAMES}] * 2},
    {"signature_name": "ids", "inputs": {name: [[1, 2], [3, 4]] for name in NAMES}},
    {"signature_name": "strings", "inputs": ["a", {"b64": "aGk="}, "\u00e9\U0001f600"]},
    {"signature_name": "unbatched", "inputs": [0.1, -1e30]},
    {"signature_name": "classify", "context": {"g": [1]}, "examples": [{"f": 0.5}]},
    {"signature_name": "regress", "examples": [{"f": [0.5], "n": 2}, {"f": 1.5, "n": [1]}]},
]
LEAVES = [
    "null", "true", "-1", "1.5", "1e400", "-0", "NaN", "Infinity", "-Inf", "9" * 40, "9" * 5000, "1e-400", '"a"', '""',
    '"\\ud800"', '"\\u0000"', '"b64"', '{"b64": "a"}', '{"b64": 1}', '{"b64": "aGk=", "c": 1}', "[]", "{}", "[[]]",
    "[" * 70 + "]" * 70, "[" * 1500, '{"a":' * 1500, "2147483648", "18446744073709551615", "\x00", "\ufeff", "'a'",
]  # fmt: skip
BYTES = [
    b"\xff",
    b"\xed\xa0\x80",
    b'"',
    b"\\",
    b"{",
    b"]",
    b",",
    b":",
    b"\x00",
    b"1",
    b"e",
    b"-",
    b"\n",
    b"NaN",
    b"\\u",
]
PATHS = [f"/v1/models/{rest}" for rest in (
    "m:predict", "m:classify", "m:regress", "m/versions/1:predict", "m/labels/stable:predict", "none:predict",
    "m/versions/99999999999999999999:predict", "m/versions/-1:predict", "%00:predict", "%FF%2E%2E:predict", "m:",
    "..%2f..%2f:predict", "m/labels/%00:predict", "m/versions/1/labels/stable:predict", ":predict", "m",
)]  # fmt: skip
EXPECTED = {200, 400, 404, 405, 408, 413, 501}


def damage(chance, text):
    """The text of a request with a few changes, as bytes."""
    for _ in range(chance.choice([0, 1, 1, 2, 5])):
        where = chance.randrange(len(text) + 1)
        kind = chance.randrange(5)
        if kind == 0:  # another value in the place of a number or a word
            end = next((i for i in range(where, len(text)) if text[i] in ",]}"), len(text))
            text = text[:where] + chance.choice(LEAVES) + text[end:]
        elif kind == 1:  # something missing
            text = text[:where] + text[where + chance.randrange(1, 9) :]
        elif kind == 2:  # something twice
            text = text[:where] + text[max(0, where - 12) :]
        elif kind == 3:  # a key of another place
            text = text.replace(chance.choice(['"inputs"', '"instances"', '"x"', '"f"']), '"signature_name"', 1)
        else:
            text = text[:where]
    data = bytearray(text.encode(errors="surrogatepass"))
    for _ in range(chance.choice([0, 0, 1, 3])):
        where = chance.randrange(len(data) + 1)
        data[where : where + chance.randrange(2)] = chance.choice(BYTES)
    return bytes(data)


def send(client, chance):
    body = damage(chance, json.dumps(chance.choice(BODIES), ensure_ascii=chance.random() < 0.5))
    method = chance.choice(["POST"] * 12 + ["GET", "PUT", "HEAD", "OPTIONS"])
    headers = {"Content-Encoding": "gzip"} if chance.random() < 0.05 else {}
    path = chance.choice(PATHS[:3] * 8 + PATHS)
    status, _, answer = client(method, path, body, headers)
    assert status in EXPECTED, (status, answer, method, path, body)
    assert method == "HEAD" or status == 200 or list(answer) == ["error"], (method, path, body)
    return status


def send_raw(port, chance):
    """A damaged request as a whole: the line, the headers, the length."""
    body = json.dumps(chance.choice(BODIES)).encode()
    whole = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(
        body
    )
    data = bytearray(whole + body)
    for _ in range(chance.randrange(1, 4)):
        where = chance.randrange(len(whole))
        data[where : where + chance.randrange(4)] = chance.choice([*BYTES, b"\r\n", b" ", b"%", b"\r", b"9"])
    with socket.create_connection(("localhost", port), timeout=60) as raw:
        raw.sendall(data)
        raw.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while chunk := raw.recv(1 << 16):
                answer += chunk
        except ConnectionResetError:
            return
    assert not answer or int(answer.split(b" ", 2)[1]) in EXPECTED, (bytes(data), answer)


@pytest.mark.parametrize(
    "count", [300, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.integration])], ids=["some", "many"]
)
@needs_counters
def test_malformed_requests(count, tmp_path, caplog):
    caplog.set_level("ERROR")  # pytest would keep a warning for each
    save(tmp_path, 1, offset=1)
    chance = random.Random(0)
    seen = set()
    with serve(tmp_path) as server:
        client = Client(server.port)

        def ask(times):
            for _ in range(times):
                seen.add(send(client, chance))
                if chance.random() < 0.3:
                    send_raw(server.port, chance)

        ask(count // 4)  # threads, kernels and caches are there after it
        measured = count - count // 4
        with growth() as grown:
            ask(measured)
        # The constants are for what else goes on in a process that has run other tests.
        assert grown.bytes < (2 << 20) + 100 * measured and grown.blocks < 1000 + 0.1 * measured
        assert {200, 400, 404} <= seen
        assert client.post({"inputs": [0]}) == (200, {"outputs": [1.0]})
        client.close()
        until(lambda: server.requests_in_work == server.bytes_uploaded == 0)
