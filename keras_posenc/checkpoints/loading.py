"""One way to open whatever a folder holds."""

import dataclasses
import functools
import warnings
from pathlib import Path

from keras_posenc.checkpoints import folder, huggingface, remote, tensors, tokenizer
from keras_posenc.models import PositionalModel


@dataclasses.dataclass
class Checkpoint:
    """What `load` found.

    Attributes:
        model: a `Bert`, a head around one, or any other model of this library.
        source: `"huggingface"` or `"keras_posenc"`.
        config: dict, the configuration as it is in the files.
        path: of the folder or file.
        fresh: paths of weights that are not from the files, for instance those of a new head.
    """

    model: PositionalModel
    source: str
    config: dict
    path: Path
    fresh: tuple = ()

    @functools.cached_property
    def tokenizer(self):
        """The tokenizer of the folder, made when first asked for, or `None` if it has none that can be read."""
        place = self.path if self.path.is_dir() else self.path.parent
        return tokenizer.load_tokenizer(place) if tokenizer.found(place) else None


def load(path, task=None, **overrides):
    """Opens a folder of this library or of Hugging Face's BERT or ALBERT, which it tells apart by itself.

    A Hugging Face folder has `config.json`, and `model.safetensors` (or shards of it, with their index), which needs
    the package safetensors only, or `pytorch_model.bin`, which needs torch. Tensors that are missing, unexpected or of
    another shape are all named in one error. What may be left over: buffers (`position_ids`), the tied decoder of a
    masked-LM head, and heads or a pooler that were not asked for.

    Args:
        path: folder; or a file of weights, with `config.json` beside it or the sizes it cannot tell in `overrides`. A
            URI such as `gs://...` is copied to this machine first.
        task: `None` for what is stored: the head, if there is one. `"masked_lm"`, `"classify"`, `"regress"`, `"span"`,
            `"token_classify"` for that head, fresh if it is not stored. `"backbone"` for the encoder without a head.
        **overrides: `num_classes` of a fresh head; and arguments of the model that are not its sizes, such as
            `dropout`, `extrapolate`, `dtype` or, for new positions in trained layers, `position` and
            `position_options`.

    Returns: a `Checkpoint`. Its `fresh` names the weights that are not from the files; a warning does so too.

    Example:

    >>> import tempfile
    >>> folder = tempfile.mkdtemp() + "/tiny"
    >>> _ = keras_posenc.checkpoints.save(keras_posenc.models.build("bert_tiny", position="tisa"), folder)
    >>> checkpoint = keras_posenc.checkpoints.load(folder)
    >>> checkpoint.source, checkpoint.model.count_params()
    ('keras_posenc', 4320444)
    """
    path = remote.fetch(path) if remote.is_remote(path) else Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no folder or file '{path}'.")
    if folder.is_own(path):
        source, found = "keras_posenc", folder.load(path, task, **overrides)
    elif _looks_like_huggingface(path):
        source, found = "huggingface", huggingface.load(path, task, **overrides)
    else:
        names = ", ".join(sorted(entry.name for entry in path.iterdir())[:10]) or "nothing"
        raise ValueError(
            f"'{path}' is no checkpoint: it has neither {folder.CONFIG} (this library) nor {huggingface.CONFIG} "
            f"(Hugging Face). It has: {names}"
        )
    model, config, fresh = found
    if fresh:
        some = ", ".join(fresh[:4]) + (", ..." if len(fresh) > 4 else "")
        warnings.warn(f"{len(fresh)} weights are fresh, not from '{path}': {some}", stacklevel=2)
    return Checkpoint(model, source, config, path, fresh)


def _looks_like_huggingface(path):
    if path.is_file() or (path / huggingface.CONFIG).is_file():
        return True
    try:
        return bool(tensors.find(path))
    except FileNotFoundError:
        return False
