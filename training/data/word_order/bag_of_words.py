"""The classifier that does not see the order: logistic regression on which words a text has.

It is the row of the benchmark's table that every encoding has to beat. On acceptability and entailment every bag has
both labels equally often, so any function of the bag is right on exactly half of the examples.
"""

import numpy as np


def features(data, words, ends=False):
    """Counts of each word in the first and in the second text, and for pairs their products.

    Args:
        data: a `Classification`.
        words: list of all words.
        ends: also which word is the first and which the last of each text.

    Returns: float32 `(examples, features)`.
    """
    index = {word: place for place, word in enumerate(words)}
    columns = []
    for texts in (data.first,) if data.second is None else (data.first, data.second):
        rows = [[index[word] for word in text.split()] for text in texts]
        counts = np.zeros((len(rows), len(words)), "float32")
        for row, places in enumerate(rows):
            np.add.at(counts[row], places, 1.0)
        columns.append(counts)
        for place in (0, -1) if ends else ():
            columns.append(np.eye(len(words), dtype="float32")[[places[place] for places in rows]])
    if data.second is not None:
        # What the two texts share, which no sum of their counts says.
        columns.append(columns[0] * columns[len(columns) // 2])
    return np.concatenate(columns, axis=1)


class BagOfWords:
    """Softmax regression by Adam over mini-batches.

    Args:
        words: list of all words, e.g. `word_order.vocabulary()`.
        num_classes: number of classes.
        ends: as in `features`.
        seed: of the initial weights and of the order of the examples.
    """

    def __init__(self, words, num_classes=2, ends=False, seed=0):
        self.words, self.num_classes, self.ends = list(words), num_classes, ends
        self.random = np.random.default_rng(seed)

    def fit(self, data, epochs=20, batch_size=64, learning_rate=0.01):
        x, y = features(data, self.words, self.ends), np.eye(self.num_classes, dtype="float32")[data.labels]
        x = np.pad(x, ((0, 0), (0, 1)), constant_values=1.0)
        self.weights = self.random.normal(0.0, 0.01, (x.shape[1], self.num_classes)).astype("float32")
        mean, square = np.zeros_like(self.weights), np.zeros_like(self.weights)
        step = 0
        for _ in range(epochs):
            order = self.random.permutation(len(x))
            for start in range(0, len(x), batch_size):
                rows = order[start : start + batch_size]
                gradient = x[rows].T @ (_softmax(x[rows] @ self.weights) - y[rows]) / len(rows)
                step += 1
                mean += 0.1 * (gradient - mean)
                square += 0.001 * (gradient**2 - square)
                scale = learning_rate / (1 - 0.9**step)
                self.weights -= scale * mean / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        return self

    def predict(self, data):
        """The class of each example, int32."""
        x = features(data, self.words, self.ends)
        return np.argmax(x @ self.weights[:-1] + self.weights[-1], axis=-1).astype("int32")

    def accuracy(self, data):
        return float(np.mean(self.predict(data) == data.labels))


def _softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
