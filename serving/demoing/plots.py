"""Figures of the page that no other part of the project draws, and figures as bytes."""

import io

import numpy as np

DOTS = 100  # an inch


def png(figure, dots=DOTS):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dots, bbox_inches="tight")  # labels beside square panels stay whole
    return buffer.getvalue()


def pictures(arrays, trained):
    """A row for each encoding and a panel for each head: what its trained positions add to the scores.

    Args:
        arrays: dict of encodings to `(heads, n, n)`.
        trained: number of positions that training has seen; a line is drawn after them.
    """
    from matplotlib.figure import Figure

    columns = max(len(heads) for heads in arrays.values())
    figure = Figure(figsize=(1.4 + 1.75 * columns, 1.75 * len(arrays)), layout="constrained")
    grid = figure.subplots(len(arrays), columns, squeeze=False)
    for row, (name, heads) in zip(grid, arrays.items()):
        for number, axes in enumerate(row):
            if number >= len(heads):
                axes.set_axis_off()
                continue
            values = heads[number] - heads[number].mean(axis=-1, keepdims=True)  # a softmax does not see the mean
            # Colours are for tokens: [CLS], the first, may have weights of its own that are much larger.
            limit = max(float(np.quantile(np.abs(values[1:trained, 1:trained]), 0.99)), 1e-9)
            image = axes.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
            if trained < len(values):
                axes.axvline(trained - 0.5, color="#333333", lw=0.7)
                axes.axhline(trained - 0.5, color="#333333", lw=0.7)
            axes.set_xticks([])
            axes.set_yticks([])
            if number == 0:
                axes.set_ylabel(name, fontsize=10)
            title = "$P P^T$" if len(heads) == 1 else f"head {number + 1}"
            axes.set_title(title, fontsize=8, pad=3)
            bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.03)
            bar.ax.tick_params(labelsize=6, length=2)
    return figure
