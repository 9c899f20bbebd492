"""Evaluation of a model in several languages, one after the other, and the table of it."""

import csv
import dataclasses
import io
import json
from pathlib import Path

import keras
import numpy as np

from training import sweep
from training.engine.evaluator import Evaluator
from training.engine.strategy import is_chief
from training.files import write_text

AVERAGE, ZERO_SHOT = "average", "average without en"


def first(data, count):
    """The first examples of a list of questions or of a `Classification`."""
    if isinstance(data, list):
        return data[:count]
    fields = {name: value for name, value in vars(data).items() if name != "label_names" and value is not None}
    return dataclasses.replace(data, **{name: value[:count] for name, value in fields.items()})


def evaluate(source, maker, folder, load_model, strategy):
    """The figures of a model in each language. All workers predict, and the chief writes.

    They are kept in `languages.json` of the folder as they come, and not computed again unless the model, what is known
    of the run (`maker.known`) or the precision is another. Predictions go to
    `predictions/`: for questions a JSON object of ids and texts, as the scripts of SQuAD and MLQA want it; for XNLI a
    label a line, as XTREME's does.

    Args:
        source: `training.data.cross_lingual.Source`.
        maker: function of a training set, a dict of evaluation sets and a dict of their languages to a `Task`, with
            `options`, and `known`, what makes the model what it is.
        folder: of the run.
        load_model: function of a task to its trained model.
        strategy: where to predict.

    Returns: dict from languages to dicts of figures, in percent.
    """
    folder, chief = Path(folder), is_chief(strategy)
    file = folder / "languages.json"
    kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    wanted = {"task": source.name, "split": source.split, "scoring": source.about.scoring, **maker.known}
    wanted["precision"] = keras.config.dtype_policy().name
    wanted = json.loads(json.dumps(wanted, default=str))
    known = kept.get("figures", {}) if kept.get("about") == wanted else {}
    model = None
    for language in source.languages:
        if language in known:
            continue
        task = maker(None, {language: source.load(language)}, {language: language})
        if model is None:
            with strategy.scope():
                model = load_model(task)
        evaluator = Evaluator(task, model, None, maker.options, strategy)
        outputs = evaluator.outputs(evaluator.sets[language])
        known[language] = {name: float(value) for name, value in task.metrics(language, outputs).items()}
        if not chief:
            continue
        place = folder / "predictions" / f"{source.split}-{language}.{'json' if maker.benchmark.spans else 'tsv'}"
        write_text(place, _predictions(task, language, outputs))
        write_text(file, json.dumps({"about": wanted, "figures": known}, indent=1) + "\n")
        shown = ", ".join(f"{name} {value:.2f}" for name, value in known[language].items())
        print(f"{language}: {shown}", flush=True)
    return {language: known[language] for language in source.languages}


def _predictions(task, language, outputs):
    if hasattr(task, "answers"):
        return json.dumps(task.answers(language, outputs), ensure_ascii=False, indent=1) + "\n"
    return "".join(task.label_names[label] + "\n" for label in outputs["predictions"])


def medians(runs):
    """The median over runs of every figure of every language.

    Args:
        runs: dict from names of runs to dicts from languages to dicts of figures.
    """
    each = list(runs.values())
    return {
        language: {name: float(np.median([run[language][name] for run in each])) for name in figures}
        for language, figures in each[0].items()
    }


def averages(figures):
    """Means over the languages: of all, and without English if others remain (what zero-shot transfer is about)."""
    found = {AVERAGE: _mean(list(figures.values()))}
    others = [of for language, of in figures.items() if language != "en"]
    if others and len(others) < len(figures):
        found[ZERO_SHOT] = _mean(others)
    return found


def _mean(rows):
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def write(runs, output, planned=1, **about):
    """`results.json`, `results.csv` and `results.txt`: languages times figures, medians over `runs`.

    Args:
        runs: as in `medians`.
        output: folder.
        planned: number of runs that were made; those that diverged have no figures.
        **about: what else `results.json` says.
    """
    figures = medians(runs)
    means = averages(figures)
    found = {**about, "planned": planned, "figures": figures, "averages": means, "runs": runs}
    rows, names = {**figures, **means}, list(next(iter(figures.values())))
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["language", *names])
    writer.writerows([language, *(f"{of[name]:.4f}" for name in names)] for language, of in rows.items())
    width = max(map(len, rows))
    lines = [" ".join([f"{'':{width}}", *(f"{name:>12}" for name in names)])]
    lines += [
        " ".join([f"{language:{width}}", *(f"{of[name]:12.2f}" for name in names)]) for language, of in rows.items()
    ]
    if planned > 1:
        lines.append(f"medians of {sweep.number_of_runs(len(runs), planned)} runs")
    output = Path(output)
    write_text(output / "results.csv", table.getvalue())
    write_text(output / "results.txt", "\n".join(lines) + "\n")
    write_text(output / "results.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return found
