import functools

import keras
from keras import ops

from keras_posenc.encodings.base import PositionEncoding, Positions
from keras_posenc.encodings.registry import PACKAGE


@keras.saving.register_keras_serializable(package=PACKAGE)
class Combined(PositionEncoding):
    """Several encodings in one attention layer: biases add up, transforms follow one another.

    At most one of them may replace the content score, so that none is counted twice.

    Args:
        encodings: a list of encodings that act inside attention.

    Example: `keras_posenc.encodings.create("rotary+diet_rel", num_heads=8, key_dim=64, max_length=512)`.
    """

    def __init__(self, encodings, num_heads=None, key_dim=None, max_length=None, **kwargs):
        encodings = [keras.saving.deserialize_keras_object(e) if isinstance(e, dict) else e for e in encodings]
        num_heads = _common("num_heads", num_heads, encodings)
        key_dim = _common("key_dim", key_dim, encodings)
        values = [e for e in encodings if "values" in e.doors]
        kwargs["value_dim"] = _common("value_dim", kwargs.get("value_dim"), values)
        kwargs["share_heads"] = any(e.share_heads for e in encodings)
        super().__init__(num_heads, key_dim, max_length, **kwargs)
        self.encodings = encodings
        if any("embed" in e.doors for e in self.encodings):
            raise ValueError(
                "Encodings that are added to the input cannot be part of an attention layer. Add them to the "
                f"embeddings instead. Received: {self._names()}"
            )
        scorers = [e for e in self.encodings if "scores" in e.doors]
        if len(scorers) > 1:
            raise ValueError(f"At most one encoding may compute the content score. Received: {self._names()}")
        scales = {e.scale for e in self.encodings if e.doors and e.key_dim}
        if len(scales) > 1:
            raise ValueError(f"{self._names()} scale the content score differently and cannot be combined.")
        self._scorer = scorers[0] if scorers else None
        self._scale = scales.pop() if scales else None
        self.doors = tuple(dict.fromkeys(door for e in self.encodings for door in e.doors))
        self.relative = all(e.relative for e in self.encodings)
        self.compresses_keys = any(getattr(e, "compresses_keys", False) for e in self.encodings)

    def _names(self):
        return [type(e).__name__ for e in self.encodings]

    @property
    def scale(self):
        return self._scale or super().scale

    @property
    def needs_query(self):
        return self._scorer is None or self._scorer.needs_query

    @property
    def needs_key(self):
        return self._scorer is None or self._scorer.needs_key

    @property
    def no_cache(self):
        return next((e.no_cache for e in self.encodings if e.no_cache), None)

    def build(self, input_shape=None):
        for encoding in self.encodings:
            if not encoding.built:
                encoding.build()
        self.built = True

    def at(self, query_length, key_length=None, start_index=0, total_length=None):
        # Each part looks after its own limits and its own fold.
        found = [e.at(query_length, key_length, start_index, total_length) for e in self.encodings]
        inside = [part.inside for part in found if part.inside is not None]
        parts = [part.tables for part in found]
        tables = {"parts": parts}
        biases = [part["bias"] for part in parts if "bias" in part]
        if biases:
            total = biases[0]
            for bias in biases[1:]:
                total = ops.add(total, bias)
            tables["bias"] = total
        return Positions(self, tables, inside=functools.reduce(ops.logical_and, inside) if inside else None)

    def transform(self, query, key, value, tables, cached=False):
        for encoding, part in zip(self.encodings, tables["parts"]):
            query, key, value = encoding.transform(query, key, value, part, cached=cached)
        return query, key, value

    def scores(self, query, key, tables):
        if self._scorer is None:
            return super().scores(query, key, tables)
        return self._scorer.scores(query, key, tables["parts"][self.encodings.index(self._scorer)])

    def values(self, attention, tables):
        terms = [e.values(attention, part) for e, part in zip(self.encodings, tables["parts"])]
        terms = [term for term in terms if term is not None]
        return sum(terms[1:], terms[0]) if terms else None

    def check_fold(self, length):
        for encoding in self.encodings:
            encoding.check_fold(length)

    def fold(self, length):
        self.check_fold(length)
        for encoding in self.encodings:
            encoding.fold(length)

    def unfold(self):
        for encoding in self.encodings:
            encoding.unfold()

    @property
    def folded_length(self):
        lengths = [e.folded_length for e in self.encodings if e.folded_length is not None]
        return min(lengths, default=None)

    def get_config(self):
        config = super().get_config()
        config["encodings"] = [keras.saving.serialize_keras_object(e) for e in self.encodings]
        return config


def _common(name, own, encodings):
    """The size that all have in common."""
    sizes = {size for size in (own, *(getattr(e, name) for e in encodings)) if size is not None}
    if len(sizes) > 1:
        raise ValueError(f"Encodings that are combined must have the same `{name}`. Received: {sorted(sizes)}")
    return sizes.pop() if sizes else None
