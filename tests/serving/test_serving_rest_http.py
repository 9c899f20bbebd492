"""The REST API over real HTTP against a real SavedModel: what TF-Serving answers, this answers."""

import gzip
import json
import math
import re
import socket
import threading

import numpy as np
import pytest
from serving_rest_subject import NAMES, SIGNATURES, Client, Model, save, serve

from serving.server import protos
from serving.server.embedded import EmbeddedServer
from serving.server.metrics import DEFAULT_PATH
from serving.server.options import Options
from serving.server.rest import static


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rest_models")
    save(folder, 1, offset=1)
    save(folder, 2, offset=2)
    return folder


@pytest.fixture(scope="module")
def server(folder):
    with serve(folder, metrics_path=DEFAULT_PATH) as server:
        yield server


@pytest.fixture
def client(server):
    client = Client(server.port)
    yield client
    client.close()


def test_predict_in_rows_and_columns(client):
    assert client.post({"instances": [1, 2.5]}) == (200, {"predictions": [2.5, 3.25]})
    assert client.post({"inputs": {"x": [1, 2.5]}}) == (200, {"outputs": [2.5, 3.25]})
    assert client.post({"instances": [{"x": 1}]}) == (200, {"predictions": [2.5]})


def test_versions_labels_and_escaped_names(client):
    assert client.post({"inputs": [0]}, "/v1/models/m/versions/1:predict") == (200, {"outputs": [1.0]})
    assert client.post({"inputs": [0]}, "/v1/models/m/versions/2:predict") == (200, {"outputs": [2.0]})
    assert client.post({"inputs": [0]}, "/v1/models/m/labels/stable:predict") == (200, {"outputs": [1.0]})
    assert client.post({"inputs": [0]}, "/v1/models/a%2Fb%20c:predict") == (200, {"outputs": [2.0]})
    assert client.post({"inputs": [0]}, "/v1/models/m:predict?key=1") == (200, {"outputs": [2.0]})
    for path in ("none", "m/versions/3", "..%2F..%2Fetc"):
        status, answer = client.post({"inputs": [0]}, f"/v1/models/{path}:predict")
        assert status == 404 and answer["error"].startswith("Servable not found for request: ")
    status, answer = client.post({"inputs": [0]}, "/v1/models/m/labels/none:predict")
    assert status == 400 and "none" in answer["error"]


def test_several_inputs_and_outputs_equal_the_model(client, rng):
    arrays = {name: rng.integers(0, 9, (3, 5)).astype(np.int32) for name in NAMES}
    expected = {name: value.numpy().tolist() for name, value in Model(0).ids(**arrays).items()}
    lists = {name: array.tolist() for name, array in arrays.items()}
    assert client.post({"signature_name": "ids", "inputs": lists}) == (200, {"outputs": expected})
    rows = [{name: lists[name][i] for name in NAMES} for i in range(3)]
    found = client.post({"signature_name": "ids", "instances": rows})
    assert found == (200, {"predictions": [{name: expected[name][i] for name in expected} for i in range(3)]})


def test_strings_and_bytes(client):
    body = {"signature_name": "strings", "instances": ["é", {"b64": "/wA="}, ""]}
    status, answer = client.post(body)
    assert status == 200
    assert answer["predictions"] == [
        {"text": "é", "raw_bytes": {"b64": "w6k="}, "length": 2},
        {"text": "\ufffd\x00", "raw_bytes": {"b64": "/wA="}, "length": 2},
        {"text": "", "raw_bytes": {"b64": ""}, "length": 0},
    ]


def test_numbers_that_are_none(client):
    status, answer = client.post('{"signature_name": "strange", "instances": [1, -1, 0, NaN]}')
    first, second, *rest = answer["predictions"]
    assert (status, first, second) == (200, math.inf, -math.inf) and all(map(math.isnan, rest))


@pytest.mark.parametrize(
    "body, status, message",
    [
        ({"instances": ["a"]}, 400, "is not of expected type: float"),
        ({"signature_name": "ids", "inputs": {}}, 400, "Missing named input: "),
        ({"signature_name": "none", "inputs": 1}, 400, 'Serving signature name: "none" not found in signature def'),
        ({"signature_name": "half", "inputs": [1]}, 400, "Failed to write JSON value for tensor type: half"),
        ({"signature_name": "unbatched", "instances": [1]}, 400, "Tensor name: mean has no shape information "),
        ({"inputs": [[1]]}, 400, ""),
        ("[", 400, "JSON Parse error: "),
        (None, 400, "JSON Parse error: The document is empty"),
    ],
)
def test_mistakes_have_the_status_and_the_words_of_tf_serving(client, body, status, message):
    found, answer = client.post(body)
    assert found == status and list(answer) == ["error"] and message in answer["error"]
    assert client.post({"inputs": [0]})[0] == 200  # on the same connection


def test_columns_need_no_batch(client):
    status, answer = client.post({"signature_name": "unbatched", "inputs": [1, 2]})
    assert (status, answer) == (200, {"outputs": {"mean": 1.5, "y": [1.0, 2.0]}})


def test_classify_and_regress(client):
    body = {"signature_name": "classify", "examples": [{"f": 0.5}, {"f": [2.0]}]}
    expected = {"results": [[["low", -0.5], ["high", 0.5]], [["low", -2.0], ["high", 2.0]]]}
    assert client.post(body, "/v1/models/m:classify") == (200, expected)
    body = {"signature_name": "regress", "context": {"n": 3}, "examples": [{"f": 0.5}, {"f": 1.5, "n": 2}]}
    assert client.post(body, "/v1/models/m/versions/1:regress") == (200, {"results": [1.5, 3.0]})
    status, answer = client.post({"signature_name": "regress", "examples": [{"n": 1}]}, "/v1/models/m:regress")
    assert status == 400 and "f" in answer["error"]


def test_status_and_metadata(client):
    status, _, answer = client("GET", "/v1/models/m")
    ok = {"error_code": "OK", "error_message": ""}
    versions = [{"version": version, "state": "AVAILABLE", "status": ok} for version in ("2", "1")]
    assert (status, answer) == (200, {"model_version_status": versions})
    assert client("GET", "/v1/models/m/labels/stable")[2] == {"model_version_status": versions[1:]}
    assert client("GET", "/v1/models/none")[::2] == (404, {"error": "Could not find any versions of model none"})
    status, _, answer = client("GET", "/v1/models/m/versions/1/metadata")
    assert status == 200
    assert answer["model_spec"] == {"name": "m", "signature_name": "", "version": "1"}
    signatures = answer["metadata"]["signature_def"]["signature_def"]
    assert set(SIGNATURES) <= set(signatures)
    token_ids = signatures["ids"]["inputs"]["token_ids"]
    assert token_ids["dtype"] == "DT_INT32"
    assert [dim["size"] for dim in token_ids["tensor_shape"]["dim"]] == ["-1", "-1"]
    assert token_ids["tensor_shape"]["unknown_rank"] is False


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_other_methods(client, method):
    status, _, answer = client(method, "/v1/models/m:predict", "{}")
    assert status == 400
    assert answer == ({"error": f"Malformed request: {method} /v1/models/m:predict"} if method != "HEAD" else b"")


def test_paths_outside_of_the_api(client):
    assert client("GET", "/")[0] == client("POST", "/v2/models/m:predict", "{}")[0] == 404


def test_a_large_answer_comes_in_chunks(client):
    status, headers, answer = client(
        "POST", "/v1/models/m:predict", {"signature_name": "maps", "instances": [200, 200]}
    )
    assert status == 200 and headers["transfer-encoding"] == "chunked"
    expected = Model(0).maps(np.int32([200, 200]))["maps"].numpy()
    np.testing.assert_array_equal(np.array(answer["predictions"], np.float32), expected)
    assert client.post({"inputs": [0]})[0] == 200


def test_compressed_requests_and_uncompressed_answers(client):
    body = gzip.compress(b'{"inputs": [0]}')
    headers = {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}
    status, received, answer = client("POST", "/v1/models/m:predict", body, headers)
    assert (status, answer) == (200, {"outputs": [2.0]}) and "content-encoding" not in received
    status, _, answer = client("POST", "/v1/models/m:predict", b'{"inputs": [0]}', headers)
    assert (status, answer) == (400, {"error": "JSON Parse error: The document is empty"})


def test_chunked_and_expected_uploads(client):
    path = "/v1/models/m:predict"
    assert client("POST", path, iter([b'{"inp', b'uts": ', b"[0]}"]))[::2] == (200, {"outputs": [2.0]})
    raw = socket.create_connection(("localhost", client.connection.port))
    raw.sendall(b"POST %b HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 15\r\n\r\n" % path.encode())
    assert raw.recv(1000).startswith(b"HTTP/1.1 100 ")
    raw.sendall(b'{"inputs": [0]}')
    assert raw.recv(1000).startswith(b"HTTP/1.1 200 ")
    raw.close()


def test_cross_origin(folder, client):
    origin = {"Origin": "https://example.org"}
    assert "access-control-allow-origin" not in client("GET", "/v1/models/m", headers=origin)[1]
    with serve(folder, cors=True) as server:
        other = Client(server.port)
        for method, body in (("OPTIONS", None), ("POST", "{}"), ("GET", None)):
            headers = other(method, "/v1/models/m:predict", body, origin)[1]
            assert headers["access-control-allow-origin"] == "*"
            assert headers["access-control-allow-methods"] == "POST, GET"
            assert headers["access-control-allow-headers"] == "Content-Type"
        assert other("OPTIONS", "/v1/models/m:predict", None, origin)[0] == 200
        assert other("OPTIONS", "/v1/models/m:predict")[0] == 403
        other.close()


def test_metrics(client):
    client.post({"inputs": [0]}, "/v1/models/a%2Fb%20c:predict")
    client.post("{", "/v1/models/a%2Fb%20c:predict")
    status, headers, page = client("GET", DEFAULT_PATH)
    assert status == 200 and headers["content-type"] == "text/plain"
    page = page.decode()
    assert re.search(r':tensorflow:serving:request_count\{model_name="a/b c",status="OK"\} [1-9]', page)
    assert re.search(r':tensorflow:serving:request_count\{model_name="a/b c",status="INVALID_ARGUMENT"\} [1-9]', page)
    assert re.search(r'request_latency_count\{model_name="a/b c",API="predict",entrypoint="REST"\} [1-9]', page)
    assert client("POST", DEFAULT_PATH, "{}")[0] == 405


def test_viewer_configuration(client):
    status, _, answer = client("GET", "/viewer/config.json")
    versions = [{"version": number, "state": "AVAILABLE", "description": None} for number in "21"]
    assert (status, answer["models"]) == (200, [{"name": name, "versions": versions} for name in ("a/b c", "m")])
    status, headers, _ = client("GET", "/viewer")
    assert (status, headers["location"]) == (308, "viewer/")


def test_viewer_files(tmp_path):
    site = tmp_path / "site"
    (site / "parts").mkdir(parents=True)
    (site / "index.html").write_text("<p>")
    (site / "parts" / "a.js").write_text("1")
    (site / "secret.py").write_text("x")
    (tmp_path / "outside.html").write_text("x")
    viewer = static.Viewer(lambda: [], site)
    response = viewer.answer("GET", "/viewer/")
    headers = dict(response.headers)
    assert (response.status, response.body) == (200, b"<p>")
    assert headers[b"content-type"] == b"text/html; charset=utf-8"
    assert b"default-src 'none'" in headers[b"content-security-policy"]
    again = viewer.answer("GET", "/viewer/index.html", b'"x", W/' + headers[b"etag"])
    assert (again.status, again.body) == (304, b"")
    assert viewer.answer("GET", "/viewer/index.html", b'"x"').status == 200
    script = viewer.answer("GET", "/viewer/parts/a.js")
    assert dict(script.headers)[b"content-type"] == b"text/javascript; charset=utf-8"
    for name in (
        "secret.py",
        "../outside.html",
        "parts/../../outside.html",
        str(tmp_path / "outside.html"),
        "parts",
        ".",
    ):
        assert viewer.answer("GET", f"/viewer/{name}").status == 404
    assert viewer.answer("POST", "/viewer/").status == 405


@pytest.mark.parametrize("path", ["/viewer/../../setup.py", "/viewer/%2e%2e/%2e%2e/setup.py", "/viewer//etc/passwd"])
def test_no_path_leads_out_of_the_viewer(server, path):
    raw = socket.create_connection(("localhost", server.port))
    raw.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert raw.recv(1000).startswith(b"HTTP/1.1 404 ")
    raw.close()


def test_many_clients_at_once(server):
    wrong = []

    def ask(number):
        client = Client(server.port)
        for i in range(20):
            if client.post({"inputs": [number * 100 + i]}) != (200, {"outputs": [(number * 100 + i) / 2 + 2]}):
                wrong.append((number, i))
        client.close()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_embedded_server_passes_its_options_on(folder):
    monitoring = protos.MonitoringConfig()
    monitoring.prometheus_config.enable = True
    monitoring.prometheus_config.path = "/metrics"
    options = Options(
        port=None,
        rest_api_port=0,
        model_name="m",
        model_base_path=str(folder),
        rest_api_enable_cors_support=True,
        monitoring_config=monitoring,
    )
    with EmbeddedServer(options) as server:
        client = Client(server.rest_port)
        assert client.post({"inputs": [0]}) == (200, {"outputs": [2.0]})
        assert client("GET", "/v1/models/m")[1]["access-control-allow-origin"] == "*"
        assert client("GET", "/metrics")[0] == 200
        assert json.dumps(client("GET", "/viewer/config.json")[2])
        client.close()
    with pytest.raises(OSError):
        socket.create_connection(("localhost", server.rest_port), timeout=5)
