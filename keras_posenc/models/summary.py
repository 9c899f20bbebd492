"""Where positions live in a model, and what they cost."""

import dataclasses
import re

from keras_posenc.encodings.base import PositionEncoding
from keras_posenc.encodings.combined import Combined
from keras_posenc.encodings.segment import SegmentBias
from keras_posenc.layers.encoder import TransformerEncoder


@dataclasses.dataclass(frozen=True)
class Row:
    """One kind of encoding at one kind of place."""

    encoding: str
    doors: tuple
    where: str
    copies: int
    parameters: int  # of all copies together


class PositionSummary:
    """The encodings of a built model, grouped by where they are.

    Attributes:
        rows: list of `Row`.
        positions: number of position parameters.
        segments: number of parameters of segment biases, which are listed but are no positions.
        total: number of parameters of the model.
    """

    def __init__(self, model):
        if not model.built:
            raise ValueError(f"'{model.name}' has no weights yet. Call `build()` or call it on inputs first.")
        groups = {}
        for layer, parent, path in _walk(model, model, "", set()):
            key = (type(layer), re.sub(r"_\d+(?=/|$)", "_*", path))
            groups.setdefault(key, []).append((layer, parent, path))
        self.rows = [_row(pattern, found) for (_, pattern), found in groups.items()]
        self.total = model.count_params()
        self.segments = sum(row.parameters for row in self.rows if row.encoding == "segments")
        self.positions = sum(row.parameters for row in self.rows) - self.segments

    @property
    def share(self):
        """Position parameters as a part of all."""
        return self.positions / self.total if self.total else 0.0

    def __str__(self):
        table = [("encoding", "door", "where", "parameters", "of all")]
        for row in self.rows:
            part = row.parameters / self.total if self.total else 0.0
            table.append((row.encoding, ", ".join(row.doors), row.where, f"{row.parameters:,}", f"{part:.3%}"))
        widths = [max(len(line[column]) for line in table) for column in range(5)]
        align = ("<", "<", "<", ">", ">")
        lines = ["  ".join(f"{cell:{a}{w}}" for cell, a, w in zip(line, align, widths)).rstrip() for line in table]
        if not self.rows:
            lines = ["The model has no position encoding."]
        end = f"Position parameters: {self.positions:,} of {self.total:,} ({self.share:.3%})"
        return "\n".join(["Positions", *lines, end])

    __repr__ = __str__


def _walk(layer, parent, path, seen):
    """The encodings and segment biases below `layer`, each once, with the layer that holds them and its path."""
    for child in layer._flatten_layers(include_self=False, recursive=False):
        if id(child) in seen:
            continue
        seen.add(id(child))
        if isinstance(child, Combined):  # its parts are at its place
            yield from _walk(child, parent, path, seen)
        elif isinstance(child, (PositionEncoding, SegmentBias)):
            if isinstance(child, SegmentBias) or child.doors:
                yield child, parent, path
        else:
            yield from _walk(child, child, f"{path}/{child.name}" if path else child.name, seen)


def _row(pattern, found):
    layer, parent, path = found[0]
    copies = len(found)
    if isinstance(layer, SegmentBias):
        name, doors = "segments", ("bias",)
    else:
        name, doors = getattr(type(layer), "registry_name", type(layer).__name__), tuple(layer.doors)
    where = path if copies == 1 else pattern
    if "embed" in doors:
        where += ", at the input"
    elif isinstance(parent, TransformerEncoder):
        layers = f"{parent.num_layers} layers"
        where += f", one for {layers}" if parent.sharing == "layer" else f", one for each of {layers}"
    elif copies > 1:
        where += f", {copies} of them"
    if layer.share_heads:
        where += ", one for all heads"
    return Row(name, doors, where, copies, sum(each.count_params() for each, _, _ in found))
