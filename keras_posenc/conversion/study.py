"""All conversions of one model, side by side."""

import csv
import dataclasses
import json

import numpy as np

from keras_posenc.conversion import convert
from keras_posenc.conversion.calibrate import Calibration
from keras_posenc.conversion.profile import (
    attention_biases,
    get_backbone,
    position_table,
    positional_profiles,
    to_numpy,
)
from keras_posenc.conversion.rebuild import without_positions
from keras_posenc.conversion.report import Yardstick
from keras_posenc.conversion.toeplitz import random_toeplitz_r2, toeplitz_r2
from keras_posenc.utils.plain import plain

CALIBRATED = "-calibrated"
SHOWN = 5  # sentences


@dataclasses.dataclass
class Study:
    """What was found. `reports` by name, `biases` (layers of `(heads, n, n)`) of those converted by the profile."""

    profiles: list
    reports: dict
    biases: dict
    toeplitz: dict
    sentences: list
    settings: dict


def names(kernels, ranks, calibrated=True):
    """The names of the conversions of a study, and how each is made."""
    plain = {
        **{f"tisa-{s}": (convert.to_tisa, {"kernels": s, "verbose": False}) for s in kernels},
        "t5": (convert.to_t5, {}),
        "diet_rel": (convert.to_diet_rel, {}),
        **{f"diet_abs-{r}": (convert.to_diet_abs, {"rank": r}) for r in ranks},
    }
    return {**plain, **({name + CALIBRATED: made for name, made in plain.items()} if calibrated else {})}


def run(model, compared, calibration, texts, kernels, ranks, length, seed, progress, keep=None, mask_id=None):
    """Converts `model` in all ways.

    Args:
        model: the original.
        compared, calibration: tokens to compare outputs on and to calibrate on (`None` for no calibration).
        texts: what `compared` was made of.
        kernels, ranks: lists.
        length: number of positions of the profile.
        seed: of masks, fits and shuffled sentences.
        progress: its `step(what)` is called after each conversion.
        keep: name of the conversion whose model to return.
        mask_id: id of [MASK], for models with a masked-LM head.

    Returns: `(Study, model or None)`.
    """
    profiles = positional_profiles(model, length)
    yardstick = Yardstick(model, compared, mask_id, seed)
    calibration = None if calibration is None else Calibration(model, calibration)
    progress.step("profile of the original")
    made = names(kernels, ranks, calibration is not None)
    shown = {f"tisa-{max(kernels)}", f"diet_abs-{max(ranks)}"}
    shown |= {name + CALIBRATED for name in shown}
    sentences = Sentences(model, yardstick, texts, seed)
    reports, biases, kept = {}, {}, None
    for name, (function, options) in made.items():
        source = {"calibration": calibration} if name.endswith(CALIBRATED) else {"profiles": profiles}
        new, reports[name] = function(model, inputs=yardstick, seed=seed, **source, **options)
        if not name.endswith(CALIBRATED):
            biases[name] = attention_biases(get_backbone(new).encoder, length)
        if name in shown:
            sentences.add(name, new)
        kept = new if name == keep else kept
        progress.step(name)
    settings = {"length": length, "compared": len(texts), "seed": seed, "kernels": kernels, "ranks": ranks}
    settings["calibrated_on"] = 0 if calibration is None else sum(len(b["token_ids"]) for b in calibration.batches)
    settings["calibrated_length"] = None if calibration is None else calibration.length
    return Study(profiles, reports, biases, _toeplitz(model, length), sentences.rows, settings), kept


def _toeplitz(model, length):
    """Of the position embeddings themselves, as in section 3.1 of TISA, beside random ones."""
    table = position_table(get_backbone(model), length)
    return {
        "r2": float(toeplitz_r2(table @ table.T)),
        "r2_off_diagonal": float(toeplitz_r2(table @ table.T, off_diagonal=True)),
        "random": random_toeplitz_r2(*table.shape),
        "random_off_diagonal": random_toeplitz_r2(*table.shape, off_diagonal=True),
    }


class Sentences:
    """Vectors of single sentences: those of converted models beside the original's, and what word order does to them.

    A sentence's vector is the mean of its final hidden states. `same` is its cosine similarity with the original's,
    `shuffled` that with the vector that the same model gives to the sentence with its inner tokens in random order: 1
    for a model that does not know order.
    """

    def __init__(self, model, yardstick, texts, seed):
        self.real = yardstick.real[:SHOWN]
        self.inputs = {name: value[:SHOWN] for name, value in yardstick.inputs.items()}
        tokens, rng = self.inputs["token_ids"].copy(), np.random.default_rng(seed)
        for row, real in zip(tokens, self.real):
            inner = np.flatnonzero(real)[1:-1]
            row[inner] = row[rng.permutation(inner)]
        self.shuffled = {**self.inputs, "token_ids": tokens}
        self.rows = [{"text": text} for text in texts[:SHOWN]]
        self.original = self._vectors(model, self.inputs)
        self.add("original", model)
        self.add("without positions", without_positions(model))

    def add(self, name, model):
        vectors, shuffled = self._vectors(model, self.inputs), self._vectors(model, self.shuffled)
        for row, same, changed in zip(self.rows, _cosine(vectors, self.original), _cosine(vectors, shuffled)):
            row[name] = {"same": float(same), "shuffled": float(changed)}

    def _vectors(self, model, inputs):
        states = to_numpy(get_backbone(model)(inputs)["sequence_output"])
        return (states * self.real[..., None]).sum(axis=1) / self.real.sum(axis=1, keepdims=True)


def _cosine(a, b):
    return (a * b).sum(-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))


def table(study):
    """The study as text."""
    first = next(iter(study.reports.values()))
    losses = first.change["loss_original"] is not None
    head = ["conversion", "parameters", "R^2", "error", "cosine", "change"] + (["loss"] if losses else [])
    rows = [head + [f"layer {i}" for i in range(len(first.r2))]]
    removed = [first.change[f"{name}_without_positions"] for name in ("cosine", "relative_error", "loss")]
    rows.append(["without positions", "0", "0", "1", *_numbers(removed[: 3 if losses else 2])])
    for name, report in study.reports.items():
        change = [report.change[key] for key in ("cosine", "relative_error", "loss")][: 3 if losses else 2]
        values = _numbers([report.share, report.error, *change, *report.r2_by_layer])
        rows.append([name, f"{report.parameters_after:,}", *values])
    found, s = study.toeplitz, study.settings
    lines = [
        f"Positions of the original: {first.parameters_before:,} of {first.total_before:,} parameters.",
        f"Toeplitz R^2 of E_P E_P^T over {s['length']} positions: {found['r2']:.3f}, off the diagonal "
        f"{found['r2_off_diagonal']:.3f} (random embeddings: {found['random']:.3f}, "
        f"{found['random_off_diagonal']:.3f}).",
        *([f"Masked-LM loss of the original: {first.change['loss_original']:.4f}"] if losses else []),
        "",
        *_aligned(rows),
        "",
        "R^2, error, layer i: of the positional score, rows centred, heads counting by their squared score; "
        "error is |A - B| / |A|.",
        f"That score is the profile over {s['length']} positions; for names with '{CALIBRATED}' it was measured on "
        f"{s['calibrated_on']} other texts, layer by layer.",
        f"cosine, change: final hidden states on {s['compared']} texts against the original's: mean cosine similarity "
        "of tokens, |h - h'| / |h|.",
        "",
        "Sentence vectors: cosine similarity with the original's / with that of the same words in random order",
    ]
    for row in study.sentences:
        text = row["text"] if len(row["text"]) <= 70 else row["text"][:67] + "..."
        lines.append(f"  {text}")
        lines += [f"    {k:<28} {v['same']:.3f} / {v['shuffled']:.3f}" for k, v in row.items() if k != "text"]
    return "\n".join(lines)


def _numbers(values):
    return [f"{value:.3f}" for value in values]


def _aligned(rows):
    columns = len(rows[0])
    rows = [row + [""] * (columns - len(row)) for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(columns)]
    return [
        "  ".join(f"{c:{'<' if i == 0 else '>'}{w}}" for i, (c, w) in enumerate(zip(r, widths))).rstrip() for r in rows
    ]


def write(study, folder):
    """`table.txt`, `results.json` and `results.csv`; a number that is not finite is null, or an empty field."""
    (folder / "table.txt").write_text(table(study) + "\n", encoding="utf-8")
    found = {
        "settings": study.settings,
        "toeplitz": study.toeplitz,
        "conversions": {name: report.as_dict() for name, report in study.reports.items()},
        "sentences": study.sentences,
    }
    (folder / "results.json").write_text(json.dumps(plain(found), indent=1) + "\n", encoding="utf-8")
    with open(folder / "results.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        first = next(iter(study.reports.values()))
        writer.writerow(["conversion", "parameters", "r2", "error", *first.change, "layer", "head", "head_r2"])
        for name, report in study.reports.items():
            common = [name, report.parameters_after, report.share, report.error, *report.change.values()]
            for (layer, head), r2 in np.ndenumerate(report.r2):
                writer.writerow(plain([*common, layer, head, r2]))
