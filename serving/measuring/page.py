"""The comparison as files: text, CSV, and a page that needs nothing else. The JSON is the store's."""

from pathlib import Path

from keras_posenc.analysis.study.page import Page
from keras_posenc.analysis.study.tables import write_csv
from serving.measuring import plots, tables
from serving.measuring.settings import BASELINE


def write(output, store, plan):
    """Writes `table.txt`, a CSV file for each table, and `index.html`.

    Returns: the text.
    """
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    found = tables.every(store, plan)
    for name, rows in found.items():
        write_csv(output / f"{name}.csv", rows)
    shown = text(found)
    (output / "table.txt").write_text(shown + "\n", encoding="utf-8")
    (output / "index.html").write_text(_page(found, store), encoding="utf-8")
    return shown


def text(found):
    """All tables, one below the other."""
    parts = [f"{name}\n{tables.text(rows)}" for name, rows in found.items()]
    return "\n\n".join([*parts, tables.LEGEND])


def _page(found, store):
    settings, machine = store.data["settings"], store.data["machine"]
    subtitle = f"{settings['model']}, {settings['length']} tokens, {machine['processor']}, {machine['cores']} cores"
    page = Page("What serving costs", subtitle)
    if "targets" in found:
        page.section("In short")
        page.table(tables.shown(found["targets"]))
    if "latency" in found:
        page.section("Latency", tables.LEGEND.replace("\n", " "))
        for batch in dict.fromkeys(row["batch"] for row in found["latency"]):
            rows = [row for row in found["latency"] if row["batch"] == batch]
            page.figure(plots.latency(rows), f"Requests of {batch} row(s), one after the other.")
            if any(row["ratio"] is not None for row in rows):
                page.figure(plots.ratios(rows), f"The same as ratios to {BASELINE}, measured in the same rounds.")
        page.table(tables.shown(found["latency"]), "Latency as a table", folded=True)
    if "signatures" in found:
        page.section("Signatures", "One row: logits; all raw maps; raw and effective maps; those of one layer.")
        for name in dict.fromkeys(row["positions"] for row in found["signatures"]):
            page.figure(plots.latency([r for r in found["signatures"] if r["positions"] == name]), name)
        page.table(tables.shown(found["signatures"]), "Signatures as a table", folded=True)
    if "throughput" in found:
        page.section(
            "Throughput",
            "Clients that send their next request when they have an answer, to a server with request batching. ratio: "
            "to the same model in process on batches of as many rows; the two took turns.",
        )
        page.table(tables.shown(found["throughput"]))
    if "load" in found:
        page.section(
            "Load",
            "Requests of a Poisson process, to a server with request batching. Latency counts from when a request was "
            "due, not from when it could be sent. part: of the throughput above.",
        )
        page.figure(plots.load(found["load"]), "Latency against the offered rate.")
        page.table(tables.shown(found["load"]))
    page.section("Settings")
    about = {**settings, **machine, "command": store.data["command"]}
    page.table([{"setting": name, "value": str(value)} for name, value in about.items()])
    return page.html()
