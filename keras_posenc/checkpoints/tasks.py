"""Heads around a backbone, by the name of the task."""

from keras_posenc.models import heads
from keras_posenc.models.presets import TASKS

DROPPING = ("Classifier", "TokenClassifier")  # heads with the dropout of their backbone unless they are told another


def task_of(model):
    """The name of a model's task, or `None` if it has no head."""
    name = type(model).__name__
    if name == "Classifier" and model.num_classes == 1:
        return "regress"
    return next((task for task, (head, _, _) in TASKS.items() if head == name), None)


def with_head(backbone, task, num_classes=None, dropout=None):
    """A backbone inside the head of a task; the backbone itself for `None` and `"backbone"`.

    `dropout` is that of classifiers, by default the backbone's; other heads have their own.
    """
    if task in (None, "backbone"):
        if num_classes is not None:
            raise ValueError(f"`num_classes` goes with a task. Received: num_classes={num_classes!r}, task={task!r}")
        return backbone
    if task not in TASKS:
        raise ValueError(f"Unknown task: {task!r}. Known: {', '.join(TASKS)}, 'backbone', or None for what is stored.")
    name, fixed, needs_classes = TASKS[task]
    if needs_classes and num_classes is None:
        raise ValueError(f"The files have no head for task={task!r}. Pass `num_classes` for a fresh one.")
    if not needs_classes and num_classes is not None:
        raise ValueError(f"task={task!r} takes no `num_classes`. Received: num_classes={num_classes!r}")
    given = {"num_classes": num_classes} if needs_classes else {}
    if dropout is not None and name in DROPPING:
        given["dropout"] = dropout
    return getattr(heads, name)(backbone, **given, **fixed)
