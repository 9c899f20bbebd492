"""Token identifiability: which contextual embeddings still tell the token they stand for.

An embedding e_i of layer l is identified if, among the inputs x_j of its sentence, g(e_i) is nearest to x_i, for a map
g fitted on other sentences. The rate is the share of tokens that are identified.

Reference: Brunner et al., 2020, "On Identifiability in Transformers" (arXiv:1908.04211), section 4 and appendix B.
"""

import dataclasses
import zlib

import numpy as np

from keras_posenc.analysis.identifiability_data import METRICS, PARTS, Sentences, first_equal, nearest, split_folds
from keras_posenc.analysis.identifiability_maps import Pairs, Trained, get_map
from keras_posenc.analysis.layers import check_layers
from keras_posenc.utils import checks
from keras_posenc.utils.progress import Progress


@dataclasses.dataclass(frozen=True)
class Piece:
    """The rates of one fitted map on one set of tokens, the unit in which work is stored and resumed.

    Attributes:
        map: its name.
        source, target: layers between which the map was fitted, 0 for the inputs.
        tested: the layer whose embeddings were mapped.
        offset: places from the token to the one it should tell.
        fold, part: which fold, and which of its parts the tokens are of.
        cosine, l2: shares of tokens found by the two nearest-neighbour rules.
        chance: share that guessing finds.
        tokens: number of tokens looked for.
        note: on the fit.
        run: checksum of data, folds and map, by which a stored piece is known to belong here.
    """

    map: str
    source: int
    target: int
    tested: int
    offset: int
    fold: int
    part: str
    cosine: float
    l2: float
    chance: float
    tokens: int
    note: str
    run: str

    @property
    def key(self):
        return (self.run, self.map, self.source, self.target, self.tested, self.offset, self.fold, self.part)

    def row(self):
        """A flat dict; `Piece(**row)` is the piece again."""
        return dataclasses.asdict(self)


@dataclasses.dataclass
class Rates:
    """Rates of identified tokens. `axis` is what varies besides the map: a field of the pieces."""

    pieces: list
    axis = ("source",)

    def _groups(self):
        groups = {}
        for piece in self.pieces:
            place = tuple(getattr(piece, name) for name in ("source", "target", "tested", "offset"))
            groups.setdefault((piece.map, place, piece.part), []).append(piece)
        return groups

    def rows(self):
        """A dict for each map, place, part and rule: mean and standard deviation over folds, chance, tokens."""
        rows = []
        for (name, place, part), pieces in self._groups().items():
            for metric in METRICS:
                rates = np.array([getattr(piece, metric) for piece in pieces])
                rows.append(
                    {
                        "map": name,
                        **dict(zip(("source", "target", "tested", "offset"), place)),
                        "part": part,
                        "metric": metric,
                        "rate": float(rates.mean()),
                        "std": float(rates.std(ddof=1)) if rates.size > 1 else None,
                        "folds": int(rates.size),
                        "chance": float(np.mean([piece.chance for piece in pieces])),
                        "tokens": int(np.sum([piece.tokens for piece in pieces])),
                    }
                )
        return rows

    @property
    def maps(self):
        return list(dict.fromkeys(piece.map for piece in self.pieces))

    def array(self, map, metric="cosine", part="test"):
        """`(values, mean, std)`: the values of each axis, sorted, and the rates over them; `std` is 0 for one fold."""
        rows = [row for row in self.rows() if (row["map"], row["metric"], row["part"]) == (map, metric, part)]
        if not rows:
            raise ValueError(f"No rates of map {map!r}, rule {metric!r} on {part!r}. Maps here: {self.maps}")
        values = [sorted({row[name] for row in rows}) for name in self.axis]
        mean = np.full([len(v) for v in values], np.nan)
        std = mean.copy()
        for row in rows:
            place = tuple(v.index(row[name]) for v, name in zip(values, self.axis))
            mean[place], std[place] = row["rate"], row["std"] or 0.0
        return values, mean, std


class LayerRates(Rates):
    """From each layer to the inputs (figure 2a)."""


class CrossLayerRates(Rates):
    """Maps of one layer tested on all (figure 2b)."""

    axis = ("source", "tested")


class HiddenRates(Rates):
    """From one layer to another (B.4)."""

    axis = ("source", "target")


class NeighbourRates(Rates):
    """From a token to the inputs of its neighbours (B.5)."""

    axis = ("offset", "source")


class Identifiability:
    """The experiments on the tokens of one model.

    Args:
        inputs: `(tokens, d)`, the x_i: in the paper the sum of token, segment and position embeddings. The first of a
            `Bert`'s `hidden_states` is that sum, normalised.
        hidden: `(layers, tokens, d)`, or a list of arrays; outputs of layers 1, 2, ... Memory-mapped files will do: one
            layer is in memory at a time. `inputs` are layer 0.
        sentences: integer `(tokens,)`, the sentence each token is of. A pair of sentences that the model reads as one
            input is one sentence here, as in the paper.
        groups: integer `(tokens,)`, sentences that are never split between training and test.
        mask: bool `(tokens,)`, tokens to use. All by default, [CLS] and [SEP] too: the paper's 21,723 tokens of
            MRPC's 408 development pairs are all word pieces with these. Padding must be left out by this mask, or
            beforehand (`pack_tokens`).
        folds: number of folds, see `split_folds`.
        split: shares of sentences for training, validation (ridge, early stopping) and test.
        seed: of folds, initial weights and batches. The same seed gives the same rates.

    All experiments take:
        maps: names out of `identifiability_maps.MAPS`, or maps. `"naive"`; `"linear"`, in closed form for the L2
            loss; trained: `"linear_l2"`, `"linear_cosine"`, `"mlp_l2"`, `"mlp_cosine"`.
        run_folds: folds to run, all by default.
        parts: parts of a fold to look tokens up in: `"train"`, `"validation"`, `"test"`.
        done: pieces (or their rows) of an earlier run; those that belong here are taken over and not computed.
        on_result: called with each new `Piece`, to store it.
        progress: whether to show it.

    Example:

    >>> x = np.random.default_rng(0).normal(size=(60, 4)).astype("float32")
    >>> probe = keras_posenc.analysis.identifiability.Identifiability(x, [x, -x], np.repeat(np.arange(20), 3))
    >>> {(row["map"], row["source"]): round(row["rate"], 3) for row in probe.identify().rows()[::2]}
    {('naive', 1): 1.0, ('linear', 1): 1.0, ('naive', 2): 0.0, ('linear', 2): 1.0}
    """

    def __init__(self, inputs, hidden, sentences, groups=None, mask=None, folds=10, split=(0.7, 0.15, 0.15), seed=0):
        self.states = [inputs, *(hidden[layer] for layer in range(len(hidden)))]
        for layer, state in enumerate(self.states):
            if len(state.shape) != 2 or state.shape[0] != len(sentences):
                raise ValueError(
                    f"Inputs and each layer must be (tokens, d) with {len(sentences)} tokens, as `sentences`. "
                    f"Received: {tuple(state.shape)} for layer {layer}"
                )
        self.tokens = Sentences(sentences, groups, mask)
        self.seed = seed
        self.roles = split_folds(
            self.tokens.groups, checks.positive_int("Identifiability", "folds", folds), split, seed
        )
        self._equal = {}
        sample = np.linspace(0, len(sentences) - 1, 64).astype(int)
        arrays = [self.tokens.order, self.tokens.bounds, self.roles, np.array([seed])]
        self._checksum = 0
        for array in [*arrays, *(np.asarray(state[sample], "float32") for state in self.states)]:
            self._checksum = zlib.crc32(np.ascontiguousarray(array).tobytes(), self._checksum)

    @property
    def layers(self):
        """The numbers of the layers, from 1."""
        return range(1, len(self.states))

    def identify(self, maps=("naive", "linear"), layers=None, **options):
        """From every layer to the inputs (figure 2a). Returns `LayerRates`."""
        layers = self._check(layers)
        return LayerRates(self._run([(layer, 0, 0, (layer,)) for layer in layers], maps, **options))

    def cross_layer(self, maps=("linear",), layers=None, tested=None, **options):
        """Maps fitted on one layer, tested on all (figure 2b). Returns `CrossLayerRates`."""
        layers, tested = self._check(layers), tuple(self._check(tested, "tested"))
        return CrossLayerRates(self._run([(layer, 0, 0, tested) for layer in layers], maps, **options))

    def hidden_to_hidden(self, maps=("naive", "linear"), pairs=None, **options):
        """From layer to layer (B.4). Returns `HiddenRates`.

        Args:
            pairs: `(from, to)` layers, 0 for the inputs; from each layer to the one before by default.
        """
        pairs = [(layer, layer - 1) for layer in self.layers] if pairs is None else pairs
        pairs = [self._check(pair, "pairs") for pair in pairs]
        return HiddenRates(self._run([(source, target, 0, (source,)) for source, target in pairs], maps, **options))

    def neighbours(self, maps=("naive", "linear"), offsets=(-3, -2, -1, 1, 2, 3), layers=None, **options):
        """From every token to the inputs of its neighbours (B.5). Returns `NeighbourRates`.

        Tokens without such a neighbour in the sentence are left out; all its tokens are candidates.
        """
        tasks = [(layer, 0, offset, (layer,)) for layer in self._check(layers) for offset in offsets]
        return NeighbourRates(self._run(tasks, maps, **options))

    def _check(self, layers, name="layers"):
        return check_layers(layers, len(self.states) - 1, name)

    def _run(self, tasks, maps, run_folds=None, parts=("test",), done=(), on_result=None, progress=False):
        maps = [get_map(spec) for spec in maps]
        if len({spec.name for spec in maps}) < len(maps):
            raise ValueError(f"Maps must have different names. Received: {[spec.name for spec in maps]}")
        for part in parts:
            checks.one_of("Identifiability", "parts", part, PARTS)
        folds = range(len(self.roles)) if run_folds is None else list(run_folds)
        known = {piece.key: piece for piece in (p if isinstance(p, Piece) else Piece(**p) for p in done)}
        pieces = []
        with Progress(len(tasks) * len(maps) * len(folds)) if progress else _Silent() as shown:
            for source, target, offset, tested in tasks:
                pairs = None
                for spec in maps:
                    run = f"{zlib.crc32(repr(spec).encode(), self._checksum):08x}"
                    what = f"{spec.name}, layer {source} to {target}" + (f", token {offset:+d}" if offset else "")
                    fit = None
                    for fold in folds:
                        keys = [(run, spec.name, source, target, t, offset, fold, p) for t in tested for p in parts]
                        if not all(key in known for key in keys):
                            pairs = pairs or self._pairs(source, target, offset)
                            fit = fit or spec.fitter(pairs, (self.seed, source, target, offset + 2**16))
                            g, note = fit(fold)
                            for key in keys:
                                if key not in known:
                                    known[key] = self._piece(key, g, note, pairs)
                                    if on_result is not None:
                                        on_result(known[key])
                        pieces += [known[key] for key in keys]
                        if isinstance(spec, Trained):  # the others take a moment for all folds
                            shown.step(f"{what}, fold {fold}")
                    if not isinstance(spec, Trained):
                        shown.step(what, len(folds))
        return pieces

    def _rows(self, layer, tokens=slice(None)):
        rows = np.asarray(self.states[layer][self.tokens.order[tokens]], "float32")
        if not np.isfinite(rows).all():
            raise ValueError(f"Layer {layer} has values that are no finite numbers. Leave such tokens out by `mask`.")
        return rows

    def _pairs(self, source, target, offset):
        query, answer = self.tokens.pairs(offset)
        if not query.size:
            raise ValueError(f"No token has a neighbour {offset:+d} places on in its sentence.")
        roles = self.roles[:, self.tokens.sentence[query]]
        goal = self._rows(target)
        if target not in self._equal:
            self._equal[target] = first_equal(goal, self.tokens.bounds)
        return Pairs(self._rows(source), goal, query, answer, roles)

    def _piece(self, key, g, note, pairs):
        """Looks up the tokens of one part of one fold."""
        run, name, source, target, tested, offset, fold, part = key
        role = PARTS.index(part)
        query, answer = pairs.of(fold, role)
        if not query.size:
            raise ValueError(f"No token of fold {fold}, {part}, has a neighbour {offset:+d} places on in its sentence.")
        tokens, bounds = self.tokens.tokens_of(self.roles[fold] == role)
        found = tokens[nearest(g(self._rows(tested, tokens)), pairs.target[tokens], bounds)]
        equal = self._equal[target]
        hits = equal[found[:, np.searchsorted(tokens, query)]] == equal[answer]
        cosine, l2 = hits.mean(axis=1).tolist()
        copies = np.bincount(equal, minlength=equal.size)[equal[answer]]
        chance = float(np.mean(copies / np.diff(self.tokens.bounds)[self.tokens.sentence[query]]))
        return Piece(name, source, target, tested, offset, fold, part, cosine, l2, chance, int(query.size), note, run)


class _Silent:
    def step(self, what, count=1):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass
