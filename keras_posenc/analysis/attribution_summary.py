"""What contributions say over many sentences: sums that are filled batch by batch, merged, stored and resumed.

Every summary is a dataclass of sums with `add` (a batch), `merge` (another of its kind), `rows` (flat dicts for a
table), `to_dict` and `from_dict` (plain lists and numbers, as for JSON). All count real tokens only.

Reference: Brunner et al., 2020 (arXiv:1908.04211), sections 5.2 and 5.3, appendices C.2, C.3 and C.5.
"""

import dataclasses

import numpy as np

GROUPS = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, None))
GROUP_NAMES = ("1st", "2nd", "3rd", "4th-5th", "6th-10th", "rest")
BINS = 2000  # of the histogram that quantiles are read from: they are right to 1 / 2000


@dataclasses.dataclass
class Summary:
    """Base: `names` and `layers` say what the axes are, and every other field is an array of sums."""

    layers: tuple
    names: tuple

    def __post_init__(self):
        self.layers = tuple(int(layer) for layer in self.layers)
        self.names = tuple(self.names)
        for field, shape in self._shapes().items():
            given = getattr(self, field)
            setattr(self, field, np.zeros(shape) if given is None else np.asarray(given, "float64"))

    def merge(self, other):
        """Adds the sums of another summary to these."""
        if type(other) is not type(self) or (other.layers, other.names) != (self.layers, self.names):
            raise ValueError(
                f"Only summaries of the same kind, layers and names can be merged. Received: {type(other).__name__} of "
                f"{other.layers}, {other.names}; this is {type(self).__name__} of {self.layers}, {self.names}"
            )
        for field in self._shapes():
            ours, theirs = getattr(self, field), getattr(other, field)
            if ours.shape != theirs.shape:
                raise ValueError(f"`{field}` has the shape {ours.shape} here and {theirs.shape} there.")
            setattr(self, field, ours + theirs)
        return self

    def to_dict(self):
        return {
            field.name: np.asarray(getattr(self, field.name)).tolist() if field.name in self._shapes() else value
            for field, value in ((field, getattr(self, field.name)) for field in dataclasses.fields(self))
        }

    @classmethod
    def from_dict(cls, stored):
        return cls(**stored)

    def _read(self, attribution):
        """Contributions `(batch, layers, target, source)` as float64, and the mask."""
        if tuple(attribution.layers) != self.layers:
            raise ValueError(f"This summary is of the layers {self.layers}. Received: {tuple(attribution.layers)}")
        return np.asarray(attribution.contributions, "float64"), np.asarray(attribution.padding_mask, bool)

    def _types(self, types, mask):
        """One-hot `(batch, length, names)`; all zero for padding and for tokens that have no type."""
        types = np.zeros(mask.shape, int) if types is None else np.asarray(types)
        if types.shape != mask.shape:
            raise ValueError(f"`types` must have the shape of the tokens, {mask.shape}. Received: {types.shape}")
        if types.max(initial=0) >= len(self.names):
            raise ValueError(f"There are {len(self.names)} names. Received: a type {types.max()}, counted from 0.")
        return (types[..., None] == np.arange(len(self.names))) & mask[..., None]


@dataclasses.dataclass
class OwnContribution(Summary):
    """`c_jj`, what a token has left of itself, and how often another token has contributed more (figure 3, C.5).

    Attributes:
        layers: as in the attributions.
        names: of the kinds of tokens, e.g. parts of speech; only `("all",)` by default.
        count: `(names,)` tokens.
        total: `(names, layers)` sum of `c_jj`.
        not_main: `(names, layers)` number of tokens to which some other token contributes more.
        histogram: `(names, layers, bins)` of `c_jj`.
    """

    names: tuple = ("all",)
    count: np.ndarray = None
    total: np.ndarray = None
    not_main: np.ndarray = None
    histogram: np.ndarray = None

    def _shapes(self):
        table = (len(self.names), len(self.layers))
        return {"count": table[:1], "total": table, "not_main": table, "histogram": (*table, BINS)}

    def add(self, attribution, types=None):
        """Adds a batch. `types`: int `(batch, length)`, the index in `names` of each token, -1 to leave it out."""
        contributions, mask = self._read(attribution)
        own = np.diagonal(contributions, axis1=2, axis2=3)
        beaten = contributions.max(axis=-1) > own
        batch, at, kind = np.nonzero(self._types(types, mask))
        own, beaten = own[batch, :, at], beaten[batch, :, at]  # (tokens, layers)
        np.add.at(self.count, kind, 1)
        np.add.at(self.total, kind, own)
        np.add.at(self.not_main, kind, beaten)
        bins = np.minimum((own * BINS).astype(int), BINS - 1)
        np.add.at(self.histogram, (kind[:, None], np.arange(len(self.layers)), bins), 1)
        return self

    @property
    def mean(self):
        """`(names, layers)`."""
        return self.total / np.maximum(self.count, 1)[:, None]

    @property
    def not_main_share(self):
        """`(names, layers)`, the paper's P."""
        return self.not_main / np.maximum(self.count, 1)[:, None]

    def quantile(self, q):
        """`(names, layers)`: the value that a share `q` of the tokens is below, interpolated within its bin."""
        below = np.cumsum(self.histogram, axis=-1)
        wanted = q * below[..., -1:]
        index = np.argmax(below >= wanted, axis=-1)[..., None]
        inside = np.take_along_axis(self.histogram, index, -1)
        before = np.take_along_axis(below, index, -1) - inside
        return ((index + (wanted - before) / np.maximum(inside, 1)) / BINS)[..., 0]

    def rows(self):
        columns = {"mean": self.mean, "median": self.quantile(0.5), "lower_quartile": self.quantile(0.25)}
        columns |= {"upper_quartile": self.quantile(0.75), "not_main": self.not_main_share}
        return [
            {"tokens_of": name, "layer": layer, "tokens": int(self.count[k])}
            | {column: float(values[k, index]) for column, values in columns.items()}
            for k, name in enumerate(self.names)
            if self.count[k]
            for index, layer in enumerate(self.layers)
        ]


@dataclasses.dataclass
class NeighbourContribution(Summary):
    """How much the neighbours at some distance contribute (figure 4, C.2).

    A token's contribution from a group of distances is the mean over its neighbours left and right at these distances;
    it is averaged over the tokens that have any.

    Attributes:
        names: of the groups.
        total: `(layers, groups)` sum over tokens of the mean contribution of a neighbour in the group.
        count: `(groups,)` tokens that have such neighbours.
        summed: `(layers, groups)` sum over tokens of the contributions of all neighbours in the group.
        by_offset: `(layers, 2 * 50 + 1)` sum over tokens of the contribution from offsets -50 to 50.
    """

    names: tuple = GROUP_NAMES
    total: np.ndarray = None
    count: np.ndarray = None
    summed: np.ndarray = None
    by_offset: np.ndarray = None
    reach = 50

    def _shapes(self):
        table = (len(self.layers), len(self.names))
        return {"total": table, "count": table[1:], "summed": table, "by_offset": (table[0], 2 * self.reach + 1)}

    def add(self, attribution):
        """Adds a batch."""
        contributions, mask = self._read(attribution)
        length = mask.shape[1]
        offsets = np.arange(length) - np.arange(length)[:, None]  # source - target
        distance = np.abs(offsets)
        groups = np.stack([(distance >= low) & (distance <= (high or length)) for low, high in GROUPS], axis=-1)
        groups = groups.astype("float64")  # (target, source, groups)
        sums = np.einsum("blts,tsg->bltg", contributions, groups, optimize=True)
        neighbours = np.einsum("bs,tsg->btg", mask, groups, optimize=True) * mask[:, :, None]
        self.total += np.sum(sums / np.maximum(neighbours, 1)[:, None], axis=(0, 2))
        self.count += np.sum(neighbours > 0, axis=(0, 1))
        self.summed += sums.sum(axis=(0, 2))
        near = distance <= self.reach
        np.add.at(self.by_offset.T, offsets[near] + self.reach, contributions.sum(axis=0)[:, near].T)
        return self

    @property
    def mean(self):
        """`(layers, groups)`: contribution of one neighbour in the group."""
        return self.total / np.maximum(self.count, 1)

    @property
    def relative(self):
        """`(layers, groups)`: the mean, each group divided by its sum over layers, as in figure 4a."""
        return _divided(self.mean, self.mean.sum(axis=0, keepdims=True))

    @property
    def share(self):
        """`(layers, groups)`: part of all that comes from other tokens; a layer sums to one."""
        return _divided(self.summed, self.summed.sum(axis=1, keepdims=True))

    @property
    def offset_share(self):
        """`(layers, offsets)`: contribution by offset, own token left out, a layer sums to one, as in figure 4b."""
        context = self.by_offset * (np.arange(-self.reach, self.reach + 1) != 0)
        return _divided(context, context.sum(axis=1, keepdims=True))

    def rows(self):
        columns = {"mean": self.mean, "relative": self.relative, "share": self.share}
        return [
            {"layer": layer, "neighbours": name} | {key: float(table[row, g]) for key, table in columns.items()}
            for row, layer in enumerate(self.layers)
            for g, name in enumerate(self.names)
        ]


@dataclasses.dataclass
class ContextByType(Summary):
    """What tokens of one type get from all tokens of another, e.g. to and from [CLS] and [SEP], or parts of speech.

    Attributes:
        names: of the types.
        total: `(layers, target type, source type)` sum over targets of what all sources of a type contribute, the
            own token left out.
        own: `(layers, target type)` sum over targets of what they contribute themselves.
        count: `(target type,)` targets.
        pairs: `(target type, source type)` pairs of different tokens.
    """

    total: np.ndarray = None
    own: np.ndarray = None
    count: np.ndarray = None
    pairs: np.ndarray = None

    def _shapes(self):
        n = len(self.names)
        return {"total": (len(self.layers), n, n), "own": (len(self.layers), n), "count": (n,), "pairs": (n, n)}

    def add(self, attribution, types):
        """Adds a batch. `types`: int `(batch, length)`, the index in `names` of each token, -1 to leave it out."""
        contributions, mask = self._read(attribution)
        kinds = self._types(types, mask).astype("float64")
        own = np.einsum("bltt,btk->lk", contributions, kinds)
        both = np.einsum("btk,blts,bsm->lkm", kinds, contributions, kinds, optimize=True)
        each, tokens = kinds.sum(axis=1), kinds.sum(axis=(0, 1))
        self.total += both - own[:, :, None] * np.eye(len(self.names))
        self.own += own
        self.count += tokens
        self.pairs += np.einsum("bk,bm->km", each, each) - np.diag(tokens)
        return self

    @property
    def context(self):
        """`(layers, target type, source type)`: what a target gets from all others of a type."""
        return self.total / np.maximum(self.count, 1)[None, :, None]

    @property
    def per_source(self):
        """`(layers, target type, source type)`: what one source of a type gives to a target."""
        return self.total / np.maximum(self.pairs, 1)

    @property
    def own_mean(self):
        """`(layers, target type)`."""
        return self.own / np.maximum(self.count, 1)

    def rows(self):
        return [
            {
                "layer": layer,
                "to": target,
                "from": source,
                "context": float(self.context[row, k, m]),
                "per_source": float(self.per_source[row, k, m]),
                "own": float(self.own_mean[row, k]),
            }
            for row, layer in enumerate(self.layers)
            for k, target in enumerate(self.names)
            for m, source in enumerate(self.names)
        ]


@dataclasses.dataclass
class ContextAround(Summary):
    """What one token of each sentence, [CLS], gets from the tokens around another, the first [SEP] (figure 18, C.3).

    Attributes:
        names: offsets from the anchor, e.g. `range(-20, 21)`.
        total: `(layers, offsets)` sum of contributions; the target's own is left out.
        count: `(offsets,)` sentences that have a token there.
    """

    names: tuple = tuple(range(-20, 21))
    total: np.ndarray = None
    count: np.ndarray = None

    def _shapes(self):
        return {"total": (len(self.layers), len(self.names)), "count": (len(self.names),)}

    def add(self, attribution, anchors, targets=None):
        """Adds a batch. `anchors`, `targets`: int `(batch,)`, positions; the target is the first token by default."""
        contributions, mask = self._read(attribution)
        rows = np.arange(len(mask))
        targets = np.zeros(len(mask), int) if targets is None else np.asarray(targets)
        sources = np.asarray(anchors)[:, None] + np.asarray(self.names)  # (batch, offsets)
        inside = (sources >= 0) & (sources < mask.shape[1]) & (sources != targets[:, None])
        sources = np.where(inside, sources, 0)
        inside &= mask[rows[:, None], sources] & mask[rows, targets][:, None]
        found = contributions[rows, :, targets]  # (batch, layers, source)
        self.total += np.sum(np.take_along_axis(found, sources[:, None], axis=2) * inside[:, None], axis=0)
        self.count += inside.sum(axis=0)
        return self

    @property
    def mean(self):
        """`(layers, offsets)`."""
        return self.total / np.maximum(self.count, 1)

    def rows(self):
        return [
            {"layer": layer, "offset": offset, "mean": float(self.mean[row, k]), "sentences": int(self.count[k])}
            for row, layer in enumerate(self.layers)
            for k, offset in enumerate(self.names)
        ]


def special_types(token_ids, special):
    """Types by token id, for the summaries above.

    Args:
        token_ids: int `(batch, length)`.
        special: dict of token ids by name, e.g. `{"[CLS]": 101, "[SEP]": 102}`.

    Returns: int `(batch, length)`, and the names: those given and `"other"`.
    """
    token_ids = np.asarray(token_ids)
    types = np.full(token_ids.shape, len(special))
    for index, token in enumerate(special.values()):
        types[token_ids == token] = index
    return types, (*special, "other")


def _divided(part, whole):
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
