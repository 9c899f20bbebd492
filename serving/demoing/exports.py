"""The trained models, and a real one, as SavedModels; and what each says in this process, to compare with."""

import gc
from pathlib import Path

import keras
import numpy as np

from keras_posenc.checkpoints import installed
from serving.demoing.settings import PAIR, REAL
from serving.demoing.stages import CONFIG, SERVED
from serving.exporting import export_model
from training.data import word_order
from training.data.word_order.acceptability import LABELS
from training.files import write_text

SENTENCES = 4  # of each split, that answers are compared on
REAL_LENGTH = 128  # tokens that the real model is exported for


def examples(split, count):
    """Sentences of the language and whether they are acceptable, the two in turns."""
    found = word_order.load("acceptability", split, count)
    return list(found.first), [int(label) for label in found.labels]


def export(trained, settings, folder, say):
    """Exports what is not there yet to `served/NAME/1`, and writes the configuration of the server.

    Returns: dict of `texts` that were asked, their `labels`, and `models`: for each its `answers` in this process,
        computed by the Keras model with positions that are not folded.
    """
    texts, labels = (a + b for a, b in zip(examples("test", SENTENCES), examples("test_longer", SENTENCES)))
    models = {}
    for position in settings.positions:
        model = trained.model(position, len(LABELS))
        base = Path(folder) / SERVED / position
        given = dict(max_length=trained.max_length, labels=LABELS, warmup_lengths=(16, trained.max_length))
        models[position] = _exported(model, base, trained.tokenizer, texts, **given)
        say(f"{position}: {models[position]['megabytes']:.1f} MB")
        del model
        keras.backend.clear_session()
        gc.collect()
    if settings.real and installed.find(REAL) is not None:
        real = installed.load(REAL)
        base = Path(folder) / SERVED / REAL
        given = dict(max_length=REAL_LENGTH, warmup_lengths=(32,))
        models[REAL] = _exported(real.model, base, real.tokenizer, [PAIR], **given)
        say(f"{REAL}: {models[REAL]['megabytes']:.1f} MB, a real pretrained model")
    write_config(folder, models)
    return {"texts": texts, "labels": labels, "models": models}


def _exported(model, base, tokenizer, texts, **options):
    if not (base / "1").is_dir():
        export_model(model, base, tokenizer, version=1, **options)
    outputs = model(tokenizer.encode(texts, options["max_length"]), training=False)
    answers = next(outputs[name] for name in ("logits", "pooled_output", "sequence_output") if name in outputs)
    size = sum(file.stat().st_size for file in (base / "1").rglob("*") if file.is_file())
    return {"answers": np.asarray(answers, "float64").tolist(), "megabytes": size / 1e6}


def write_config(folder, names):
    """Writes `models.config`, from which a server knows the models. Paths in it must be absolute.

    Returns: its path.
    """
    entry = '  config {{ name: "{}" base_path: "{}" model_platform: "tensorflow" }}\n'
    served = Path(folder).resolve() / SERVED
    entries = "".join(entry.format(name, _quoted(served / name)) for name in names)
    path = Path(folder).resolve() / CONFIG
    write_text(path, f"model_config_list {{\n{entries}}}\n")
    return path


def _quoted(path):
    return str(path).replace("\\", "\\\\").replace('"', '\\"')
