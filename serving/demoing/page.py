"""The page: everything that the demo found, in one file that needs no other."""

import html

import numpy as np

from keras_posenc.analysis.plots.effective import plot_heads, plot_maps
from keras_posenc.analysis.plots.similarity import plot_correlation
from keras_posenc.analysis.similarity import CorrelationResult
from keras_posenc.analysis.study.page import Page
from serving.demoing import plots, words
from serving.demoing.settings import BASELINE, REAL
from serving.measuring import plots as latency_plots
from serving.measuring.settings import WAYS
from training.comparing import plots as training_plots
from training.comparing.subjects import LONGER

METRIC = "accuracy"


class DemoPage(Page):
    """A `Page` with commands in it."""

    def code(self, text):
        self._add(f'<pre style="overflow-x:auto;padding:.6rem .8rem;background:var(--panel)">{html.escape(text)}</pre>')


def write(found, arrays, about):
    """The page as text.

    Args:
        found: dict of what the stages `train`, `export`, `serve`, `study` and `real` returned.
        arrays: dict of the arrays of `study`, `real` (or `None`) and `pictures`.
        about: dict of `machine`, `minutes`, `settings`, `trained` (lengths in words) and `positions` (trained on).
    """
    page = DemoPage("Where does position enter attention?", words.subtitle(about))
    _summary(page, found)
    _task(page, found, about)
    _lengths(page, found["train"], about)
    _learned(page, arrays["pictures"], about)
    _serving(page, found)
    _study(page, found["study"], arrays["study"])
    if found["real"]["installed"]:
        _real(page, found["real"], arrays["real"])
    _maps(page, found, arrays)
    _small(page, found, about)
    return page.html()


def summary_rows(found):
    """The table of the page: a row for each encoding, and the bag of words."""
    latency, rows = found["serve"]["latency"], []
    for row in found["train"]["rows"]:
        name = row["positions"]
        new = {"positions": name}
        new |= {
            title: _score(row.get(key)) for title, key in (("dev", "score"), ("test", "test"), ("longer", "longer"))
        }
        new |= {"parameters": f"{row['parameters']:,}", "of positions": f"{row['position_parameters']:,}"}
        if "step_time_ratio" in row:
            new["step time"] = "" if row["step_time_ratio"] is None else f"{row['step_time_ratio']:.2f}"
        served = latency.get(name)
        for way in ("grpc", "rest"):
            new[f"{way} p50 ms"] = f"{served[way]['p50']:.2f}" if served else ""
        rows.append(new)
    return rows


def latency_rows(latency):
    """A row for each model: p50 and p95 of each way, in milliseconds, and the ratio of p50 to that of the baseline."""
    rows = []
    for name, ways in latency.items():
        row = {"positions": name}
        for way in WAYS:
            row |= {f"{way} {percentile}": f"{ways[way][percentile]:.2f}" for percentile in ("p50", "p95")}
        for way in WAYS[1:]:
            ratio = ways[way].get("ratio")
            if ratio is not None:
                low, high = ratio["interval"]
                row[f"{way}, of {BASELINE}"] = f"{ratio['value']:.2f} [{low:.2f}, {high:.2f}]"
        rows.append(row)
    return rows


def _summary(page, found):
    page.section("In short", words.in_short(found))
    page.table(summary_rows(found))
    page.text(words.columns(found["train"], found["serve"]))


def _task(page, found, about):
    page.section("The task", words.task(about))
    texts = zip(found["export"]["texts"], found["export"]["labels"])
    page.table([{"sentence": text, "is it one?": "yes" if label else "no"} for text, label in texts][:4])
    train = found["train"]
    positions = [row["positions"] for row in train["rows"]]
    if any(train["curves"]["score"].values()):
        caption = "Accuracy on dev during training: how soon an encoding finds the order. Grey: the others."
        page.figure(training_plots.panels(train["curves"]["score"], "step", METRIC), caption)
    caption = (
        "Each dot is a run, each bar the median of an encoding. Blue: dev. Orange: sentences longer than trained on."
    )
    page.figure(training_plots.scores(train["runs"], positions, METRIC, LONGER), caption)


def _lengths(page, train, about):
    if not train["lengths"]:
        return
    page.section("Longer than trained on", words.lengths(about))
    caption = (
        "Accuracy by length of the sentence; trained lengths are shaded, chance is 0.5. Grey: the other encodings."
    )
    page.figure(training_plots.panels(train["lengths"], "words", METRIC, about["trained"]), caption)


def _learned(page, arrays, about):
    page.section("What the models learned about positions", words.PICTURES)
    page.figure(plots.png(plots.pictures(arrays, about["positions"])), words.PICTURES_CAPTION)


def _serving(page, found):
    serve = found["serve"]
    page.section("Served", words.serving(serve, found["export"]))
    rows = [_latency_row(name, way, ways[way]) for name, ways in serve["latency"].items() for way in WAYS]
    page.figure(latency_plots.latency(rows), words.LATENCY_CAPTION)
    page.table(latency_rows(serve["latency"]))
    differences = [
        {"model": n, **{way: f"{v:.1e}" for way, v in ways.items()}} for n, ways in serve["differences"].items()
    ]
    page.table(differences, "Largest difference of served logits to those of the model in Python", folded=True)


def _study(page, study, arrays):
    size, layer, head = study["head_size"], *study["differs"]
    page.section("Raw against effective attention", words.study(study))
    result = CorrelationResult(arrays["lengths"], arrays["correlation"])
    page.figure(plots.png(plot_correlation(result, size, study["position"])), words.CORRELATION_CAPTION)
    page.table(
        [_shown(row) for row in study["lengths"]], "The same by length, with the size of the null space", folded=True
    )
    raw, effective = arrays["raw0"][layer, head], arrays["effective0"][layer, head]
    title = f"{study['position']}, layer {layer + 1}, head {head + 1}: where the two differ most"
    figure = plot_maps(study["shown"][0]["tokens"], raw, effective, raw - effective, title)
    page.figure(plots.png(figure, 75), words.MAPS_CAPTION)
    page.text(words.MASSES.format("In sentences longer than trained on"))
    page.table([_shown(row) for row in study["masses"]])


def _real(page, real, arrays):
    page.section("A real model", words.real(real))
    layers = {f"layer {number + 1}": f"{value:.2f}" for number, value in enumerate(real["correlation"])}
    page.table([{"": "correlation of raw and effective", **layers}])
    for kind in ("raw", "effective"):
        page.figure(
            plots.png(plot_heads(arrays[f"{kind}0"], f"{kind} attention, a row for each layer")), words.HEADS[kind]
        )
    page.text(words.MASSES.format("In this pair"))
    page.table([_shown(row) for row in real["masses"]])


def _maps(page, found, arrays):
    page.section("Look for yourself", words.MAPS)
    examples = []
    for name, label in (("study", found["study"]["position"]), ("real", REAL)):
        for number, shown in enumerate(found[name].get("shown", [])):
            maps = {kind: np.asarray(arrays[name][f"{kind}{number}"]) for kind in ("raw", "effective")}
            examples.append({"text": f"{label}: {shown['text']}", "tokens": shown["tokens"], **maps})
    page.maps(examples)


def _small(page, found, about):
    page.section("What was run small, and how to run more", words.small(found, about))
    page.code(words.commands(about))


def _latency_row(name, way, found):
    row = {"positions": name, "folded": "yes", "protocol": way, **{p: found[p] for p in ("p50", "p95", "p99")}}
    row["p50_low"], row["p50_high"] = found["p50_interval"]
    return row


def _score(value):
    return "" if value is None else f"{value:.3f}"


def _shown(row):
    """Numbers with three digits; a mean number of dimensions with one."""
    digits = {"null_dimension": 1}
    return {k: f"{v:.{digits.get(k, 3)}f}" if isinstance(v, float) else v for k, v in row.items()}
