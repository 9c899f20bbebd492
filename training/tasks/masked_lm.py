"""Masked language modelling with dynamic masks, without next-sentence prediction."""

import numpy as np
import tensorflow as tf

from training.engine.pipeline import batches_of, eval_batches
from training.tasks.base import Task

MASKED, KEPT = 0.8, 0.1  # of the chosen tokens: replaced by [MASK], left as they are; the rest becomes a random token
LAST = 2**30  # key of tokens that are not to be chosen


def word_starts(tokenizer):
    """Whether each piece of a vocabulary begins a word, `(vocabulary,)`: pieces without `##`, or with `▁`."""
    pieces = tokenizer.vocabulary
    if any(piece.startswith("##") for piece in pieces):
        return np.array([not piece.startswith("##") for piece in pieces])
    return np.array([piece.startswith("\u2581") for piece in pieces])


def check_rate(rate):
    """Raises a `ValueError` for a share of masked tokens that is none."""
    if not 0 < rate < 1:
        raise ValueError(f"The share of masked tokens must lie between 0 and 1. Received: {rate}")


class Masking:
    """Chooses tokens and hides them. The choice is a function of a seed, so that a step has the same masks again.

    Args:
        tokenizer: with a mask token.
        length: tokens of a row.
        rate: share of tokens to predict.
        whole_words: whether the pieces of a word are chosen together. Words are chosen until the next does not fit
            into the share; it is then left out, so the share is a little smaller.
    """

    def __init__(self, tokenizer, length, rate=0.15, whole_words=False):
        if tokenizer.mask_id is None:
            raise ValueError("Masked language modelling needs a [MASK] token, and the vocabulary has none.")
        check_rate(rate)
        self.predictions = min(max(1, round(length * rate)), length - 1)
        self.rate, self.whole_words = rate, whole_words
        self.mask_id = tokenizer.mask_id
        special = {tokenizer.ids[token] for token in tokenizer.special if token in tokenizer.ids}
        self.special = tf.constant([index in special for index in range(len(tokenizer.vocabulary))])
        self.ordinary = tf.constant([i for i in range(len(tokenizer.vocabulary)) if i not in special], "int32")
        self.starts = tf.constant(word_starts(tokenizer))

    def __call__(self, batch, seed):
        """`batch` of `token_ids` and `padding_mask` with masked tokens, and where and what they were.

        Adds `masked_positions`, `masked_ids` and `masked_weights`, `(batch, predictions)`: a row with fewer chosen
        tokens has weight 0 for the rest.
        """
        ids, real = batch["token_ids"], tf.cast(batch["padding_mask"], "bool")
        seeds = tf.random.split(seed, 3)
        allowed = real & ~tf.gather(self.special, ids)
        keys = tf.where(allowed, self._keys(ids, seeds[0]), LAST)
        wanted = tf.round(self.rate * tf.reduce_sum(tf.cast(real, "float32"), axis=1, keepdims=True))
        wanted = tf.clip_by_value(tf.cast(wanted, "int32"), 1, self.predictions)
        values, positions = tf.math.top_k(-keys, self.predictions + 1)
        chosen = (values > -LAST) & (tf.range(self.predictions + 1) < wanted)
        if self.whole_words:
            # Keys are those of words: the word of the first token that has no room is not chosen at all.
            chosen &= values != tf.gather(values, wanted, batch_dims=1)
        positions, chosen = positions[:, : self.predictions], chosen[:, : self.predictions]
        # In the order of the text: gathers along rows, and easier to read. Those not chosen go last.
        order = tf.argsort(tf.where(chosen, positions, positions + ids.shape[1]), axis=1)
        positions, chosen = tf.gather(positions, order, batch_dims=1), tf.gather(chosen, order, batch_dims=1)
        original = tf.gather(ids, positions, batch_dims=1)
        hidden = self._hidden(original, seeds[1], seeds[2])
        rows = tf.repeat(tf.range(tf.shape(ids)[0])[:, None], self.predictions, axis=1)
        places = tf.stack([rows, positions], axis=-1)
        masked = tf.tensor_scatter_nd_update(ids, places, tf.where(chosen, hidden, original))
        return {
            **batch,
            "token_ids": masked,
            "masked_positions": tf.where(chosen, positions, 0),
            "masked_ids": tf.where(chosen, original, 0),
            "masked_weights": tf.cast(chosen, "float32"),
        }

    def _keys(self, ids, seed):
        """Random integers below `LAST`, different for any two tokens of a row; one for all pieces of a whole word."""
        length = ids.shape[1]
        noise = tf.random.stateless_uniform(tf.shape(ids), seed, 0, LAST // length, "int32")
        keys = noise * length + tf.range(length)
        if not self.whole_words:
            return keys
        word = tf.cumsum(tf.cast(tf.gather(self.starts, ids) | tf.gather(self.special, ids), "int32"), axis=1)
        return tf.gather(keys, word - word[:, :1], batch_dims=1)

    def _hidden(self, original, kind_seed, token_seed):
        kind = tf.random.stateless_uniform(tf.shape(original), kind_seed)
        index = tf.random.stateless_uniform(tf.shape(original), token_seed, 0, len(self.ordinary), "int32")
        replaced = tf.where(kind < MASKED, self.mask_id, tf.gather(self.ordinary, index))
        return tf.where((kind >= MASKED) & (kind < MASKED + KEPT), original, replaced)


class MaskedLanguageModel(Task):
    """Pretrains a `MaskedLM`.

    Args:
        source: a `ModelSource`.
        train: int32 `(rows, length)` of token ids, packed texts; or a `corpus.reading.RowStream` (a function of the
            start step to a data set of batches, with a length) for corpora that do not fit into memory.
        evaluation: int32 `(rows, length)`; its masks are the same each time.
        batch: global number of rows of a step.
        rate, whole_words: as in `Masking`.
        seed: of order and masks.
        about: what tells this text from others, for the record of the run.
    """

    name, primary = "masked_lm", "dev/accuracy"

    def __init__(self, source, train, evaluation, batch, length, rate=0.15, whole_words=False, seed=0, about=None):
        self.source, self.batch, self.length, self.seed = source, batch, length, seed
        self.train, self.evaluation, self.about = train, evaluation, dict(about or {})
        self.masking = Masking(source.tokenizer, length, rate, whole_words)
        self.pad_id = source.tokenizer.pad_id or 0

    @property
    def num_examples(self):
        return len(self.train)

    def build_model(self):
        return self.source.build("masked_lm", length=self.length, flag="--length")

    def _masked(self, batch, seed):
        ids = tf.ensure_shape(tf.cast(batch["token_ids"], "int32"), (None, self.length))
        return self.masking({**batch, "token_ids": ids, "padding_mask": tf.cast(ids != self.pad_id, "int32")}, seed)

    def config(self):
        return {
            **self.source.config(),
            **self.about,
            "rows": self.num_examples,
            "length": self.length,
            "rate": self.masking.rate,
            "whole_words": self.masking.whole_words,
        }

    def train_data(self, start_step, pipeline=None):
        def masked(batch, step):
            return self._masked(batch, tf.stack([tf.constant(self.seed, "int64"), step]))

        if callable(self.train):
            steps = tf.data.Dataset.counter(start_step)
            made = tf.data.Dataset.zip(self.train(start_step), steps)
            return made.map(masked, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
        return batches_of({"token_ids": self.train}, self.batch, self.seed, start_step, masked, pipeline=pipeline)

    def eval_data(self):
        if not len(self.evaluation):
            return {}
        data = eval_batches({"token_ids": self.evaluation}, self.batch)
        numbered = tf.data.Dataset.zip(data, tf.data.Dataset.counter(0))
        # The seed of a training step has a first part that is not negative, so these are masks of their own.
        return {
            "dev": numbered.map(lambda batch, number: self._masked(batch, tf.stack([tf.constant(-1, "int64"), number])))
        }

    def _losses(self, model, batch, training):
        inputs = {name: batch[name] for name in ("token_ids", "padding_mask", "masked_positions")}
        logits = model(inputs, training=training)["logits"]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["masked_ids"], logits)
        right = tf.cast(tf.argmax(logits, -1, output_type="int32") == batch["masked_ids"], "float32")
        return losses, right

    def loss(self, model, batch, training):
        losses, right = self._losses(model, batch, training)
        weights = batch["masked_weights"]
        count = tf.reduce_sum(weights)
        return tf.reduce_sum(losses * weights), count, {"accuracy": (tf.reduce_sum(right * weights), count)}

    def predict(self, model, batch):
        losses, right = self._losses(model, batch, training=False)
        weights = batch["masked_weights"]
        sums = {"loss": losses * weights, "right": right * weights, "count": weights}
        return {name: tf.reduce_sum(value, axis=1) for name, value in sums.items()}

    def metrics(self, name, outputs):
        count = outputs["count"].sum()
        loss = float(outputs["loss"].sum() / count)
        return {"accuracy": float(outputs["right"].sum() / count), "loss": loss, "perplexity": float(np.exp(loss))}
