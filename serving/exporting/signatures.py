"""The functions of an exported model, each with a graph of its own, so that none pays for the others.

| signature | takes | returns |
|---|---|---|
| `serving_default` | `token_ids`, `segment_ids`, `padding_mask` | `logits` |
| `attention` | the same | `logits`, `attention` |
| `effective_attention` | the same | `logits`, `attention`, `effective_attention` |
| `layer_attention` | also `layer` `(batch,)` | the same, of one layer for each row |
| `text` | `text`, `text_pair` `(batch,)` strings | `logits`, `token_ids`, `segment_ids`, `padding_mask`, `tokens` |
| `embeddings` | as `serving_default` | `sequence_output`, `pooled_output`; of models without a head only |

Inputs are int32 `(batch, length)`. Outputs begin with the batch and are float32 (ids int32, tokens strings); maps are
`(batch, layers, heads, length, length)`, without `layers` where one was asked for. In a Linformer the last axis of the
maps are its compressed keys.

What `logits` are is up to the head: see `meaning`.
"""

import keras
import tensorflow as tf
from keras import ops

from keras_posenc.analysis.effective import effective_attention
from keras_posenc.checkpoints.tasks import task_of
from serving.exporting import requests
from serving.exporting.parts import Parts

INPUTS = ("token_ids", "segment_ids", "padding_mask")
NAMES = ("serving_default", "attention", "effective_attention", "layer_attention", "text", "embeddings")
MEANING = {
    "masked_lm": "(batch, length, vocabulary): the token at each place",
    "classify": "(batch, classes): one class for each row",
    "regress": "(batch, 1): a number for each row",
    "span": "(batch, length, 2): where the answer starts, and where it ends",
    "token_classify": "(batch, length, classes): one class for each token",
}


def meaning(model):
    """What the `logits` of a model are, in words."""
    task = task_of(model)
    if task is not None:
        return MEANING[task]
    if model.pooler is not None:
        return "(batch, width): no head, so the pooled output of the first token"
    return "(batch, length, width): neither head nor pooler, so the output of the last layer"


def logits_of(outputs):
    """One tensor for every task, float32 and batch first."""
    if "start_logits" in outputs:
        found = tf.stack([outputs["start_logits"], outputs["end_logits"]], axis=-1)
    else:
        found = next(outputs[name] for name in ("logits", "pooled_output", "sequence_output") if name in outputs)
    return tf.cast(found, tf.float32)


class Signatures:
    """Makes the functions.

    Args:
        model: a `Bert` or a head around one.
        max_length: largest number of tokens of a request.
        text_encoder: a `texts.TextEncoder` for the signature `text`, or `None`.
        xla: whether what the model computes is compiled by XLA, for each shape when it first comes. Checks and
            tokenizers are not.
        wanted: names of signatures to make; all that the model can have by default.
        parts: `Parts`; whole by default.
    """

    def __init__(self, model, max_length, text_encoder=None, xla=False, wanted=None, parts=None):
        self.model, self.max_length, self.text_encoder = model, max_length, text_encoder
        self.parts = Parts() if parts is None else parts
        self.backbone = getattr(model, "backbone", model)
        self.encoder = self.backbone.encoder
        self.xla = xla
        possible = [name for name in NAMES if self._possible(name)]
        self.names = list(possible if wanted is None else dict.fromkeys(["serving_default", *wanted]))
        unknown = [name for name in self.names if name not in possible]
        if unknown:
            hint = "" if text_encoder else " 'text' needs a tokenizer."
            raise ValueError(
                f"This model cannot have the signatures {', '.join(unknown)}. Possible: {', '.join(possible)}.{hint}"
            )

    def _possible(self, name):
        if name == "text":
            return self.text_encoder is not None
        return name != "embeddings" or self.model is self.backbone

    def concrete(self):
        """A dict from names to concrete functions."""
        return {name: getattr(self, f"_{name}")().get_concrete_function() for name in self.names}

    # The signatures. Each is a function whose arguments are named as the inputs.

    def _serving_default(self):
        return self._from_ids(lambda inputs: {"logits": logits_of(self._call(inputs))})

    def _embeddings(self):
        return self._from_ids(
            lambda inputs: {name: tf.cast(found, tf.float32) for name, found in self._call(inputs).items()}
        )

    def _attention(self):
        def compute(inputs):
            found = self._call(inputs, intermediates=True)
            return {"logits": logits_of(found), "attention": _stacked(found["attention"])}

        return self._from_ids(compute)

    def _effective_attention(self):
        def compute(inputs):
            found = self._call(inputs, intermediates=True)
            layers = zip(found["attention"], found["values"])
            effective = [effective_attention(*layer, self._key_mask(inputs)) for layer in layers]
            return {
                "logits": logits_of(found),
                "attention": _stacked(found["attention"]),
                "effective_attention": _stacked(effective),
            }

        return self._from_ids(compute)

    def _layer_attention(self):
        def compute(inputs, layer):
            found = self._call(inputs, intermediates=True)
            # One layer for each row: the decomposition is of that layer only.
            attention, values = (
                tf.gather(_stacked(found[name]), layer, axis=1, batch_dims=1) for name in ("attention", "values")
            )
            effective = effective_attention(attention, values, self._key_mask(inputs))
            return {"logits": logits_of(found), "attention": attention, "effective_attention": effective}

        compute = self._compiled(compute)

        def layer_attention(token_ids, segment_ids, padding_mask, layer):
            inputs = self._checked(token_ids, segment_ids, padding_mask)
            layer = requests.checked_layer(layer, tf.shape(token_ids)[0], self.encoder.num_layers)
            return compute(inputs, layer)

        return _function(layer_attention, [*_ids(), tf.TensorSpec((None,), tf.int32, name="layer")])

    def _text(self):
        compute = self._compiled(lambda inputs: {"logits": logits_of(self._call(inputs))})

        def text_signature(text, text_pair):
            sizes = tf.size(text_pair), tf.size(text)
            message = "text_pair has a string, perhaps an empty one, for each text. Received:"
            same = tf.debugging.Assert(sizes[0] == sizes[1], [message, *sizes])
            found = self.text_encoder(**requests.after([same], {"text": text, "text_pair": text_pair}))
            return {**compute(self._checked(*(found[name] for name in INPUTS))), **found}

        specs = [tf.TensorSpec((None,), tf.string, name=name) for name in ("text", "text_pair")]
        return _function(text_signature, specs)

    # What they are made of.

    def _from_ids(self, compute):
        compute = self._compiled(compute)

        def from_ids(token_ids, segment_ids, padding_mask):
            return compute(self._checked(token_ids, segment_ids, padding_mask))

        return _function(from_ids, _ids())

    def _checked(self, *values):
        inputs = dict(zip(INPUTS, values))
        segments = None if self.backbone.segments == "none" else self.backbone.num_segments
        return requests.checked(inputs, self.max_length, self.backbone.vocab_size, segments)

    def _compiled(self, compute):
        compute = self.parts.by_texts(compute)
        return tf.function(compute, jit_compile=True, autograph=False) if self.xla else compute

    def _call(self, inputs, intermediates=False):
        return self.model(inputs, return_intermediates=intermediates, training=False)

    def _key_mask(self, inputs):
        """Compressed keys of a Linformer are no tokens, so none of them is padding."""
        return inputs["padding_mask"] if self.encoder.num_keys is None else None


def _stacked(layers):
    """`(batch, layers, ...)`, float32."""
    return tf.cast(ops.stack(layers, axis=1), tf.float32)


def _ids():
    return [tf.TensorSpec((None, None), tf.int32, name=name) for name in INPUTS]


def _function(function, signature):
    return tf.function(function, input_signature=signature, autograph=False)


def check_backend():
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"SavedModels are exported with Keras on TensorFlow. Received: KERAS_BACKEND={keras.backend.backend()}"
        )
