"""The cost table as text and as bars."""

from keras_posenc import encodings
from keras_posenc.benchmark import cost

# Table 1 of DIET, TPU v2: what training and inference take more than BERT with learned embeddings, in per cent.
# "Ke et al." combines absolute and relative positions there, which is TUPE-R.
PAPER = {
    "base": {"shaw": (13, 33), "tupe_rel": (1, 19), "diet_abs": (0, 0), "diet_rel": (0, 0)},
    "small": {"shaw": (24, 65), "tupe_rel": (4, 27), "diet_abs": (0, 1), "diet_rel": (0, 0)},
}
COLUMNS = ("training", "folded", "unfolded")
COLOURS = {"training": "#dd8452", "folded": "#4c72b0", "unfolded": "#a9bddb"}
AXIS = (0.6, 1.8)
LEGEND = (
    "Median over the rounds of the time divided by that of `learned` in the same round, and the quartiles of it.\n"
    "`learned` itself is a second copy of that model: its row shows the noise.\n"
    "folded: positions computed once and kept (fold_positions). paper: DIET, Table 1, training and inference.\n"
    "Against the target: + met, ? missed by the median but not by the lower quartile, - missed. Targets: folded\n"
    "biases 1.02, encodings that see tokens (transform, scores) 1.15, training with biases 1.05."
)


def target(position, column):
    """What the ratio should not exceed, or `None`."""
    doors = set(encodings.get_class(position).doors)
    if column == "training":
        return 1.05 if doors == {"bias"} else None
    if doors & {"transform", "scores"}:
        return 1.15
    return 1.02 if doors == {"bias"} and column == "folded" else None


def mark(result, limit):
    """`+`, `?` or `-`, as in `LEGEND`; a space without a limit."""
    if limit is None:
        return " "
    if result["ratio"] <= limit:
        return "+"
    return "?" if result["quartiles"][0] <= limit else "-"


def table(store, sizes, positions, modes, settings):
    """The text: a table per model and mode, a row per encoding."""
    parts = [LEGEND]
    for name, size in sizes.items():
        for mode in modes:
            columns = [c for c in COLUMNS if any(store.get((name, c, mode, p)) for p in positions)]
            if columns:
                title = f"{size.label}, {mode}, length {settings.length}, sharing {settings.sharing}"
                parts.append("\n".join([title, *_rows(store, name, mode, positions, columns, settings)]))
    return "\n\n".join(parts)


def _rows(store, name, mode, positions, columns, settings):
    batches = {"training": settings.training_batch, "folded": settings.batch, "unfolded": settings.batch}
    yield f"{'encoding':<16}{'doors':<16}" + "".join(f"{f'{c} (batch {batches[c]})':<23}" for c in columns) + "paper"
    for position in positions:
        cells = ""
        for column in columns:
            result = store.get((name, column, mode, position))
            if result is None:
                cells += f"{'':<23}"
                continue
            low, high = result["quartiles"]
            text = f"{result['ratio']:.2f} [{low:.2f}, {high:.2f}] {mark(result, target(position, column))}"
            cells += f"{text:<23}"
        paper = PAPER.get(name, {}).get(position)
        paper = "" if paper is None else " / ".join(f"{1 + value / 100:.2f}" for value in paper)
        doors = "+".join(encodings.get_class(position).doors) or "no door"
        yield f"{position:<16}{doors:<16}{cells}{paper}".rstrip()
    baseline = []
    for column in columns:
        found = [r for p in positions if (r := store.get((name, column, mode, p)))]
        if found:
            times = sorted(r["baseline_milliseconds"] for r in found)
            baseline.append(f"{column} {times[len(times) // 2]:.1f} ms")
    yield f"`{cost.BASELINE}`: " + ", ".join(baseline)


def plot(store, sizes, positions, modes, path):
    """Bars of the ratios with their quartiles, a panel per model and mode; diamonds are the paper's values."""
    from matplotlib.figure import Figure

    panels = [
        (name, mode)
        for name in sizes
        for mode in modes
        if any(store.get((name, c, mode, p)) for c in COLUMNS for p in positions)
    ]
    if not panels:
        return
    figure = Figure(figsize=(1.5 + 4.4 * len(panels), 1.6 + 0.4 * len(positions)), layout="constrained")
    for axes, (name, mode) in zip(figure.subplots(1, len(panels), squeeze=False, sharey=True)[0], panels):
        _bars(axes, store, name, mode, positions)
        axes.set_title(f"{sizes[name].label}, {mode}")
        axes.set_xlabel(f"time relative to {cost.BASELINE}")
    figure.axes[0].set_yticks(range(len(positions)), positions)
    figure.axes[0].set_ylim(len(positions) - 0.4, -0.6)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    shown = dict(zip(labels, handles))
    figure.legend(shown.values(), shown.keys(), loc="outside upper center", ncols=len(shown), frameon=False)
    figure.savefig(path, dpi=110)


def _bars(axes, store, name, mode, positions):
    """Bars start at 1. The axis is the same everywhere, and a bar that leaves it says where it ends."""
    columns = [c for c in COLUMNS if any(store.get((name, c, mode, p)) for p in positions)]
    height = 0.8 / len(columns)
    left, right = AXIS
    for place, column in enumerate(columns):
        shift = (place - (len(columns) - 1) / 2) * height
        for row, position in enumerate(positions):
            result = store.get((name, column, mode, position))
            if result is None:
                continue
            ratio, (low, high) = result["ratio"], result["quartiles"]
            axes.barh(row + shift, ratio - 1, height, left=1, color=COLOURS[column], label=column)
            axes.plot([low, high], [row + shift] * 2, color="0.25", linewidth=1)
            if not left < ratio < right:
                edge, side = (right, "right") if ratio >= right else (left, "left")
                axes.text(edge, row + shift, f" {ratio:.1f} ", ha=side, va="center", fontsize=8)
            paper = PAPER.get(name, {}).get(position)
            if paper is not None and column != "unfolded":
                value = 1 + paper[column == "folded"] / 100
                axes.plot(value, row + shift, "D", color="black", markersize=4, label="paper (TPU v2)")
    axes.axvline(1.0, color="0.2", linewidth=1)
    axes.set_xlim(left, right)
    axes.grid(axis="x", alpha=0.3)
