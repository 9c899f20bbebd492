"""One call after the other: in process and served, taking turns."""

import time

import numpy as np

from serving.client import Client, Retry

VOCABULARY = 500  # ids that every model has
TOLERANCE = 1e-3  # between answers of the same model; far above rounding, far below another model's


def requests(batch, length, signature="serving_default", seed=0):
    """Inputs of a signature, without padding."""
    ids = np.random.default_rng(seed).integers(5, VOCABULARY, (batch, length), dtype="int32")
    given = {"token_ids": ids, "segment_ids": np.zeros_like(ids), "padding_mask": np.ones_like(ids)}
    return {**given, "layer": np.zeros(batch, "int32")} if signature == "layer_attention" else given


class InProcess:
    """A SavedModel in this process, called as in a program that has it.

    Args:
        base: folder of the model; its version 1 is loaded.
    """

    def __init__(self, base):
        import tensorflow as tf

        self._constant = tf.constant
        self._model = tf.saved_model.load(str(base / "1"))

    def predict(self, given, signature="serving_default"):
        tensors = {name: self._constant(value) for name, value in given.items()}
        return {name: value.numpy() for name, value in self._model.signatures[signature](**tensors).items()}

    def close(self):
        self._model = None


class Served:
    """A model behind an address. Errors are errors: nothing is tried twice."""

    def __init__(self, address, name):
        self._client = Client(address, name, retry=Retry(1), timeout=120.0)

    def predict(self, given, signature="serving_default"):
        return self._client.predict(given, signature)

    def close(self):
        self._client.close()


def take_turns(functions, rounds, warmup=0, pause=0.0, seed=0):
    """Times every function once a round, in a new order each round, after calls that are not timed.

    Args:
        functions: dict of functions without arguments.
        rounds, warmup: how often.
        pause: seconds before each timed call.

    Returns: dict of arrays of seconds.
    """
    for _ in range(warmup):
        for function in functions.values():
            function()
    rng = np.random.default_rng(seed)
    names = list(functions)
    seconds = {name: np.zeros(rounds) for name in names}
    for turn in range(rounds):
        for index in rng.permutation(len(names)):
            time.sleep(pause)
            begin = time.perf_counter()
            functions[names[index]]()
            seconds[names[index]][turn] = time.perf_counter() - begin
    return seconds


def check_same(answers):
    """Raises if ways to the same model give different logits: then times would be of different things.

    Args:
        answers: dict from `(name, way)` to outputs.
    """
    first = {}
    for (name, way), found in answers.items():
        other, expected = first.setdefault(name, (way, found["logits"]))
        worst = float(np.abs(found["logits"] - expected).max())
        if not worst <= TOLERANCE:
            raise RuntimeError(f"Logits of {name} differ by {worst:.3g} between {other} and {way}.")
