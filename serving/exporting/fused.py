"""Layers in the form that runs fastest as a graph, while a model is traced for export.

- Keras multiplies `(batch, length, width)` by a kernel with `tensordot` or `einsum`. In a graph that is a product
  between reshapes, or an operation that reshapes by itself, and TensorFlow's optimizer (grappler's remapper) does not
  join it with the addition of the bias or with the activation behind it. Here the rows of all sequences are one matrix:
  `MatMul`, `BiasAdd` and gelu next to each other become one operation of the processor's library.
- Queries, keys and values of self-attention are one product, with the three kernels side by side, so that the
  activations are read once.
- Layer normalisation subtracts the mean first and scales rows before columns: three passes over the activations fewer
  than Keras' form, which is made for training. (The processor's library has it as one operation, which the remapper
  finds in another form. With 128 rows that took longer than the single ones.)
- The shape of what hides padding is stated, and the remapper joins its addition with the product of queries and keys.

A runtime that has no such operations computes the same from the single ones.

Results are the same but for rounding, and layers are as they were after the `with` statement.
"""

import contextlib
import math

import keras
import tensorflow as tf

from keras_posenc.layers.attention import PositionalAttention

EQUATIONS = ("abc,cde->abde", "abcd,cde->abe")  # of the projections to heads and back


@contextlib.contextmanager
def fused(model):
    """The model with the layers that this module knows in that form.

    Yields: dict of the variables that were made of several weights, by name.
    """
    changed, made = [], {}
    try:
        for layer in model._flatten_layers():
            for name, replacement in _replacements(layer, made).items():
                setattr(layer, name, replacement)
                changed.append((layer, name))
        yield made
    finally:
        for layer, name in changed:
            delattr(layer, name)


def _replacements(layer, made):
    """Dict from names of methods to the functions to call instead of them."""
    # Subclasses, and layers that were quantized or have adapters, compute something else.
    if getattr(layer, "quantization_mode", None) or getattr(layer, "lora_enabled", False):
        return {}
    if type(layer) is keras.layers.Dense:
        return {"call": lambda inputs, training=None: _dense(layer, inputs)}
    if type(layer) is keras.layers.EinsumDense and layer.equation in EQUATIONS:
        return {"call": lambda inputs, training=None: _dense(layer, inputs, 1 + EQUATIONS.index(layer.equation))}
    if type(layer) is keras.layers.LayerNormalization and _plain_norm(layer):
        return {"call": lambda inputs: _norm(layer, inputs)}
    if type(layer) is PositionalAttention:
        parts = _joinable(layer)
        joint = {"_heads": Joint(layer, parts, made)} if len(parts) > 1 else {}
        return {**joint, "_penalties": _shaped(layer._penalties)}
    return {}


def _dense(layer, inputs, axes=1):
    """A product over the last `axes` of the inputs and the first of the kernel, its bias and activation."""
    kernel = tf.convert_to_tensor(layer.kernel)
    width, ends = math.prod(kernel.shape[:axes]), kernel.shape[axes:]
    found = tf.matmul(tf.reshape(inputs, (-1, width)), tf.reshape(kernel, (width, -1)))
    if layer.bias is not None:
        found = tf.nn.bias_add(found, tf.reshape(tf.convert_to_tensor(layer.bias), (-1,)))
    if layer.activation is not None:
        found = layer.activation(found)
    if len(inputs.shape) == axes + 1:
        return tf.reshape(found, (-1, *ends))
    return tf.reshape(found, tf.concat([tf.shape(inputs)[:-axes], ends], axis=0))


class Joint:
    """The projections of a self-attention layer as one product.

    Takes the place of `PositionalAttention._heads`, which is asked for queries, keys and values one after the other:
    the first to be asked for brings the others.

    Args:
        layer: `PositionalAttention`.
        parts: its projections, of one shape.
        made: dict for the variables made here.
    """

    def __init__(self, layer, parts, made):
        self.parts, self.dtype = parts, layer.compute_dtype
        self.inputs, self.found = None, None
        width = parts[0].kernel.shape[0]
        # The columns are those of all queries, of all keys, of all values.
        self.kernel = tf.Variable(tf.concat([tf.reshape(part.kernel.value, (width, -1)) for part in parts], axis=1))
        made[f"{layer.path}/projections/kernel"] = self.kernel
        self.bias = None
        if parts[0].bias is not None:
            self.bias = tf.Variable(tf.concat([tf.reshape(part.bias.value, (-1,)) for part in parts], axis=0))
            made[f"{layer.path}/projections/bias"] = self.bias

    def __call__(self, dense, inputs):
        if inputs is not self.inputs:
            self.inputs, self.found = inputs, tf.unstack(self._project(inputs), len(self.parts))
        return next(found for part, found in zip(self.parts, self.found) if part is dense)

    def _project(self, inputs):
        """`(parts, batch, heads, length, size)`."""
        width, heads, size = self.parts[0].kernel.shape
        rows = tf.reshape(tf.cast(inputs, self.dtype), (-1, width))
        found = tf.matmul(rows, tf.cast(self.kernel, self.dtype))
        if self.bias is not None:
            found = tf.nn.bias_add(found, tf.cast(self.bias, self.dtype))
        shape = tf.shape(inputs)
        return tf.transpose(tf.reshape(found, (shape[0], shape[1], len(self.parts), heads, size)), (2, 0, 3, 1, 4))


def _joinable(layer):
    """The projections of an attention layer that can be one product: all of one shape."""
    parts = [part for part in (layer.query_dense, layer.key_dense, layer.value_dense) if part is not None]
    same = len({(tuple(part.kernel.shape), part.bias is None) for part in parts}) == 1
    return parts if same else []


def _plain_norm(layer):
    last = list(layer.axis) if isinstance(layer.axis, (list, tuple)) else [layer.axis]
    rms = getattr(layer, "rms_scaling", False)
    return last in ([-1], [2]) and layer.scale and layer.center and not rms and layer.compute_dtype == "float32"


def _norm(layer, inputs):
    centred = inputs - tf.reduce_mean(inputs, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
    scaled = centred * tf.math.rsqrt(variance + layer.epsilon) * tf.convert_to_tensor(layer.gamma)
    return tf.nn.bias_add(scaled, tf.convert_to_tensor(layer.beta))


def _shaped(penalties):
    return lambda mask: tf.ensure_shape(penalties(mask), mask.shape)
