"""The five doors through which position enters attention."""

import keras
import numpy as np
from keras import ops

from keras_posenc.utils import checks, folding, initializers, rows
from keras_posenc.utils.outputs import TracedOutputs


class PositionEncoding(TracedOutputs, keras.layers.Layer):
    """Base class of all position encodings.

    An encoding answers one question: where does position enter attention? There are five doors, and an encoding
    overrides the methods of those it uses.

    | door        | method                                      | shape                                    |
    |-------------|---------------------------------------------|------------------------------------------|
    | `embed`     | `embed(length, start_index)`                | `(length, width)`, added to the tokens   |
    | `transform` | `transform(query, key, value, tables)`      | moves them before they meet              |
    | `bias`      | `bias(query_length, key_length, start_index, total_length)` | `(1, heads, q, k)`, added to scores |
    | `scores`    | `scores(query, key, tables)`                | `(batch, heads, q, k)`, the whole content score |
    | `values`    | `values(attention, tables)`                 | `(batch, heads, q, d)`, added to the output |

    What does not depend on tokens is computed by `tables`, which takes what `bias` does and gives a dict of tensors:
    the bias is its entry `"bias"`; encodings that use other doors add entries of their own, and the door methods read
    nothing else. So an encoder can ask a shared encoding once and hand the answer to every layer, and `fold` can keep
    it for inference.

    `start_index` is the absolute position of the first query, `total_length` the length of the whole sequence that the
    queries are of, which by default they end; keys start at 0. Query, key and value come as
    `(batch, heads, length, head size)`, the query already multiplied by `scale`. Position arithmetic is integer or
    at least float32 under every dtype policy.

    Args:
        num_heads: number of attention heads.
        key_dim: size of each head's queries and keys.
        max_length: number of positions. Encodings with a table of positions need it, and it is their limit; the others
            are defined for all lengths and take no notice.
        value_dim: size of each head's values, `key_dim` by default.
        share_heads: use the same parameters for all heads (DIET's "head-wise" sharing).
        extrapolate: what a table does beyond `max_length`: `"error"` (default), `"clip"` (repeat the last entry) or
            `"interpolate"` (squeeze the positions into the table). Encodings without a table only take `"error"`.
    """

    doors = ()
    relative = False  # the scores depend on key position - query position only
    needs = ()  # constructor arguments it cannot do without
    extrapolations = ("error",)
    needs_query = True  # False: the scores do not use the content of queries (or keys), which are then not projected
    needs_key = True
    no_cache = None  # why keys cannot be cached token by token, if they cannot

    def __init__(
        self,
        num_heads=None,
        key_dim=None,
        max_length=None,
        value_dim=None,
        share_heads=False,
        extrapolate="error",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        cls = type(self).__name__
        for name, value in dict(
            num_heads=num_heads, key_dim=key_dim, max_length=max_length, value_dim=value_dim
        ).items():
            if value is not None:
                value = checks.positive_int(cls, name, value)
            elif name in self.needs:
                raise ValueError(f"{cls} needs `{name}`: an integer of at least 1.")
            setattr(self, name, value)
        self.share_heads = bool(share_heads)
        self.extrapolate = checks.one_of(cls, "extrapolate", extrapolate, self.extrapolations)
        self._fold = None

    @property
    def heads(self):
        """Number of heads that have parameters of their own."""
        return 1 if self.share_heads else self.num_heads

    @property
    def scale(self):
        """What queries are multiplied with before they meet the keys."""
        return self.key_dim**-0.5

    @property
    def position_dtype(self):
        return "float64" if self.compute_dtype == "float64" else "float32"

    def build(self, input_shape=None):
        """Most encodings know their shapes from the constructor; those at the input read the width here."""
        self.built = True

    def add_position_weight(self, name, shape, initializer="zeros", **kwargs):
        """A weight that is not cast down with the policy; read it with `self.read`."""
        if isinstance(initializer, keras.initializers.Initializer):
            initializer = initializers.copy_for(name, initializer)  # P_Q must not start equal to P_K
        return self.add_weight(name=name, shape=shape, initializer=initializer, autocast=False, **kwargs)

    def read(self, weight):
        return ops.cast(weight, self.position_dtype)

    # The doors. `tables` is what `at` prepared.

    def embed(self, length, start_index=0, total_length=None):
        return None

    def bias(self, query_length, key_length, start_index=0, total_length=None):
        return None

    def transform(self, query, key, value, tables, cached=False):
        """With `cached`, the keys and values are new ones that stand at the positions of the queries."""
        return query, key, value

    def scores(self, query, key, tables):
        return ops.einsum("bhqd,bhkd->bhqk", query, key)

    def values(self, attention, tables):
        return None

    # From weights to tables.

    def tables(self, query_length, key_length, start_index=0, total_length=None):
        given = (query_length, key_length, start_index, total_length)
        return {"bias": self.bias(*given)} if "bias" in self.doors else {}

    def foldable_tables(self, length):
        """What `fold` keeps: enough for any window of positions below `length`."""
        if "embed" in self.doors:
            return {"embedding": self.embed(length)}
        return self.tables(length, length) if "bias" in self.doors else {}

    def window(self, folded, query_length, key_length, start_index):
        """Cuts the tables for one call out of the folded ones."""
        cut = {}
        if "bias" in folded:
            cut["bias"] = rows.windows(folded["bias"], {2: (start_index, query_length), 3: (0, key_length)})
        return cut

    def at(self, query_length, key_length=None, start_index=0, total_length=None):
        """The encoding for one attention call: tables for these lengths, and the doors that use them."""
        key_length = query_length if key_length is None else key_length
        query_length = self.check_length(start_index + query_length, then=query_length)
        key_length = self.check_length(key_length)
        end = start_index + query_length
        total_length = end if total_length is None else total_length
        covered = self._covers(end, key_length, total_length)
        if covered:
            query_length = self._check_fold(end, then=query_length)
            key_length = self._check_fold(key_length)
            if self.extrapolate == "interpolate":
                query_length = self._check_fold(total_length, then=query_length)
            tables = self.window(self._fold.tables, query_length, key_length, start_index)
        else:
            tables = self.tables(query_length, key_length, start_index, total_length)
        return Positions(self, tables, inside=self._inside(start_index, end, covered))

    def embedding(self, length, start_index=0, total_length=None):
        """`embed`, from the fold if there is one."""
        total_length = start_index + length if total_length is None else total_length
        end = start_index + length
        length = self.check_length(end, then=length)
        covered = self._covers(end, total_length)
        if covered:
            length = self._check_fold(end, then=length)
            if self.extrapolate == "interpolate":
                length = self._check_fold(total_length, then=length)
            embedding = rows.window(self._fold.tables["embedding"], start_index, length, axis=0)
        else:
            embedding = self.embed(length, start_index, total_length)
        return or_nan(embedding, self._inside(start_index, end, covered))

    def _inside(self, start_index, end, covered):
        """Whether all positions exist, where only a step of a compiled loop knows `start_index`; otherwise `None`.

        XLA leaves out the assertions of `checks.at_most`, and would repeat the last entry of a table without a word.
        """
        limits = [self.max_length] if self._is_bounded else []
        limits += [self._fold.length] if covered else []
        known = checks.static_int(start_index) is not None
        return None if known or not limits else ops.less_equal(end, min(limits))

    @property
    def _is_bounded(self):
        return "max_length" in self.needs and self.extrapolate == "error"

    def check_length(self, length, then=None):
        """Refuses a `length` that this encoding has no positions for; see `checks.at_most` for what it returns."""
        if not self._is_bounded:
            return length if then is None else then
        ways = [way for way in self.extrapolations if way != "error"]
        remedy = f", or pass extrapolate={' or '.join(map(repr, ways))}" if ways else ""
        return checks.at_most(
            length,
            self.max_length,
            lambda got: (
                f"{type(self).__name__} '{self.name}' has max_length={self.max_length}, but {got} positions were "
                f"asked for. Shorten the input, construct it with a larger `max_length`{remedy}."
            ),
            then,
        )

    # Folding.

    @property
    def folded_length(self):
        """Length of the fold, or `None`."""
        return None if self._fold is None else self._fold.length

    def check_fold(self, length):
        """Refuses a `length` that this encoding cannot be folded at."""
        checks.positive_int(type(self).__name__, "length", length)
        self.check_length(length)
        checks.built(self, "folding")
        if self.extrapolate == "interpolate" and length > self.max_length:
            raise ValueError(
                f"Interpolated positions depend on the length of each input, so '{self.name}' cannot be folded beyond "
                f"max_length={self.max_length}. Received: length={length}. Fold at {self.max_length} or less."
            )

    def fold(self, length):
        """Computes the tables for positions below `length` once, under XLA, and keeps them until `unfold`."""
        self.check_fold(length)
        self.unfold()
        if self.foldable:
            self._fold = folding.Fold(self, int(length), self.foldable_tables)

    @property
    def foldable(self):
        """Whether there is anything to keep."""
        return bool({"bias", "embed"} & set(self.doors))

    def unfold(self):
        """Returns to computing the tables from the weights."""
        if self._fold is not None:
            self._fold.release()
            self._fold = None

    def check_training(self, training):
        if training and self.folded_length is not None:
            raise ValueError(
                f"The positions of '{self.name}' are folded, so they would not be trained. Call `unfold_positions()` "
                "before training."
            )

    def _covers(self, *lengths):
        """Whether to use the fold. A length known to be beyond it is computed from the weights instead."""
        known = [checks.static_int(length) for length in lengths]
        return self._fold is not None and not any(n is not None and n > self._fold.length for n in known)

    def _check_fold(self, length, then=None):
        return checks.at_most(
            length,
            self._fold.length,
            lambda got: (
                f"'{self.name}' is folded at length {self._fold.length}, but {got} positions were asked for. "
                "Fold it at a larger length."
            ),
            then,
        )

    # As a layer of a functional model.

    def call(self, inputs, start_index=0, total_length=None, training=None):
        """Adds the embedding to `inputs`, or gives the bias for self-attention over them, `(1, heads, q, k)`."""
        self.check_training(training)
        if "embed" in self.doors and (len(inputs.shape) != 3 or "float" not in str(inputs.dtype)):
            raise ValueError(
                f"{type(self).__name__} is added to embeddings, floats of shape (batch, length, width). Received: "
                f"{keras.backend.standardize_dtype(inputs.dtype)} of shape {tuple(inputs.shape)}"
            )
        length = ops.shape(inputs)[1]
        if "embed" in self.doors:
            return inputs + ops.cast(self.embedding(length, start_index, total_length), inputs.dtype)
        if self.doors == ("bias",):
            return self.at(length, start_index=start_index).bias
        if not self.doors:
            return inputs
        raise TypeError(
            f"{type(self).__name__} acts inside attention and cannot be called on its own. Give it to a layer: "
            "PositionalAttention(num_heads, key_dim, position=...)."
        )

    def compute_mask(self, inputs, previous_mask=None):
        return None if self.doors == ("bias",) else previous_mask

    def compute_output_shape(self, input_shape):
        length = input_shape[1]
        return (1, self.heads, length, length) if self.doors == ("bias",) else tuple(input_shape)

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "max_length": self.max_length,
            "value_dim": self.value_dim,
            "share_heads": self.share_heads,
            "extrapolate": self.extrapolate,
        }


def or_nan(x, inside):
    """`x`, or NaN if `inside`, a boolean or `None`, is false: positions that are not there should not be overlooked."""
    return x if inside is None else ops.where(inside, x, np.nan)


class Positions:
    """An encoding at given lengths: what attention layers ask. Made by `PositionEncoding.at`.

    `inside`: see `or_nan`, which attention layers apply to their outputs.
    """

    def __init__(self, encoding, tables, segment_bias=None, inside=None):
        self.encoding = encoding
        self.tables = tables
        self.segment_bias = segment_bias
        self.inside = inside

    @property
    def bias(self):
        return self.tables.get("bias")

    def transform(self, query, key, value, cached=False):
        return self.encoding.transform(query, key, value, self.tables, cached=cached)

    def scores(self, query, key):
        return self.encoding.scores(query, key, self.tables)

    def values(self, attention):
        return self.encoding.values(attention, self.tables)
