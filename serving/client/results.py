"""What a model said about a batch."""

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, eq=False)
class Result:
    """
    Args:
        logits: float32, batch first.
        token_ids, segment_ids, padding_mask: int32 `(batch, length)`, what the model saw.
        pieces: tokens as text, `(batch, length)` with those of the padding, or `None` if ids were sent.
        label_names: names of the classes, or `None`.
        raw, effective: maps `(batch, layers, heads, length, keys)`, without `layers` if one was asked for, or `None`.
        layer: the one layer of the maps, or `None` for all.
    """

    logits: np.ndarray
    token_ids: np.ndarray
    segment_ids: np.ndarray
    padding_mask: np.ndarray
    pieces: np.ndarray | None = None
    label_names: tuple | None = None
    raw: np.ndarray | None = None
    effective: np.ndarray | None = None
    layer: int | None = None

    def __len__(self):
        return len(self.token_ids)

    @property
    def lengths(self):
        """Number of tokens of each row."""
        return self.padding_mask.sum(axis=1)

    @property
    def tokens(self):
        """A list of strings for each row, without padding; `None` if ids were sent."""
        if self.pieces is None:
            return None
        rows = zip(self.pieces, self.padding_mask)
        return [[piece.decode(errors="replace") for piece in row[mask > 0]] for row, mask in rows]

    @property
    def probabilities(self):
        """Softmax of the logits over their last axis."""
        shifted = np.exp(self.logits - self.logits.max(axis=-1, keepdims=True))
        return shifted / shifted.sum(axis=-1, keepdims=True)

    @property
    def labels(self):
        """The most likely class of each row (or of each token): its name if known, else its number."""
        best = self.logits.argmax(axis=-1)
        if self.label_names is None:
            return best.tolist()
        if len(self.label_names) != self.logits.shape[-1]:
            raise ValueError(f"There are {len(self.label_names)} labels for {self.logits.shape[-1]} classes.")
        return np.array(self.label_names, dtype=object)[best].tolist()

    def attention(self, layer=None):
        """Raw attention: of all layers that were asked for, or of one."""
        return self._maps("raw", layer)

    def effective_attention(self, layer=None):
        """Effective attention, whose weights can be negative and above one."""
        return self._maps("effective", layer)

    def row(self, index):
        """The result of one row by itself, with its padding cut off from tokens and maps.

        Compressed keys of a Linformer are no tokens and stay.
        """
        keep = self.padding_mask[index] > 0
        tokens = self.raw is not None and self.raw.shape[-1] == len(keep) and not self.raw[index][..., ~keep].any()

        def cut(maps):
            if maps is None:
                return None
            kept = maps[index : index + 1][..., keep, :]
            return kept[..., keep] if tokens else kept

        ids = {
            name: None if getattr(self, name) is None else getattr(self, name)[index : index + 1][:, keep]
            for name in ("token_ids", "segment_ids", "padding_mask", "pieces")
        }
        logits = self.logits[index : index + 1]
        return replace(self, logits=logits, raw=cut(self.raw), effective=cut(self.effective), **ids)

    def cut(self, width):
        """The result for the first `width` places, where those behind them are padding in all rows."""
        if width == self.token_ids.shape[1]:
            return self
        keys = slice(width if self._keys_are_tokens(width) else None)
        maps = {name: getattr(self, name) for name in ("raw", "effective")}
        ids = {name: getattr(self, name) for name in ("token_ids", "segment_ids", "padding_mask", "pieces")}
        return replace(
            self,
            logits=self.logits[:, :width] if self.logits.ndim == 3 else self.logits,  # of tokens, or of rows
            **{name: None if value is None else value[..., :width, keys] for name, value in maps.items()},
            **{name: None if value is None else value[:, :width] for name, value in ids.items()},
        )

    def _keys_are_tokens(self, width):
        """Nobody looks at padding, but everybody a little at each compressed key of a Linformer, which is no token."""
        if self.raw is None or self.raw.shape[-1] != self.token_ids.shape[1]:
            return False
        looked_at = self.raw[..., width:].any(axis=tuple(range(1, self.raw.ndim)))
        return not (looked_at & self.padding_mask.any(axis=1)).any()

    def _maps(self, kind, layer):
        maps = getattr(self, kind)
        if maps is None:
            raise ValueError(f'This result has no {kind} attention; ask for it with attention="{kind}".')
        if layer is None:
            return maps
        if self.layer is not None:
            if layer != self.layer:
                raise ValueError(f"This result has the maps of layer {self.layer}. Ask for layer={layer}, or for all.")
            return maps
        if not -maps.shape[1] <= layer < maps.shape[1]:
            raise ValueError(f"The model has {maps.shape[1]} layers. Received: layer={layer}")
        return maps[:, layer]
