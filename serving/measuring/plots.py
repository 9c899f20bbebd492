"""Figures of what was measured, as the bytes of PNG files."""

import io

from serving.measuring.settings import BASELINE

COLOURS = {"in process": "#6b7680", "grpc": "#0b62c4", "rest": "#c4500b"}
SHADES = {"p50": 1.0, "p95": 0.6, "p99": 0.35}


def _png(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _plain(axes, grid):
    axes.grid(axis=grid, color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def latency(rows):
    """A line for each model and way: a bar at p50 with its interval, and a whisker to p99."""
    from matplotlib.figure import Figure

    labels = list(dict.fromkeys(_label(row) for row in rows))
    figure = Figure(figsize=(8, 1.2 + 0.42 * len(labels)), layout="constrained")
    axes = figure.subplots()
    ways = list(dict.fromkeys(row["protocol"] for row in rows))
    for row in rows:
        shift = (ways.index(row["protocol"]) - (len(ways) - 1) / 2) * 0.24
        place, colour = labels.index(_label(row)) + shift, COLOURS[row["protocol"]]
        axes.plot([row["p50"], row["p99"]], [place, place], color=colour, lw=1, alpha=0.5)
        axes.plot([row["p50_low"], row["p50_high"]], [place, place], color=colour, lw=3.5, solid_capstyle="butt")
        axes.plot([row["p50"]], [place], "|", color=colour, ms=9, mew=1.8)
        axes.plot([row["p95"]], [place], ".", color=colour, ms=4)
    for way in ways:
        axes.plot([], [], color=COLOURS[way], lw=3, label=way)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.set_xlabel("milliseconds: p50 with its interval, p95 (dot), p99 (end of the line)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(ways), frameon=False)
    _plain(axes, "x")
    return _png(figure)


def ratios(rows):
    """Ratios to the baseline with their intervals."""
    from matplotlib.figure import Figure

    rows = [row for row in rows if row["ratio"] is not None]
    labels = list(dict.fromkeys(_label(row) for row in rows))
    figure = Figure(figsize=(8, 1.2 + 0.36 * len(labels)), layout="constrained")
    axes = figure.subplots()
    ways = list(dict.fromkeys(row["protocol"] for row in rows))
    for row in rows:
        place = labels.index(_label(row)) + (ways.index(row["protocol"]) - (len(ways) - 1) / 2) * 0.22
        axes.plot([row["ratio_low"], row["ratio_high"]], [place, place], color=COLOURS[row["protocol"]], lw=2)
        axes.plot([row["ratio"]], [place], "o", color=COLOURS[row["protocol"]], ms=4)
    for way in ways:
        axes.plot([], [], "o-", color=COLOURS[way], ms=4, label=way)
    axes.axvline(1.0, color="#333333", lw=0.8)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel(f"time as a ratio to {BASELINE}")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(ways), frameon=False)
    _plain(axes, "x")
    return _png(figure)


def load(rows):
    """A panel for each model: percentiles of the latency against the offered rate."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    names = list(dict.fromkeys(row["positions"] for row in rows))
    figure = Figure(figsize=(2 + 4.2 * len(names), 3.8), layout="constrained")
    grid = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(grid, names):
        for way in dict.fromkeys(row["protocol"] for row in rows):
            own = [row for row in rows if (row["positions"], row["protocol"]) == (name, way) and row["p50"] is not None]
            for percentile, shade in SHADES.items():
                x, y = [row["offered"] for row in own], [row[percentile] for row in own]
                axes.plot(x, y, "o-", ms=3, color=COLOURS[way], alpha=shade, label=f"{way} {percentile}")
        axes.set_yscale("log")
        for axis in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            axis(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "125" else ""))
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("offered requests a second")
        _plain(axes, "both")
    grid[0].set_ylabel("milliseconds since a request was due")
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside right center", fontsize=8, frameon=False)
    return _png(figure)


def _label(row):
    if "signature" in row:
        return row["signature"]
    return row["positions"] + (" (not folded)" if row["folded"] == "no" else "")
