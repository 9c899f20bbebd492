"""The client against a served model, over both protocols: the same answers as the model in Python."""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import serving_export_subject as subject
import serving_models
from tensorflow_serving.config import model_server_config_pb2

from keras_posenc.models import Classifier
from serving.client import Client, ClientError, Retry
from serving.client.results import Result
from serving.exporting import export_model
from serving.server.batching import Queue
from serving.server.embedded import EmbeddedServer
from serving.server.options import Options

LABELS = ["no", "maybe", "yes"]
ONCE = Retry(attempts=1)


@pytest.fixture(scope="module")
def model():
    return subject.make(head=lambda backbone: Classifier(backbone, 3))


@pytest.fixture(scope="module")
def version(model, tmp_path_factory):
    base = tmp_path_factory.mktemp("client") / "bert"
    return export_model(model, base, tokenizer=subject.tokenizer(), warmup_lengths=())


@pytest.fixture(scope="module")
def server(version, saved_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    base = folder / "arithmetic"
    base.mkdir()
    serving_models.add_version(saved_model, base, 7)
    config = model_server_config_pb2.ModelServerConfig()
    for name, path in (("bert", version.parent), ("a/b c", base)):
        config.model_config_list.config.add(name=name, base_path=str(path), model_platform="tensorflow")
    (folder / "models.config").write_text(str(config))
    options = Options(port=0, rest_api_port=0, model_config_file=str(folder / "models.config"))
    with EmbeddedServer(options) as server:
        yield server


@pytest.fixture(scope="module")
def batching(version, tmp_path_factory):
    """A server that waits 50 ms for a second request."""
    file = tmp_path_factory.mktemp("batching") / "batching.config"
    file.write_text("max_batch_size { value: 2 } batch_timeout_micros { value: 50000 } num_batch_threads { value: 1 }")
    options = Options(port=0, rest_api_port=0, model_name="bert", model_base_path=str(version.parent))
    options.enable_batching, options.batching_parameters_file = True, str(file)
    with EmbeddedServer(options) as server:
        yield server


@pytest.fixture(params=["rest", "grpc"])
def connect(request, server):
    """Makes clients of one protocol."""
    made = []
    address = f"localhost:{server.rest_port}" if request.param == "rest" else f"grpc://localhost:{server.port}"

    def make(model="bert", **options):
        made.append(Client(address, model, **{"retry": ONCE, **options}))
        return made[-1]

    yield make
    for client in made:
        client.close()


def test_text(connect, model):
    result = connect(labels=LABELS).read(["hello world", "the cafe"], ["", "hello"])
    assert result.tokens == [
        ["[CLS]", "hello", "world", "[SEP]"],
        ["[CLS]", "the", "cafe", "[SEP]", "hello", "[SEP]"],
    ]
    vocabulary = subject.VOCABULARY
    assert result.token_ids[0].tolist() == [vocabulary.index(piece) for piece in result.tokens[0]] + [0, 0]
    assert result.segment_ids[1].tolist() == [0, 0, 0, 0, 1, 1] and result.lengths.tolist() == [4, 6]
    given = {name: getattr(result, name) for name in ("token_ids", "segment_ids", "padding_mask")}
    expected = model(given, training=False)["logits"].numpy()
    np.testing.assert_allclose(result.logits, expected, atol=1e-5)
    assert result.labels == [LABELS[i] for i in expected.argmax(-1)]
    np.testing.assert_allclose(result.probabilities.sum(-1), 1.0, atol=1e-6)
    assert result.logits.dtype == np.float32 and result.token_ids.dtype == np.int32
    with pytest.raises(ValueError, match="no raw attention"):
        result.attention()


def test_one_text_with_the_maps_of_a_layer(connect):
    client = connect()
    result = client.read("hello world", "the cafe", attention="effective", layer=1)
    everything = client.read("hello world", "the cafe", attention="effective")
    size = result.token_ids.shape[1]
    assert result.attention().shape == (1, subject.HEADS, size, size)
    assert everything.attention().shape == (1, subject.LAYERS, subject.HEADS, size, size)
    np.testing.assert_allclose(result.attention(1), everything.attention(-1), atol=1e-6)
    np.testing.assert_allclose(result.effective_attention(), everything.effective_attention(1), atol=1e-5)
    with pytest.raises(ValueError, match="maps of layer 1"):
        result.attention(0)
    with pytest.raises(ValueError, match="has 2 layers"):
        everything.attention(2)


def test_rows_of_different_lengths_are_answered_as_if_each_came_alone(connect):
    client, rng = connect(), np.random.default_rng(0)
    rows = [rng.integers(5, 40, size=n) for n in (9, 3, 6)]
    segments = [np.arange(len(row)) // 3 % 2 for row in rows]
    together = client.run(rows, segments, attention="effective")
    assert together.lengths.tolist() == [9, 3, 6]
    for index, (row, segment) in enumerate(zip(rows, segments)):
        alone, cut = client.run(row, segment, attention="effective"), together.row(index)
        np.testing.assert_allclose(cut.logits, alone.logits, atol=1e-5)
        np.testing.assert_array_equal(cut.token_ids, alone.token_ids)
        np.testing.assert_allclose(cut.attention(), alone.attention(), atol=1e-5)
        np.testing.assert_allclose(cut.effective_attention(), alone.effective_attention(), atol=1e-4)


def test_compressed_keys_are_no_padding_of_a_row():
    """As many of them as there are tokens with padding; everybody looks at all of them."""
    mask = np.array([[1, 1, 0]])
    maps = np.full((1, 1, 1, 3, 3), 1 / 3, "float32")
    found = Result(np.zeros((1, 2)), mask, mask, mask, raw=maps, effective=maps).row(0)
    assert found.raw.shape == found.effective.shape == (1, 1, 1, 2, 3) and found.token_ids.shape == (1, 2)
    own = maps * [1, 1, 0]  # nobody looks at padding
    assert Result(np.zeros((1, 2)), mask, mask, mask, raw=own, effective=maps).row(0).effective.shape[-2:] == (2, 2)


def test_ids_against_the_model_in_python(connect, model):
    given = subject.inputs(np.random.default_rng(1))
    expected = model(given, return_intermediates=True, training=False)
    result = connect().run(**given, attention="raw")
    np.testing.assert_allclose(result.logits, expected["logits"], atol=1e-5)
    np.testing.assert_allclose(result.attention(), np.stack(expected["attention"], 1), atol=1e-5)
    np.testing.assert_allclose(connect().run(**given).logits, expected["logits"], atol=1e-5)


def test_any_model(connect):
    client = connect("a/b c", version=7)
    row = np.array([[1.5, -np.inf, np.nan]], np.float32)
    np.testing.assert_array_equal(client.predict({"x": row})["y"], 2 * row)
    strings = [b"caf\xc3\xa9", b"", b'"\\\n']
    found = client.predict({"text": np.array(strings, object)}, "twice")["text"]
    assert found.tolist() == [text * 2 for text in strings]
    given = {"ids": np.array([[1, 2], [3, 4]], np.int32), "weight": np.array([0.1, 0.2], np.float32)}
    found = client.predict(given, "seen", outputs=["sums", "weight"])
    assert set(found) == {"sums", "weight"} and found["sums"].dtype == np.int32
    np.testing.assert_array_equal(found["sums"], [3, 7])
    np.testing.assert_array_equal(found["weight"], given["weight"])


def test_an_output_filter_spares_the_rest(server):
    """`value` fails for this index: over gRPC it is not computed if not asked for."""
    with Client(f"grpc://localhost:{server.port}", "a/b c", retry=ONCE) as client:
        index = {"index": np.array([9], np.int32)}
        assert client.predict(index, "fragile", outputs=["echo"])["echo"].tolist() == [9]
        with pytest.raises(ClientError, match="not in"):
            client.predict(index, "fragile")


def test_messages_above_four_megabytes(server):
    rows = np.random.default_rng(0).normal(size=(400_000, 3)).astype("float32")
    with Client(f"grpc://localhost:{server.port}", "a/b c", retry=ONCE) as client:
        np.testing.assert_array_equal(client.predict({"x": rows})["y"], 2 * rows)


def test_status_and_metadata(connect):
    client = connect("a/b c")
    assert client.status() == {7: ("AVAILABLE", "")}
    found = client.metadata()
    assert found["serving_default"] == {"inputs": {"x": ("float32", (-1, 3))}, "outputs": {"y": ("float32", (-1, 3))}}
    assert found["twice"]["inputs"] == {"text": ("object", (-1,))}
    ids = connect().metadata()["effective_attention"]
    assert ids["inputs"]["token_ids"] == ("int32", (-1, -1)) and ids["outputs"]["attention"][1][0] == -1


def test_errors_say_what_the_server_said(connect):
    with pytest.raises(ClientError, match="Check the name and the version") as caught:
        connect("none").predict({"x": serving_models.ROW})
    assert caught.value.code == "NOT_FOUND" and "Servable not found for request: Latest(none)" in caught.value.message
    with pytest.raises(ClientError, match="token_ids must be from 0 to") as caught:
        connect().run([[10**6]])
    assert caught.value.code == "INVALID_ARGUMENT" and caught.value.attempts == 1


def test_deadline(connect):
    with pytest.raises(ClientError, match="longer `timeout`") as caught:
        connect("a/b c").predict({"steps": np.array([3000], np.int32)}, "work", timeout=0.05)
    assert caught.value.code == "DEADLINE_EXCEEDED"


@pytest.mark.parametrize(
    ("lengths", "retry"), [((12,), ONCE), ((6, 12), Retry(20)), ((), Retry(20))], ids=["one", "several", "none"]
)
@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_lengths_that_meet_in_a_server_with_batching(batching, model, monkeypatch, protocol, lengths, retry):
    address = f"localhost:{batching.rest_port}" if protocol == "rest" else f"grpc://localhost:{batching.port}"
    execute, sizes, found = Queue.execute, [], {}
    barrier = threading.Barrier(2)

    def watched(queue, batch):
        sizes.append(len(batch.parts))
        execute(queue, batch)

    def call(length):
        ids = np.random.default_rng(length).integers(5, 40, size=(1, length), dtype="int32")
        with Client(address, "bert", retry=retry, lengths=lengths) as client:
            client.status()
            barrier.wait()
            found[length] = client.run(ids, attention="effective"), client.run(ids, attention="raw", layer=1)

    monkeypatch.setattr(Queue, "execute", watched)
    threads = [threading.Thread(target=call, args=(length,)) for length in (3, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(sizes) == 2
    for length in (3, 9):
        every, one = found[length]
        given = {name: getattr(every, name) for name in ("token_ids", "segment_ids", "padding_mask")}
        expected = model(given, return_intermediates=True, training=False)
        maps = np.stack(expected["attention"], 1)
        np.testing.assert_allclose(every.logits, expected["logits"], atol=1e-5)
        np.testing.assert_allclose(every.attention(), maps, atol=1e-5)
        np.testing.assert_allclose(one.attention(), maps[:, 1], atol=1e-5)
        assert every.effective_attention().shape == maps.shape and every.lengths.tolist() == [length]


def test_text_with_lengths(connect):
    plain, padded = (connect(lengths=lengths).read("hello world", attention="effective") for lengths in ((), (12,)))
    assert padded.tokens == plain.tokens
    for name in ("logits", "token_ids", "padding_mask", "raw", "pieces"):
        assert getattr(padded, name).shape == getattr(plain, name).shape
    np.testing.assert_allclose(padded.effective_attention(), plain.effective_attention(), atol=1e-4)


def test_threads_share_a_client(connect):
    client, wrong = connect("a/b c"), []

    def call(number):
        for turn in range(10):
            row = np.full((1, 3), number * 100 + turn, np.float32)
            if not np.array_equal(client.predict({"x": row})["y"], 2 * row):
                wrong.append(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_rest_needs_no_tensorflow(server):
    code = (
        "import sys; from serving.client import Client\n"
        "with Client(sys.argv[1], 'bert') as client: print(client.run([[5, 6, 7]]).logits.shape)\n"
        "assert 'tensorflow' not in sys.modules and 'grpc' not in sys.modules"
    )
    command = [sys.executable, "-c", code, f"localhost:{server.rest_port}"]
    folder = Path(__file__).resolve().parents[2]
    assert subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder).stdout == "(1, 3)\n"
