"""The runs of a comparison: an encoding and a seed each, in a folder of its own."""

import dataclasses
import json
from pathlib import Path

from training import resuming
from training.comparing.subjects import BAG
from training.engine.folder import RunFolder
from training.files import write_text

RESULT, LOG = "result.json", "log.txt"


@dataclasses.dataclass(frozen=True)
class Run:
    """One encoding with one seed.

    Attributes:
        position: encodings joined by `+`, or `bag_of_words`.
        seed: of weights, order, dropout and masks.
        output: folder of the comparison.
    """

    position: str
    seed: int
    output: Path

    @property
    def name(self):
        return f"{self.position}/seed{self.seed}"

    @property
    def folder(self):
        return Path(self.output) / "runs" / self.position / f"seed{self.seed}"

    def check(self, subject, options):
        """Raises a `ValueError` if the folder is that of another run."""
        result = self.read()
        if result is not None and result["task"] != subject.values.task:
            raise ValueError(
                f"{self.folder} was made for --task={result['task']}, and this is --task={subject.values.task}. Use "
                "another --output."
            )
        if self.position != BAG and (self.folder / "run.json").is_file():
            resuming.finished(*subject.known(self.position), self._options(options), str(self.folder))

    def _options(self, options):
        return dataclasses.replace(options, seed=self.seed)

    def result(self, per_length):
        """What the finished run found, or `None` if it is not finished, or was evaluated on other lengths."""
        result = self.read()
        return result if result is not None and result["per_length"] == per_length else None

    def read(self):
        """`result.json`, or `None` if it is not there."""
        path = self.folder / RESULT
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def write(self, **result):
        write_text(self.folder / RESULT, json.dumps(result, indent=1) + "\n")

    def curve(self):
        """`[(step, primary figure, training loss)]` of the evaluations so far."""
        history = RunFolder(str(self.folder), {}).history()
        return [(entry["step"], entry["primary"], entry["train"].get("loss")) for entry in history]

    def done(self):
        """Share of the steps that are made, as of the last evaluation."""
        if (self.folder / RESULT).is_file():
            return 1.0
        try:
            known = json.loads((self.folder / "run.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # not there yet
            return 0.0
        return known.get("step", 0) / known["total_steps"]


def plan(positions, seeds, output):
    """All runs, seed by seed: after a third of the time there is a table of all encodings."""
    return [Run(position, seed, Path(output)) for seed in seeds for position in positions]
