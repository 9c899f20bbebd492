"""Several runs of one recipe: learning rates times seeds, resumed run by run, and what is reported of them."""

import dataclasses
import json
from pathlib import Path

import numpy as np

from training import engine


@dataclasses.dataclass
class Trial:
    """One run of a sweep: its learning rate, seed, folder and results."""

    learning_rate: float
    seed: int
    folder: Path
    results: dict

    @property
    def score(self):
        """The best checkpoint's primary figure."""
        return self.results["best"]["primary"]


def run(make_task, options, output, learning_rates, seeds, strategy=None):
    """Trains every combination in a folder of its own; finished ones are not trained again.

    Args:
        make_task: function of a seed to a `Task`.
        options: `TrainOptions`, of which learning rate and seed are replaced.
        output: folder of the sweep.
        learning_rates, seeds: lists.
        strategy: from `engine.start`.

    Returns: list of `Trial`.
    """
    trials, total = [], len(learning_rates) * len(seeds)
    for rate in learning_rates:
        for seed in seeds:
            folder = Path(output) / "runs" / f"lr{rate:g}-seed{seed}"
            print(f"run {len(trials) + 1} of {total}: learning rate {rate:g}, seed {seed}", flush=True)
            changed = dataclasses.replace(options, learning_rate=rate, seed=seed)
            trials.append(Trial(rate, seed, folder, engine.run(make_task(seed), changed, str(folder), strategy)))
    return trials


def best_rate(trials):
    """The learning rate with the highest median over its seeds, and that median: what the papers report."""
    rates = sorted({trial.learning_rate for trial in trials})
    medians = {rate: float(np.median([t.score for t in trials if t.learning_rate == rate])) for rate in rates}
    best = max(medians, key=medians.get)
    return best, medians


def best_trial(trials):
    """The run with the highest score, the first of equals."""
    return max(trials, key=lambda trial: trial.score)


def table(trials, primary):
    """Text: a line a run, and the medians."""
    lines = [f"{'learning rate':>13} {'seed':>5} {'best step':>9}  {primary} and other figures of the best checkpoint"]
    for trial in trials:
        best = trial.results["best"]
        figures = [
            f"{name}/{key} {value:.4f}"
            for name, of in best.items()
            if isinstance(of, dict)
            for key, value in of.items()
        ]
        lines.append(f"{trial.learning_rate:>13g} {trial.seed:>5} {best['step']:>9}  {', '.join(figures)}")
    rate, medians = best_rate(trials)
    for each, median in medians.items():
        scores = [trial.score for trial in trials if trial.learning_rate == each]
        spread = f", from {min(scores):.4f} to {max(scores):.4f}" if len(scores) > 1 else ""
        chosen = "  <- reported" if each == rate and len(medians) > 1 else ""
        lines.append(f"median of {len(scores)} at {each:g}: {median:.4f}{spread}{chosen}")
    return "\n".join(lines)


def write(trials, primary, output, **more):
    """`results.json` and `results.txt` of a sweep."""
    rate, medians = best_rate(trials)
    found = {
        "primary": primary,
        "reported": medians[rate],
        "learning_rate": rate,
        "medians": {f"{each:g}": value for each, value in medians.items()},
        "runs": [{**dataclasses.asdict(trial), "folder": str(trial.folder)} for trial in trials],
        **more,
    }
    (Path(output) / "results.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (Path(output) / "results.txt").write_text(table(trials, primary) + "\n", encoding="utf-8")
    return found
