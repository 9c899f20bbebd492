"""Classes of texts and of pairs of texts, or scores: GLUE, XNLI, acceptability."""

import numpy as np
import tensorflow as tf

from training.engine.pipeline import batches_of, check_group, eval_batches
from training.tasks.base import Task
from training.tasks.padding import cut_to_longest


class Classify(Task):
    """Fine-tunes (or trains) a `Classifier`.

    Args:
        source: a `ModelSource`.
        train: `Classification`, or `None` to evaluate only.
        evaluations: dict of names to `Classification`.
        metrics: function of predictions and labels to a dict of figures.
        primary: which of them, prefixed by the name of a set (`"dev/accuracy"`), chooses the best checkpoint.
        batch: global number of examples of a step.
        max_length: tokens of an example; longer ones are cut.
        static: whether all batches have `max_length` tokens, as a TPU wants. Otherwise they are cut to their longest
            example.
        seed: of the order of examples.
        group: number of neighbouring training examples that stay in one batch, such as minimal pairs.
        by_length: whether batches are of examples of similar lengths: less padding, but less alike to each other. Not
            with `static`.
        about: dict, what else tells this run from others, such as its files.
    """

    def __init__(
        self,
        source,
        train,
        evaluations,
        metrics,
        primary,
        batch,
        max_length=128,
        static=False,
        seed=0,
        group=1,
        by_length=False,
        about=None,
    ):
        self.source, self.measure, self.primary = source, metrics, primary
        self.batch, self.max_length, self.static, self.seed = batch, max_length, static, seed
        self.group, self.by_length, self.about = group, by_length and not static, dict(about or {})
        if train is not None:
            check_group(group, batch, len(train))
        some = train if train is not None else next(iter(evaluations.values()))
        self.label_names = some.label_names
        self.name = "regress" if self.label_names is None else "classify"
        given = {**({} if train is None else {"train": train}), **evaluations}
        self.digests = {name: data.digest() for name, data in given.items()}
        self.train = None if train is None else self._encoded(train)
        self.evaluations = {name: self._encoded(data) for name, data in evaluations.items()}

    def _encoded(self, data):
        encoded = self.source.tokenizer.encode(data.texts, self.max_length)
        short = self.max_length - encoded["token_ids"].shape[1]
        if short > 0:
            fill = {"token_ids": self.source.tokenizer.pad_id or 0}
            encoded = {
                name: np.pad(value, ((0, 0), (0, short)), constant_values=fill.get(name, 0))
                for name, value in encoded.items()
            }
        kind = "float32" if self.label_names is None else "int32"
        labels = np.zeros(len(data), kind) if data.labels is None else data.labels.astype(kind)
        return {**encoded, "labels": labels}

    @property
    def num_examples(self):
        """Of the training set."""
        return 0 if self.train is None else len(self.train["labels"])

    def config(self):
        sizes = {name: len(data["labels"]) for name, data in self.evaluations.items()}
        return {
            **self.source.config(),
            **self.about,
            "examples": {"train": self.num_examples, **sizes},
            "data": self.digests,
            "label_names": self.label_names,
            "max_length": self.max_length,
            "static": self.static,
            **({"group": self.group} if self.group > 1 else {}),
            **({"by_length": True} if self.by_length else {}),
        }

    def build_model(self):
        if self.label_names is None:
            return self.source.build("regress", length=self.max_length)
        return self.source.build("classify", len(self.label_names), self.max_length)

    def train_data(self, start_step, pipeline=None):
        lengths = self.train["padding_mask"].sum(axis=1) if self.by_length else None
        more = dict(lengths=lengths, pipeline=pipeline, group=self.group)
        made = batches_of(self.train, self.batch, self.seed, start_step, **more)
        return made if self.static else made.map(cut_to_longest)

    def eval_data(self):
        made = {name: eval_batches(data, self.batch) for name, data in self.evaluations.items()}
        return made if self.static else {name: data.map(cut_to_longest) for name, data in made.items()}

    def _logits(self, model, batch, training):
        inputs = {name: batch[name] for name in ("token_ids", "segment_ids", "padding_mask")}
        return model(inputs, training=training)["logits"]

    def loss(self, model, batch, training):
        logits, labels = self._logits(model, batch, training), batch["labels"]
        count = tf.cast(tf.shape(labels)[0], "float32")
        if self.label_names is None:
            losses = tf.square(logits[:, 0] - labels)
            return tf.reduce_sum(losses), count, {}
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        right = tf.cast(tf.argmax(logits, -1, output_type="int32") == labels, "float32")
        return tf.reduce_sum(losses), count, {"accuracy": (tf.reduce_sum(right), count)}

    def predict(self, model, batch):
        logits = self._logits(model, batch, training=False)
        predictions = logits[:, 0] if self.label_names is None else tf.argmax(logits, -1, output_type="int32")
        return {"predictions": predictions, "labels": batch["labels"]}

    def metrics(self, name, outputs):
        return self.measure(outputs["predictions"], outputs["labels"])
