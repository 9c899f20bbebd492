"""Figures of a comparison, as the bytes of PNG files."""

import io
import math

COLOUR, OTHERS, SHADE = "#0b62c4", "#c9d0d6", "#eef3e6"
DEV, LONG = "#0b62c4", "#c4500b"


def png(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def scores(results, positions, metric, longer=None):
    """A line for each encoding: a dot for each run, and a mark at the median.

    Args:
        results: list of what the runs wrote.
        positions: order of the lines.
        metric: name of the figure.
        longer: name of the set of longer examples, drawn in another colour.
    """
    import numpy as np
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.1 + 0.3 * len(positions)), layout="constrained")
    axes = figure.subplots()
    kinds = [("best checkpoint", DEV, -0.14, lambda result: result["score"])]
    if longer is not None and any(longer in result["sets"] for result in results):
        kinds.append(("longer than trained", LONG, 0.14, lambda result: result["sets"][longer][metric]))
    for label, colour, shift, value in kinds:
        for place, position in enumerate(positions):
            values = [value(result) for result in results if result["position"] == position]
            if values:
                axes.plot(values, [place + shift] * len(values), "o", ms=4.5, alpha=0.55, color=colour, mew=0)
                axes.plot([np.median(values)], [place + shift], "|", ms=13, mew=2.2, color=colour, label=label)
                label = None
    axes.set_yticks(range(len(positions)), positions)
    axes.set_ylim(len(positions) - 0.5, -0.5)
    axes.grid(axis="x", color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"{metric}: a dot for each run, a bar at the median")
    axes.spines[["top", "right"]].set_visible(False)
    if len(kinds) > 1:
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    return png(figure)


def panels(curves, xlabel, ylabel, trained=None):
    """A panel for each encoding, its curve before those of all others.

    Args:
        curves: dict of names to `[(x, median, smallest, largest)]`.
        xlabel, ylabel: of the axes.
        trained: `(first, last)` of the lengths that were trained on, shaded.
    """
    from matplotlib.figure import Figure

    columns = min(4, len(curves))
    count = math.ceil(len(curves) / columns)
    figure = Figure(figsize=(0.6 + 2.6 * columns, 0.7 + 1.9 * count), layout="constrained")
    grid = figure.subplots(count, columns, sharex=True, sharey=True, squeeze=False)
    columns_of = {name: list(zip(*points)) for name, points in curves.items()}
    for axes in grid.ravel()[len(curves) :]:
        axes.set_visible(False)
    for axes, (name, (x, middle, low, high)) in zip(grid.ravel(), columns_of.items()):
        if trained is not None:
            axes.axvspan(trained[0] - 0.5, trained[1] + 0.5, color=SHADE, lw=0)
        for other in columns_of.values():
            axes.plot(other[0], other[1], color=OTHERS, lw=0.8)
        axes.fill_between(x, low, high, color=COLOUR, alpha=0.2, lw=0)
        axes.plot(x, middle, color=COLOUR, lw=1.8, marker="o" if len(x) == 1 else None)
        axes.set_title(name, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(xlabel, fontsize=10)
    figure.supylabel(ylabel, fontsize=10)
    return png(figure)


def costs(rows, score="score"):
    """Score against the time of a step."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.subplots()
    for row in rows:
        if row.get("step_time_ratio") is not None and row.get(score) is not None:
            axes.plot([row["step_time_ratio"]], [row[score]], "o", color=COLOUR, ms=5)
            axes.annotate(
                row["positions"], (row["step_time_ratio"], row[score]), (5, 3), textcoords="offset points", size=8
            )
    axes.grid(color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("time of a training step, as a ratio to the first encoding")
    axes.set_ylabel(f"median {score}")
    return png(figure)
