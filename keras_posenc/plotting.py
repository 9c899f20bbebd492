"""One page of pictures: what every encoding does to the attention scores."""

import argparse
import math
import random
from pathlib import Path

import numpy as np
from keras import ops

from keras_posenc import encodings
from keras_posenc.encodings.base import PositionEncoding

HEAD_SIZE = 32
# Groups of `plot_doors`, in two lines of about the same width.
DOORS = (
    {
        (): "nowhere",
        ("embed",): "embed: added to the token embeddings",
        ("transform",): "transform",
        ("scores", "values"): "scores, values: meets the content",
    },
    {("bias",): "bias: added to the scores of a head, whatever the tokens, and so computed once for inference"},
)


def plot_encodings(names=None, length=48, num_heads=4, path=None, seed=0):
    """Draws the effect of encodings on the scores of `length` queries and keys, a panel per head.

    A new encoding in the registry appears by itself. Encodings with weights are drawn freshly initialised.

    Args:
        names: registered names, all of them by default.
        length: number of positions.
        num_heads: number of heads.
        path: file to save to, e.g. `"encodings.png"`; nothing is saved by default.
        seed: of the weights and of the content that positions meet.

    Returns: the `matplotlib.figure.Figure`.

    Example:

    >>> figure = keras_posenc.plot_encodings(["alibi", "rotary"], length=16)
    """
    from matplotlib.figure import Figure

    names = encodings.names() if names is None else list(names)
    pictures = {name: position_picture(make_encoding(name, length, num_heads, seed), length, seed) for name in names}
    columns = min(2, len(names))
    rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(columns * (0.8 + 1.55 * num_heads), 0.9 + 2.35 * rows), layout="constrained")
    figure.suptitle(f"What position adds to the scores of {length} queries (down) and keys (across), head by head")
    blocks = figure.subfigures(rows, columns, squeeze=False, hspace=0.02, wspace=0.02).ravel()
    for block, name in zip(blocks, names):
        _draw(block, name, pictures[name], num_heads)
    if path is not None:
        _save(figure, path)
    return figure


def plot_doors(length=48, path=None, seed=0):
    """Draws one head of every registered encoding, grouped by where it enters attention.

    Args: as in `plot_encodings`.

    Returns: the `matplotlib.figure.Figure`.
    """
    from matplotlib.figure import Figure

    lines = [[(name, words) for doors, words in line.items() for name in _entering(doors)] for line in DOORS]
    columns = max(map(len, lines))
    figure = Figure(figsize=(1.15 * columns, 1.6 * len(lines)))
    space = dict(left=0.005, right=0.995, bottom=0.07, top=0.93, hspace=0.4, wspace=0.1)
    for line, panels in zip(lines, figure.subplots(len(lines), columns, gridspec_kw=space)):
        said = None
        for axes, (name, words) in zip(panels, line):
            picture = position_picture(make_encoding(name, length, num_heads=4, seed=seed), length, seed)[0]
            axes.imshow(picture, aspect="auto", interpolation="nearest", **_colours(picture))
            axes.set_box_aspect(1)
            axes.set(xticks=[], yticks=[], xlabel=name)
            if words != said:  # over the first panel of a group
                axes.set_title(words, loc="left", fontsize=9, fontweight="bold")
            said = words
        for axes in panels[len(line) :]:
            axes.remove()
    if path is not None:
        _save(figure, path)
    return figure


def _entering(doors):
    """Registered names of the encodings that enter by some of these doors, or by none."""
    found = {name: encodings.get_class(name).doors for name in encodings.names()}
    return [name for name, own in found.items() if (set(doors) & set(own) if doors else not own)]


def _save(figure, path):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def make_encoding(name, length, num_heads, seed=0):
    """A freshly initialised encoding; the weights depend on `seed`, and the caller's random numbers do not change."""
    state = random.getstate()
    random.seed(seed)  # Keras' initializers draw their seeds from here
    try:
        encoding = encodings.create(name, num_heads=num_heads, key_dim=HEAD_SIZE, max_length=length)
        encoding.build((None, length, num_heads * HEAD_SIZE))
    finally:
        random.setstate(state)
    return encoding


def position_picture(encoding, length, seed=0):
    """What `encoding` adds to the scores of a sequence, as a NumPy array `(heads, queries, keys)`.

    An encoding at the input gives the scores of the position embeddings with each other, `P P^T`, and one head. Any
    other gives `A_ij - q k^T` for queries `q` and keys `k` that are the same at every position, so that what is left
    is due to position. Where keys are compressed, there are as many columns as compressed keys.

    Args:
        encoding: a built encoding.
        length: number of positions.
        seed: of `q` and `k`, which are standard normal; `q` is scaled as in attention.
    """
    if "embed" in encoding.doors:
        embedding = ops.convert_to_numpy(encoding.embedding(length))
        return (embedding @ embedding.T)[None]
    positions = encoding.at(length, length)
    picture = np.zeros((encoding.num_heads, length, length), "float32")
    if {"transform", "scores"} & set(encoding.doors):
        picture = ops.convert_to_numpy(_scores_of_constant_content(encoding, positions, length, seed))
    if positions.bias is None:
        return picture
    bias = ops.convert_to_numpy(positions.bias)[0]
    return bias if set(encoding.doors) == {"bias"} else picture + bias


def _scores_of_constant_content(encoding, positions, length, seed):
    shape = (2, 1, encoding.num_heads, 1, encoding.key_dim)
    content = np.random.default_rng(seed).standard_normal(shape).astype("float32")
    query, key = (ops.convert_to_tensor(np.repeat(x, length, axis=2)) for x in content)
    query = query * encoding.scale
    moved_query, moved_key, _ = positions.transform(query, key, None)
    scores = positions.scores(moved_query, moved_key)
    if encoding.needs_key:  # otherwise the scores have no product of queries and keys in them
        scores = scores - PositionEncoding.scores(encoding, query, key, {})
    return scores[0]


def _draw(block, name, picture, num_heads):
    """A row of panels. Each has its own scale, since heads differ by orders of magnitude."""
    doors = ", ".join(encodings.get_class(name).doors) or "no door"
    block.suptitle(f"{name}  ({doors})", fontsize=10, fontweight="bold")
    panels = block.subplots(1, num_heads, squeeze=False)[0]
    for head, axes in enumerate(panels):
        if head >= len(picture):
            axes.set_axis_off()
            continue
        image = axes.imshow(picture[head], aspect="auto", interpolation="nearest", **_colours(picture[head]))
        axes.set_box_aspect(1)
        axes.set_xticks([0, picture.shape[2] - 1])
        axes.set_yticks([0, picture.shape[1] - 1] if head == 0 else [])
        axes.tick_params(labelsize=7, length=2)
        axes.set_title(_panel_title(name, head, len(picture)), fontsize=8, pad=3)
        bar = block.colorbar(image, ax=axes, orientation="horizontal", fraction=0.05, pad=0.03, aspect=14)
        low, high = image.get_clim()
        bar.set_ticks([low, high] if low * high >= 0 else [low, 0, high])
        bar.set_ticklabels([_short(tick) for tick in bar.get_ticks()])
        bar.ax.tick_params(labelsize=7, length=2)


def _short(value):
    """A number in few characters; zero without a sign."""
    return f"{value:.2g}" if abs(value) >= 1e-3 else f"{value:.0e}" if value else "0"


def _panel_title(name, head, heads):
    if "embed" in encodings.get_class(name).doors:
        return "$P P^T$"
    return "all heads" if heads == 1 else f"head {head + 1}"


def _colours(values):
    """Blue to red around zero where values have both signs; otherwise one ramp over the values."""
    low, high = float(values.min()), float(values.max())
    if low * high < 0 or low == high == 0:
        reach = max(-low, high) or 1.0
        return {"cmap": "RdBu_r", "vmin": -reach, "vmax": reach}
    return {"cmap": "viridis", "vmin": low, "vmax": high}


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m keras_posenc.plotting",
        description="Draws one page with the effect of every registered position encoding on the attention scores.",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="picture to write, e.g. page.png")
    parser.add_argument("--doors", action="store_true", help="a small one: one head of each, by where they enter")
    parser.add_argument(
        "--names", metavar="A,B", help=f"encodings to draw (default: all of {', '.join(encodings.names())})"
    )
    parser.add_argument("--length", type=int, default=48, metavar="N", help="number of positions (default: 48)")
    parser.add_argument("--heads", type=int, default=4, metavar="N", help="number of heads (default: 4)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of weights and content (default: 0)")
    options = parser.parse_args(arguments)
    names = None if options.names is None else [name.strip() for name in options.names.split(",")]
    unknown = [name for name in names or [] if name not in encodings.names()]
    if unknown:
        parser.error(f"unknown encoding {', '.join(map(repr, unknown))}; known: {', '.join(encodings.names())}")
    if options.doors and (names or options.heads != 4):
        parser.error("--doors draws one head of every encoding: leave out --names and --heads")
    if options.length < 2 or options.heads < 1:
        parser.error("--length must be at least 2 and --heads at least 1")
    if options.doors:
        plot_doors(options.length, options.output, options.seed)
    else:
        plot_encodings(names, options.length, options.heads, options.output, options.seed)
    print(options.output)


if __name__ == "__main__":
    main()
