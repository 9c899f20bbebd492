"""Training, by `training.compare`: its flags, its results, its models."""

import json
from pathlib import Path

from absl import flags

from keras_posenc import encodings
from serving.demoing.settings import TASK
from serving.demoing.stages import TRAINING
from training import compare, engine
from training.comparing import runs, subjects
from training.engine import flags as train_flags


def arguments(settings, folder, jobs=2):
    """The command line of `training.compare`, without the program."""
    positions = [*settings.positions, *([subjects.BAG] if settings.bag_of_words else [])]
    given = [f"--task={TASK}", f"--positions={','.join(positions)}", f"--runs={settings.runs}", f"--jobs={jobs}"]
    return [*given, "--threads=1", *settings.training, f"--output={Path(folder) / TRAINING}"]


def parsed(settings, folder, jobs=2):
    """Those arguments as the flags of `training.compare`."""
    values = flags.FlagValues()
    compare.define(values)
    values(["training.compare", *arguments(settings, folder, jobs)])
    return values


def train(settings, folder, jobs):
    """Makes the runs that are missing. Returns what `training.compare` writes as `results.json`."""
    text, failed = compare.run(parsed(settings, folder, jobs))
    if failed:
        raise RuntimeError(f"Training failed: {', '.join(failed)} (see above). The same command tries again.")
    print(text, flush=True)
    return json.loads((Path(folder) / TRAINING / "results.json").read_text(encoding="utf-8"))


class Trained:
    """The models of finished runs.

    Args:
        settings: `Settings`.
        folder: of the demo.
        results: of `train`.
    """

    def __init__(self, settings, folder, results):
        self.folder, self.results = Path(folder) / TRAINING, results
        values = parsed(settings, folder)
        compare.set_defaults(values)
        self.subject = subjects.make(values, train_flags.options(values))

    @property
    def max_length(self):
        """Tokens of the longest sentence that is evaluated."""
        return self.subject.max_length

    @property
    def tokenizer(self):
        return self.subject.source(self.results["rows"][0]["positions"]).tokenizer

    def model(self, position, classes):
        """The best checkpoint of the best run of an encoding, with a head of so many classes."""
        own = [result for result in self.results["runs"] if result["position"] == position]
        best = max(own, key=lambda result: result["score"])
        run = runs.Run(position, best["seed"], self.folder)
        return engine.restore(self.subject.source(position).build(self.subject.head, classes), str(run.folder))


def best(results, positions):
    """The encoding with the highest score on unseen sentences of trained lengths, for a study of its attention.

    Where positions are added to the values too (Shaw), effective attention is not all that a head does, so such a one
    is chosen only if there is no other.
    """
    scores = {row["positions"]: row["test"] for row in results["rows"] if row["positions"] in positions}
    return max(scores, key=lambda name: ("values" not in encodings.get_class(name).doors, scores[name]))
