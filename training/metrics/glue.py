"""The metrics of GLUE (Wang et al., https://arxiv.org/abs/1804.07461), and which of them each task reports.

All take predictions and labels, arrays of one dimension and of equal length, and return a float: classes as indices,
scores as numbers. What is undefined because all values are equal is 0, so that a collapsed run is the worst of a sweep
and not an error.
"""

import numpy as np

from training.data import glue


def accuracy(predictions, labels):
    """The part of the predictions that is right."""
    predictions, labels = _checked(predictions, labels)
    return float(np.mean(predictions == labels))


def f1(predictions, labels):
    """`2 TP / (2 TP + FP + FN)` of class 1, of two classes."""
    true, false_positive, false_negative, _ = _table(predictions, labels)
    return _ratio(2 * true, 2 * true + false_positive + false_negative)


def matthews(predictions, labels):
    """Matthews' correlation, `(TP TN - FP FN) / sqrt((TP+FP)(TP+FN)(TN+FP)(TN+FN))`, of two classes."""
    tp, fp, fn, tn = _table(predictions, labels)
    # A product of four counts overflows nothing in Python.
    return _ratio(tp * tn - fp * fn, float((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)) ** 0.5)


def pearson(predictions, labels):
    """The linear correlation."""
    x, y = (values.astype("float64") - values.mean(dtype="float64") for values in _checked(predictions, labels))
    # Scaled first, so that tiny values do not vanish when squared.
    x, y = (values / max(np.abs(values).max(), np.finfo("float64").tiny) for values in (x, y))
    return float(np.clip(_ratio(x @ y, np.sqrt((x @ x) * (y @ y))), -1, 1))


def spearman(predictions, labels):
    """The correlation of ranks; equal values share the mean of theirs."""
    predictions, labels = _checked(predictions, labels)
    return pearson(ranks(predictions), ranks(labels))


def ranks(values):
    """Ranks from 1 on, the mean rank for equal values."""
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[index]


METRICS = {"accuracy": accuracy, "f1": f1, "matthews": matthews, "pearson": pearson, "spearman": spearman}


def names(task, label_names=None):
    """The metrics of a task, the primary one first: the one by which the best checkpoint is chosen.

    F1 for MRPC and QQP and Spearman's correlation for STS-B, as in the tables of BERT; GLUE reports the other too.

    Args:
        task: a name that `training.data.glue.load` takes.
        label_names: the classes of a task of one's own; `None` for scores.
    """
    if not task.startswith(glue.CUSTOM):
        return glue.task(task).metrics
    if label_names is None:
        return ("spearman", "pearson")
    return ("accuracy", "f1") if len(label_names) == 2 else ("accuracy",)


def evaluate(task, predictions, labels, label_names=None):
    """Dict of the metrics of a task, in the order of `names`. Arguments are those of `names` and of the metrics."""
    return {name: METRICS[name](predictions, labels) for name in names(task, label_names)}


def _checked(predictions, labels):
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.shape != labels.shape or predictions.ndim != 1 or not len(labels):
        raise ValueError(
            "Expected predictions and labels of one dimension, as many of each, at least one. Received shapes: "
            f"{predictions.shape}, {labels.shape}"
        )
    return predictions, labels


def _table(predictions, labels):
    """Counts of true positives, false positives, false negatives and true negatives."""
    predictions, labels = _checked(predictions, labels)
    strange = sorted(set(np.unique([predictions, labels]).tolist()) - {0, 1})
    if strange:
        raise ValueError(f"Expected two classes, 0 and 1. Received also: {strange}")
    return [int(np.sum((predictions == p) & (labels == t))) for p, t in ((1, 1), (1, 0), (0, 1), (0, 0))]


def _ratio(above, below):
    return float(above / below) if below else 0.0
