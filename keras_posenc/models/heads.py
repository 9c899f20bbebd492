"""What a backbone is trained for: each task is a model around a `Bert`, from a dict to a dict."""

import keras
from keras import ops

from keras_posenc.encodings.registry import PACKAGE
from keras_posenc.layers.masking import NEGATIVE
from keras_posenc.models.base import INPUTS, PositionalModel, initializer, read_inputs
from keras_posenc.utils import checks


class Head(PositionalModel):
    """Base class: a backbone and what follows it. Logits are float32 under every dtype policy.

    With `return_intermediates=True` the dict of outputs also has the backbone's `hidden_states`, `attention` and
    `values`.
    """

    more_inputs = ()

    def __init__(self, backbone, **kwargs):
        kwargs.setdefault("dtype", backbone.dtype_policy)
        super().__init__(**kwargs)
        self.backbone = backbone

    def build(self, input_shape=None):
        if self.built:
            return
        self.backbone.build()
        self.build_head()
        self.built = True

    def call(self, inputs, return_intermediates=False, training=None):
        inputs = read_inputs(type(self).__name__, inputs, self.more_inputs)
        own = {name: inputs[name] for name in INPUTS}
        found = self.backbone(own, return_intermediates=return_intermediates, training=training)
        outputs = self.head(found, inputs, training)
        kept = ("hidden_states", "attention", "values") if return_intermediates else ()
        return {**outputs, **{name: found[name] for name in kept}}

    def build_head(self):
        """Creates the weights that follow the backbone."""
        raise NotImplementedError

    def head(self, found, inputs, training):
        """A dict of outputs, from those of the backbone."""
        raise NotImplementedError

    def _dense(self, units, name, activation=None):
        return keras.layers.Dense(
            units,
            activation=activation,
            kernel_initializer=initializer(self.backbone.initializer_range),
            dtype=self.dtype_policy,
            name=name,
        )

    def get_config(self):
        return {**super().get_config(), "backbone": keras.saving.serialize_keras_object(self.backbone)}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        backbone = keras.saving.deserialize_keras_object(config["backbone"], custom_objects=custom_objects)
        return super().from_config({**config, "backbone": backbone})


@keras.saving.register_keras_serializable(package=PACKAGE)
class MaskedLM(Head):
    """Masked language model: `logits = norm(act(h W + b)) E^T + c`, with `E` the token embeddings.

    Args:
        backbone: a `Bert`.

    Call arguments:
        inputs: those of the backbone, and `masked_positions`, int32 `(batch, predictions)`, to compute the logits at
            these positions only.

    Returns: `{"logits": (batch, length or predictions, vocab_size)}`.
    """

    more_inputs = ("masked_positions",)

    def __init__(self, backbone, **kwargs):
        super().__init__(backbone, **kwargs)
        self.transform = self._dense(backbone.embedding_width, "transform", backbone.encoder.activation)
        self.norm = keras.layers.LayerNormalization(
            epsilon=backbone.encoder.epsilon, dtype=self.dtype_policy, name="norm"
        )

    def build_head(self):
        self.transform.build((None, None, self.backbone.hidden_dim))
        self.norm.build((None, None, self.backbone.embedding_width))
        self.decoder_bias = self.add_weight(name="decoder_bias", shape=(self.backbone.vocab_size,), initializer="zeros")

    def head(self, found, inputs, training):
        x = found["sequence_output"]
        if inputs["masked_positions"] is not None:
            x = ops.take_along_axis(x, ops.expand_dims(inputs["masked_positions"], -1), axis=1)
        return {"logits": self.words(self.norm(self.transform(x)))}

    def words(self, x):
        """Logits of all tokens of the vocabulary, from vectors like the embeddings'."""
        embeddings = ops.cast(self.backbone.token_embedding.embeddings, x.dtype)
        logits = ops.matmul(x, ops.transpose(embeddings))
        return ops.cast(logits, "float32") + ops.cast(self.decoder_bias, "float32")


class _Output(Head):
    """A head that is dropout and one dense layer."""

    def __init__(self, backbone, units, dropout=None, **kwargs):
        super().__init__(backbone, **kwargs)
        self.dropout = backbone.encoder.dropout if dropout is None else dropout
        self.dropout_layer = keras.layers.Dropout(self.dropout, dtype=self.dtype_policy)
        self.output_dense = self._dense(units, "logits")

    def build_head(self):
        self.output_dense.build((None, self.backbone.hidden_dim))

    def _logits(self, x, training):
        return ops.cast(self.output_dense(self.dropout_layer(x, training=training)), "float32")

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout}


@keras.saving.register_keras_serializable(package=PACKAGE)
class Classifier(_Output):
    """A class for each input, or with one class a number (regression), from the pooled first token.

    Args:
        backbone: a `Bert` with a pooler.
        num_classes: number of classes; 1 for regression.
        dropout: before the last layer, that of the backbone by default.

    Returns: `{"logits": (batch, num_classes)}`.
    """

    def __init__(self, backbone, num_classes, dropout=None, **kwargs):
        if backbone.pooler is None:
            raise ValueError("Classifier reads the pooled output. Construct the backbone with pooler=True.")
        checks.positive_int("Classifier", "num_classes", num_classes)
        super().__init__(backbone, num_classes, dropout, **kwargs)
        self.num_classes = num_classes

    def head(self, found, inputs, training):
        return {"logits": self._logits(found["pooled_output"], training)}

    def get_config(self):
        return {**super().get_config(), "num_classes": self.num_classes}


@keras.saving.register_keras_serializable(package=PACKAGE)
class TokenClassifier(_Output):
    """A class for each token, e.g. for named entities.

    Args:
        backbone: a `Bert`.
        num_classes: number of classes.
        dropout: before the last layer, that of the backbone by default.

    Returns: `{"logits": (batch, length, num_classes)}`.
    """

    def __init__(self, backbone, num_classes, dropout=None, **kwargs):
        checks.positive_int("TokenClassifier", "num_classes", num_classes)
        super().__init__(backbone, num_classes, dropout, **kwargs)
        self.num_classes = num_classes

    def head(self, found, inputs, training):
        return {"logits": self._logits(found["sequence_output"], training)}

    def get_config(self):
        return {**super().get_config(), "num_classes": self.num_classes}


@keras.saving.register_keras_serializable(package=PACKAGE)
class SpanPredictor(_Output):
    """Where an answer starts and ends in the input (SQuAD). Padding cannot be chosen.

    Args:
        backbone: a `Bert`.
        dropout: before the last layer, 0 by default as in BERT.

    Returns: `{"start_logits": (batch, length), "end_logits": (batch, length)}`.
    """

    def __init__(self, backbone, dropout=0.0, **kwargs):
        super().__init__(backbone, 2, dropout, **kwargs)

    def head(self, found, inputs, training):
        start, end = ops.unstack(self._logits(found["sequence_output"], training), 2, axis=-1)
        real = inputs["padding_mask"]
        if real is not None:
            start, end = ops.where(real, start, NEGATIVE), ops.where(real, end, NEGATIVE)
        return {"start_logits": start, "end_logits": end}
