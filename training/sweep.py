"""Several runs of one recipe: learning rates times seeds, resumed run by run, and what is reported of them."""

import copy
import dataclasses
import json
import math
from pathlib import Path

import numpy as np

from training import engine


@dataclasses.dataclass
class Trial:
    """One run of a sweep: its learning rate, seed, folder and results. One that diverged has no best checkpoint."""

    learning_rate: float
    seed: int
    folder: Path
    results: dict

    @property
    def diverged(self):
        return "diverged" in self.results

    @property
    def score(self):
        """The best checkpoint's primary figure; worse than any if the run diverged or the figure is not a number."""
        figure = math.nan if self.diverged else self.results["best"]["primary"]
        return -math.inf if math.isnan(figure) else figure

    @property
    def scored(self):
        return math.isfinite(self.score)


def rates(written, options):
    """The learning rates that `--learning_rates` lists, each checked; that of the options if it lists none."""
    try:
        found = [float(rate) for rate in written or [options.learning_rate]]
    except ValueError:
        raise ValueError(f"--learning_rates takes numbers, joined by commas. Received: {','.join(written)}") from None
    for rate in found:
        dataclasses.replace(options, learning_rate=rate).validate()
    return found


def reseeded(task, seed):
    """The task with another order of examples, which are not tokenized again."""
    other = copy.copy(task)
    other.seed = seed
    return other


def run(make_task, options, output, learning_rates, seeds, strategy=None):
    """Trains every combination in a folder of its own; those that are finished, or diverged, are not trained again.

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
            trials.append(Trial(rate, seed, folder, _train(make_task(seed), changed, str(folder), strategy)))
    if all(trial.diverged for trial in trials):
        raise engine.Diverged(
            f"All {total} runs diverged. The last one: {trials[-1].results['diverged']} A run whose folder is deleted "
            "is trained again."
        )
    return trials


def _train(task, options, folder, strategy):
    """Results of a run. One that diverged would do so again at the same step."""
    said = engine.diverged(task, options, folder)
    if said is None:
        try:
            return engine.run(task, options, folder, strategy)
        except engine.Diverged as error:
            said = str(error)
    print(f"diverged: {said} It is not trained again unless {folder} is deleted.", flush=True)
    return {"best": None, "diverged": said}


def best_rate(trials):
    """The learning rate with the highest median over its seeds, and the medians: what the papers report.

    A run without a score, one that diverged for instance, is worse than any other when the rate is chosen. The medians
    are those of the runs that have a score, `None` where no run of a rate has one.
    """
    medians = {}
    for rate in sorted({trial.learning_rate for trial in trials}):
        scores = [trial.score for trial in _of(trials, rate) if trial.scored]
        medians[rate] = float(np.median(scores)) if scores else None
    return max(medians, key=lambda rate: _rank(_of(trials, rate))), medians


def _of(trials, rate):
    return [trial for trial in trials if trial.learning_rate == rate]


def _rank(trials):
    # Where half of all seeds have no score, a rate that has a model comes before one that has none.
    scores = [trial.score for trial in trials]
    return float(np.median(scores)), max(scores), not all(trial.diverged for trial in trials)


def counted(trials, rate):
    """The runs of a rate that figures are reported of: those with a score, or if there are none all with a model."""
    own = _of(trials, rate)
    return [trial for trial in own if trial.scored] or [trial for trial in own if not trial.diverged]


def best_trial(trials):
    """The run with the highest score, the first of equals."""
    return max(trials, key=lambda trial: trial.score)


def number_of_runs(found, total):
    """How a report says of how many runs its medians are."""
    return str(total) if found == total else f"{found} of {total}"


def table(trials, primary):
    """Text: a line a run, and the medians."""
    lines = [f"{'learning rate':>13} {'seed':>5} {'best step':>9}  {primary} and other figures of the best checkpoint"]
    for trial in trials:
        if trial.diverged:
            lines.append(f"{trial.learning_rate:>13g} {trial.seed:>5} {'':>9}  diverged")
            continue
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
        chosen = "  <- reported" if each == rate and len(medians) > 1 else ""
        lines.append(_median_line(_of(trials, each), median) + chosen)
    return "\n".join(lines)


def _median_line(trials, median):
    scores = [trial.score for trial in trials if trial.scored]
    runs = number_of_runs(len(scores), len(trials))
    if median is None:
        shown = "diverged" if all(trial.diverged for trial in trials) else "not a number"
    else:
        spread = f", from {min(scores):.4f} to {max(scores):.4f}" if len(scores) > 1 else ""
        shown = f"{median:.4f}{spread}"
    return f"median of {runs} at {trials[0].learning_rate:g}: {shown}"


def write(trials, primary, output, **more):
    """`results.json` and `results.txt` of a sweep. A rate of which no run has a score has no median."""
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
