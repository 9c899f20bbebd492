"""Translation: an encoder-decoder trained on parallel text."""

import itertools

import numpy as np
import tensorflow as tf

from keras_posenc import models
from keras_posenc.models import generation
from training.engine.pipeline import batches_of, eval_batches
from training.metrics import translation
from training.tasks.base import Task

STEP = 2  # lengths of batches are multiples of it; sentences are short, and every column costs logits of all tokens
SAMPLE = "_sample"  # after the name of a set: the sentences of it that are translated at each evaluation


class Pairs:
    """Token ids of pairs of sentences, one after the other: memory goes by tokens, not by the longest sentence.

    Args:
        source, target: lists of lists of ids, with the tokens that begin and end a sentence.
    """

    def __init__(self, source, target):
        self.source, self.target = _ragged(source), _ragged(target)
        # Batches by the longer side are padded less, on both sides, than batches by the sum.
        self.lengths = np.array([max(len(one), len(other) - 1) for one, other in zip(source, target)], "int64")

    def __len__(self):
        return len(self.lengths)


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
        sample: number of sentences of the first evaluation set that are translated greedily at each evaluation, for
            the curve of BLEU.
        about: dict, what else tells this run from others, such as its files.
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
        sample=0,
        about=None,
    ):
        self.tokenizer, self.preset, self.position, self.options = tokenizer, preset, position, dict(options or {})
        self.batch, self.max_length, self.static, self.seed = batch, max_length, static, seed
        self.label_smoothing, self.sample, self.about = label_smoothing, sample, dict(about or {})
        self.train, self.left_out = (None, 0) if train is None else self._training(train)
        self.evaluations = {name: Pairs(*self._encoded(data, self.max_length)) for name, data in evaluations.items()}
        self.references = {name: data.target for name, data in evaluations.items()}

    def _encoded(self, data, limit=None):
        """Ids of both sides, of at most `limit` tokens, with `</s>` after each and `<s>` before the targets."""
        cut = None if limit is None else limit - 1
        bos, eos = self.tokenizer.bos_id, self.tokenizer.eos_id
        source = [[*ids[:cut], eos] for ids in self.tokenizer.tokenize(data.source)]
        return source, [[bos, *ids[:cut], eos] for ids in self.tokenizer.tokenize(data.target)]

    def _training(self, data):
        """Encoded pairs, without those that are too long: half a translation teaches to stop in the middle."""
        pairs = list(zip(*self._encoded(data)))
        kept = [pair for pair in pairs if max(len(pair[0]), len(pair[1]) - 1) <= self.max_length]
        if not kept:
            raise ValueError(f"No pair of the training set has fewer than {self.max_length} tokens on both sides.")
        return Pairs(*zip(*kept)), len(pairs) - len(kept)

    @property
    def num_examples(self):
        return 0 if self.train is None else len(self.train)

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
            "sample": self.sample,
            **self.about,
        }

    def build_model(self):
        vocabulary = dict(vocab_size=self.tokenizer.size, max_length=self.max_length, pad_id=self.tokenizer.pad_id)
        return models.build(self.preset, position=self.position, **{**vocabulary, **self.options})

    def train_data(self, start_step, pipeline=None):
        lengths = None if self.static else self.train.lengths
        rows = {"row": np.arange(len(self.train))}
        made = batches_of(rows, self.batch, self.seed, start_step, lengths=lengths, pipeline=pipeline)
        made = made.map(lambda batch: self._assembled(self.train, batch["row"]), num_parallel_calls=tf.data.AUTOTUNE)
        return made.prefetch(tf.data.AUTOTUNE)

    def eval_data(self):
        def with_both(batch, pairs):
            return {**batch, **self._assembled(pairs, batch["row"])}

        def with_source(batch, pairs):
            return {**batch, **self._sources(pairs, batch["row"])}

        made = {}
        for name, pairs in self.evaluations.items():
            # Sentences of similar lengths together; every output says which row it is of.
            rows = np.argsort(pairs.lengths, kind="stable")
            made[name] = eval_batches({"row": rows}, self.batch).map(lambda b, p=pairs: with_both(b, p))
            if self.sample and not any(each.endswith(SAMPLE) for each in made):
                chosen = eval_batches({"row": rows[rows < self.sample]}, self.batch)
                made[name + SAMPLE] = chosen.map(lambda b, p=pairs: with_source(b, p))
        return made

    def _sources(self, pairs, rows):
        ids, mask = self._padded(pairs.source, rows)
        return {"token_ids": ids, "padding_mask": tf.cast(mask, "int32")}

    def _assembled(self, pairs, rows):
        """The batch of some rows: what the encoder and the decoder are given, and what is to be predicted."""
        ids, mask = self._padded(pairs.target, rows, more=1)
        pad = self.tokenizer.pad_id
        real = mask[:, 1:]  # a target has as many inputs as labels: its tokens without the last, and without the first
        return {
            **self._sources(pairs, rows),
            "target_ids": tf.where(real, ids[:, :-1], pad),
            "labels": ids[:, 1:],
            "target_padding_mask": tf.cast(real, "int32"),
        }

    def _padded(self, ragged, rows, more=0):
        """Ids `(rows, length + more)` and where they are real. Lengths are multiples of `STEP`, or all the longest."""
        found = tf.gather(ragged, rows)
        lengths = found.row_lengths()
        width = tf.constant(self.max_length, "int64")
        if not self.static:
            width = tf.minimum((tf.reduce_max(lengths) - more + STEP - 1) // STEP * STEP, width)
        width += more
        ids = found.to_tensor(self.tokenizer.pad_id, shape=tf.stack([tf.size(rows, tf.int64), width]))
        shape = (rows.shape[0], self.max_length + more if self.static else None)
        return tf.ensure_shape(ids, shape), tf.ensure_shape(tf.sequence_mask(lengths, width), shape)

    def _losses(self, model, batch, training):
        names = ("token_ids", "padding_mask", "target_ids", "target_padding_mask")
        logits = model({name: batch[name] for name in names}, training=training)["logits"]
        plain = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["labels"], logits)
        right = tf.cast(tf.argmax(logits, -1, output_type="int32") == batch["labels"], "float32")
        weights = tf.cast(batch["target_padding_mask"], "float32")
        return plain, smoothed(plain, logits, self.label_smoothing), right, weights

    def loss(self, model, batch, training):
        plain, smooth, right, weights = self._losses(model, batch, training)
        count = tf.reduce_sum(weights)
        sums = {"accuracy": right, "cross_entropy": plain}
        return (
            tf.reduce_sum(smooth * weights),
            count,
            {name: (tf.reduce_sum(value * weights), count) for name, value in sums.items()},
        )

    def predict(self, model, batch):
        if "labels" not in batch:
            return {"row": batch["row"], "hypotheses": self._greedy(model, batch)}
        plain, _, right, weights = self._losses(model, batch, training=False)
        sums = {"loss": plain * weights, "right": right * weights, "count": weights}
        return {name: tf.reduce_sum(value, axis=1) for name, value in sums.items()}

    def _greedy(self, model, batch):
        options = generation.Options("greedy", self.max_length, self.tokenizer.bos_id, self.tokenizer.eos_id)
        inputs = {name: batch[name] for name in ("token_ids", "padding_mask")}
        inputs.update(rows=batch["weight"] > 0, length_penalty=tf.zeros(()))
        return generation.search(model, options, inputs)["token_ids"]

    def metrics(self, name, outputs):
        if "hypotheses" in outputs:
            references = self.references[name.removesuffix(SAMPLE)]
            references = [references[row] for row in outputs["row"]]
            return scores(self.tokenizer.decode(outputs["hypotheses"]), references, numbers_only=True)
        count = outputs["count"].sum()
        loss = float(outputs["loss"].sum() / count)
        return {"accuracy": float(outputs["right"].sum() / count), "loss": loss, "perplexity": float(np.exp(loss))}


def smoothed(plain, logits, smoothing):
    """Cross-entropy with smoothed labels, `(1 - s) CE(label) + s mean CE(all tokens)`, without a matrix of them.

    Args:
        plain: cross-entropies of the labels, `(...)`.
        logits: `(..., vocabulary)`.
        smoothing: `s`.

    Reference: Szegedy et al., 2016 (arXiv:1512.00567), section 7; Vaswani et al., 2017, section 5.4.
    """
    if not smoothing:
        return plain
    uniform = tf.reduce_logsumexp(logits, axis=-1) - tf.reduce_mean(logits, axis=-1)
    return (1 - smoothing) * plain + smoothing * uniform


def scores(hypotheses, references, numbers_only=False):
    """BLEU and chrF with their signatures, and the share of translations that are the reference."""
    found = translation.evaluate(hypotheses, references, chrf=True)
    exact = float(np.mean([one.strip() == other.strip() for one, other in zip(hypotheses, references)]))
    found = {**found, "exact": exact}
    return {name: value for name, value in found.items() if isinstance(value, float)} if numbers_only else found


def _ragged(rows):
    lengths = [len(row) for row in rows]
    values = np.fromiter(itertools.chain.from_iterable(rows), "int32", sum(lengths))
    return tf.RaggedTensor.from_row_splits(values, np.cumsum([0, *lengths], dtype="int64"))
