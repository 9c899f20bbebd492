"""What the blocks of encoders and decoders have in common."""

import keras

from keras_posenc.layers import masking
from keras_posenc.utils import checks, initializers
from keras_posenc.utils.outputs import TracedOutputs


class ResidualBlock(TracedOutputs, keras.layers.Layer):
    """Sizes, a feed-forward network, and residual connections with layer normalisation; attention is a subclass's.

    Args: those of `TransformerBlock`.
    """

    def __init__(
        self,
        num_heads,
        intermediate_dim,
        hidden_dim,
        activation,
        dropout,
        attention_dropout,
        norm_first,
        epsilon,
        kernel_initializer,
        **kwargs,
    ):
        # A bias that is given stays float32; `_cast` is for the other inputs.
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True
        name = type(self).__name__
        self.num_heads, self.hidden_dim = checks.heads(name, num_heads, hidden_dim)
        self.intermediate_dim = checks.positive_int(name, "intermediate_dim", intermediate_dim)
        self.activation = keras.activations.get(activation)
        self.dropout = dropout
        self.attention_dropout = dropout if attention_dropout is None else attention_dropout
        self.norm_first, self.epsilon = bool(norm_first), epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy) if dropout else None

    def _cast(self, x):
        """`x` as Keras would cast it, with its mask."""
        if x is None or keras.backend.standardize_dtype(x.dtype) == self.compute_dtype:
            return x
        return masking.with_implicit(self.dtype_policy.convert_input(x, True, self.compute_dtype), masking.implicit(x))

    def _make_feed_forward(self):
        """Called by subclasses after they have made their attention, so that weights are in the order of their use."""
        self.intermediate = self._dense("intermediate", self.intermediate_dim, self.activation)
        self.output_dense = self._dense("output", self.hidden_dim)

    def _dense(self, name, width, activation=None):
        return keras.layers.Dense(
            width, activation, kernel_initializer=self._initializer(name), dtype=self.dtype_policy, name=name
        )

    def _norm(self, name):
        return keras.layers.LayerNormalization(epsilon=self.epsilon, dtype=self.dtype_policy, name=name)

    def _initializer(self, name):
        return initializers.copy_for(name, self.kernel_initializer)

    def _build_feed_forward(self, inputs_shape):
        self.intermediate.build(inputs_shape)
        self.output_dense.build(tuple(inputs_shape[:-1]) + (self.intermediate_dim,))
        self.output_norm.build(inputs_shape)

    def _feed_forward(self, x, training):
        hidden = self.intermediate(self.output_norm(x) if self.norm_first else x)
        return self._add(x, self.output_dense(hidden), self.output_norm, training)

    def _add(self, x, update, norm, training):
        """The residual connection, normalised after it unless the input of the part was."""
        if self.dropout_layer is not None:
            update = self.dropout_layer(update, training=training)
        return x + update if self.norm_first else norm(x + update)

    def compute_output_shape(self, inputs_shape, memory_shape=None):
        return tuple(inputs_shape)

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "hidden_dim": self.hidden_dim,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "norm_first": self.norm_first,
            "epsilon": self.epsilon,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
