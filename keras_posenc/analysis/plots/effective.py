"""Attention maps: raw, effective and null side by side, and all heads on a page."""

import numpy as np

SEQUENTIAL, DIVERGING = "viridis", "RdBu_r"


def plot_maps(tokens, raw, effective, null, title=None):
    """Three heatmaps of one head, tokens along both axes (queries down, keys across).

    Raw weights start at 0. Effective and null attention may be negative: their colours are centred at 0. Each map has
    its own scale, as the effective part is often much smaller than the raw weights; see the colour bars.

    Args:
        tokens: the strings of the tokens, without padding.
        raw, effective, null: `(n, n)` or larger; rows and columns beyond the tokens are left out.
        title: of the figure.

    Returns: the `matplotlib.figure.Figure`.
    """
    from matplotlib.figure import Figure

    count = len(tokens)
    maps = {name: np.asarray(x)[:count, :count] for name, x in (("raw", raw), ("effective", effective), ("null", null))}
    for name, values in maps.items():
        if values.shape != (count, count):
            raise ValueError(f"There are {count} tokens; `{name}` must be at least as large. Received: {values.shape}")
    side = max(3.0, 0.17 * count)
    figure = Figure(figsize=(3 * (side + 1.4), side + 1.6), layout="constrained")
    for axes, (name, values) in zip(figure.subplots(1, 3), maps.items()):
        limit = max(float(np.abs(values).max()), 1e-12)
        low, colours = (0, SEQUENTIAL) if name == "raw" else (-limit, DIVERGING)
        image = axes.imshow(values, vmin=low, vmax=limit, cmap=colours, interpolation="nearest")
        axes.set_title(f"{name} attention")
        axes.set_xticks(range(count), tokens, rotation=90, fontsize=7)
        axes.set_yticks(range(count), tokens, fontsize=7)
        axes.set_xlabel("attended token")
        figure.colorbar(image, ax=axes, shrink=0.75)
    figure.axes[0].set_ylabel("attending token")
    figure.suptitle(title or "Attention, the part that reaches the output, and the part that does not")
    return figure


def plot_heads(maps, title=None, count=None):
    """All heads of all layers on one page, a row per layer and a column per head, one colour scale.

    Args:
        maps: `(layers, heads, n, n)` of one sentence. Colours are centred at 0 if any weight is clearly negative.
        title: of the figure.
        count: number of tokens, if the maps are padded.

    Returns: the `matplotlib.figure.Figure`.
    """
    from matplotlib.figure import Figure

    maps = np.asarray(maps)
    if maps.ndim != 4:
        raise ValueError(f"`maps` must have shape (layers, heads, n, n). Received: shape={maps.shape}")
    maps = maps[..., :count, :count]
    layers, heads = maps.shape[:2]
    # A single strong weight would leave the rest without colour.
    limit = max(float(np.quantile(np.abs(maps), 0.995)), 1e-12)
    signed = maps.min() < -1e-4
    low, colours = (-limit, DIVERGING) if signed else (0, SEQUENTIAL)
    figure = Figure(figsize=(1.6 + 0.85 * heads, 1.1 + 0.85 * layers), layout="constrained")
    grid = figure.subplots(layers, heads, squeeze=False)
    for layer, head in np.ndindex(layers, heads):
        axes = grid[layer, head]
        image = axes.imshow(maps[layer, head], vmin=low, vmax=limit, cmap=colours, interpolation="nearest")
        axes.set_xticks([])
        axes.set_yticks([])
        if layer == 0:
            axes.set_title(f"head {head + 1}", fontsize=8)
        if head == 0:
            axes.set_ylabel(f"layer {layer + 1}", fontsize=8)
    figure.colorbar(image, ax=list(grid.ravel()), shrink=0.6, extend="both" if signed else "max")
    figure.suptitle(title or "Attention of every head: queries down, keys across")
    return figure
