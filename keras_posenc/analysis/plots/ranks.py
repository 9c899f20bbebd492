"""Pictures of ranks: DIET, figures 2 and 8."""

import numpy as np

from keras_posenc.analysis.plots.structure import COLOURS


def plot_attention_ranks(results):
    """Ranks of attention matrices by layer: a point per head (mean over texts), their mean as a line, bounds dashed.

    Args:
        results: a dict of `AttentionRanks` by name, or one.
    """
    from matplotlib.figure import Figure

    results = results if isinstance(results, dict) else {"model": results}
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    for index, (name, result) in enumerate(results.items()):
        colour = COLOURS[index % len(COLOURS)]
        means = result.ranks.mean(axis=0)
        layers = np.arange(1, len(means) + 1)
        shift = 0.12 * (index - (len(results) - 1) / 2)
        points = np.repeat(layers + shift, means.shape[1])
        axes.plot(points, means.ravel(), "o", color=colour, markersize=4, alpha=0.4, linestyle="none")
        axes.plot(layers, means.mean(axis=1), color=colour, label=f"{name}, {result.kind}")
        if result.bounds is not None:
            axes.plot(layers, result.bounds.mean(axis=1), "--", color=colour, linewidth=1, label=f"{name}, bound")
    lengths = np.concatenate([result.lengths for result in results.values()])
    axes.axhline(lengths.mean(), color="0.6", linestyle=":", label=f"mean length, {lengths.mean():.0f}")
    axes.set(xlabel="layer", ylabel="rank", ylim=(0, None), title="Rank of the attention matrices, a point per head")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def plot_positional_ranks(results):
    """Ranks of positional attention matrices by layer, and their singular values (mean over layers and heads).

    Args:
        results: a dict of `PositionalRanks` by name, or one.
    """
    from matplotlib.figure import Figure

    results = results if isinstance(results, dict) else {"model": results}
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    figure.suptitle("What positions alone add to the scores: rank by layer (a point per head) and singular values")
    left, right = figure.subplots(1, 2)
    for index, (name, result) in enumerate(results.items()):
        colour = COLOURS[index % len(COLOURS)]
        layers = np.arange(1, len(result.ranks) + 1)
        left.plot(np.repeat(layers, result.ranks.shape[1]), result.ranks.ravel(), "o", color=colour, alpha=0.4)
        left.plot(layers, result.ranks.mean(axis=1), color=colour, label=name)
        spectrum = result.spectrum.reshape(-1, result.spectrum.shape[-1])
        number = np.arange(1, spectrum.shape[1] + 1)
        # Means of logarithms, as the axis has them; rounding is cut off.
        right.plot(number, np.exp(np.log(spectrum.clip(1e-8)).mean(axis=0)), color=colour, label=name)
    for size in sorted({result.head_size for result in results.values()}):
        left.axhline(size, color="0.5", linestyle="--", linewidth=1, label=f"head size, {size}")
    left.set(xlabel="layer", ylabel="rank", ylim=(0, None))
    left.xaxis.get_major_locator().set_params(integer=True)
    left.legend(fontsize=8)
    right.set(xlabel="number of the singular value", ylabel="singular value / largest", yscale="log", ylim=(1e-8, 1.5))
    return figure
