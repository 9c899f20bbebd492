"""Pictures of token identifiability, after figures 2, 7, 11 and 14 of Brunner et al., 2020."""

import numpy as np

# Okabe and Ito's colours, told apart by colour-blind readers as well.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
STYLES = {"cosine": "-", "l2": "--"}
NAMES = {"cosine": "cosine", "l2": "L2"}


def plot_layers(result, metrics=("cosine", "l2"), part="test"):
    """Rates by layer, a colour for each map, a line style for each rule, a band of one standard deviation.

    Args:
        result: `LayerRates`, or `HiddenRates` from each layer to the one before.
    """
    hidden = "target" in result.axis
    figure, axes = _figure("layer" if not hidden else "from layer to layer")
    labels = []
    for colour, name in zip(_colours(), result.maps):
        for metric in metrics:
            if hidden:
                rows = [r for r in result.rows() if (r["map"], r["metric"], r["part"]) == (name, metric, part)]
                labels = [f"{row['source']}→{row['target']}" for row in rows]
                mean, std = (np.array([row[key] or 0.0 for row in rows]) for key in ("rate", "std"))
                x = np.arange(len(rows))
            else:
                (x,), mean, std = result.array(name, metric, part)
            _line(axes, x, mean, std, f"{name}, {NAMES[metric]}", color=colour, linestyle=STYLES[metric])
    axes.set_xticks(x, labels or x)
    axes.set_title("Tokens identified across single layers" if hidden else "Tokens identified from their embeddings")
    _finish(axes, result)
    return figure


def plot_cross_layer(result, map="linear", metric="cosine"):
    """Heatmap of `CrossLayerRates`: rows are the layers of the fit, columns those of the test."""
    from matplotlib.figure import Figure

    (fitted, tested), mean, _ = result.array(map, metric)
    figure = Figure(figsize=(2.2 + 0.55 * len(tested), 1.8 + 0.5 * len(fitted)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(100 * mean, cmap="cividis", vmin=min(50, 100 * np.nanmin(mean)), vmax=100, aspect="auto")
    for row, column in np.ndindex(mean.shape):
        bright = image.norm(100 * mean[row, column]) > 0.5
        text = f"{100 * mean[row, column]:.0f}"
        axes.text(column, row, text, ha="center", va="center", fontsize=8, color="black" if bright else "white")
    axes.set_xticks(range(len(tested)), tested)
    axes.set_yticks(range(len(fitted)), fitted)
    axes.set_xlabel("tested on layer")
    axes.set_ylabel("fitted on layer")
    axes.set_title(f"Tokens identified by maps\nof other layers ({map}, {NAMES[metric]})", fontsize=11)
    figure.colorbar(image, ax=axes, label="identified tokens, %")
    return figure


def plot_neighbours(result, map="linear", metric="cosine", baseline="naive"):
    """Rates of `NeighbourRates` by layer: previous tokens blue, next tokens orange, the baseline's thin and dotted."""
    figure, axes = _figure("layer")
    for name in (map, baseline) if baseline in result.maps and baseline != map else (map,):
        (offsets, layers), mean, std = result.array(name, metric)
        reach = max(abs(offset) for offset in offsets)
        for offset, line, band in zip(offsets, mean, std):
            colour = _shade("#0072B2" if offset < 0 else "#D55E00", (abs(offset) - 1) / (reach + 1))
            if name == map:
                _line(axes, layers, line, band, f"{name}, token {offset:+d}", color=colour, marker="^v"[offset < 0])
            else:
                label = name if offset == offsets[0] else None
                axes.plot(layers, 100 * line, color=colour, linewidth=0.9, linestyle=":", label=label)
    axes.set_xticks(layers)
    axes.set_title(f"Neighbouring tokens recovered ({NAMES[metric]})")
    _finish(axes, result)
    return figure


def _figure(label):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(label)
    axes.set_ylabel("identified tokens, %")
    return figure, axes


def _line(axes, x, mean, std, label, color, **style):
    axes.plot(x, 100 * mean, label=label, color=color, linewidth=1.6, markersize=4, **{"marker": "o", **style})
    axes.fill_between(x, 100 * (mean - std), 100 * (mean + std), color=color, alpha=0.18, linewidth=0)


def _finish(axes, result):
    chance = 100 * np.mean([piece.chance for piece in result.pieces])
    axes.axhline(chance, color="0.5", linewidth=1, linestyle="-.", label=f"chance, {chance:.1f} %")
    axes.set_ylim(0, 103)
    axes.grid(axis="y", color="0.9")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, handlelength=3.2)


def _colours():
    import itertools

    return itertools.cycle(COLOURS)


def _shade(colour, share):
    """`colour` mixed with white by `share`."""
    from matplotlib.colors import to_rgb

    return tuple(share + (1 - share) * np.array(to_rgb(colour)))
