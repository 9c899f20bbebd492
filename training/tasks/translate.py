"""Translation: an encoder-decoder trained on parallel text, and its search."""

import numpy as np
import tensorflow as tf

from keras_posenc import models
from training.engine.pipeline import batches_of, eval_batches
from training.tasks.base import Task
from training.tasks.padding import cut_to_longest

SOURCE, TARGET = ("token_ids", "padding_mask"), ("target_ids", "labels", "target_padding_mask")


class Translate(Task):
    """Trains an `EncoderDecoder`.

    Args:
        tokenizer: a `training.tokenizers.JointTokenizer`.
        train: `Parallel`, or `None` to translate only.
        evaluations: dict of names to `Parallel`.
        preset: named size of the model.
        position: encodings of all self-attentions.
        options: further arguments of the model.
        batch: global number of pairs of a step.
        max_length: tokens of a sentence; longer pairs are left out of training and cut in evaluation.
        label_smoothing: probability that is spread over all tokens.
        static: whether all batches have `max_length` tokens.
        seed: of the order of pairs.
    """

    name, primary = "translate", "dev/accuracy"

    def __init__(
        self,
        tokenizer,
        train,
        evaluations,
        preset,
        position="sinusoidal",
        options=None,
        batch=64,
        max_length=64,
        label_smoothing=0.1,
        static=False,
        seed=0,
    ):
        self.tokenizer, self.preset, self.position, self.options = tokenizer, preset, position, dict(options or {})
        self.batch, self.max_length, self.static, self.seed = batch, max_length, static, seed
        self.label_smoothing = label_smoothing
        self.train, self.left_out = (None, 0) if train is None else self._training(train)
        self.evaluations = {name: self._encoded(data)[0] for name, data in evaluations.items()}

    def _encoded(self, data):
        source = [ids[: self.max_length - 1] for ids in self.tokenizer.tokenize(data.source)]
        target = [ids[: self.max_length - 1] for ids in self.tokenizer.tokenize(data.target)]
        bos, eos = self.tokenizer.bos_id, self.tokenizer.eos_id
        made = {name: np.zeros((len(data), self.max_length), "int32") for name in (*SOURCE, *TARGET)}
        for row, (one, other) in enumerate(zip(source, target)):
            made["token_ids"][row, : len(one) + 1] = [*one, eos]
            made["padding_mask"][row, : len(one) + 1] = 1
            made["target_ids"][row, : len(other) + 1] = [bos, *other]
            made["labels"][row, : len(other) + 1] = [*other, eos]
            made["target_padding_mask"][row, : len(other) + 1] = 1
        return made, source, target

    def _training(self, data):
        """Encoded pairs, without those that are too long: half a translation teaches to stop in the middle."""
        sizes = [
            max(len(one), len(other)) < self.max_length
            for one, other in zip(self.tokenizer.tokenize(data.source), self.tokenizer.tokenize(data.target))
        ]
        encoded, _, _ = self._encoded(data)
        kept = np.array(sizes)
        if not kept.any():
            raise ValueError(f"No pair of the training set has fewer than {self.max_length} tokens on both sides.")
        return {name: value[kept] for name, value in encoded.items()}, int((~kept).sum())

    @property
    def num_examples(self):
        return 0 if self.train is None else len(self.train["labels"])

    def config(self):
        return {
            "preset": self.preset,
            "position": self.position,
            "options": self.options,
            "vocabulary": self.tokenizer.size,
            "pairs": self.num_examples,
            "max_length": self.max_length,
            "label_smoothing": self.label_smoothing,
            "static": self.static,
        }

    def build_model(self):
        vocabulary = dict(vocab_size=self.tokenizer.size, max_length=self.max_length, pad_id=self.tokenizer.pad_id)
        return models.build(self.preset, position=self.position, **{**vocabulary, **self.options})

    def train_data(self, start_step, pipeline=None):
        lengths = None if self.static else self.train["padding_mask"].sum(1) + self.train["target_padding_mask"].sum(1)
        made = batches_of(self.train, self.batch, self.seed, start_step, lengths=lengths, pipeline=pipeline)
        return made if self.static else made.map(_cut)

    def eval_data(self):
        made = {name: eval_batches(data, self.batch) for name, data in self.evaluations.items()}
        return made if self.static else {name: data.map(_cut) for name, data in made.items()}

    def _losses(self, model, batch, training):
        inputs = {name: batch[name] for name in (*SOURCE, "target_ids", "target_padding_mask")}
        logits, labels = model(inputs, training=training)["logits"], batch["labels"]
        plain = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        right = tf.cast(tf.argmax(logits, -1, output_type="int32") == labels, "float32")
        return plain, self._smoothed(plain, logits), right, tf.cast(batch["target_padding_mask"], "float32")

    def _smoothed(self, plain, logits):
        """`(1 - s) CE(label) + s mean CE(all tokens)`, without a matrix of smoothed labels."""
        if not self.label_smoothing:
            return plain
        uniform = tf.reduce_logsumexp(logits, axis=-1) - tf.reduce_mean(logits, axis=-1)
        return (1 - self.label_smoothing) * plain + self.label_smoothing * uniform

    def loss(self, model, batch, training):
        plain, smoothed, right, weights = self._losses(model, batch, training)
        count = tf.reduce_sum(weights)
        sums = {"accuracy": right, "cross_entropy": plain}
        return (
            tf.reduce_sum(smoothed * weights),
            count,
            {name: (tf.reduce_sum(value * weights), count) for name, value in sums.items()},
        )

    def predict(self, model, batch):
        plain, _, right, weights = self._losses(model, batch, training=False)
        sums = {"loss": plain * weights, "right": right * weights, "count": weights}
        return {name: tf.reduce_sum(value, axis=1) for name, value in sums.items()}

    def metrics(self, name, outputs):
        count = outputs["count"].sum()
        loss = float(outputs["loss"].sum() / count)
        return {"accuracy": float(outputs["right"].sum() / count), "loss": loss, "perplexity": float(np.exp(loss))}


def _cut(batch):
    return cut_to_longest(cut_to_longest(batch, SOURCE), TARGET, "target_padding_mask")
