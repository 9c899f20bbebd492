"""`python -m training.throughput`: pretraining with this engine beside keras-hub's BERT with `fit`, in one run.

    python -m training.throughput --model=bert_small --batch=32 --length=128 --rounds=8 --round_steps=5

Both models have the same sizes, vocabulary, dropout, batches, predictions, optimizer and clipping, and read the same
input pipeline: a corpus on disk, with dynamic masks. Rounds alternate, so that what the machine does besides falls on
both. The ratio is that of the same round, and its spread over the rounds is stated. The pipeline alone is measured
last, against the steps that the faster model makes.
"""

import json
import tempfile
import time

import keras
import numpy as np
import tensorflow as tf
from absl import flags

from keras_posenc import models
from keras_posenc.checkpoints.tokenizer import WordPiece
from keras_posenc.utils.binary import start
from training import engine
from training.corpus import preparing, running, shards
from training.corpus.reading import RowStream
from training.engine import flags as train_flags
from training.engine import optimizer as optimizers
from training.engine.pipeline import Pipeline, distribute
from training.engine.trainer import Trainer
from training.tasks.masked_lm import MaskedLanguageModel
from training.tasks.models import ModelSource


def define(values):
    """Defines all flags of this binary in `values`, usually `absl.flags.FLAGS`."""
    named = dict(flag_values=values)
    flags.DEFINE_string("model", "bert_small", "Size of both models.", **named)
    flags.DEFINE_integer("batch", 32, "Rows of a step.", 1, **named)
    flags.DEFINE_integer("length", 128, "Tokens of a row.", 8, **named)
    flags.DEFINE_integer("vocabulary_size", 30522, "Of both models.", 100, **named)
    flags.DEFINE_integer("rounds", 8, "Measured rounds, after one that traces and compiles.", 1, **named)
    flags.DEFINE_integer("round_steps", 5, "Steps of each model in a round.", 1, **named)
    flags.DEFINE_bool("xla", False, "Compile both with XLA.", **named)
    flags.DEFINE_bool("single_steps", False, "Let keras-hub make one step at a time, fit's default.", **named)
    flags.DEFINE_string("output", None, "JSON file for the figures.", **named)


class Words:
    """An input of random words, for rows that are full."""

    def __init__(self, vocabulary, count):
        self.vocabulary, self.count = vocabulary, count

    def documents(self):
        rng = np.random.default_rng(0)
        for _ in range(self.count):
            yield [" ".join(rng.choice(self.vocabulary, 20)) for _ in range(20)]


def make_task(folder, model, batch, length, size):
    """Pretraining of a model of this library on a corpus of random words, with learned positions."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##s"]
    words = [f"w{number}" for number in range(size - len(special))]
    tokenizer = WordPiece([*special, *words])
    job = preparing.Job(folder, length, shards.files_of(tokenizer), num_shards=4)
    corpus = running.prepare(job, [Words(words, max(64, batch * length // 100))])
    source = ModelSource(preset=model, tokenizer=tokenizer, position="learned")
    return MaskedLanguageModel(source, RowStream(corpus, "train", batch), np.zeros((0, length)), batch, length)


def make_trainer(task, options):
    """The engine's trainer, as `engine.run` makes it, without the rest of a run."""
    strategy = engine.start(options)
    with strategy.scope():
        step = tf.Variable(0, dtype=tf.int64, trainable=False)
        model = task.build_model()
        optimizer = optimizers.make(model, options, options.total_steps(task.num_examples))
    return Trainer(task, model, optimizer, step, options, strategy, distribute(strategy, task, options, 0))


def make_keras_hub(sizes, options, execution):
    """keras-hub's BERT with its masked-LM head, compiled."""
    import keras_hub

    names = {"vocab_size": "vocabulary_size"}
    backbone = keras_hub.models.BertBackbone(
        **{names.get(name, name): value for name, value in sizes.items()}, dropout=0.1, max_sequence_length=512
    )
    model = keras_hub.models.BertMaskedLM(backbone, preprocessor=None)
    model.compile(
        keras.optimizers.AdamW(
            options.learning_rate,
            weight_decay=options.weight_decay,
            epsilon=options.epsilon,
            global_clipnorm=options.clip_norm,
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=["accuracy"],
        jit_compile=options.xla,
        steps_per_execution=execution,
    )
    return model


def for_keras_hub(batch):
    """A batch of the task as `fit` takes it."""
    inputs = {name: batch[name] for name in ("token_ids", "padding_mask")}
    inputs |= {"segment_ids": tf.zeros_like(batch["token_ids"]), "mask_positions": batch["masked_positions"]}
    return inputs, batch["masked_ids"], batch["masked_weights"]


class Rounds(keras.callbacks.Callback):
    """Times the epochs of a `fit`, and after each lets the trainer make as many steps."""

    def __init__(self, trainer, steps):
        super().__init__()
        self.trainer, self.steps, self.seconds, self.waits = trainer, steps, [], []

    def on_epoch_begin(self, epoch, logs=None):
        self.begin = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        middle = time.perf_counter()
        found = self.trainer.train(tf.constant(self.steps))
        self.seconds.append((time.perf_counter() - middle, middle - self.begin))
        self.waits.append(found["input_wait"])


def pipeline_rate(task, batch, seconds=3.0):
    """Batches a second that the input pipeline makes when nothing else runs."""
    data = iter(task.train_data(0, Pipeline(batch, 0)))
    for _ in range(4):
        next(data)
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        next(data)
        count += 1
    return count / (time.perf_counter() - begin)


def measure(model, batch, length, size, rounds, steps, xla=False, execution=None):
    """Figures of both models: tokens a second of each round, and ratios."""
    options = engine.TrainOptions(steps=10**6, batch=batch, xla=xla, schedule="constant", steps_per_loop=steps)
    with tempfile.TemporaryDirectory() as folder:
        task = make_task(folder, model, batch, length, size)
        trainer = make_trainer(task, options)
        sizes = {**models.presets.PRESETS["Bert"][model], "vocab_size": size}
        peer = make_keras_hub(sizes, options, execution or steps)
        callback = Rounds(trainer, steps)
        data = task.train_data(0, Pipeline(batch, 0)).map(for_keras_hub).prefetch(2)
        peer.fit(data, epochs=rounds + 1, steps_per_epoch=steps, callbacks=[callback], verbose=0)
        ours, theirs = np.array(callback.seconds[1:]).T / steps
        alone = pipeline_rate(task, batch)
    tokens = batch * length
    return {
        "model": model,
        "batch": batch,
        "length": length,
        "predictions": task.masking.predictions,
        "vocabulary": size,
        "parameters": {"ours": trainer.model.count_params(), "keras_hub": peer.count_params()},
        "xla": xla,
        "round_steps": steps,
        "steps_per_execution": execution or steps,
        "tokens_per_second": {"ours": (tokens / ours).tolist(), "keras_hub": (tokens / theirs).tolist()},
        "ratio": (theirs / ours).tolist(),
        "input_wait": float(np.mean(callback.waits[1:])),
        "pipeline_batches_per_second": alone,
        "steps_per_second": float(1 / np.median(np.minimum(ours, theirs))),
    }


def report(found):
    """The figures as text."""

    def spread(values):
        return f"{np.median(values):.4g} (from {min(values):.4g} to {max(values):.4g})"

    speed, rounds = found["tokens_per_second"], len(found["ratio"])
    return "\n".join(
        [
            f"{found['model']}, batch {found['batch']} x {found['length']} tokens, {found['predictions']} predictions "
            f"a row, vocabulary {found['vocabulary']}, XLA {'on' if found['xla'] else 'off'}; median of {rounds} "
            f"rounds of {found['round_steps']} steps; keras-hub: steps_per_execution={found['steps_per_execution']}",
            f"tokens/s, this engine:      {spread(speed['ours'])}, {found['parameters']['ours']} parameters",
            f"tokens/s, keras-hub's fit:  {spread(speed['keras_hub'])}, {found['parameters']['keras_hub']} parameters",
            f"ratio, round by round:      {spread(found['ratio'])}",
            f"input pipeline alone:       {found['pipeline_batches_per_second']:.4g} batches/s, "
            f"{found['pipeline_batches_per_second'] / found['steps_per_second']:.4g} times the steps; "
            f"{found['input_wait']:.2%} of the time of a step is waiting for it",
        ]
    )


def run(values):
    """Measures as the parsed flags say, prints the report, and writes the figures if a file is named."""
    train_flags.check_output(values.output)
    # ALBERT is one of our sizes, but keras-hub's BERT does not tie its layers.
    known = [name for name, sizes in models.presets.PRESETS["Bert"].items() if "tie_layers" not in sizes]
    if values.model not in known:
        raise ValueError(f"--model is one that keras-hub's BERT can be: {', '.join(known)}. Received: {values.model}")
    names = ("model", "batch", "length", "vocabulary_size", "rounds", "round_steps", "xla")
    found = measure(*(values[name].value for name in names), 1 if values.single_steps else None)
    print(report(found))
    if values.output is not None:
        with open(values.output, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    start(define, run)
