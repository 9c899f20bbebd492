"""Multi-head attention with the five doors."""

import keras
from keras import ops

from keras_posenc.encodings.base import PositionEncoding, or_nan
from keras_posenc.encodings.none import NoPosition
from keras_posenc.encodings.registry import PACKAGE, create
from keras_posenc.encodings.segment import SegmentBias, as_pair
from keras_posenc.layers import masking
from keras_posenc.utils import checks, initializers
from keras_posenc.utils.outputs import TracedOutputs


@keras.saving.register_keras_serializable(package=PACKAGE)
class PositionalAttention(TracedOutputs, keras.layers.Layer):
    """Multi-head attention into which any position encoding can be put.

    `softmax(scores(q, k) + bias + segments + mask) v + values`, where an encoding may move `q, k, v` (transform), add
    a content-free `bias`, compute the content `scores` itself, and add to the output (`values`). The softmax is
    float32 (float64 under that policy) whatever the policy, a fully masked row gives zeros, and asking for the
    attention scores changes nothing else.

    It takes the place of `keras.layers.MultiHeadAttention`: constructor and call arguments are the same (but for
    `attention_axes`, `sliding_window`, `flash_attention` and `use_gate`, which it does not have), and so are the names
    and shapes of the projections (`query`, `key`, `value`, `attention_output`).

    Args:
        num_heads: number of attention heads.
        key_dim: size of each head's queries and keys.
        value_dim: size of each head's values, `key_dim` by default.
        dropout: dropout rate of the attention weights.
        use_bias: whether the projections have biases.
        output_shape: width of the output, that of the query by default.
        position: an encoding, a registered name such as `"diet_abs"`, several joined by `+`, or `None`.
        position_options: dict of the named encoding's options, e.g. `{"rank": 128}`.
        max_length: number of positions, for encodings that need to know.
        share_heads: one set of position and segment parameters for all heads.
        num_segments: if given, DIET's segment bias with so many segments; calls then need `segment_ids`.
        kernel_initializer, bias_initializer, kernel_regularizer, bias_regularizer, kernel_constraint,
            bias_constraint, seed: as in `keras.layers.MultiHeadAttention`.

    Call arguments:
        query: `(batch, queries, width)`.
        value: `(batch, keys, width)`; the query by default (self-attention).
        key: `(batch, keys, width)`; the value by default.
        query_mask, value_mask, key_mask: boolean `(batch, length)`, filled in by Keras from masked embeddings.
        attention_mask: boolean or integer, `(batch, keys)`, `(batch, queries, keys)` or
            `(batch, heads, queries, keys)`; true where attention is allowed. One for all texts needs a batch of 1:
            Keras' layer reads a mask of two dimensions as `(queries, keys)`, this one as padding (and refuses it
            unless there are as many texts as queries).
        use_causal_mask: hide keys after each query.
        segment_ids: int `(batch, length)`, or a pair of them for queries and keys. With a cache a pair, the second
            `(batch, cache length)`.
        position_bias: `(1 or batch, heads or 1, queries, keys)`, a bias computed elsewhere, for a layer without a bias
            of its own.
        positions: a shared encoding at these lengths (`encoding.at(...)`), for a layer without its own.
        start_index: absolute position of the first query. Keys start at 0.
        total_length: length of the whole sequence that the queries are of, if they are not its end: that of the
            target, for a step of cross-attention.
        cache: `{"key", "value"}` from `make_cache`. New keys and values are written at `start_index`, attention is
            causal over all of it, and the updated cache is returned as the last output. Keys are then those of the
            cache, and masks have its length. With `update_cache=False` the cache is used as it is, for
            cross-attention to a memory.
        return_attention_scores: also return the attention weights, `(batch, heads, queries, keys)`.
        return_values: also return the projected values they weigh, `(batch, heads, keys, value_dim)`.

    Returns:
        The output `(batch, queries, width)`; then the weights, the values and the cache, if they were asked for.

    Example:

    >>> attention = keras_posenc.layers.PositionalAttention(2, 8, position="tisa")
    >>> output, weights = attention(np.ones((1, 5, 16), "float32"), return_attention_scores=True)
    >>> output.shape, weights.shape
    (TensorShape([1, 5, 16]), TensorShape([1, 2, 5, 5]))
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        dropout=0.0,
        use_bias=True,
        output_shape=None,
        *,
        position=None,
        position_options=None,
        max_length=None,
        share_heads=None,
        num_segments=None,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        seed=None,
        **kwargs,
    ):
        # A shared bias stays float32; the projections cast their inputs themselves.
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True
        name = type(self).__name__
        self.num_heads = checks.positive_int(name, "num_heads", num_heads)
        self.key_dim = checks.positive_int(name, "key_dim", key_dim)
        self.value_dim = checks.positive_int(name, "value_dim", key_dim if value_dim is None else value_dim)
        if output_shape is not None:
            if isinstance(output_shape, (tuple, list)) and len(output_shape) == 1:
                output_shape = output_shape[0]
            checks.positive_int(name, "output_shape", output_shape)
        if not 0 <= dropout < 1:
            raise ValueError(f"{name}: `dropout` must be at least 0 and below 1. Received: dropout={dropout!r}")
        self.dropout = dropout
        self.use_bias = use_bias
        self.output_width = output_shape
        self.max_length = max_length
        self.num_segments = num_segments
        self.share_heads = share_heads
        self.seed = seed
        self._projection_options = {
            "kernel_initializer": keras.initializers.get(kernel_initializer),
            "bias_initializer": keras.initializers.get(bias_initializer),
            "kernel_regularizer": keras.regularizers.get(kernel_regularizer),
            "bias_regularizer": keras.regularizers.get(bias_regularizer),
            "kernel_constraint": keras.constraints.get(kernel_constraint),
            "bias_constraint": keras.constraints.get(bias_constraint),
        }
        if isinstance(position, dict):
            position = keras.saving.deserialize_keras_object(position)
        common = {} if share_heads is None else {"share_heads": bool(share_heads)}
        self.position = create(
            position,
            position_options,
            num_heads=self.num_heads,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
            max_length=max_length,
            dtype=self.dtype_policy,
            **common,
        )
        self._check_position()
        # An encoder whose blocks share an encoding sets these to what that encoding needs.
        self.projects_query, self.projects_key = self.position.needs_query, self.position.needs_key
        self.segment_bias = None
        if num_segments is not None:
            self.segment_bias = SegmentBias(
                self.num_heads, num_segments, bool(share_heads), dtype=self.dtype_policy, name="segment_bias"
            )
        self.dropout_layer = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy) if dropout else None
        self.query_dense = self.key_dense = self.value_dense = self.output_dense = None

    def _check_position(self):
        encoding, name = self.position, type(self).__name__
        if not isinstance(encoding, PositionEncoding):
            raise ValueError(f"{name}: `position` must be an encoding or a registered name. Received: {encoding!r}")
        if "embed" in encoding.doors:
            raise ValueError(
                f"{type(encoding).__name__} is added to the input embeddings, not used inside attention. Apply it to "
                f"the embeddings (`x = {type(encoding).__name__}(...)(x)`), and leave `position` of {name} unset."
            )
        theirs = {"num_heads": encoding.num_heads, "key_dim": encoding.key_dim}
        if self.max_length is not None and "max_length" in encoding.needs:
            theirs["max_length"] = encoding.max_length
        if "values" in encoding.doors:
            theirs["value_dim"] = encoding.value_dim or encoding.key_dim
        if encoding.doors and self.share_heads is not None:
            theirs["share_heads"] = encoding.share_heads
        for own, value in theirs.items():
            if value is not None and value != getattr(self, own):
                raise ValueError(
                    f"{name} has {own}={getattr(self, own)}, its encoding '{encoding.name}' {own}={value}."
                )
        if getattr(encoding, "compresses_keys", False) and not getattr(self, "compresses_keys", False):
            raise ValueError(f"{type(encoding).__name__} scores compressed keys. Use DietAbsLinformerAttention.")

    def build(self, query_shape, value_shape=None, key_shape=None):
        value_shape = query_shape if value_shape is None else value_shape
        key_shape = value_shape if key_shape is None else key_shape
        for name, shape in (("query", query_shape), ("value", value_shape), ("key", key_shape)):
            if len(shape) != 3 or shape[-1] is None:
                raise ValueError(
                    f"{type(self).__name__}: `{name}` must have shape (batch, length, width) with a known width. "
                    f"Received: shape={tuple(shape)}"
                )
        width = self.output_width or query_shape[-1]
        if self.projects_query:
            self.query_dense = self._projection("query", query_shape, self.key_dim)
        if self.projects_key:
            self.key_dense = self._projection("key", key_shape, self.key_dim)
        self.value_dense = self._projection("value", value_shape, self.value_dim)
        self.output_dense = keras.layers.EinsumDense(
            "abcd,cde->abe",
            output_shape=(None, width),
            bias_axes="e" if self.use_bias else None,
            name="attention_output",
            dtype=self.dtype_policy,
            **self._copied_options("attention_output"),
        )
        self.output_dense.build((None, None, self.num_heads, self.value_dim))
        if not self.position.built:
            self.position.build()
        if self.segment_bias is not None:
            self.segment_bias.build()
        if query_shape[1] is not None:
            self.position.check_length(query_shape[1])
        self.built = True

    def _projection(self, name, input_shape, size):
        dense = keras.layers.EinsumDense(
            "abc,cde->abde",
            output_shape=(None, self.num_heads, size),
            bias_axes="de" if self.use_bias else None,
            name=name,
            dtype=self.dtype_policy,
            **self._copied_options(name),
        )
        dense.supports_masking = True  # masks are this layer's business; no warning for passing them by
        dense.build(input_shape)
        return dense

    def _copied_options(self, projection):
        """Each projection gets initializers of its own: W_Q should not start equal to W_K."""
        options = dict(self._projection_options)
        for name in ("kernel_initializer", "bias_initializer"):
            options[name] = initializers.copy_for(projection, options[name])
        return options

    def call(
        self,
        query,
        value=None,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        segment_ids=None,
        position_bias=None,
        positions=None,
        start_index=0,
        cache=None,
        update_cache=True,
        return_values=False,
        total_length=None,
    ):
        decoding = cache is not None and update_cache
        self._check_call(training, position_bias, positions, segment_ids, decoding)
        if value is None:
            # Keras fills in the masks of embeddings only where several tensors are given.
            query_mask = masking.implicit(query) if query_mask is None else query_mask
            value = query
            if cache is None or decoding:  # otherwise keys are those of a memory
                value_mask = query_mask if value_mask is None else value_mask
        key = value if key is None else key
        if decoding:
            length = cache["value"].shape[2]
            value_mask, key_mask = (masking.of_cache(mask, length, attention_mask) for mask in (value_mask, key_mask))
        elif cache is not None and value_mask is None:
            value_mask = cache.get("mask")

        query_length = ops.shape(query)[1]
        key_length = ops.shape(key)[1] if cache is None else ops.shape(cache["value"])[2]
        if positions is None:
            positions = self.position.at(query_length, key_length, start_index, total_length)

        queries = keys = values = None
        if self.query_dense is not None:
            queries = self._heads(self.query_dense, query)
            queries = queries * ops.cast(self._scale(positions.encoding), queries.dtype)
        if cache is None or update_cache:
            keys = None if self.key_dense is None else self._heads(self.key_dense, key)
            values = self._heads(self.value_dense, value)
        queries, keys, values = positions.transform(queries, keys, values, cached=cache is not None)
        inside = positions.inside
        if decoding:
            end = start_index + ops.shape(values)[2]
            inside = masking.combine(inside, self._fits(key_length, end))
            cache = self._write(cache, keys, values, start_index, end, key_length)
        if cache is not None:
            keys, values = cache["key"], cache["value"]

        sizes = (ops.shape(query)[0], query_length, key_length)
        mask, rows = self._mask(
            query_mask, value_mask, key_mask, attention_mask, use_causal_mask or decoding, sizes, start_index
        )
        scores = ops.cast(positions.scores(queries, keys), self._softmax_dtype)
        if mask is not None:  # next to the product, so that an optimizer of graphs can join the two
            scores = scores + ops.cast(self._penalties(mask), scores.dtype)
        for bias in self._biases(positions, position_bias, segment_ids):
            scores = scores + ops.cast(bias, scores.dtype)
        attention = ops.ones_like(scores) if scores.shape[-1] == 1 else ops.softmax(scores, axis=-1)

        weights = attention
        if self.dropout_layer is not None:
            # Content-free scores are one for all texts, and perhaps heads; each drops weights of its own.
            if training is not False and 1 in attention.shape[:2]:
                weights = ops.broadcast_to(attention, (sizes[0], self.num_heads, *ops.shape(attention)[2:]))
            weights = self.dropout_layer(weights, training=training)
        weights = ops.cast(weights, self.compute_dtype)
        output = ops.matmul(weights, values)
        extra = positions.values(weights)
        if extra is not None:
            output = output + extra
        if rows is not None:
            output = output * ops.cast(rows, output.dtype)
        output = or_nan(self.output_dense(ops.transpose(output, (0, 2, 1, 3))), inside)

        results = [output]
        if return_attention_scores:
            if rows is not None:
                attention = attention * ops.cast(rows, attention.dtype)
            # Where nothing depends on the content, one map serves the whole batch, and perhaps all heads.
            shape = (ops.shape(output)[0], self.num_heads, query_length, ops.shape(attention)[3])
            results.append(ops.broadcast_to(attention, shape))
        if return_values:
            results.append(values)
        if cache is not None:
            results.append(cache)
        return results[0] if len(results) == 1 else tuple(results)

    @property
    def _softmax_dtype(self):
        return "float64" if self.compute_dtype == "float64" else "float32"

    def _scale(self, encoding):
        return encoding.scale if encoding.key_dim is not None else self.key_dim**-0.5

    def _heads(self, dense, x):
        """`(batch, length, width)` to `(batch, heads, length, size)`."""
        return ops.transpose(dense(x), (0, 2, 1, 3))

    def _penalties(self, mask):
        """What is added to scores: nothing where a key may be seen, and so much elsewhere that the rest is lost."""
        return ops.where(mask, 0.0, masking.NEGATIVE)

    def _biases(self, positions, position_bias, segment_ids):
        found = [positions.bias, position_bias, positions.segment_bias]
        if self.segment_bias is not None:
            found.append(self.segment_bias(*as_pair(segment_ids)))
        return [bias for bias in found if bias is not None]

    def _mask(self, query_mask, value_mask, key_mask, attention_mask, causal, sizes, start_index):
        """What the softmax adds, and the rows (if any may be empty) to zero: `(mask, rows)`, either may be `None`."""
        masking.check_mask(attention_mask)
        given = [mask for mask in (value_mask, key_mask, attention_mask) if mask is not None]
        by_key = masking.combine(*(masking.as_four_dims(mask, *sizes) for mask in given))
        causal_mask = masking.causal_mask(*sizes[1:], start_index) if causal else None
        mask = masking.combine(by_key, causal_mask)
        # Under a causal mask alone every query sees at least itself.
        rows = None if by_key is None else ops.any(mask, axis=-1, keepdims=True)
        if query_mask is not None:
            rows = masking.combine(rows, ops.cast(query_mask, "bool")[:, None, :, None])
        return mask, rows

    def _check_call(self, training, position_bias, positions, segment_ids, decoding):
        name = type(self).__name__
        self.position.check_training(training)
        own = type(self.position).__name__
        if positions is not None and not isinstance(self.position, NoPosition):
            raise ValueError(
                f"{name} '{self.name}' was given shared `positions`, but has an encoding of its own ({own}). Construct "
                "it with position=None, or do not pass `positions`."
            )
        if position_bias is not None:
            shared = positions is not None and positions.bias is not None
            if "bias" in self.position.doors or shared:
                raise ValueError(
                    f"{name} '{self.name}' was given a `position_bias`, but already has a bias "
                    f"({'from `positions`' if shared else own}). Construct it with position=None, or do not pass it."
                )
            if len(position_bias.shape) != 4 or position_bias.shape[1] not in (1, self.num_heads, None):
                raise ValueError(
                    f"{name}: `position_bias` must have shape (1 or batch, {self.num_heads} or 1, queries, keys). "
                    f"Received: shape={tuple(position_bias.shape)}"
                )
        if self.segment_bias is not None and segment_ids is None:
            raise ValueError(f"{name} '{self.name}' has num_segments={self.num_segments}; pass `segment_ids`.")
        if self.segment_bias is None and segment_ids is not None:
            raise ValueError(f"{name} '{self.name}' was given `segment_ids`; construct it with `num_segments`.")
        if decoding:
            if segment_ids is not None:
                as_pair(segment_ids, cached=True)
            encoding = self.position if positions is None else positions.encoding
            if encoding.no_cache:
                raise ValueError(f"{type(encoding).__name__} cannot decode with a cache: {encoding.no_cache}.")

    def make_cache(self, batch_size=None, length=None, memory=None, key=None, positions=None):
        """An empty cache of `length` positions for self-attention, or that of a `memory` for cross-attention.

        Args:
            batch_size, length: of the empty cache.
            memory: `(batch, keys, width)` values to attend to; use the cache with `update_cache=False`.
            key: `(batch, keys, width)`, the memory by default.
            positions: a shared encoding at the length of the memory, for a layer without its own.

        Returns: a dict with `"key"` and `"value"`, and with `"mask"` if the memory has one from a masked embedding.
        """
        if memory is None:
            if batch_size is None or length is None:
                raise ValueError(
                    f"{type(self).__name__}.make_cache needs `batch_size` and `length`, or a `memory`. Received: "
                    f"batch_size={batch_size}, length={length}"
                )
            shape = (batch_size, self.num_heads, length)
            return {
                "key": ops.zeros(shape + (self.key_dim,), dtype=self.compute_dtype),
                "value": ops.zeros(shape + (self.value_dim,), dtype=self.compute_dtype),
            }
        checks.built(self, "making a cache of a memory")
        keys = None if self.key_dense is None else self._heads(self.key_dense, memory if key is None else key)
        values = self._heads(self.value_dense, memory)
        positions = self.position.at(1, ops.shape(memory)[1]) if positions is None else positions
        _, keys, values = positions.transform(None, keys, values)
        if keys is None:
            keys = ops.zeros(ops.shape(values)[:-1] + (self.key_dim,), dtype=values.dtype)
        mask = masking.implicit(memory)
        return {"key": keys, "value": values} | ({} if mask is None else {"mask": mask})

    def _fits(self, size, end):
        """Whether values up to `end` fit into a cache, where only a compiled function knows; otherwise `None`."""
        if checks.static_int(size) is not None and checks.static_int(end) is not None:
            return None  # `_write` looks
        return ops.less_equal(end, size)

    def _write(self, cache, keys, values, start_index, end, size):
        first, known = checks.static_int(start_index), checks.static_int(size)
        if first is not None and first < 0:
            raise ValueError(f"`start_index` must not be negative. Received: start_index={first}")
        start_index = checks.at_most(
            end,
            size,
            lambda got: (
                f"{type(self).__name__} '{self.name}' was given a cache of {'fewer' if known is None else known} "
                f"positions, but {got} are to be kept in it. Make a longer cache."
            ),
            then=start_index,
        )
        at = (0, 0, start_index, 0)
        written = {"key": cache["key"], "value": ops.slice_update(cache["value"], at, values)}
        if keys is not None:
            written["key"] = ops.slice_update(cache["key"], at, keys)
        return written

    def fold_positions(self, length):
        """Computes what does not depend on tokens once, for all positions below `length`.

        A layer inside a model that has been trained is folded by `keras_posenc.fold_positions(model, length)`: the
        training step that the model has compiled knows nothing of a fold of the layer alone, and would go on training
        positions under it.
        """
        self.position.fold(length)

    def unfold_positions(self):
        """Undoes `fold_positions`."""
        self.position.unfold()

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        """Of the output itself, whatever else is asked for."""
        return (*query_shape[:-1], self.output_width or query_shape[-1])

    def get_config(self):
        options = {name: keras.saving.serialize_keras_object(value) for name, value in self._projection_options.items()}
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "output_shape": self.output_width,
            "position": keras.saving.serialize_keras_object(self.position),
            "max_length": self.max_length,
            "share_heads": self.share_heads,
            "num_segments": self.num_segments,
            "seed": self.seed,
            **options,
        }
