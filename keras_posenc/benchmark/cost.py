"""DIET's Table 1: the time of training and of inference, relative to the same model with learned embeddings."""

import gc
from dataclasses import dataclass

import keras

from keras_posenc import fold_positions, position_encodings
from keras_posenc.benchmark import models, timing

BASELINE = "learned"
TASKS = ("training", "inference")
# What a task measures. Inference is measured as served, with folded positions, and without folding.
COLUMNS = {"training": ("training",), "inference": ("folded", "unfolded")}


@dataclass(frozen=True)
class Settings:
    """What the measurements depend on, beside model, mode and encoding."""

    length: int = 128
    batch: int = 1
    training_batch: int = 8
    rounds: int = 20
    training_rounds: int = 5
    sharing: str = "none"
    threads: int | None = None
    # Models alive at once beside the baseline. A BERT_BASE in training holds weights, gradients and two slots: 1.8 GB.
    group: int = 6
    training_group: int = 3


def run(store, sizes, positions, modes, tasks, settings, progress):
    """Measures every cell that `store` does not have yet, group by group, and saves after each group.

    Args:
        store: `Store` of the results, under `(size name, task column, mode, position)`.
        sizes: dict of `models.Size`.
        positions: names of encodings. The baseline among them is measured against its own twin, which shows the noise.
        modes: of `models.MODES`.
        tasks: of `TASKS`.
    """
    for group in pending(store, sizes, positions, modes, tasks, settings):
        measure(store, *group, settings=settings)
        store.save()
        name, size, task, mode, members = group
        progress.step(f"{size.label} {mode} {task}: {', '.join(members)}", len(members))


def pending(store, sizes, positions, modes, tasks, settings):
    """The groups of unfinished cells: a list of `(size name, size, task, mode, positions)`."""
    groups = []
    for name, size in sizes.items():
        for mode in modes:
            for task in tasks:
                left = [p for p in positions if any((name, column, mode, p) not in store for column in COLUMNS[task])]
                step = settings.training_group if task == "training" else settings.group
                groups += [(name, size, task, mode, left[i : i + step]) for i in range(0, len(left), step)]
    return groups


def measure(store, name, size, task, mode, positions, settings):
    """Times one group, interleaved with the baseline, into `store`."""
    prepare = _training if task == "training" else _inference
    functions = {(BASELINE, "baseline"): prepare(size, BASELINE, mode, settings)[COLUMNS[task][-1]]}
    shown = {}
    for position in positions:
        made = prepare(size, position, mode, settings)
        for column in COLUMNS[task]:
            # With nothing to fold, the two columns of inference are the same function, timed once.
            timed = column if column in made else "unfolded"
            functions[position, timed] = made[timed]
            shown[position, column] = position, timed
    for _ in range(2):  # XLA compiles at the first call
        for function in functions.values():
            function()
    rounds = settings.training_rounds if task == "training" else settings.rounds
    seconds = timing.interleave(functions, rounds)
    baseline = seconds[BASELINE, "baseline"]
    for (position, column), key in shown.items():
        store.put((name, column, mode, position), timing.compare(seconds[key], baseline))
    del functions
    keras.backend.clear_session()
    gc.collect()


def _training(size, position, mode, settings):
    model = models.build(size, position, settings.length, settings.sharing)
    step = models.training_step(model, models.token_ids(size, settings.training_batch, settings.length), mode)
    return {"training": step}


def _inference(size, position, mode, settings):
    model = models.build(size, position, settings.length, settings.sharing)
    tokens = models.token_ids(size, settings.batch, settings.length)
    unfolded = models.forward(model, tokens, mode)  # traced before the fold, so it reads the weights
    fold_positions(model, settings.length)
    if not any(encoding.folded_length for encoding in position_encodings(model)):
        return {"unfolded": unfolded}
    return {"unfolded": unfolded, "folded": models.forward(model, tokens, mode)}
