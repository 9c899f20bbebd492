"""Load that omits nothing, statistics against their formulas, and a comparison from flags to page."""

import json
import re
import threading
import time

import grpc
import numpy as np
import pytest
from absl import flags
from serving_models import ROW, add_version

from keras_posenc import models
from keras_posenc.benchmark.store import Store
from serving import latency
from serving.client.client import connect
from serving.client.errors import ClientError
from serving.exporting import export_model
from serving.measuring import loads, statistics, tables
from serving.measuring.calls import check_same, requests, take_turns
from serving.measuring.generator import Job, due_times, generate, sender
from serving.measuring.run import Run
from serving.measuring.server import free_ports
from serving.measuring.settings import SIGNATURES, Plan, Settings, batching_text
from serving.server import batching, protos
from serving.server.embedded import EmbeddedServer
from serving.server.options import Options


def parsed(*arguments):
    values = flags.FlagValues()
    latency.define(values)
    values(["latency", *arguments])
    return values


def test_due_times_are_a_poisson_process():
    times = due_times(rate=200.0, duration=100.0, seed=1)
    gaps = np.diff(times)
    assert np.all(gaps > 0) and times[-1] < 100.0
    np.testing.assert_allclose([len(times), gaps.mean(), gaps.std()], [20000, 1 / 200, 1 / 200], rtol=0.03)
    counts = np.histogram(times, np.linspace(0, 100, 201))[0]
    np.testing.assert_allclose(counts.var() / counts.mean(), 1.0, atol=0.3)  # of a Poisson distribution


def test_latency_counts_from_when_a_request_was_due():
    """One client, and a server that takes `s` for a request and stalls at the first: the recursion of Lindley."""
    job = Job("", "", b"", clients=1, duration=0.5, rate=60.0, seed=3)
    times, s, stall, first = due_times(60.0, 0.5, 3), 0.005, 0.3, []

    def send():
        time.sleep(s if first else stall)
        first.append(None)

    found = generate(job, send)
    done, least = 0.0, []
    for number, due in enumerate(times):
        done = max(done, due) + (s if number else stall)
        least.append(done - due)
    assert len(found["latency"]) == len(times) and not found["errors"]
    assert np.all(found["latency"] >= np.array(least) - 1e-3)  # a busy machine can only add to it
    assert np.sum(found["latency"] > 0.1) >= 5  # most of those that were due during the stall, not one
    np.testing.assert_allclose(found["latency"] - found["late"], s, atol=1.0)


def test_a_closed_loop_has_as_many_requests_under_way_as_clients():
    lock, now, most, calls = threading.Lock(), [0], [0], [0]

    def send():
        with lock:
            now[0] += 1
            calls[0] += 1
            most[0] = max(most[0], now[0])
            fails = calls[0] % 3 == 0
        time.sleep(0.02)
        with lock:
            now[0] -= 1
        if fails:
            raise ConnectionError

    found = generate(Job("", "", b"", clients=4, duration=0.4), send)
    assert most[0] == 4
    assert len(found["latency"]) + found["errors"]["ConnectionError"] == calls[0]
    assert found["errors"]["ConnectionError"] == calls[0] // 3 and found["latency"].min() >= 0.02


def test_bootstrap_interval_of_a_mean_is_that_of_the_normal_distribution():
    values = np.random.default_rng(0).normal(5.0, 2.0, 400)
    low, high = statistics.mean(values)["interval"]
    error = 1.96 * values.std() / 20
    np.testing.assert_allclose([low, high], [values.mean() - error, values.mean() + error], atol=0.15 * error)


def test_what_rounds_share_cancels():
    """A machine that is up to ten times slower in some rounds changes neither ratio nor overhead of twins."""
    slow = np.random.default_rng(0).uniform(1.0, 10.0, 50)
    assert statistics.ratio(1.5 * slow, slow) == {"value": 1.5, "interval": [1.5, 1.5]}
    found = statistics.overhead(slow + 0.002, slow)
    np.testing.assert_allclose([found["value"], *found["interval"]], 2.0, atol=1e-6)
    summary = statistics.summary(np.arange(1, 101) / 1e3)
    np.testing.assert_allclose([summary["p50"], summary["p95"], summary["p99"]], [50.5, 95.05, 99.01])


def test_turns():
    order = []
    found = take_turns({name: lambda n=name: order.append(n) for name in "abc"}, rounds=6, warmup=2)
    assert order[:6] == list("abcabc") and all(sorted(order[i : i + 3]) == list("abc") for i in range(0, 24, 3))
    assert len({"".join(order[i : i + 3]) for i in range(6, 24, 3)}) > 1
    assert {name: len(seconds) for name, seconds in found.items()} == {"a": 6, "b": 6, "c": 6}


def test_different_answers_are_an_error():
    same, other = {"logits": np.zeros(2)}, {"logits": np.array([0.0, 0.1])}
    check_same({("m", "grpc"): same, ("m", "rest"): same, ("n", "rest"): other})
    with pytest.raises(RuntimeError, match="differ by 0.1 between grpc and rest"):
        check_same({("m", "grpc"): same, ("m", "rest"): other})


def test_batching_parameters_are_ones_that_the_server_reads(tmp_path):
    (tmp_path / "batching").write_text(batching_text((1, 16), Settings()))
    found = batching.parameters(protos.read_text(str(tmp_path / "batching"), protos.BatchingParameters()))
    assert (found.max_batch_size, found.num_batch_threads, found.batch_timeout_micros) == (16, 1, 5000)


def test_promises_are_kept_broken_or_unclear():
    store = Store(None, {"model": "bert_small", "length": 128, "server": None})

    def put(key, name, value, low, high):
        store.put(key, {name: {"value": value, "interval": [low, high]}})

    put(("latency", 1, "learned", "grpc"), "overhead", 2.0, 1.5, 2.5)
    put(("latency", 1, "learned", "rest"), "overhead", 4.9, 4.0, 5.8)
    put(("throughput", "learned", "grpc", 16), "ratio", 0.9, 0.86, 0.95)
    put(("latency", 1, "diet_abs", "grpc"), "ratio", 1.05, 1.03, 1.07)
    rows = tables.target_rows(store, Plan(("learned",)))
    assert [(row["what"], row["kept"]) for row in rows] == [
        ("overhead over grpc, ms", "yes"),
        ("overhead over rest, ms", "unclear"),
        ("throughput of 16 clients over grpc, of in process", "yes"),
        ("folded diet_abs over grpc, of learned", "no"),
    ]
    store.data["settings"]["length"] = 64
    assert tables.target_rows(store, Plan(("learned",))) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--positions=learned,nothing"], "unknown nothing"),
        (["--model=transformer_tiny"], "--model: unknown transformer_tiny"),
        (["--batch=1,x"], "--batch takes numbers"),
        (["--load=0"], "above 0"),
        (["--tasks=speed"], "--tasks: unknown speed"),
        (["--length=128", "--max_length=64"], "is less than --length"),
        (["--parts=2", "--threads=2"], "leave out --threads"),
        (["--served=m"], "give its address with --server"),
        (["--server=a:1,b:2"], "one address for each"),
        (["--positions=rotary", "--load_positions=shaw"], "--load_positions: unknown shaw"),
    ],
)
def test_flags_are_checked_first(arguments, message):
    with pytest.raises(ValueError, match=message):
        latency.read(parsed(*arguments))


def test_flags():
    settings, plan = latency.read(parsed("--positions", "learned,diet_abs", "--batch", "8,1", "--quick"))
    assert plan.names == plan.load_names == ("learned", "diet_abs") and plan.batches == (1, 8)
    assert (settings.model, settings.length, settings.max_length, settings.rounds) == ("bert_small", 128, 128, 10)
    settings, plan = latency.read(parsed("--server=grpc://h:1", "--served=m", "--rounds=7"))
    assert plan.protocols == ("grpc",) and plan.load_names == ("m",) and settings.rounds == 7
    assert settings.pools == (0, 0) and latency.read(parsed("--parts=4"))[0].pools == (1, 4)


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_a_generator_of_its_own_process_sends_what_it_counts(saved_model, tmp_path, protocol):
    add_version(saved_model, tmp_path, 1)
    options = Options(model_name="m", model_base_path=str(tmp_path), port=0, rest_api_port=0)
    with EmbeddedServer(options) as server:
        address = f"localhost:{server.rest_port}" if protocol == "rest" else f"grpc://localhost:{server.port}"
        body = loads.payload(address, "m", {"x": ROW})
        rate, seconds, errors = loads.closed(address, "m", body, clients=3, duration=0.3, processes=2)
        found = loads.opened(address, "m", body, rate=20.0, duration=0.5, seed=2)
        assert not errors and not found["errors"] and rate > 0
        assert len(found["latency"]) == len(due_times(20.0, 0.5, 2))
        count = int(re.search(r'request_count\{model_name="m",status="OK"\} (\d+)', server.metrics.text()).group(1))
        assert count == len(seconds) + 2 + len(found["latency"]) + 1  # each process sends one before the start
        broken = loads.payload(address, "m", {"wrong": ROW})
        with pytest.raises(RuntimeError, match="failed to reach m"):
            loads.closed(address, "m", broken, clients=1, duration=0.1)


@pytest.mark.integration
def test_from_flags_to_page(tmp_path, capsys):
    for position in ("learned", "diet_abs"):
        model = models.build("bert_tiny", position=position, max_length=8, vocab_size=512)
        export_model(model, tmp_path / position, warmup_lengths=())
    entry = 'config {{ name: "{0}" base_path: "{1}/{0}" model_platform: "tensorflow" }}'
    entries = " ".join(entry.format(name, tmp_path) for name in ("learned", "diet_abs"))
    (tmp_path / "models.config").write_text(f"model_config_list {{ {entries} }}")
    output = tmp_path / "output"
    with EmbeddedServer(Options(port=0, rest_api_port=0, model_config_file=str(tmp_path / "models.config"))) as server:
        addresses = f"--server=localhost:{server.rest_port},grpc://localhost:{server.port}"
        arguments = [addresses, "--positions=all", "--length=8", "--rounds=3", "--warmup=1", "--batch=1", "--pause=0"]
        arguments += ["--duration=0.2", "--load_rounds=2", "--concurrency=1,2", "--load=0.5", f"--output={output}"]
        latency.run(parsed(*arguments, "--load_positions=learned"))
        shown = capsys.readouterr().out
        before = json.loads((output / "results.json").read_text())["results"]
        latency.run(parsed(*arguments, "--load_positions=learned"))  # finds everything done
        assert json.loads((output / "results.json").read_text())["results"] == before
        with pytest.raises(ValueError, match="none of the models nothing"):
            latency.run(parsed(addresses, "--served=nothing"))
        with pytest.raises(ValueError, match="measured with other settings"):
            latency.run(parsed(*arguments, "--rounds=4"))
    cells = {key.split("/")[0] for key in before}
    assert cells == {"latency", "signatures", "throughput", "load"}
    assert before["latency/1/diet_abs/rest"]["ratio"]["value"] > 0 and "latency/1/rotary/rest" not in before
    assert all(len(value["samples"]) == 3 for key, value in before.items() if key.startswith("latency"))
    for name in ("latency", "signatures", "throughput", "load"):
        assert (output / f"{name}.csv").read_text().count("\n") > 1 and f"\n{name}\n" in "\n" + shown
    page = (output / "index.html").read_text()
    assert page.count("data:image/png") >= 5 and "Latency against the offered rate" in page


def test_what_is_asked_for_later_is_measured_too(tmp_path):
    """Another protocol, another number of clients, and a load curve whose parts are of another throughput."""
    store = Store(None, {})

    def left(task, **plan):
        return Run(Plan(("learned",), **plan), Settings(), store, tmp_path, None)._left(task, "learned")

    store.put(("latency", 1, "learned", "rest"), {})
    store.put(("signatures", SIGNATURES[-1], "learned", "rest"), {})
    for task in ("latency", "signatures"):
        assert not left(task, batches=(1,), protocols=("rest",)) and left(task, batches=(1,))
    for way in ("grpc", "rest"):
        for clients in (1, 16):
            store.put(("throughput", "learned", way, clients), {})
        store.put(("load", "learned", way, 0.5), {"clients": 16})
    assert not left("throughput", concurrency=(1, 16)) and left("throughput", concurrency=(1, 4, 16))
    assert not left("load", fractions=(0.5,), concurrency=(1, 16)) and left("load", fractions=(0.5, 1.0))
    assert left("load", fractions=(0.5,), concurrency=(1, 32))


def test_a_server_that_does_not_answer_is_not_said_to_lack_models():
    port = free_ports(1)[0]
    with pytest.raises(ClientError, match="UNAVAILABLE"):
        latency.run(parsed(f"--server=localhost:{port}", "--served=m"))


@pytest.mark.parametrize(
    ("address", "target"),
    [("unix:/s", "unix:/s"), ("unix:///s", "unix:///s"), ("grpc://a:1/", "a:1"), ("grpc://a:1", "a:1")],
)
def test_generators_read_addresses_as_clients_do(monkeypatch, address, target):
    asked = []
    real = grpc.insecure_channel
    monkeypatch.setattr(grpc, "insecure_channel", lambda *given: asked.append(given[0]) or real(*given))
    sender(Job(address, "m", b"", clients=1, duration=1.0))[1]()
    connect(address, "m").close()
    assert asked == [target, target]


def test_requests_are_of_the_asked_shape():
    given = requests(3, 16, "layer_attention")
    assert {name: value.shape for name, value in given.items()} == {
        "token_ids": (3, 16),
        "segment_ids": (3, 16),
        "padding_mask": (3, 16),
        "layer": (3,),
    }
