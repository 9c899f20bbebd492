"""Pictures of hidden token attribution: figures 3, 4 and 18 of Brunner et al., 2020, and word types."""

import numpy as np

# Okabe and Ito's colours, which stay apart for colour-blind readers.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442")
MARKERS = "osD^vP*X"


def plot_own_contribution(own, name=None):
    """What tokens have left of themselves by layer, and how often another token contributes more (figure 3).

    Args:
        own: an `OwnContribution`.
        name: which of its names; the first by default.
    """
    figure, (left, right) = _figure(2)
    k = own.names.index(own.names[0] if name is None else name)
    boxes = [
        {
            "med": own.quantile(0.5)[k, index],
            "q1": own.quantile(0.25)[k, index],
            "q3": own.quantile(0.75)[k, index],
            "whislo": own.quantile(0.05)[k, index],
            "whishi": own.quantile(0.95)[k, index],
            "fliers": [],
        }
        for index in range(len(own.layers))
    ]
    style = {"color": COLOURS[5], "linewidth": 2}
    left.bxp(boxes, positions=own.layers, showfliers=False, medianprops=style, widths=0.6)
    left.plot(own.layers, own.mean[k], MARKERS[2], color=COLOURS[0], markersize=4, label="mean")
    left.legend(frameon=False)
    left.set(ylim=(0, None), ylabel="contribution of the own token")
    left.set_title("Own token: median, quartiles, 5 to 95 %", fontsize=10)
    right.plot(own.layers, 100 * own.not_main_share[k], "o-", color=COLOURS[0])
    right.set(ylim=(0, max(5.0, 105 * own.not_main_share[k].max())), ylabel="% of tokens")
    right.set_title("Some other token contributes more", fontsize=10)
    _layers((left, right), own.layers)
    figure.suptitle(f"Hidden token attribution over {int(own.count[k]):,} tokens")
    return figure


def plot_own_by_type(own):
    """Mean own contribution and share of tokens that are not their main contributor, by type of word (C.5).

    Args:
        own: an `OwnContribution` with several names; those without tokens are left out.
    """
    figure, (left, right) = _figure(2)
    for k, name in enumerate(own.names):
        if own.count[k]:
            style = dict(color=COLOURS[k % 8], marker=MARKERS[k % 8], markersize=4, linestyle="--" if k >= 8 else "-")
            left.plot(own.layers, own.mean[k], label=f"{name} ({int(own.count[k])})", **style)
            right.plot(own.layers, 100 * own.not_main_share[k], **style)
    left.set(ylim=(0, None), ylabel="mean contribution of the own token")
    right.set(ylim=(0, None), ylabel="% of tokens")
    right.set_title("Some other token contributes more", fontsize=10)
    left.set_title("Own token", fontsize=10)
    _layers((left, right), own.layers)
    figure.legend(loc="outside right center", frameon=False, fontsize=8, title="type (tokens)")
    figure.suptitle("Own contribution by type of token")
    return figure


def plot_neighbours(neighbours, offsets=15):
    """Where context comes from: by group of distances and layer, and by offset (figure 4).

    Args:
        neighbours: a `NeighbourContribution`.
        offsets: largest offset drawn.
    """
    figure, (left, middle, right) = _figure(3)
    layers = neighbours.layers
    for g, name in enumerate(neighbours.names):
        left.plot(layers, neighbours.relative[:, g], color=COLOURS[g], marker=MARKERS[g], markersize=4, label=name)
    left.axhline(1 / len(layers), color="grey", linewidth=0.8, linestyle=":")
    left.set(ylim=(0, None), ylabel="part of what the group gives in all layers")
    left.set_title("In which layers a group contributes", fontsize=10)
    bottom = np.zeros(len(layers))
    for g in range(len(neighbours.names)):
        middle.bar(layers, 100 * neighbours.share[:, g], bottom=bottom, color=COLOURS[g], width=0.8)
        bottom += 100 * neighbours.share[:, g]
    middle.set(ylim=(0, 100), ylabel="% of all context")
    middle.set_title("Context of each layer", fontsize=10)
    at = np.arange(-offsets, offsets + 1)
    for index, row in enumerate(sorted({0, (len(layers) - 1) // 2, len(layers) - 1})):
        share = neighbours.offset_share[row, neighbours.reach - offsets : neighbours.reach + offsets + 1].copy()
        share[offsets] = np.nan  # a token is not its own neighbour
        right.plot(
            at, share, color=COLOURS[2 * index], marker=MARKERS[index], markersize=3, label=f"layer {layers[row]}"
        )
    right.set(ylim=(0, None), xlabel="offset of the contributing token", ylabel="share of all context")
    right.set_title("Context by offset", fontsize=10)
    right.legend(frameon=False, fontsize=8)
    _layers((left, middle), layers)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False, fontsize=8)
    figure.suptitle("Contribution of neighbouring tokens")
    return figure


def plot_context_by_type(context):
    """What one token of each type gives to, and gets from, tokens of the others, layer by layer.

    Args:
        context: a `ContextByType`; with [CLS], [SEP] and other tokens it shows the context of these two.
    """
    present = [k for k in range(len(context.names)) if context.count[k]]
    figure, axes = _figure(len(present))
    top = 100 * context.per_source.max()
    for axis, k in zip(axes, present):
        target = context.names[k]
        for m, source in enumerate(context.names):
            if context.pairs[k, m]:
                values = 100 * context.per_source[:, k, m]
                axis.plot(
                    context.layers, values, color=COLOURS[m % 8], marker=MARKERS[m % 8], markersize=4, label=source
                )
        axis.set(ylim=(0, 1.08 * top))
        axis.set_title(f"to {target} (own {100 * context.own_mean[-1, k]:.0f} % at the last)", fontsize=10)
        axis.legend(frameon=False, fontsize=8, title="from")
    axes[0].set_ylabel("contribution of one such token, %")
    _layers(axes, context.layers)
    figure.suptitle("Contributions by type of token")
    return figure


def plot_context_around(around, target="[CLS]", anchor="the first [SEP]"):
    """What a token gets from the tokens around another, at the first, middle and last layer (figure 18b).

    Args:
        around: a `ContextAround`.
        target, anchor: their names in the labels.
    """
    figure, (axis,) = _figure(1, width=7)
    offsets = np.array(around.names)
    seen = around.count > 0
    for index, row in enumerate(sorted({0, (len(around.layers) - 1) // 2, len(around.layers) - 1})):
        label = f"layer {around.layers[row]}"
        values = 100 * around.mean[row, seen]
        axis.plot(offsets[seen], values, color=COLOURS[2 * index], marker=MARKERS[index], markersize=3, label=label)
    axis.axvline(0, color="grey", linewidth=0.8, linestyle=":")
    axis.set(ylim=(0, None), xlabel=f"position relative to {anchor}", ylabel=f"mean contribution to {target}, %")
    axis.legend(frameon=False)
    figure.suptitle(f"What {target} takes from the tokens around {anchor}")
    return figure


def _figure(panels, width=4.2):
    """A figure and its panels, at most four in a row."""
    from matplotlib.figure import Figure

    columns = min(panels, 4)
    rows = -(-panels // columns)
    figure = Figure(figsize=(width * columns, 3.8 * rows), dpi=100, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for unused in axes[panels:]:
        unused.set_axis_off()
    return figure, axes[:panels]


def _layers(axes, layers):
    for axis in axes:
        axis.set(xlabel="layer")
        axis.set_xticks(layers, [str(layer) for layer in layers])
