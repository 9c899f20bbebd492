"""Pictures of position structure: TISA, figures 1, 3, 7 and DIET, figures 4 to 7."""

import math

import numpy as np

# Okabe and Ito's colours, which colour-blind readers tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")


def plot_position_gram(result, name=""):
    """`E_P E_P^T` as a map, and its Toeplitz `R^2` by length beside that of random vectors."""
    figure = _figure(10, 4.4)
    figure.suptitle(f"Inner products of position embeddings{_of(name)}: constant diagonals mean that distance decides")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.3))
    # A few vectors are often much longer than the rest; colours are for the rest.
    reach = np.percentile(np.abs(result.matrix), 99) or 1.0
    image = left.imshow(result.matrix, cmap="RdBu_r", vmin=-reach, vmax=reach, interpolation="nearest")
    left.set(xlabel="position", ylabel="position", title="$E_P E_P^T$")
    figure.colorbar(image, ax=left, fraction=0.046, extend="both")

    bars = {
        "all entries": ("r2", "random_r2"),
        "off the diagonal": ("r2_off_diagonal", "random_r2_off_diagonal"),
        "without position 0": ("r2_without_first", None),
        "off the diagonal, without 0": ("r2_off_diagonal_without_first", None),
    }
    rows = result.rows()
    places = np.arange(len(rows))
    for index, (label, (value, random)) in enumerate(bars.items()):
        at = places + (index - 1.5) * 0.2
        right.bar(at, [row[value] for row in rows], 0.18, color=COLOURS[index], label=label)
        for x, row in zip(at, rows):
            if random and row[random] is not None:
                right.hlines(row[random], x - 0.09, x + 0.09, color="k", linewidth=2, zorder=3)
    right.hlines([], 0, 0, color="k", linewidth=2, label="random vectors")
    right.set_xticks(places, [str(row["length"]) for row in rows])
    right.set(
        xlabel="number of positions", ylabel="Toeplitz $R^2$", ylim=(0, 1.05), title="Share explained by distance"
    )
    right.legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.15))
    return figure


def plot_position_cosines(results):
    """Distribution of the cosine similarity of all pairs of positions (DIET, figure 5).

    Args:
        results: a dict of `PositionCosines` by name, or one.
    """
    results = results if isinstance(results, dict) else {"model": results}
    figure = _figure(7, 4)
    axes = figure.subplots()
    bins = np.linspace(-1, 1, 81)
    for colour, (name, result) in zip(COLOURS, results.items()):
        share = np.histogram(result.pairs.clip(-1, 1), bins)[0] / len(result.pairs)
        axes.stairs(share, bins, color=colour, label=f"{name} (mean {result.pairs.mean():.2f})", linewidth=1.6)
        axes.axvline(result.pairs.mean(), color=colour, linestyle=":", linewidth=1)
    axes.set(xlabel="cosine similarity", ylabel="share of pairs of positions", xlim=(-1, 1), ylim=(0, None))
    axes.set_title("Similarity of the position embeddings at the input")
    axes.legend(fontsize=9)
    return figure


def plot_sections(result, layer=0):
    """Rows of the positional score of a layer, a panel per head, aligned to the query's position (TISA, figure 7)."""
    values = result.values[layer]
    figure, panels = _panels(len(values), 2.3, 1.9)
    figure.suptitle(
        f"Positional score around {len(result.queries)} queries, layer {layer + 1}: equal lines mean shifting"
    )
    for head, axes in enumerate(panels):
        # The softmax does not see what all keys of a query have in common.
        centred = values[head] - np.nanmean(values[head], axis=-1, keepdims=True)
        for index, (section, query) in enumerate(zip(centred, result.queries)):
            colour = COLOURS[index % len(COLOURS)]
            axes.plot(result.offsets, section, color=colour, linewidth=1.1, label=f"query {query}")
        axes.axvline(0, color="0.8", zorder=0)
        axes.set_title(f"head {head + 1}", fontsize=9)
        axes.set_xlabel("key - query", fontsize=8)
    panels[0].set_ylabel("score - mean", fontsize=8)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)
    return figure


def plot_shifts(result):
    """Toeplitz `R^2` of the positional scores by layer and head, and what position 0 has to do with the rest."""
    figure = _figure(11.5, 1.4 + 0.32 * len(result.r2))
    figure.suptitle("How far positional scores depend on distance only")
    panels = figure.subplots(1, 3)
    first = result.first_row + result.first_column
    shown = (
        ("Toeplitz $R^2$", result.r2, "viridis"),
        ("the same without position 0", result.r2_without_first, "viridis"),
        (f"share of the rest in row and column 0 (even: {2 / result.matrices.shape[-1]:.2f})", first, "magma"),
    )
    for axes, (title, values, colours) in zip(panels, shown):
        image = axes.imshow(values, cmap=colours, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        _label_layers(axes, values.shape)
        axes.set_title(title, fontsize=9)
        figure.colorbar(image, ax=axes, fraction=0.046)
    return figure


def plot_positional_scores(result, layer=0, length=None):
    """The positional scores of a layer, a map per head (DIET, figures 4 and 7), rows centred."""
    matrices = result.matrices[layer][:, :length, :length]
    figure, panels = _panels(len(matrices), 2.1, 2.1)
    figure.suptitle(f"Positional score of layer {layer + 1}, query (down) by key (across), with its Toeplitz $R^2$")
    for head, (axes, matrix) in enumerate(zip(panels, matrices)):
        reach = np.percentile(np.abs(matrix), 99) or 1.0
        axes.imshow(matrix, cmap="RdBu_r", vmin=-reach, vmax=reach, interpolation="nearest")
        axes.set_xticks([0, len(matrix) - 1])
        axes.set_yticks([0, len(matrix) - 1])
        axes.set_title(f"head {head + 1}, {result.r2[layer, head]:.2f}", fontsize=9)
    return figure


def plot_offset_attention(result):
    """Mean attention by offset, a panel per layer and a line per head; and how much of the maps offsets explain."""
    layers, heads, _ = result.mean.shape
    figure, panels = _panels(layers + 1, 2.9, 2.2)
    figure.suptitle("Mean attention by distance, a line per head (the four strongest coloured); last: what it explains")
    top = np.nanmax(result.mean) * 1.05
    for layer, axes in enumerate(panels[:layers]):
        strongest = np.argsort(-np.nanmax(result.mean[layer], axis=-1))[:4]
        axes.plot(result.offsets, result.mean[layer].T, color="0.8", linewidth=0.8)
        for colour, head in zip(COLOURS, strongest):
            axes.plot(result.offsets, result.mean[layer, head], color=colour, linewidth=1.4, label=f"head {head + 1}")
        axes.set_ylim(0, top)
        axes.set_title(f"layer {layer + 1}", fontsize=9)
        axes.set_xlabel("key - query", fontsize=8)
        axes.legend(fontsize=6, handlelength=1)
    panels[0].set_ylabel("attention", fontsize=8)
    axes = panels[layers]
    for values, colour, label in (
        (result.r2, COLOURS[0], "all positions"),
        (result.r2_without_first, COLOURS[1], "without position 0"),
        (result.to_first, COLOURS[6], "attention to position 0"),
    ):
        axes.plot(
            np.repeat(np.arange(1, layers + 1), heads), values.ravel(), ".", color=colour, alpha=0.35, markersize=4
        )
        axes.plot(range(1, layers + 1), values.mean(axis=1), color=colour, label=label)
    axes.set_ylim(0, 1)
    axes.set_title("$R^2$ of maps by distance; attention to 0", fontsize=9)
    axes.set_xlabel("layer", fontsize=8)
    axes.legend(fontsize=6)
    return figure


def plot_segment_biases(result):
    """DIET's segment biases `E_S`, a heat map per pair of segments, layers down and heads across."""
    return _pairs_of_segments(
        result.tables, "Segment bias $E_S$ by layer and head", [f"{s} to {t}" for s, t in _pairs(result.tables)]
    )


def plot_segment_attention(result):
    """Attention between segments beyond what equal attention to all tokens would give."""
    titles = [f"{s} to {t}, minus {result.uniform[s, t]:.2f}" for s, t in _pairs(result.mass)]
    title = "Attention between segments, minus that of equal attention to all tokens"
    return _pairs_of_segments(result.mass - result.uniform, title, titles)


def plot_content_free_attention(maps, segment_ids, layer=0):
    """Attention of a layer without tokens, `(layers, heads, n, n)`; lines where segments change (DIET, figure 6)."""
    maps, segment_ids = np.asarray(maps)[layer], np.asarray(segment_ids)
    borders = np.flatnonzero(np.diff(segment_ids)) + 0.5
    figure, panels = _panels(len(maps), 2.1, 2.1)
    figure.suptitle(f"Attention by position and segment alone, layer {layer + 1}, query (down) by key (across)")
    for head, (axes, attention) in enumerate(zip(panels, maps)):
        axes.imshow(attention, cmap="viridis", vmin=0, interpolation="nearest")
        for border in borders:
            axes.axhline(border, color="w", linewidth=0.8)
            axes.axvline(border, color="w", linewidth=0.8)
        axes.set_xticks([0, len(attention) - 1])
        axes.set_yticks([0, len(attention) - 1])
        axes.set_title(f"head {head + 1}, largest {attention.max():.2f}", fontsize=9)
    return figure


def _pairs(tables):
    return list(np.ndindex(*tables.shape[-2:]))


def _pairs_of_segments(tables, title, titles):
    reach = np.abs(tables).max() or 1.0
    figure = _figure(2.9 * len(titles), 1.5 + 0.3 * len(tables))
    figure.suptitle(title)
    panels = figure.subplots(1, len(titles), squeeze=False)[0]
    for axes, (s, t), name in zip(panels, _pairs(tables), titles):
        image = axes.imshow(tables[..., s, t], cmap="RdBu_r", vmin=-reach, vmax=reach, aspect="auto")
        _label_layers(axes, tables.shape)
        axes.set_title(f"from segment {name}", fontsize=9)
    figure.colorbar(image, ax=panels, fraction=0.03)
    return figure


def _label_layers(axes, shape):
    axes.set(xlabel="head", ylabel="layer")
    for number, ticks in ((shape[1], axes.set_xticks), (shape[0], axes.set_yticks)):
        places = range(0, number, max(1, number // 6))
        ticks(places, [place + 1 for place in places])


def _panels(number, width, height):
    """A figure of small multiples, at most four in a row, and its axes."""
    columns = min(4, number)
    lines = math.ceil(number / columns)
    figure = _figure(max(8.5, width * columns), 1.0 + height * lines)  # wide enough for a title
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes in panels:
        axes.tick_params(labelsize=7)
    for axes in panels[number:]:
        axes.set_axis_off()
    return figure, panels[:number]


def _figure(width, height):
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _of(name):
    return f" of {name}" if name else ""
