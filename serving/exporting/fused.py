"""Layers in the form that runs fastest as a graph, while a model is traced for export.

- Keras multiplies `(batch, length, width)` by a kernel with `tensordot` or `einsum`. In a graph that is a product
  between reshapes, or an operation that reshapes by itself, and TensorFlow's optimizer (grappler's remapper) does not
  join it with the addition of the bias or with the activation behind it. Here the rows of all sequences are one matrix:
  `MatMul`, `BiasAdd` and gelu next to each other become one operation of the processor's library.
- Queries, keys and values of self-attention are one product, with the three kernels side by side, so that the
  activations are read once.
- Layer normalisation subtracts the mean first and scales rows before columns: three passes over the activations fewer
  than Keras' form, which is made for training. In parts it is a batch normalisation whose channels are the rows, which
  the remapper turns into one operation that reads the activations once; where several threads share it, as they do in a
  whole, and there are few rows, that takes longer. (The remapper finds it in other forms too, and forgets the epsilon.)
- The shape of what hides padding is stated, and the remapper joins its addition with the product of queries and keys.
- Sequences are cut into parts that run beside each other, if that is asked for (`parts`).

A runtime that has no such operations computes the same from the single ones.

Results are the same but for rounding, and layers are as they were after the `with` statement.
"""

import contextlib
import math

import keras
import tensorflow as tf

from keras_posenc.layers.attention import PositionalAttention
from keras_posenc.layers.residual import ResidualBlock
from keras_posenc.models.heads import MaskedLM
from serving.exporting.parts import Attention, Parts

EQUATIONS = ("abc,cde->abde", "abcd,cde->abe")  # of the projections to heads and back


@contextlib.contextmanager
def fused(model, parts=None, xla=False):
    """The model with the layers that this module knows in that form.

    Args:
        model: a model or a layer.
        parts: `Parts` that sequences are cut into; whole by default.
        xla: whether XLA is going to compile it, which joins the operations of a layer normalisation by itself.

    Yields: dict of the variables that were made of several weights, by name.
    """
    changed, made, parts = [], {}, Parts() if parts is None else parts
    try:
        for layer in model._flatten_layers():
            for name, replacement in _replacements(layer, made, parts, xla).items():
                setattr(layer, name, replacement)
                changed.append((layer, name))
        yield made
    finally:
        for layer, name in changed:
            delattr(layer, name)


def _replacements(layer, made, parts, xla):
    """Dict from names of methods to the functions to call instead of them."""
    # Subclasses, and layers that were quantized or have adapters, compute something else.
    if getattr(layer, "quantization_mode", None) or getattr(layer, "lora_enabled", False):
        return {}
    if type(layer) is keras.layers.Dense:
        return {"call": lambda inputs, training=None: _dense(layer, inputs, parts)}
    if type(layer) is keras.layers.EinsumDense and layer.equation in EQUATIONS:
        axes = 1 + EQUATIONS.index(layer.equation)
        return {"call": lambda inputs, training=None: _dense(layer, inputs, parts, axes)}
    if type(layer) is keras.layers.LayerNormalization and _plain_norm(layer) and not xla:
        norm = _norm if parts.count == 1 else _norm_in_one
        return {"call": lambda inputs: norm(layer, inputs, parts)}
    if type(layer) is PositionalAttention:
        joinable = _joinable(layer)
        found = {"_penalties": _shaped(layer._penalties)}
        if len(joinable) > 1:
            found["_heads"] = Joint(layer, joinable, made, parts)
        return found if parts.count == 1 else {**found, "call": Attention(layer, parts)}
    if isinstance(layer, ResidualBlock) and parts.count > 1:
        return {"_add": lambda x, update, norm, training: _add(layer, x, update, norm, parts)}
    if type(layer) is MaskedLM and parts.count > 1:
        words = layer.words
        return {"words": lambda x: parts.map(words, x)}
    return {}


def _dense(layer, inputs, parts, axes=1):
    """A product over the last `axes` of the inputs and the first of the kernel, its bias and activation."""
    # Weights are read once for all parts.
    kernel = tf.convert_to_tensor(layer.kernel)
    bias = None if layer.bias is None else tf.reshape(tf.convert_to_tensor(layer.bias), (-1,))
    width, ends = math.prod(kernel.shape[:axes]), kernel.shape[axes:]
    kernel = tf.reshape(kernel, (width, -1))

    def product(part):
        found = tf.matmul(tf.reshape(part, (-1, width)), kernel)
        if bias is not None:
            found = tf.nn.bias_add(found, bias)
        if layer.activation is not None:
            found = layer.activation(found)
        if len(part.shape) == axes + 1:
            return tf.reshape(found, (-1, *ends))
        if len(part.shape) == axes + 2:
            return tf.reshape(found, (-1, parts.length(part), *ends))
        return tf.reshape(found, tf.concat([tf.shape(part)[:-axes], ends], axis=0))

    return parts.map(product, inputs)


class Joint:
    """The projections of a self-attention layer as one product.

    Takes the place of `PositionalAttention._heads`, which is asked for queries, keys and values one after the other:
    the first to be asked for brings the others.

    Args:
        layer: `PositionalAttention`.
        members: its projections, of one shape.
        made: dict for the variables made here.
        parts: `Parts`. Of a whole, the heads of its parts are put together.
    """

    def __init__(self, layer, members, made, parts):
        self.members, self.dtype, self.parts = members, layer.compute_dtype, parts
        self.found = {}  # the last inputs and their heads, by the ids of the inputs
        width = members[0].kernel.shape[0]
        # The columns are those of all queries, of all keys, of all values.
        kernels = [tf.reshape(member.kernel.value, (width, -1)) for member in members]
        self.kernel = tf.Variable(tf.concat(kernels, axis=1))
        made[f"{layer.path}/projections/kernel"] = self.kernel
        self.bias = None
        if members[0].bias is not None:
            self.bias = tf.Variable(tf.concat([tf.reshape(member.bias.value, (-1,)) for member in members], axis=0))
            made[f"{layer.path}/projections/bias"] = self.bias

    def __call__(self, dense, inputs):
        index = next(index for index, member in enumerate(self.members) if member is dense)
        cut = self.parts.known(inputs)
        if any(id(piece) not in self.found for piece in cut.pieces):
            weights = [None if each is None else tf.cast(each, self.dtype) for each in (self.kernel, self.bias)]
            self.found = {id(piece): (piece, tf.unstack(self._project(piece, *weights))) for piece in cut.pieces}
        return cut.together([self.found[id(piece)][1][index] for piece in cut.pieces], axis=2)

    def _project(self, inputs, kernel, bias):
        """`(parts, batch, heads, length, size)`."""
        width, heads, size = self.members[0].kernel.shape
        rows = tf.reshape(tf.cast(inputs, self.dtype), (-1, width))
        found = tf.matmul(rows, kernel)
        if bias is not None:
            found = tf.nn.bias_add(found, bias)
        length = self.parts.length(inputs)
        return tf.transpose(tf.reshape(found, (-1, length, len(self.members), heads, size)), (2, 0, 3, 1, 4))


def _joinable(layer):
    """The projections of an attention layer that can be one product: all of one shape."""
    parts = [part for part in (layer.query_dense, layer.key_dense, layer.value_dense) if part is not None]
    same = len({(tuple(part.kernel.shape), part.bias is None) for part in parts}) == 1
    return parts if same else []


def _plain_norm(layer):
    last = list(layer.axis) if isinstance(layer.axis, (list, tuple)) else [layer.axis]
    rms = getattr(layer, "rms_scaling", False)
    return last in ([-1], [2]) and layer.scale and layer.center and not rms and layer.compute_dtype == "float32"


def _norm(layer, inputs, parts):
    def normalised(part):
        centred = part - tf.reduce_mean(part, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
        scaled = centred * tf.math.rsqrt(variance + layer.epsilon) * tf.convert_to_tensor(layer.gamma)
        return tf.nn.bias_add(scaled, tf.convert_to_tensor(layer.beta))

    return parts.map(normalised, inputs)


def _norm_in_one(layer, inputs, parts):
    gamma, beta = tf.convert_to_tensor(layer.gamma), tf.convert_to_tensor(layer.beta)

    def normalised(part):
        shape, nothing = tf.shape(part), tf.constant([], tf.float32)
        rows = tf.reduce_prod(shape[:-1])
        found = tf.raw_ops.FusedBatchNormV3(
            x=tf.reshape(part, (1, rows, part.shape[-1], 1)),
            scale=tf.fill([rows], 1.0),
            offset=tf.fill([rows], 0.0),
            mean=nothing,
            variance=nothing,
            epsilon=layer.epsilon,
            data_format="NCHW",
            is_training=True,
        )
        return tf.reshape(found.y, shape) * gamma + beta

    return parts.map(normalised, inputs)


def _add(block, x, update, norm, parts):
    """The residual connection; nothing is dropped out in inference."""
    total = parts.map(tf.add, x, update)
    return total if block.norm_first else norm(total)


def _shaped(penalties):
    return lambda mask: tf.ensure_shape(penalties(mask), mask.shape)
