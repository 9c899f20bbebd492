"""Maps g from contextual embeddings back to tokens: none, linear in closed form, and networks trained with Keras.

A map is a description; `map.fitter(data, seed)` gives a function that fits a fold and returns the fitted g, a function
of `(tokens, d)` arrays, and a note on the fit.
"""

import dataclasses

import numpy as np

from keras_posenc.analysis.identifiability_data import TRAIN, VALIDATION
from keras_posenc.utils import checks

_CHUNK = 4096  # tokens in float64 at a time


@dataclasses.dataclass
class Pairs:
    """What is learnt from: row `query[i]` of `source` should become row `answer[i]` of `target`.

    `roles` is `(folds, pairs)`, the part each pair belongs to in each fold.
    """

    source: np.ndarray
    target: np.ndarray
    query: np.ndarray
    answer: np.ndarray
    roles: np.ndarray

    def of(self, fold, role):
        """Rows of the source and of the target, of one part of a fold."""
        chosen = self.roles[fold] == role
        return self.query[chosen], self.answer[chosen]


@dataclasses.dataclass(frozen=True)
class Naive:
    """g(e) = e."""

    name: str = "naive"

    def fitter(self, data, seed=()):
        if data.source.shape[1] != data.target.shape[1]:
            raise ValueError(
                f"The naive map compares vectors as they are, but they are {data.source.shape[1]} and "
                f"{data.target.shape[1]} wide. Leave 'naive' out."
            )
        return lambda fold: (lambda x: x, "")


@dataclasses.dataclass(frozen=True)
class Ridge:
    """g(e) = e W + b with the least squared error plus ridge |W|^2, in closed form.

    The minimum of the L2 loss, which is what the paper's linear perceptron with that loss descends to. A cosine loss
    has no closed form: `Trained(loss="cosine")` is for that, and identifies more by cosine where identity is in the
    angle. The ridge is chosen by the L2 loss on validation; shrinking may cost some nearest neighbours, and
    `ridges=(0.0,)` is plain least squares.

    All folds are solved from sums of e e^T and e x^T over stretches of sentences that are always together. One
    eigendecomposition G = V diag(w) V^T for a fold gives every ridge: with B = V^T C, the solution is
    W = V diag(1 / (w + ridge)) B, and its validation loss is a quadratic form in 1 / (w + ridge).

    Args:
        bias: whether there is a b, without penalty. The paper's perceptron has none, and none is the default.
        ridges: to choose from, as multiples of the mean eigenvalue. 0 is the least-squares solution of least norm.
    """

    name: str = "linear"
    bias: bool = False
    ridges: tuple = (0.0, *(10.0**power for power in np.arange(-7, 1.5, 0.5).tolist()))

    def fitter(self, data, seed=()):
        sums = None

        def fit(fold):
            nonlocal sums
            sums = sums or _fold_sums(data)
            train, validation = (sums[role][fold] for role in (TRAIN, VALIDATION))
            weight, bias, ridge = _solve(train, validation, self.ridges, self.bias)
            weight, bias = weight.astype("float32"), bias.astype("float32")
            return (lambda x: x @ weight + bias), f"ridge {ridge:.1e}"

        return fit


@dataclasses.dataclass
class _Sums:
    """Sums over pairs (x, y), x followed by a 1: of x x^T, of x y^T and of |y|^2."""

    xx: np.ndarray
    xy: np.ndarray
    yy: float = 0.0

    def __iadd__(self, other):
        self.xx += other.xx
        self.xy += other.xy
        self.yy += other.yy
        return self

    def around(self, x0, y0):
        """The same sums of x - x0 and y - y0, without the 1."""
        n, x, y = self.xx[-1, -1], self.xx[-1, :-1], self.xy[-1]
        xx = self.xx[:-1, :-1] - np.outer(x, x0) - np.outer(x0, x) + n * np.outer(x0, x0)
        xy = self.xy[:-1] - np.outer(x, y0) - np.outer(x0, y) + n * np.outer(x0, y0)
        return xx, xy, self.yy - 2 * y @ y0 + n * y0 @ y0


def _fold_sums(data):
    """`{role: [_Sums of each fold]}` for training and validation; every token is multiplied out once."""
    shape = data.source.shape[1] + 1, data.target.shape[1]
    total = {
        role: [_Sums(np.zeros((shape[0],) * 2), np.zeros(shape)) for _ in data.roles] for role in (TRAIN, VALIDATION)
    }
    kinds, kind = np.unique(data.roles, axis=1, return_inverse=True)
    by_kind = np.argsort(kind.ravel(), kind="stable")
    for roles, members in zip(kinds.T, np.split(by_kind, np.cumsum(np.bincount(kind.ravel()))[:-1])):
        for begin in range(0, members.size, _CHUNK):
            part = members[begin : begin + _CHUNK]
            x = np.ones((part.size, shape[0]))
            x[:, :-1] = data.source[data.query[part]]
            y = data.target[data.answer[part]].astype("float64")
            sums = _Sums(x.T @ x, x.T @ y, float(np.square(y).sum()))
            for fold, role in enumerate(roles):
                if role in total:
                    total[role][fold] += sums
    return total


def _solve(train, validation, ridges, bias):
    """Weight, bias and the ridge that is best on validation."""
    count = train.xx[-1, -1]
    x0, y0 = train.xx[-1, :-1] / count, train.xy[-1] / count
    if not bias:
        x0, y0 = np.zeros_like(x0), np.zeros_like(y0)
    gram, cross, _ = train.around(x0, y0)
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, 0)
    moved = vectors.T @ cross
    gram_v, cross_v, square_v = validation.around(x0, y0)
    quadratic = (moved @ moved.T) * (vectors.T @ gram_v @ vectors)
    linear = np.sum(moved * (vectors.T @ cross_v), axis=1)
    shifted = values + np.asarray(ridges)[:, None] * values.mean()
    # Directions without data stay at zero, which is the solution of least norm.
    void = shifted <= values.max() * values.size * np.finfo(float).eps
    inverse = np.where(void, 0, 1 / np.where(void, 1, shifted))
    loss = square_v - 2 * inverse @ linear + np.einsum("ri,ij,rj->r", inverse, quadratic, inverse, optimize=True)
    best = int(np.argmin(loss))
    weight = vectors @ (inverse[best][:, None] * moved)
    return weight, y0 - x0 @ weight, ridges[best]


@dataclasses.dataclass(frozen=True)
class Trained:
    """A perceptron, or a network with one hidden gelu layer, trained with Adam: the paper's protocol (B.1).

    Args:
        loss: `"l2"`, the squared distance, or `"cosine"`, one minus the cosine.
        hidden: width of the hidden layer (the paper's MLP has 1,000), `None` for a perceptron.
        bias: of the layers. The paper's perceptron has none.
        learning_rate, batch_size: the paper's.
        patience: epochs without a better validation loss before training stops; the best weights are kept.
        max_epochs: the most epochs.
    """

    name: str
    loss: str = "cosine"
    hidden: int | None = None
    bias: bool = False
    learning_rate: float = 1e-4
    batch_size: int = 256
    patience: int = 20
    max_epochs: int = 1000

    def __post_init__(self):
        checks.one_of("Trained", "loss", self.loss, ("l2", "cosine"))

    def network(self, width, output, seed=0):
        """The Keras model, not yet trained."""
        import keras

        sizes = [(self.hidden, "gelu")] if self.hidden else []
        layers = [
            keras.layers.Dense(
                size,
                activation,
                use_bias=self.bias,
                kernel_initializer=keras.initializers.GlorotUniform(seed + number),
                dtype="float32",
            )
            for number, (size, activation) in enumerate([*sizes, (output, None)])
        ]
        return keras.Sequential([keras.Input((width,)), *layers])

    def fitter(self, data, seed=()):
        import keras

        def fit(fold):
            number = int(np.random.SeedSequence([*seed, fold]).generate_state(1)[0] >> 2)
            model = self.network(data.source.shape[1], data.target.shape[1], number)
            model.compile(keras.optimizers.Adam(self.learning_rate), _cosine if self.loss == "cosine" else "mse")
            g = _forward(model)
            epochs, epoch, loss = self._train(model, g, data, fold, np.random.default_rng(number))
            return g, f"epoch {epoch} of {epochs}, validation loss {loss:.4g}"

        return fit

    def _train(self, model, g, data, fold, rng):
        """Leaves the best weights in the model. Batches are drawn here, so that `rng` alone decides their order."""
        (query, answer), held_out = (data.of(fold, role) for role in (TRAIN, VALIDATION))
        best, best_epoch, weights = np.inf, 0, model.get_weights()
        for epoch in range(1, self.max_epochs + 1):
            order = rng.permutation(query.size)
            for begin in range(0, query.size, self.batch_size):
                part = order[begin : begin + self.batch_size]
                model.train_on_batch(data.source[query[part]], data.target[answer[part]])
            loss = self._loss(g(data.source[held_out[0]]), data.target[held_out[1]])
            if loss < best:
                best, best_epoch, weights = loss, epoch, model.get_weights()
            elif epoch - best_epoch >= self.patience:
                break
        model.set_weights(weights)
        return epoch, best_epoch, best

    def _loss(self, predicted, target):
        if self.loss == "l2":
            return float(np.square(predicted - target).mean())
        norms = np.linalg.norm(predicted, axis=1) * np.linalg.norm(target, axis=1)
        return float(1 - np.mean(np.sum(predicted * target, axis=1) / np.maximum(norms, 1e-12)))


def _cosine(target, predicted):
    import keras

    return 1 + keras.losses.cosine_similarity(target, predicted)


def _forward(model):
    """The model as a function of arrays."""

    def g(x):
        return np.concatenate([model.predict_on_batch(x[i : i + _CHUNK]) for i in range(0, len(x), _CHUNK)])

    return g


MAPS = {
    "naive": Naive(),
    "linear": Ridge(),
    "linear_l2": Trained("linear_l2", "l2"),
    "linear_cosine": Trained("linear_cosine", "cosine"),
    "mlp_l2": Trained("mlp_l2", "l2", hidden=1000, bias=True),
    "mlp_cosine": Trained("mlp_cosine", "cosine", hidden=1000, bias=True),
}


def get_map(spec):
    """A map by name, or the map itself."""
    return MAPS[checks.one_of("Identifiability", "maps", spec, MAPS)] if isinstance(spec, str) else spec
