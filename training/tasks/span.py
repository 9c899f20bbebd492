"""Questions whose answer is a span of a context: SQuAD and its relatives in other languages."""

import numpy as np
import tensorflow as tf

from training.data import windows
from training.engine.pipeline import batches_of, eval_batches
from training.metrics import squad
from training.tasks.base import Task
from training.tasks.padding import cut_to_longest

INPUTS = ("token_ids", "segment_ids", "padding_mask")


class Spans(Task):
    """Fine-tunes a `SpanPredictor`.

    Args:
        source: a `ModelSource`.
        train: list of `Question`, or `None` to evaluate only.
        evaluations: dict of names to lists of `Question`.
        languages: dict of names to the language of the set, for those that are scored by MLQA's rules; the others are
            by SQuAD's.
        batch: global number of windows of a step.
        max_length, stride: of windows of long contexts.
        static: whether all batches have `max_length` tokens.
        primary: which figure chooses the best checkpoint, that of the first set by default.
        seed: of the order of windows.
        about: dict, what else tells this run from others, such as its files.
    """

    name = "span"

    def __init__(
        self,
        source,
        train,
        evaluations,
        languages=None,
        batch=32,
        max_length=384,
        stride=128,
        static=False,
        primary=None,
        seed=0,
        about=None,
    ):
        self.source, self.batch, self.max_length, self.stride = source, batch, max_length, stride
        self.static, self.seed, self.about = static, seed, dict(about or {})
        self.primary = primary or (f"{next(iter(evaluations))}/f1" if evaluations else None)
        for name, questions in {**evaluations, "the training set": train or []}.items():
            check_answers(name, questions)
        self.questions, self.languages = evaluations, dict(languages or {})
        made = {name: self._windows(questions) for name, questions in evaluations.items()}
        self.windows = made
        self.train = None
        if train is not None:
            found = self._windows(train)
            self.train = {**found.inputs, "starts": found.starts, "ends": found.ends}

    def _windows(self, questions):
        # A question longer than a quarter of a window leaves too little room for its context.
        limit = max(1, min(64, self.max_length // 4))
        return windows.make(questions, self.source.tokenizer, self.max_length, self.stride, limit)

    @property
    def num_examples(self):
        return 0 if self.train is None else len(self.train["starts"])

    def config(self):
        return {
            **self.source.config(),
            **self.about,
            "windows": {"train": self.num_examples, **{name: len(found) for name, found in self.windows.items()}},
            "max_length": self.max_length,
            "stride": self.stride,
            "static": self.static,
        }

    def build_model(self):
        return self.source.build("span", length=self.max_length)

    def train_data(self, start_step, pipeline=None):
        lengths = None if self.static else self.train["padding_mask"].sum(axis=1)
        made = batches_of(self.train, self.batch, self.seed, start_step, lengths=lengths, pipeline=pipeline)
        return made if self.static else made.map(cut_to_longest)

    def eval_data(self):
        made = {name: eval_batches(found.inputs, self.batch) for name, found in self.windows.items()}
        return made if self.static else {name: data.map(cut_to_longest) for name, data in made.items()}

    def _logits(self, model, batch, training):
        found = model({name: batch[name] for name in INPUTS}, training=training)
        return found["start_logits"], found["end_logits"]

    def loss(self, model, batch, training):
        goals = (batch["starts"], batch["ends"])
        total, right = 0.0, 1.0
        for logits, goal in zip(self._logits(model, batch, training), goals):
            total += tf.nn.sparse_softmax_cross_entropy_with_logits(goal, logits)
            right *= tf.cast(tf.argmax(logits, -1, output_type="int32") == goal, "float32")
        count = tf.cast(tf.shape(goals[0])[0], "float32")
        return tf.reduce_sum(total) / 2, count, {"accuracy": (tf.reduce_sum(right), count)}

    def predict(self, model, batch):
        logits = self._logits(model, batch, training=False)
        missing = self.max_length - tf.shape(logits[0])[1]
        # To one length again, for all batches together.
        padded = [tf.pad(part, [[0, 0], [0, missing]], constant_values=-1e9) for part in logits]
        return {"start_logits": padded[0], "end_logits": padded[1]}

    def metrics(self, name, outputs):
        questions = self.questions[name]
        return squad.evaluate(questions, self.answers(name, outputs), self.languages.get(name))

    def answers(self, name, outputs):
        """Dict from ids of questions to texts."""
        logits = (np.asarray(outputs[part]) for part in ("start_logits", "end_logits"))
        return windows.predictions(windows.n_best(self.questions[name], self.windows[name], *logits))


def check_answers(name, questions):
    """Raises a `ValueError` if a question of the set `name` has no answer."""
    without = [question.id for question in questions if not question.answers]
    if without:
        raise ValueError(
            f"{len(without)} questions of {name} have no answer, such as {without[0]!r}. That a question cannot be "
            "answered (SQuAD 2.0) is not learned here: use files in which all can be, such as SQuAD 1.1's."
        )
