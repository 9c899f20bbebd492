"""What batches add up to, for analyses of more texts than fit into memory."""

import numpy as np


class Sums:
    """What batches add up to: can be merged with that of other batches, kept as JSON, and taken up again.

    A subclass calls `_add` with arrays, which are summed under their names; those named in `series` are joined along
    their first axis. `settings` are the constructor's arguments; only sums of equal settings can be merged.
    """

    series = ()

    def __init__(self, **settings):
        self.settings = settings
        self.state = {}

    def _add(self, **arrays):
        for name, value in arrays.items():
            value = np.asarray(value, "float64")
            known = self.state.get(name)
            if known is None:
                self.state[name] = value
                continue
            joined = name in self.series
            if known.shape[joined:] != value.shape[joined:]:
                raise ValueError(
                    f"{type(self).__name__}: batches of one model have the same layers and heads. `{name}` had the "
                    f"shape {known.shape} and now has {value.shape}."
                )
            self.state[name] = np.concatenate([known, value]) if joined else known + value

    def merge(self, other):
        """Adds what `other` has seen. Returns itself."""
        if type(other) is not type(self) or other.settings != self.settings:
            raise ValueError(
                f"{type(self).__name__} with {self.settings} cannot be merged with {type(other).__name__} with "
                f"{getattr(other, 'settings', None)}."
            )
        self._add(**other.state)
        return self

    def to_dict(self):
        """All of it as numbers, lists and `None` (for NaN), for a JSON file."""
        state = {name: _without_nan(array.tolist()) for name, array in self.state.items()}
        return {"settings": self.settings, "state": state}

    @classmethod
    def from_dict(cls, kept):
        """What `to_dict` was called on."""
        made = cls(**kept["settings"])
        made.state = {name: np.array(value, "float64") for name, value in kept["state"].items()}
        return made

    def _needs_batches(self):
        if not self.state:
            raise ValueError(f"{type(self).__name__} has seen no batch: call `add` first.")


def _without_nan(value):
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if value != value else value
