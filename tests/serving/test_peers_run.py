"""The comparison with other runtimes, on a tiny model and with the peers that are installed beside the tests."""

import sys

import numpy as np
import pytest
from absl import flags

from keras_posenc.benchmark.store import Store
from serving import peers
from serving.peering import catalog, report, weights
from serving.peering.process import Missing, Process
from serving.peering.run import Run

TINY = (2, 2, 8, 12, 37, 16)


class Silent:
    def __init__(self):
        self.steps = []

    def step(self, what):
        self.steps.append(what)


def run(store, folder, names, **options):
    settings = dict(size=TINY, batches=[1, 2], length=5, rounds=2, warmup=1, threads=1, elsewhere=None)
    return Run(store, names=names, folder=folder, progress=Silent(), **{**settings, **options})


def test_operations_of_bert_base():
    """Twelve layers of 128 rows: six products with 7.1 million weights, and queries with keys, weights with values."""
    config = weights.configuration("bert_base")
    assert catalog.flops(config, 1, 128) == 12 * (2 * 128 * 7_077_888 + 2 * 2 * 128 * 128 * 768)
    assert catalog.flops(config, 8, 128) == 8 * catalog.flops(config, 1, 128)


def test_weights_are_the_same_each_time_and_complete(tmp_path):
    from keras_posenc import checkpoints

    config = weights.configuration(TINY)
    first, second = (weights.write(tmp_path / name, config) for name in "ab")
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()
    loaded = checkpoints.load(first)
    assert not loaded.fresh
    assert loaded.model.count_params() == sum(tensor.size for tensor in weights.read_tensors(first).values())


def test_worker_tells_what_is_missing_and_what_failed(tmp_path):
    folder = weights.write(tmp_path / "weights", weights.configuration(TINY))
    absent = catalog.Entry("absent", "no_such_module")
    with Process("absent", absent, sys.executable, tmp_path / "absent", 1) as process:
        with pytest.raises(Missing, match="no_such_module"):
            process.load(folder, [1], 5)
        with pytest.raises(RuntimeError, match="absent could not answer.*log.txt"):
            process.answer(1)
    product = catalog.PRODUCTS["product_numpy"]
    with Process("product", product, sys.executable, tmp_path / "product", 1) as process:
        assert process.load(folder, [1], 5)["versions"] == {"numpy": np.__version__}
        found = process.time(1, 3)
        assert len(found["seconds"]) == len(found["cpu_seconds"]) == 3 and min(found["seconds"]) > 0
    assert process._child.returncode == 0


def test_peers_that_compute_something_else_are_not_timed(tmp_path):
    class Fixed:
        def __init__(self, value):
            self.value = value

        def answer(self, batch):
            return {"sequence_output": np.full((batch, 2), self.value, "float32")}

    store = Store(None, {})
    measured = run(store, tmp_path, ["torch"])
    measured._check({"ours": Fixed(1.0), "torch": Fixed(1.0005)}, 1)
    assert store.get(("apart", 1, "torch")) == pytest.approx(5e-4, rel=1e-2)
    with pytest.raises(RuntimeError, match="torch computes something else: outputs are 0.0[0-9]* away"):
        measured._check({"ours": Fixed(1.0), "torch": Fixed(1.01)}, 1)
    with pytest.raises(RuntimeError, match="outputs are nan away"):
        measured._check({"ours": Fixed(1.0), "torch": Fixed(np.nan)}, 1)


@pytest.mark.integration
def test_tiny_models_agree_and_are_timed(tmp_path, monkeypatch):
    """Those of the test environment. What is not installed is skipped, and said."""
    monkeypatch.setitem(catalog.PEERS, "absent", catalog.Entry("absent runtime", "no_such_module"))
    monkeypatch.setitem(catalog.ENTRIES, "absent", catalog.PEERS["absent"])
    monkeypatch.setattr(catalog, "PRODUCTS", {"product_numpy": catalog.PRODUCTS["product_numpy"]})
    names = ["keras_hub", "tf_models", "torch", "absent"]
    store = Store(tmp_path / "out", {})
    measured = run(store, tmp_path / "work", names)
    measured.all()
    assert measured.pending() == [] and measured.steps() == 0
    assert store.get(("missing", "absent"))["reason"].count("no_such_module")
    there = [name for name in names if store.get(("missing", name)) is None]
    for batch in (1, 2):
        for name in ["ours", *there]:
            found = store.get(("forward", batch, name))
            assert found["rounds"] == 2 and found["milliseconds"] > 0 and len(found["samples"]) == 2
        assert all(store.get(("apart", batch, name)) < 1e-4 for name in there)
        assert store.get(("forward", batch, "ours"))["ratio"] == 1.0
    text = report.table(store, [1, 2], "tiny")
    assert "absent runtime: not measured, No module named" in text and "product, NumPy of 2048" in text
    report.plot(store, [1, 2], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"


def stored(path=None):
    store = Store(path, {})
    common = dict(quartiles=[0.9, 1.1], range=[0.8, 1.2], fastest_milliseconds=90.0, cpu_milliseconds=180.0, rounds=3)
    for name, ratio, rate in (("ours", 1.0, 150.0), ("torch", 1.5, 100.0), ("product_torch", 0.5, 200.0)):
        store.put(("forward", 1, name), {**common, "ratio": ratio, "milliseconds": 100.0 * ratio, "gflops": rate})
    store.put(("forward", 1, "product_numpy"), {**common, "ratio": 0.6, "milliseconds": 60.0, "gflops": 120.0})
    return store


def test_shares_are_of_the_fastest_product():
    store = stored()
    assert report.limit(store, 1) == ("product_torch", 200.0)
    found = {row["name"]: row["share"] for row in report.rows(store, 1)}
    assert found == {"ours": 0.75, "torch": 0.5}
    text = report.table(store, [1, 8], "title")
    assert "1.50 [0.90, 1.10]" in text and "75%" in text and "batch 8" not in text
    assert report.limit(store, 8) is None


def test_flags_are_checked_before_anything_is_started(tmp_path):
    values = flags.FlagValues()
    peers.define(values)
    for given, message in (
        (["--peers=ours,nobody"], "unknown nobody. Known: ours"),
        (["--batch=1,x"], "--batch takes whole numbers.*1,x"),
        (["--batch=0"], "at least 1"),
    ):
        values.unparse_flags()
        values(["peers", "--peers=all", "--batch=1", *given])
        with pytest.raises(ValueError, match=message):
            peers.run(values)


def test_worker_goes_on_after_a_request_it_does_not_know(tmp_path):
    folder = weights.write(tmp_path / "weights", weights.configuration(TINY))
    with Process("product", catalog.PRODUCTS["product_numpy"], sys.executable, tmp_path / "p", 1) as process:
        with pytest.raises(RuntimeError, match="product could not exclaim: AttributeError"):
            process._ask("exclaim")
        process.load(folder, [1], 5)
    assert "Traceback" in (tmp_path / "p" / "log.txt").read_text()
