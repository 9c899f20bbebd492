"""Pictures of attention patterns: table 2 of Sun & Marasović as bars, the classifier's errors, and maps with labels."""

import numpy as np

from keras_posenc.analysis.pattern_maps import PATTERNS
from keras_posenc.analysis.token_types import KINDS

COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#BBBBBB")  # Okabe and Ito's, and grey for the rest


def plot_patterns(result, name=""):
    """Percentages of patterns, raw beside effective: for each task over all layers.

    Args:
        result: a `PatternResult`.
        name: of the model, for the title.
    """
    bars = [(f"{task}  {kind}", row) for task in result.counts for kind, row in zip(KINDS, result.percentages(task))]
    return _stacked(bars, f"Patterns of attention maps{_of(name)}")


def plot_patterns_by_layer(result, task, name=""):
    """The same for each layer of a task."""
    found = result.by_layer(task)
    layers = found.shape[1]
    bars = [(f"layer {i + 1}  {kind}", found[k, i]) for i in range(layers) for k, kind in enumerate(KINDS)]
    return _stacked(bars, f"Patterns of attention maps by layer{_of(name)}, {task}")


def _stacked(bars, title):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.6 + 0.34 * len(bars)), layout="constrained")
    axes = figure.subplots()
    # A pair of bars, raw and effective, stands closer together than two pairs.
    places = np.array([index // 2 * 2.3 + index % 2 for index in range(len(bars))])
    left = np.zeros(len(bars))
    for index, (pattern, colour) in enumerate(zip(PATTERNS, COLOURS)):
        width = np.array([row[index] for _, row in bars])
        axes.barh(places, width, 0.9, left=left, color=colour, label=pattern)
        for place, begin, share in zip(places, left, width):
            if share >= 5:
                axes.text(begin + share / 2, place, f"{share:.0f}", ha="center", va="center", fontsize=8)
        left += width
    axes.set_yticks(places, [label for label, _ in bars], fontsize=8)
    axes.invert_yaxis()
    axes.set(xlim=(0, 100), xlabel="percent of maps", title=title)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)
    return figure


def plot_confusion(report):
    """What the classifier said of held-out maps, by what they are; a panel per kind of map.

    Args:
        report: a `PatternReport`.
    """
    from matplotlib.figure import Figure

    kinds = list(report.confusion)
    figure = Figure(figsize=(2 + 3.6 * len(kinds), 4.8), layout="constrained")
    figure.suptitle("Pattern classifier on held-out maps")
    for index, (kind, axes) in enumerate(zip(kinds, figure.subplots(1, len(kinds), squeeze=False)[0])):
        table = report.confusion[kind]
        share = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
        axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
        for (row, column), number in np.ndenumerate(table):
            colour = "w" if share[row, column] > 0.5 else "k"
            axes.text(column, row, str(number), ha="center", va="center", color=colour, fontsize=9)
        axes.set_xticks(range(len(PATTERNS)), PATTERNS, rotation=40, ha="right", fontsize=8)
        axes.set_yticks(range(len(PATTERNS)), PATTERNS if index == 0 else [], fontsize=8)
        axes.set_title(f"{kind}: {report.accuracy[kind]:.1%} right", fontsize=10)
        axes.set_xlabel("answer")
        if index == 0:
            axes.set_ylabel("pattern")
    return figure


def plot_pattern_gallery(maps, labels, padding_mask=None, columns=8, seed=0, name=""):
    """Maps of each pattern, drawn at random, so that a reader can judge the labels.

    Args:
        maps: `(batch, layers, heads, n, n)`, or a list of `(n, n)` maps.
        labels: indices into `PATTERNS`, of the shape of the leading axes of `maps`.
        padding_mask: `(batch, n)`, if `maps` is an array.
        columns: number of maps for each pattern.
        seed: of the choice.
        name: for the title.
    """
    from matplotlib.figure import Figure

    labels = np.asarray(labels)
    figure = Figure(figsize=(1.1 + 1.25 * columns, 0.6 + 1.42 * len(PATTERNS)), layout="constrained")
    figure.suptitle(f"Attention maps by pattern{_of(name)}; queries down, keys across")
    panels = figure.subplots(len(PATTERNS), columns, squeeze=False)
    rng = np.random.default_rng(seed)
    for pattern, row in enumerate(panels):
        found = np.argwhere(labels == pattern)
        chosen = rng.permutation(len(found))[:columns]
        for axes in row:
            axes.set_xticks([])
            axes.set_yticks([])
        for axes in row[len(chosen) :]:
            axes.set_frame_on(False)
        for axes, place in zip(row, found[chosen]):
            each = np.asarray(maps[place[0]])[tuple(place[1:])]
            if padding_mask is not None:
                real = np.asarray(padding_mask[place[0]], bool)
                each = each[np.ix_(real, real)]
            axes.imshow(each, interpolation="nearest", **_colours(each))
            if labels.ndim == 3:
                axes.set_title(f"layer {place[1] + 1}, head {place[2] + 1}", fontsize=7, pad=2)
        row[0].set_ylabel(PATTERNS[pattern], fontsize=8)
    return figure


def _colours(each):
    """One ramp for raw attention; blue to red around zero where there are negative weights."""
    reach = np.abs(each).max() or 1.0
    return (
        {"cmap": "viridis", "vmin": 0, "vmax": reach}
        if each.min() >= 0
        else dict(cmap="RdBu_r", vmin=-reach, vmax=reach)
    )


def _of(name):
    return f" of {name}" if name else ""
