"""Pictures of attention to types of tokens: figures 1, 5 and 6 of Sun & Marasović, 1b and 1c of Brunner et al."""

import math

import numpy as np

from keras_posenc.analysis.token_types import KINDS, TYPES

RAW, EFFECTIVE = "#0072B2", "#D55E00"  # Okabe and Ito's, which colour-blind readers tell apart
COLOURS = dict(zip(KINDS, (RAW, EFFECTIVE)))
LABELS = {
    "mass": "sum of weights",
    "absolute": "sum of absolute weights",
    "largest": "largest weight of a token of the type",
}
FROM = {"cls": "[CLS]", "all": "all tokens", "others": "tokens of other types"}


def plot_cls_attention(result, measure="largest", name=""):
    """Attention of [CLS] in the last layer to each type: bars are means over heads, dots are heads.

    Args:
        result: an `AttentionByTypeResult`.
        measure: one of `token_types.MEASURES`.
        name: of the model, for the title.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots()
    present = np.flatnonzero(result.tokens > 0)
    places = np.arange(len(present))
    for kind, shift in zip(KINDS, (-0.2, 0.2)):
        values = result.get(kind, "cls", measure)[-1][:, present]
        axes.bar(places + shift, values.mean(axis=0), 0.38, color=COLOURS[kind], alpha=0.75, label=kind)
        spots = places + shift + np.linspace(-0.12, 0.12, len(values))[:, None]
        axes.scatter(spots, values, s=9, color="k", linewidths=0, alpha=0.6, label="a head" if shift > 0 else None)
    if measure != "largest":
        axes.hlines(
            result.tokens[present],
            places - 0.42,
            places + 0.42,
            color="k",
            linestyle=":",
            label="if attention were even",
        )
    axes.axhline(0, color="k", linewidth=0.6)
    axes.set_xticks(places, [TYPES[t] for t in present])
    axes.set(ylabel=LABELS[measure], xlabel="type of the tokens attended to")
    axes.legend(fontsize=8)
    axes.set_title(_title(result, "What [CLS] attends to in the last layer", name))
    return figure


def plot_cls_heads(result, measure="largest", name=""):
    """The same by head, raw above effective (the layout of figure 1 of Sun & Marasović)."""
    from matplotlib.figure import Figure

    heads = result.values.shape[4]
    figure = Figure(figsize=(2.6 + 0.5 * heads, 6.2), layout="constrained")
    figure.suptitle(_title(result, "What heads of [CLS] attend to in the last layer", name), fontsize=11)
    present = np.flatnonzero(result.tokens > 0)
    tables = [result.get(kind, "cls", measure)[-1].T[present] for kind in KINDS]
    low, high = min(np.nanmin(tables), 0.0), np.nanmax(tables)
    for kind, table, axes in zip(KINDS, tables, figure.subplots(2, 1, sharex=True)):
        image = axes.imshow(table, cmap="cividis", vmin=low, vmax=high, aspect="auto", interpolation="nearest")
        axes.set_yticks(range(len(present)), [TYPES[t] for t in present])
        axes.set_xticks(range(heads), range(1, heads + 1))
        axes.set_title(kind, fontsize=10)
        figure.colorbar(image, ax=axes, label=LABELS[measure] if measure != "largest" else "largest weight")
    axes.set_xlabel("head")
    return figure


def plot_attention_by_layer(result, source="all", measure="mass", types=TYPES, name=""):
    """Attention to each type by layer, a panel per type: bars are means over heads, dots are heads.

    Args:
        result: an `AttentionByTypeResult`.
        source: one of `token_types.SOURCES`: whose attention.
        measure: one of `token_types.MEASURES`.
        types: names of the types to draw.
        name: of the model, for the title.
    """
    from matplotlib.figure import Figure

    layers, heads = result.values.shape[3:5]
    columns = min(4, len(types))
    rows = math.ceil(len(types) / columns)
    figure = Figure(figsize=(max(8.5, 0.8 + 3.1 * columns), 0.9 + 2.4 * rows), layout="constrained")
    figure.suptitle(_title(result, f"Attention of {FROM[source]} to types of tokens, by layer", name), fontsize=11)
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True, sharex=True)
    places = np.arange(1, layers + 1)
    for axes, kind_of_token in zip(panels.ravel(), types):
        t = TYPES.index(kind_of_token)
        for kind, shift in zip(KINDS, (-0.2, 0.2)):
            values = result.get(kind, source, measure)[:, :, t]
            axes.bar(places + shift, values.mean(axis=1), 0.38, color=COLOURS[kind], alpha=0.75, label=kind)
            spots = places[:, None] + shift + np.linspace(-0.12, 0.12, heads)
            axes.scatter(spots, values, s=4, color="k", linewidths=0, alpha=0.5, label="a head" if shift > 0 else None)
        if measure != "largest":
            axes.axhline(result.tokens[t], color="k", linestyle=":", linewidth=1, label="if attention were even")
        axes.axhline(0, color="k", linewidth=0.6)
        axes.set_title(kind_of_token, fontsize=10)
    for axes in panels.ravel()[len(types) :]:
        axes.set_axis_off()
    handles, labels = panels[0, 0].get_legend_handles_labels()
    if panels.size > len(types):
        panels[-1, -1].legend(handles, labels, loc="center", fontsize=9)
    else:
        figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    for axes in panels.ravel()[: len(types)]:
        axes.set_xlabel("layer")
        axes.tick_params(labelbottom=True)
    figure.supylabel(LABELS[measure], fontsize=10)
    return figure


def _title(result, text, name):
    return f"{f'{name}: ' if name else ''}{text}, mean of {result.sentences} inputs"
