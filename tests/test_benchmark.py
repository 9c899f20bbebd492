"""The benchmark compares like with like, leaves nobody out, and goes on where it stopped."""

import dataclasses
import io
import json

import keras
import numpy as np
import pytest

from keras_posenc import encodings
from keras_posenc.benchmark import __main__ as cli
from keras_posenc.benchmark import cost, decoding, effective, linear, models, report, timing
from keras_posenc.benchmark.store import Store
from keras_posenc.utils.progress import Progress

TINY = models.Size("TINY", num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=8, vocabulary=11, max_length=32)
SETTINGS = cost.Settings(length=6, batch=1, training_batch=2, rounds=2, training_rounds=1, group=20, training_group=20)
CELLS = ({"tiny": TINY}, ["learned", "diet_rel", "rotary"], ["graph"])

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="it measures TensorFlow")


def run(store, cells=CELLS, tasks=("inference",)):
    cost.run(store, *cells, tasks, SETTINGS, Progress(9, stream=io.StringIO()))
    return store


class Clock:
    """Time that passes only when a function says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def work(self, seconds):
        self.now += seconds


def test_a_slow_round_is_slow_for_all_and_cancels():
    clock, calls = Clock(), []

    def task(cost):
        def function():
            calls.append(cost)
            slowdown = 1 + (len(calls) - 1) // 3  # every round of three calls is slower than the one before
            clock.work(cost * slowdown)

        return function

    seconds = timing.interleave({"base": task(2.0), "twin": task(2.0), "dear": task(3.0)}, rounds=5, clock=clock)
    np.testing.assert_allclose(seconds["base"], [2, 4, 6, 8, 10])
    twin, dear = (timing.compare(seconds[name], seconds["base"]) for name in ("twin", "dear"))
    assert twin["ratio"] == 1 and twin["range"] == [1, 1]
    assert dear["ratio"] == 1.5 and dear["quartiles"] == [1.5, 1.5]
    assert dear["milliseconds"] == 9000 and dear["baseline_milliseconds"] == 6000


def test_the_order_changes_from_round_to_round():
    order = []
    functions = {name: lambda name=name: order.append(name) for name in "abcd"}
    timing.interleave(functions, rounds=6)
    rounds = [tuple(order[i : i + 4]) for i in range(0, 24, 4)]
    assert all(sorted(turn) == list("abcd") for turn in rounds)
    assert len(set(rounds)) > 1


def test_compare_gives_the_quartiles_of_ratios():
    found = timing.compare([1, 2, 3, 4, 5], [1, 1, 1, 1, 1])
    assert (found["ratio"], found["quartiles"], found["range"]) == (3, [2, 4], [1, 5])


def test_folded_and_unfolded_steps_compute_the_same():
    keras.utils.set_random_seed(1)
    made = cost._inference(TINY, "diet_abs", "graph", SETTINGS)
    assert set(made) == {"folded", "unfolded"}
    np.testing.assert_allclose(made["folded"](), made["unfolded"](), atol=1e-5)
    assert set(cost._inference(TINY, "rotary", "graph", SETTINGS)) == {"unfolded"}


@pytest.mark.integration
@pytest.mark.parametrize("mode", models.MODES)
def test_training_steps_bring_the_loss_down(mode):
    keras.utils.set_random_seed(1)
    model = models.build(TINY, "diet_rel", 6)
    step = models.training_step(model, models.token_ids(TINY, 2, 6), mode)
    losses = [float(step()) for _ in range(20)]
    assert losses[-1] < losses[0]


@pytest.mark.integration
def test_the_table_has_every_registered_encoding():
    cells = ({"small": TINY}, encodings.names(), ["graph"])
    store = run(Store(None, {}), cells)
    run(store, ({"small": TINY}, ["shaw"], ["graph"]), ["training"])
    rows = {line.split()[0]: line for line in report.table(store, *cells, SETTINGS).splitlines() if "[" in line}
    assert set(rows) == set(encodings.names())
    assert {name: row.count("[") for name, row in rows.items()} == {**dict.fromkeys(rows, 2), "shaw": 3}
    assert rows["shaw"].endswith("1.24 / 1.65")  # DIET, Table 1, BERT_SMALL


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path):
    first = run(Store(tmp_path, {"length": 6}), ({"tiny": TINY}, ["learned", "diet_rel"], ["graph"]))
    before = json.loads((tmp_path / "results.json").read_text())["results"]
    assert before == first.data["results"] and len(before) == 4

    again = Store(tmp_path, {"length": 6})
    left = cost.pending(again, *CELLS, ["inference"], SETTINGS)
    assert [group[-1] for group in left] == [["rotary"]]
    run(again)
    after = json.loads((tmp_path / "results.json").read_text())["results"]
    assert {key: after[key] for key in before} == before  # equal to the last digit: not measured again
    assert set(after) - set(before) == {"tiny/folded/graph/rotary", "tiny/unfolded/graph/rotary"}
    assert cost.pending(Store(tmp_path, {"length": 6}, fresh=True), *CELLS, ["inference"], SETTINGS)


def test_results_of_other_settings_are_not_mixed(tmp_path):
    Store(tmp_path, {"length": 128}).save()
    with pytest.raises(ValueError, match="length: 128, now 64.*--fresh"):
        Store(tmp_path, {"length": 64})


def test_groups_bound_the_models_in_memory():
    settings = dataclasses.replace(SETTINGS, training_group=2)
    groups = cost.pending(Store(None, {}), {"tiny": TINY}, list("abcde"), ["graph", "xla"], ["training"], settings)
    assert [group[-1] for group in groups] == [["a", "b"], ["c", "d"], ["e"]] * 2


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--positions", "learned,rotatory"], "unknown encoding 'rotatory'"),
        (["--models", "huge"], "unknown model 'huge'; known: base, small"),
        (["--modes", "eager"], "unknown mode 'eager'"),
        (["--tasks", "serving"], "unknown task 'serving'"),
        (["--rounds", "0"], "at least 1"),
        (["--rounds", "many"], "at least 1"),
        (["--length", "513"], "at most 512"),
        (["--linear", "--tasks", "training"], "give one of them"),
    ],
)
def test_bad_options_are_refused_before_work_starts(arguments, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([*arguments, "--output", str(tmp_path / "out")])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_quick_is_the_small_model_at_inference_with_every_encoding():
    options = cli.parse(["--quick"])
    assert (options.models, options.tasks, options.modes) == (["small"], ["inference"], ["graph", "xla"])
    assert options.positions == encodings.names()
    assert cli.parse([]).tasks == ["training", "inference", "linear", "effective", "decoding"]


def test_targets_follow_the_doors():
    assert report.target("diet_rel", "folded") == 1.02 and report.target("diet_rel", "training") == 1.05
    assert report.target("rotary", "folded") == 1.15 and report.target("learned", "folded") is None
    results = [{"ratio": r, "quartiles": [q, 2]} for r, q in ((1.01, 1.0), (1.04, 1.01), (1.1, 1.05))]
    assert [report.mark(result, 1.02) for result in results] == ["+", "?", "-"]


def test_the_exponent_of_a_power_law_is_found():
    lengths = np.array([512, 1024, 2048])
    assert linear.exponent(lengths, 3.0 * lengths**2) == pytest.approx(2)
    assert linear.exponent(lengths, 0.1 * lengths) == pytest.approx(1)


@pytest.mark.integration
def test_peak_memory_of_full_attention_holds_its_scores():
    """At 1024 positions the scores of 8 heads are 32 MiB; those for 32 compressed keys are 1 MiB."""
    full = linear.measure_apart("full", 1024, rounds=1, threads=1)
    compressed = linear.measure_apart("diet_abs_lin", 1024, rounds=1, threads=1)
    assert full["megabytes"] > 32 > compressed["megabytes"]
    store = Store(None, {})
    for attention, result in (("full", full), ("diet_abs_lin", compressed)):
        store.put(("linear", attention, 1024), result)
    store.put(("linear", "full", 2048), {"skipped": "needs 9.9 GiB, 1.0 GiB are free"})
    text = linear.table(store, linear.ATTENTIONS, (1024, 2048))
    assert "full at 2048: skipped" in text and "diet_abs_lin, peak memory" in text
    assert linear.pending(store, linear.ATTENTIONS, (1024, 2048)) == [("full", 2048), ("diet_abs_lin", 2048)]


@pytest.mark.parametrize("mode", models.MODES)
def test_the_ways_of_effective_attention_agree(mode):
    """Six tokens and heads of four: two dimensions of a row of attention do not reach the output."""
    keras.utils.set_random_seed(1)
    model = effective.build(TINY)
    tokens = models.token_ids(TINY, 2, 6)
    raw, fast, svd = (effective.forward(model, tokens, mode, way)().numpy() for way in ("raw", "effective", "svd"))
    assert raw.shape == (2, 1, 2, 6, 6)
    np.testing.assert_allclose(fast, svd, atol=1e-5)
    assert np.abs(fast - raw).max() > 1e-2


def test_effective_attention_is_measured_once(tmp_path):
    store, cells = Store(tmp_path, {}), ({"tiny": TINY}, ["graph"])
    effective.run(store, *cells, SETTINGS, Progress(1, stream=io.StringIO()))
    again = Store(tmp_path, {})
    assert not effective.pending(again, *cells) and effective.pending(again, {"tiny": TINY}, ["xla"]) == [
        ("tiny", "xla")
    ]
    text = effective.table(again, *cells, SETTINGS)
    assert all(label in text for label in effective.LABELS.values()) and "TINY, graph" in text


SHORT = decoding.Size(1, 2, 8, 8, vocabulary=3000, batch=2, length=6, max_length=16, group=2)


def test_decoding_with_and_without_the_cache_gives_the_same_tokens():
    model = decoding.build(SHORT, "tisa")
    sources = np.random.default_rng(0).integers(3, 3000, (2, 6)).astype("int32")
    found = decoding.translate(model, SHORT, sources)()
    assert found.shape == (2, 6) and (found > 2).any()
    np.testing.assert_array_equal(decoding.uncached(model, SHORT, sources)(), found)


def test_decoding_is_measured_once_and_says_who_cannot(tmp_path):
    store, positions = Store(tmp_path, {}), ["t5", "diet_abs_lin", "sinusoidal"]
    assert decoding.pending(store, SHORT, positions) == [["uncached", "beam"], ["t5", "sinusoidal"]]
    decoding.run(store, SHORT, positions, 2, Progress(4, stream=io.StringIO()))
    again = Store(tmp_path, {})
    assert not decoding.pending(again, SHORT, positions)
    found = again.get(("decoding", "t5"))
    assert found["tokens_per_second"] * found["milliseconds"] == pytest.approx(2 * 6 * 1e3)
    text = decoding.table(again, SHORT, positions)
    assert "diet_abs_lin" in text and "cannot" in text and text.count("/s") == 4


def test_plots_are_written(tmp_path):
    cells = ({"small": TINY}, ["learned", "shaw"], ["graph"])
    store = run(Store(None, {}), cells)
    report.plot(store, *cells, tmp_path / "table.png")
    for length in (512, 1024):
        store.put(("linear", "full", length), {"seconds": length / 1e3, "megabytes": length**2 / 1e4})
    linear.plot(store, linear.ATTENTIONS, (512, 1024), tmp_path / "linear.png")
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in ("table.png", "linear.png"))
