"""The models that are served: every encoding, folded and not."""

import gc
import shutil
from pathlib import Path

import keras

from keras_posenc import encodings, models
from serving.exporting import export_model, versions
from serving.exporting.description import read
from serving.measuring.settings import SIGNATURES, UNFOLDED

NUM_KEYS = 32  # compressed keys of a Linformer, for encodings that score those


def base_paths(folder, positions, settings, twins=True):
    """Exports what is not there yet.

    Args:
        folder: where models are kept.
        positions: names of encodings.
        settings: `Settings`.
        twins: whether models that are not folded are wanted too.

    Returns: dict from names of models to their folders. An encoding with nothing to fold has no unfolded twin.
    """
    found = {}
    for position in positions:
        names = {position: True, position + UNFOLDED: False}
        for name, fold in names.items():
            base = Path(folder) / name
            if not (base.is_dir() and versions(base)):
                _export(base, position, fold, settings)
            found[name] = base
            if not twins or (fold and read(base / "1")["folded_length"] is None):
                break
    return found


def _export(base, position, fold, settings):
    parts = [encodings.get_class(part) for part in encodings.parse(position)]
    options = {"num_keys": NUM_KEYS} if any(getattr(part, "compresses_keys", False) for part in parts) else {}
    model = models.build(settings.model, position=position, max_length=settings.max_length, **options)
    export_model(
        model,
        base,
        version=1,
        max_length=settings.max_length,
        fold=fold,
        parts=settings.parts,
        signatures=SIGNATURES[1:],
        warmup_lengths=(settings.length,),
    )
    del model
    keras.backend.clear_session()
    gc.collect()


def remove(*paths):
    """Deletes models, which are large."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
