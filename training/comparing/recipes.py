"""What a comparison does if no flag says otherwise.

Size and learning rate of acceptability were chosen by the dev scores of `learned` and `tisa`, one seed; the numbers of
steps of the other tasks are guesses.
"""

import dataclasses

from training.data import word_order

PREFIX = "word_order:"

# A model that learns the benchmark in so few steps is small, and without dropout.
SMALL = dict(num_layers=4, num_heads=4, hidden_dim=64, intermediate_dim=256, dropout=0.0)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Defaults of a task of the word-order benchmark.

    Attributes:
        flags: dict, defaults of flags.
        model: dict, arguments of the model if no size is named.
        every: lengths of the curve over lengths are this many words apart.
    """

    flags: dict
    model: dict
    every: int = 1


def _flags(steps, rate, model="bert_tiny", **more):
    evaluations = 6
    common = dict(epochs=None, batch=32, warmup=0.1, runs=3, eval_every=steps // evaluations)
    return dict(steps=steps, learning_rate=rate, model=model, **{**common, **more})


RECIPES = {
    "acceptability": Recipe(_flags(1200, 1e-3), SMALL),
    "entailment": Recipe(_flags(4200, 1e-3), SMALL, every=2),
    "questions": Recipe(_flags(2800, 1e-3), SMALL, every=4),
    "translation": Recipe(_flags(2800, 1e-3, "transformer_tiny", beta_2=0.98), {**SMALL, "num_layers": 2}, every=2),
    "text": Recipe(_flags(2800, 1e-3), SMALL),
}


def word_order_task(task):
    """The name within the benchmark, or `None` for other tasks."""
    if not task.startswith(PREFIX):
        return None
    name = task.removeprefix(PREFIX)
    if name not in RECIPES:
        raise ValueError(f"The word-order benchmark has no task {name!r}. Known: {', '.join(RECIPES)}.")
    return name


def apply(values):
    """Makes the recipe of `--task` the defaults of the other flags."""
    name = word_order_task(values.task)
    if name is None:
        return
    for flag, value in RECIPES[name].flags.items():
        if flag != "model" or values.checkpoint is None:
            values.set_default(flag, value)


def lengths(name):
    """`{words: split}`: the lengths of the curve, and which split of the benchmark has them."""
    about = word_order.TASKS[name]
    every = RECIPES[name].every
    found = {n: "test" for n in range(about.lengths[0], about.lengths[1] + 1, every)}
    return {**found, **{n: "test_longer" for n in range(about.longer[0], about.longer[1] + 1, every)}}
