"""The comparison as files: text, CSV, JSON, and a page that needs nothing else."""

from pathlib import Path

import numpy as np

from keras_posenc.analysis.study.page import Page
from keras_posenc.analysis.study.tables import write_csv, write_json
from training.comparing import plots, tables
from training.comparing.subjects import LONGER
from training.files import write_text


def learning_curves(runs, column):
    """`{position: [(step, median, smallest, largest)]}` over the seeds.

    Args:
        runs: list of `Run`.
        column: 1 for the primary figure and 2 for the training loss.
    """
    found = {}
    for run in runs:
        for entry in run.curve():
            if entry[column] is not None:
                found.setdefault(run.position, {}).setdefault(entry[0], []).append(entry[column])
    return {
        position: [(step, float(np.median(v)), min(v), max(v)) for step, v in sorted(steps.items())]
        for position, steps in found.items()
    }


def write(output, subject, runs, results, times, failed, about):
    """Writes everything into the folder of the comparison.

    Args:
        output: folder.
        subject: a `Subject`.
        runs: list of all `Run`.
        results: list of what the finished ones wrote.
        times: as `timing.read` gives them.
        failed: names of runs that failed.
        about: dict, what tells this comparison from others.

    Returns: the table as text.
    """
    output, positions = Path(output), list(dict.fromkeys(run.position for run in runs))
    primary = results[0]["primary"]
    metric = primary.split("/")[1]
    rows = tables.rows(results, positions, metric, times)
    lengths = tables.by_length(results, positions, metric)
    curves = {name: learning_curves(runs, column) for name, column in (("score", 1), ("loss", 2))}
    baseline = next((position for position in positions if position in times), None)
    text = tables.text(rows)
    write_text(output / "table.txt", text + "\n")
    write_csv(output / "table.csv", rows)
    if lengths:
        write_csv(output / "lengths.csv", tables.length_rows(lengths))
    known = {**about, "primary": primary, "failed": failed, "rows": rows, "lengths": lengths, "curves": curves}
    write_json(output / "results.json", {**known, "runs": results})
    figures = _figures(subject, rows, lengths, results, metric)
    for name, figure in figures.items():
        (output / f"{name}.png").write_bytes(figure)
    page = _page(subject, rows, lengths, curves, figures, failed, about, primary, baseline)
    write_text(output / "index.html", page)
    return text


def _figures(subject, rows, lengths, results, metric):
    """The two that are files too: scores, and the curves over lengths if there are any."""
    longer = LONGER if any(row.get("longer") is not None for row in rows) else None
    found = {"scores": plots.scores(results, [row["positions"] for row in rows], metric, longer)}
    if lengths:
        found["lengths"] = plots.panels(lengths, subject.unit, metric, subject.trained)
    return found


def _page(subject, rows, lengths, curves, figures, failed, about, primary, baseline):
    metric = primary.split("/")[1]
    page = Page(f"Position encodings on {about['task']}", _subtitle(about))
    trained, unit = subject.trained, subject.unit
    page.section(
        "Table", f"score: {primary} of the best checkpoint of a run, the median over the runs." + _longer(rows)
    )
    if baseline is not None:
        page.text(
            f"step time: of a training step, as a ratio to that of {baseline}; median and quartiles over rounds in "
            "which the two took turns."
        )
    if failed:
        page.text(f"Failed, and not in the table: {', '.join(failed)}.")
    page.table(tables.shown(rows))
    page.figure(figures["scores"], f"{primary} of every run.")
    if lengths:
        page.section("Length", f"{metric} of the best checkpoint on examples of one length.")
        caption = f"Trained on {trained[0]} to {trained[1]} {unit} (shaded). Blue: median and range over the runs."
        page.figure(figures["lengths"], f"{caption} Grey: the other rows.")
        page.table(tables.length_rows(lengths), "The curves as a table", folded=True)
    if curves["score"]:
        page.section("Learning", "What the figures were during training.")
        captions = {"score": f"{primary} at each evaluation.", "loss": "Training loss since the evaluation before."}
        for name, caption in captions.items():
            if curves[name]:
                page.figure(plots.panels(curves[name], "step", name), caption)
    if baseline is not None:
        page.section("Cost")
        for name in ("score", "longer"):
            if any(row.get(name) is not None for row in rows):
                page.figure(plots.costs(rows, name))
    page.section("Settings")
    page.table([{"setting": name, "value": str(value)} for name, value in about.items()])
    return page.html()


def _subtitle(about):
    sizes = about.get("sizes")
    model = f"{sizes['num_layers']} layers of width {sizes['hidden_dim']}" if sizes else about["model"]
    length = f"{about['steps']} steps" if about["steps"] else f"{about['epochs']:g} epochs"
    return f"{about['runs']} run(s) of each, {model or about['checkpoint']}, batch {about['batch']}, {length}"


def _longer(rows):
    if not any(row.get("longer") is not None for row in rows):
        return ""
    return " test, longer: the same checkpoint on held-out examples of the trained lengths, and on longer ones."
