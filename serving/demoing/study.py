"""Raw against effective attention: of a trained model by the length of its input, and of a real one."""

import os

import numpy as np

from keras_posenc.analysis import CorrelationByLength, Runner, null_dimension
from keras_posenc.analysis.running import batches, select
from keras_posenc.analysis.similarity import pearson
from keras_posenc.checkpoints import installed
from keras_posenc.folding import position_encodings
from keras_posenc.plotting import position_picture
from serving.demoing.exports import REAL_LENGTH, examples
from serving.demoing.settings import PAIR, REAL
from training.data.word_order.acceptability import LABELS

DELIMITERS = ("[CLS]", "[SEP]")
SHOWN = 2  # sentences whose maps are on the page


def study(trained, position, texts, path):
    """Compares raw and effective attention of one model on sentences of trained lengths and longer ones.

    Args:
        trained: `Trained`.
        position: which model.
        texts: number of sentences of each split.
        path: file for arrays: `lengths`, `correlation`, and the maps of some sentences, for the page.

    Returns: dict of `position`, `head_size`, `lengths` (rows of a table), `masses` (of the longer sentences), `shown`
        (texts and tokens of the maps) and `differs` (layer and head where they differ most in the first of them).
    """
    model, tokenizer = trained.model(position, len(LABELS)), trained.tokenizer
    shorter, longer = examples("test", texts)[0], examples("test_longer", texts)[0]
    inputs, runner, found = tokenizer.encode(shorter + longer), Runner(model), CorrelationByLength()
    null, lengths, masses = [], [], []
    for indices in batches(inputs):
        batch = runner(select(inputs, indices), indices)
        found.add(batch.attention, batch.effective, batch.inputs["padding_mask"])
        # Layers beside the batch: a null space for each text, layer and head.
        for layer in range(batch.values.shape[1]):
            null.append(np.asarray(null_dimension(batch.values[:, layer], batch.inputs["padding_mask"])).mean(axis=1))
            lengths.append(batch.mask.sum(axis=1))
        masses += [_masses(batch, row, tokenizer) for row, index in enumerate(indices) if index >= len(shorter)]
    result = found.result()
    chosen = _longest(longer, SHOWN)
    maps = [_maps(runner, tokenizer, text) for text in chosen]
    arrays = {"lengths": result.lengths, "correlation": result.correlation}
    arrays |= {f"{kind}{n}": each[kind] for n, each in enumerate(maps) for kind in ("raw", "effective")}
    _save(path, arrays)
    return {
        "position": position,
        "head_size": int(maps[0]["head_size"]),
        "lengths": _by_length(result, np.concatenate(null), np.concatenate(lengths)),
        "masses": _mean(masses),
        "shown": [{"text": text, "tokens": each["tokens"]} for text, each in zip(chosen, maps)],
        "differs": _differs(maps[0]),
    }


def study_real(path):
    """The same of a real pretrained model on a pair of sentences; `{"installed": False}` where there is none."""
    if installed.find(REAL) is None:
        return {"installed": False, "requirement": installed.KNOWN[REAL].requirement}
    loaded = installed.load(REAL)
    maps = _maps(Runner(loaded.model), loaded.tokenizer, PAIR)
    _save(path, {"raw0": maps["raw"], "effective0": maps["effective"], "correlation": maps["correlation"]})
    return {
        "installed": True,
        "about": installed.KNOWN[REAL].about,
        "head_size": int(maps["head_size"]),
        "masses": _mean([maps["masses"]]),
        "correlation": [float(np.nanmean(layer)) for layer in maps["correlation"]],
        "shown": [{"text": " / ".join(PAIR), "tokens": maps["tokens"]}],
        "differs": _differs(maps),
    }


def draw(trained, positions, path):
    """Keeps what the positions of each trained model add to the scores of its first layer, `(heads, length, length)`.

    Args:
        trained: `Trained`.
        positions: which models.
        path: file for the arrays, by encoding.
    """
    found = {}
    for position in positions:
        everywhere = position_encodings(trained.model(position, len(LABELS)))
        first = next(encoding for encoding in everywhere if encoding.doors)  # layers may have an encoding of nothing
        found[position] = position_picture(first, trained.max_length)
    _save(path, found)


def _longest(texts, count):
    """The longest acceptable sentences; those at odd places are acceptable."""
    return sorted(texts[1::2], key=lambda text: -len(text.split()))[:count]


def _maps(runner, tokenizer, text):
    batch = runner(tokenizer.encode([text], REAL_LENGTH))
    correlation = np.asarray(pearson(batch.attention, batch.effective, batch.inputs["padding_mask"]))[0]
    return {
        "raw": batch.attention[0],
        "effective": batch.effective[0],
        "correlation": correlation,
        "head_size": batch.values.shape[-1],
        "tokens": tokenizer.tokens(batch.inputs["token_ids"][0]),
        "masses": _masses(batch, 0, tokenizer),
    }


def _masses(batch, row, tokenizer):
    """Mean weight of a row of attention that goes to delimiters and to words, over layers and heads: raw, effective."""
    count = int(batch.mask[row].sum())
    tokens = np.array(tokenizer.tokens(batch.inputs["token_ids"][row, :count]))
    columns = {name: tokens == name for name in DELIMITERS}
    columns["words"] = ~np.isin(tokens, DELIMITERS)
    maps = {"raw": batch.attention[row], "effective": batch.effective[row]}
    means = {kind: each[..., :count, :count].mean(axis=(0, 1, 2)) for kind, each in maps.items()}
    return {to: {kind: float(mean[where].sum()) for kind, mean in means.items()} for to, where in columns.items()}


def _mean(masses):
    """Rows of a table: where attention goes, averaged over texts."""
    return [
        {"to": to, **{kind: float(np.mean([each[to][kind] for each in masses])) for kind in ("raw", "effective")}}
        for to in masses[0]
    ]


def _by_length(result, null, lengths):
    rows = []
    for length, correlation in result.by_length().items():
        row = {"tokens": length, "sentences": len(correlation)}
        row["null_dimension"] = float(null[lengths == length].mean())
        row |= {"correlation": float(np.nanmean(correlation)), "smallest": float(np.nanmin(correlation))}
        rows.append(row)
    return rows


def _differs(maps):
    """`[layer, head]` with the lowest correlation of raw and effective attention."""
    values = np.nan_to_num(maps["correlation"], nan=1.0)
    return [int(index) for index in np.unravel_index(values.argmin(), values.shape)]


def _save(path, arrays):
    partial = path.with_name(path.name + ".part")
    with open(partial, "wb") as file:
        np.savez_compressed(file, **arrays)
    os.replace(partial, path)
