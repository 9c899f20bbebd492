"""What TensorBoard shows of positions: the norms of their weights, and pictures of what they add to the scores."""

import numpy as np
import tensorflow as tf

from keras_posenc.folding import position_encodings
from keras_posenc.plotting import position_picture

LENGTH = 48  # positions of a picture
PIXELS = 96  # smallest side of a panel
GAP = 4
BLUE, WHITE, RED = np.array([[0.13, 0.4, 0.67], [0.97, 0.97, 0.97], [0.7, 0.09, 0.17]])


def position_norms(model):
    """Euclidean norms of the trainable position weights, by path, as scalars for TensorBoard."""
    found = {}
    for encoding in position_encodings(model):
        for weight in encoding.trainable_weights:
            found[f"positions/{weight.path}"] = float(np.linalg.norm(weight.numpy()))
    return found


def learned_encodings(model):
    """The encodings with trainable weights; of one made of others, the parts."""
    found = [encoding for encoding in position_encodings(model) if encoding.trainable_weights]
    inner = {id(part) for encoding in found for part in encoding._flatten_layers(include_self=False)}
    parts = [encoding for encoding in found if id(encoding) in inner]
    whole = [encoding for encoding in found if not any(part in parts for part in encoding._flatten_layers(False))]
    return list(dict.fromkeys(whole + parts))


def position_image(model, length=LENGTH):
    """A page of heatmaps, an encoding a row and a head a column, each on its own scale around 0.

    Args:
        model: a model with encodings of this library.
        length: number of positions, fewer where an encoding has fewer.

    Returns: float32 `(1, height, width, 3)` in `[0, 1]`, or `None` if the model learns no positions.
    """
    rows = []
    for encoding in learned_encodings(model):
        positions = min(length, encoding.max_length or length)
        rows.append([_panel(head) for head in position_picture(encoding, positions)])
    if not rows:
        return None
    high, wide = (max(panel.shape[axis] for row in rows for panel in row) + GAP for axis in (0, 1))
    page = np.ones((len(rows) * high + GAP, max(map(len, rows)) * wide + GAP, 3), "float32")
    for r, row in enumerate(rows):
        for c, panel in enumerate(row):
            top, left = r * high + GAP, c * wide + GAP
            page[top : top + panel.shape[0], left : left + panel.shape[1]] = panel
    return page[None]


def write_positions(model, step):
    """Writes the picture of a model's positions to the summary writer in use."""
    image = position_image(model)
    if image is not None:
        tf.summary.image("positions", image, step=step)


def _panel(values):
    """Negative values blue, positive ones red, 0 white."""
    reach = np.abs(values).max() or 1.0
    share = (values / reach)[..., None]
    colours = np.where(share < 0, WHITE + (BLUE - WHITE) * -share, WHITE + (RED - WHITE) * share)
    zoom = max(1, PIXELS // max(values.shape))
    return colours.repeat(zoom, axis=0).repeat(zoom, axis=1).astype("float32")
