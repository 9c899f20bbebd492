"""The models whose time is measured, and their compiled steps."""

from dataclasses import dataclass

import keras
import numpy as np

from keras_posenc import encodings
from keras_posenc.layers import TransformerEncoder

MODES = ("graph", "xla")
NUM_KEYS = 32  # compressed keys of a Linformer, for encodings that score those


@dataclass(frozen=True)
class Size:
    """Sizes of a BERT: layers, width, heads, width of the feed-forward networks, tokens, positions in the tables."""

    label: str
    num_layers: int
    hidden_dim: int
    num_heads: int
    intermediate_dim: int
    vocabulary: int = 30522
    max_length: int = 512


SIZES = {
    "base": Size("BERT_BASE", 12, 768, 12, 3072),
    "small": Size("BERT_SMALL", 4, 512, 8, 2048),
}


def build(size, position, length, sharing="none"):
    """Token embeddings and an encoder with this position encoding, a Keras model from `(batch, length)` ids."""
    compresses = any(getattr(encodings.get_class(name), "compresses_keys", False) for name in encodings.parse(position))
    tokens = keras.Input((length,), dtype="int32")
    x = keras.layers.Embedding(size.vocabulary, size.hidden_dim)(tokens)
    encoder = TransformerEncoder(
        size.num_layers,
        size.num_heads,
        size.hidden_dim,
        size.intermediate_dim,
        position=position,
        sharing=sharing,
        max_length=size.max_length,
        num_keys=NUM_KEYS if compresses else None,
    )
    return keras.Model(tokens, encoder(x))


def token_ids(size, batch, length, seed=0):
    return np.random.default_rng(seed).integers(0, size.vocabulary, (batch, length)).astype("int32")


def forward(model, tokens, mode):
    """A function of no arguments that runs the model on `tokens` and waits for the result."""
    import tensorflow as tf

    return _compiled(lambda ids: model(ids, training=False), tf.constant(tokens), mode)


def training_step(model, tokens, mode, seed=0):
    """A function of no arguments: forward, backward and one AdamW update, in one compiled function.

    The loss is the squared distance to fixed random targets. A masked-LM head would cost the same for every encoding
    and hide the differences; without targets, the normalised outputs would have no gradient.
    """
    import tensorflow as tf

    targets = tf.constant(np.random.default_rng(seed).normal(size=model.output_shape[1:]).astype("float32"))
    optimizer = keras.optimizers.AdamW(1e-4)
    optimizer.build(model.trainable_variables)

    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(ids, training=True) - targets))
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    return _compiled(step, tf.constant(tokens), mode)


def _compiled(function, tokens, mode):
    import tensorflow as tf

    run = tf.function(function, jit_compile=mode == "xla", autograph=False).get_concrete_function(tokens)
    return lambda: run(tokens).numpy()
