"""`python -m training.finetune_torch`: the recipe of `training.finetune` by transformers on torch, to compare with.

    python -m training.finetune_torch --task=cola --data_dir=glue --checkpoint=minilm --max_length=64 --runs=3

Same weights, tokens, batches, learning rates, weight decay and clipping; the weights of the classifier and the dropout
are torch's. Prints the scores after every epoch, the seconds of the epoch, and the median of the best ones over seeds.
Needs `torch` and `transformers`.
"""

import importlib.util
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from absl import flags

from keras_posenc.utils.binary import start
from training import engine, finetune
from training.engine import flags as train_flags
from training.engine import schedules
from training.tasks.classify import Classify
from training.tasks.models import ModelSource

TORCH_NAMES = {"token_ids": "input_ids", "segment_ids": "token_type_ids", "padding_mask": "attention_mask"}


def define(values):
    """Defines all flags of this binary in `values`, usually `absl.flags.FLAGS`."""
    named = dict(flag_values=values)
    flags.DEFINE_string("task", None, "A task of GLUE with classes, such as mrpc or cola.", **named)
    flags.DEFINE_string("data_dir", None, "Folder with GLUE's official files.", **named)
    flags.DEFINE_string("checkpoint", None, "Folder of a BERT in Hugging Face's format, or known weights.", **named)
    flags.DEFINE_integer("max_length", 128, "Tokens of an example.", 8, **named)
    flags.DEFINE_bool("by_length", False, "Batches of texts of similar lengths, for less padding.", **named)
    recipe = finetune.RECIPE
    flags.DEFINE_integer("batch", recipe["batch"], "Examples of a step.", 1, **named)
    flags.DEFINE_float("learning_rate", recipe["learning_rate"], "The largest, after the warm-up.", 0, **named)
    flags.DEFINE_integer("epochs", int(recipe["epochs"]), "Passes over the training set.", 1, **named)
    flags.DEFINE_integer("runs", 1, "Runs, with seeds --seed, --seed + 1, ...", 1, **named)
    flags.DEFINE_integer("seed", 0, "Of the first run.", **named)
    flags.DEFINE_integer("threads", 2, "Of torch.", 1, **named)
    flags.DEFINE_string("output", None, "File for the results, as JSON.", **named)


def run(values):
    """Trains as the parsed flags say. Returns the results."""
    missing = [name for name in ("task", "data_dir", "checkpoint") if values[name].value is None]
    if missing:
        raise ValueError(f"Needed: {', '.join('--' + name for name in missing)}.")
    train_flags.check_output(values.output)
    _check_packages()
    import torch

    torch.set_num_threads(values.threads)
    train, evaluations = finetune.load(values.task, values.data_dir)
    if train.label_names is None:
        raise ValueError(f"--task={values.task} has scores instead of classes, which this comparison does not do.")
    source = ModelSource(values.checkpoint)
    measure, primary = finetune.scoring(values.task, train.label_names)
    sizes = (values.batch, values.max_length, False)
    found = []
    for seed in range(values.seed, values.seed + values.runs):
        task = Classify(source, train, evaluations, measure, primary, *sizes, seed, 1, values.by_length)
        epochs = list(_epochs(task, values, seed))
        best = max(epochs, key=lambda epoch: epoch["scores"][primary])
        found.append({"seed": seed, "best": best["scores"], "epochs": epochs})
    results = {
        "task": values.task,
        "runs": found,
        "median": {name: statistics.median(run["best"][name] for run in found) for name in found[0]["best"]},
        "seconds_per_epoch": statistics.median(epoch["seconds"] for run in found for epoch in run["epochs"]),
    }
    if values.output is not None:
        Path(values.output).write_text(json.dumps(results, indent=1))
    print(
        f"median of {len(found)}: {_shown(results['median'])}; {results['seconds_per_epoch']:.0f} seconds of training "
        "an epoch"
    )
    return results


def _epochs(task, values, seed):
    """Trains, and yields scores and seconds of every epoch."""
    import torch
    import transformers

    torch.manual_seed(seed)
    model = transformers.BertForSequenceClassification.from_pretrained(
        task.source.path, num_labels=len(task.label_names)
    )
    given = {name: getattr(values, name) for name in ("epochs", "batch", "learning_rate")}
    options = engine.TrainOptions(**{**finetune.RECIPE, **given})
    total = options.total_steps(task.num_examples)
    rate = schedules.make(options, total)
    decayed = [weight for weight in model.parameters() if weight.ndim > 1]
    others = [weight for weight in model.parameters() if weight.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": options.weight_decay}, {"params": others, "weight_decay": 0.0}],
        betas=(0.9, options.beta_2),
        eps=options.epsilon,
    )
    batches = iter(task.train_data(0).as_numpy_iterator())
    per_epoch = total // values.epochs
    for epoch in range(values.epochs):
        model.train()
        started = time.perf_counter()
        for step in range(epoch * per_epoch, (epoch + 1) * per_epoch):
            loss = model(**_tensors(next(batches))).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip_norm)
            for group in optimizer.param_groups:
                group["lr"] = float(rate(step))
            optimizer.step()
            print(f"\rseed {seed}, step {step + 1}/{total}, loss {loss.item():.4f}", end="", file=sys.stderr)
        seconds = time.perf_counter() - started
        scores = _scores(task, model)
        print(f"\rseed {seed}, epoch {epoch + 1}: {_shown(scores)}; {seconds:.0f} s", flush=True)
        yield {"epoch": epoch + 1, "scores": scores, "seconds": seconds}


def _scores(task, model):
    """Of the first evaluation set."""
    import torch

    model.eval()
    data = next(iter(task.eval_data().values()))
    predictions, labels = [], []
    with torch.no_grad():
        for batch in data.as_numpy_iterator():
            real = batch["weight"] > 0
            labels.append(batch["labels"][real])
            predictions.append(model(**_tensors(batch)).logits.argmax(-1).numpy()[real])
    return task.measure(np.concatenate(predictions), np.concatenate(labels))


def _tensors(batch):
    import torch

    given = {**TORCH_NAMES, "labels": "labels"}
    return {theirs: torch.tensor(batch[ours]).long() for ours, theirs in given.items()}


def _check_packages():
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(f"This comparison needs {' and '.join(missing)}: pip install {' '.join(missing)}")


def _shown(scores):
    return ", ".join(f"{name} {value:.4f}" for name, value in scores.items())


if __name__ == "__main__":
    start(define, run)
