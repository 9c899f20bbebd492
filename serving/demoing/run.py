"""The demo from beginning to end."""

import functools

import numpy as np

from keras_posenc.benchmark.store import machine
from keras_posenc.checkpoints import installed
from serving.demoing import exports, measure, page, study
from serving.demoing.settings import REAL
from serving.demoing.stages import PAGE, SERVED, STAGES
from serving.demoing.training import Trained, best, train
from training.data import word_order
from training.files import write_text


def run(stages, settings, jobs):
    """Runs what is not finished. Returns the path of the page.

    Args:
        stages: `Stages`.
        settings: `Settings`.
        jobs: models that are trained at one time.
    """
    folder = stages.folder
    kept = {name: folder / STAGES / f"{name}.npz" for name in ("study", "real", "pictures")}
    what = f"{len(settings.positions)} encodings, {settings.runs} run(s) of each, on the word-order benchmark"
    found = {"train": stages.run("train", what, functools.partial(train, settings, folder, jobs))}
    trained = Trained(settings, folder, found["train"])

    known = stages.read("export") or {"models": {}}
    gone = [name for name in known["models"] if not (folder / SERVED / name / "1").is_dir()]
    arrived = stages.missed_real() and installed.find(REAL) is not None  # since an earlier demo looked for it
    export = functools.partial(exports.export, trained, settings, folder, stages.say)
    again = bool(gone) or arrived
    found["export"] = stages.run("export", "SavedModels with text in, positions folded", export, again)
    config = exports.write_config(folder, found["export"]["models"])  # the folder may have been moved

    measured = functools.partial(measure.measure, trained, settings, folder, found["export"], config, stages.say)
    found["serve"] = stages.run("serve", "all models in one server: same answers? how fast?", measured, arrived)

    def look():
        study.draw(trained, settings.positions, kept["pictures"])
        return study.study(trained, best(found["train"], settings.positions), settings.texts, kept["study"])

    found["study"] = stages.run("study", "raw against effective attention of the best model", look)
    real = functools.partial(study.study_real, kept["real"]) if settings.real else lambda: {"installed": False}
    what = "the same of a real pretrained model, where one is installed"
    found["real"] = stages.run("real", what, real, arrived)
    stages.run("page", "tables, figures, heatmaps", lambda: _write(stages, settings, found, kept, trained), again=True)
    return folder / PAGE


def _write(stages, settings, found, kept, trained):
    arrays = {name: dict(np.load(path)) if path.is_file() else None for name, path in kept.items()}
    task = word_order.TASKS["acceptability"]
    about = {
        "settings": settings,
        "machine": machine(),
        "seconds": {name: taken for name, taken in stages.seconds.items() if name != "page"},
        "trained": task.lengths,
        "positions": task.max_length,
        "folder": str(stages.folder),
    }
    about["minutes"] = sum(about["seconds"].values()) / 60
    write_text(stages.folder / PAGE, page.write(found, arrays, about))
    return {}
