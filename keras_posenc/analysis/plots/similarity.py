"""Pictures of how alike attention maps are: Brunner et al., figure 1a; Sun & Marasović, figure 3."""

import numpy as np


def plot_correlation(result, head_size=None, name=""):
    """Pearson correlation of raw and effective attention by length of the input.

    A grey dot is a head of a layer in one input; lines are means of layers, over bins of lengths.

    Args:
        result: a `CorrelationResult`.
        head_size: d_v, which is marked: up to it the two are equal.
        name: of the model, for the title.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.6), layout="constrained")
    axes = figure.subplots()
    sentences, layers, heads = result.correlation.shape
    spots = result.lengths[:, None] + np.linspace(-0.35, 0.35, layers * heads)
    axes.scatter(
        spots, result.correlation.reshape(sentences, -1), s=3, color="0.7", linewidths=0, alpha=0.5, rasterized=True
    )
    edges = _bins(result.lengths, head_size)
    for layer in range(layers):
        colour = colormaps["viridis"](0.9 * layer / max(layers - 1, 1))
        x, y = [], []
        for low, high in zip(edges[:-1], edges[1:]):
            inside = (result.lengths >= low) & (result.lengths < high)
            values = result.correlation[inside, layer]
            if np.isfinite(values).any():
                x.append(result.lengths[inside].mean())
                y.append(np.nanmean(values))
        axes.plot(x, y, color=colour, marker="o", markersize=3, label=f"layer {layer + 1}")
    if head_size is not None:
        axes.axvline(head_size, color="#D55E00", linestyle="--", label=f"head size {head_size}")
    axes.set(xlabel="tokens of the input", ylabel="Pearson correlation, raw and effective")
    axes.set_ylim(min(0.0, np.nanmin(result.correlation)) - 0.02, 1.03)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    of = f" of {name}" if name else ""
    axes.set_title(f"The longer the input, the less of raw attention{of} has an effect ({sentences} inputs)")
    return figure


def _bins(lengths, head_size, number=12):
    """Edges of bins with about as many inputs each; none has lengths on both sides of the head size."""
    edges = np.quantile(lengths, np.linspace(0, 1, number + 1)).astype(int)
    edges = np.append(edges[:-1], lengths.max() + 1)
    if head_size is not None and lengths.min() <= head_size < lengths.max():
        edges = np.append(edges, head_size + 1)
    return np.unique(edges)


def plot_similarity(result, name=""):
    """Cosine similarity of attention before and after fine-tuning, layers by heads, and its mean by layer.

    Args:
        result: a `SimilarityResult`.
        name: of the models, for the title.
    """
    from matplotlib.figure import Figure

    kinds = list(result.similarity)
    layers, heads = result.similarity["raw"].shape
    figure = Figure(figsize=(3.6 + len(kinds) * (1.4 + 0.32 * heads), 1.7 + 0.3 * layers), layout="constrained")
    of = f" of {name}" if name else ""
    figure.suptitle(f"Attention{of} before and after fine-tuning: cosine similarity, {result.sentences} inputs")
    panels = figure.subplots(1, len(kinds) + 1, width_ratios=[0.32 * heads + 1] * len(kinds) + [3])
    low = min(0.0, *(np.nanmin(values) for values in result.similarity.values()))
    for kind, axes in zip(kinds, panels):
        image = axes.imshow(
            result.similarity[kind], cmap="cividis", vmin=low, vmax=1, aspect="auto", interpolation="nearest"
        )
        axes.set_xticks(range(heads), range(1, heads + 1))
        axes.set_yticks(range(layers), range(1, layers + 1))
        axes.set(title=kind, xlabel="head", ylabel="layer")
    figure.colorbar(image, ax=panels[:-1], label="cosine similarity")
    for kind, colour in zip(kinds, ("#0072B2", "#D55E00")):
        mean = result.similarity[kind].mean(axis=1)
        panels[-1].plot(mean, range(1, layers + 1), color=colour, marker="o", markersize=4, label=kind)
    panels[-1].invert_yaxis()
    panels[-1].set(title="mean of heads", xlabel="cosine similarity", ylabel="layer", xlim=(min(low, 0), 1.02))
    panels[-1].set_yticks(range(1, layers + 1))
    panels[-1].legend(fontsize=8, loc="lower left")
    return figure
