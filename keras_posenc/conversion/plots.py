"""Pictures of a study: positional scores and what conversions make of them."""

import numpy as np

from keras_posenc.conversion.study import CALIBRATED
from keras_posenc.conversion.toeplitz import center_rows

REACH = 12  # offsets in sections, as in the paper's figure


def plot_all(study, folder):
    """`scores.png`, `sections.png` and `ranks.png`."""
    plot_scores(study).savefig(folder / "scores.png", dpi=80)
    plot_sections(study).savefig(folder / "sections.png", dpi=90)
    plot_ranks(study).savefig(folder / "ranks.png", dpi=90)


def _strongest(study, number=4):
    """The head with the largest positional score of each of the first layers, as (layer, head)."""
    energy = [np.square(center_rows(profile.matrix)).mean(axis=(-2, -1)) for profile in study.profiles]
    return [(layer, int(np.argmax(energy[layer]))) for layer in range(min(number, len(energy)))]


def _largest(study, kind):
    return f"{kind}-{max(study.settings['kernels' if kind == 'tisa' else 'ranks'])}"


def _smallest_rank(study):
    return f"diet_abs-{min(study.settings['ranks'])}"


def plot_scores(study):
    """Maps of the score, original and converted, of the head of each layer that looks at positions most."""
    from matplotlib.figure import Figure

    heads = _strongest(study)
    rows = {"original": [profile.matrix for profile in study.profiles]}
    rows.update({name: study.biases[name] for name in (_largest(study, "tisa"), "diet_rel", _smallest_rank(study))})
    figure = Figure(figsize=(0.8 + 2.3 * len(heads), 0.6 + 2.2 * len(rows)), layout="constrained")
    figure.suptitle("Positional score of an average word, query (down) by key (across), rows centred")
    panels = figure.subplots(len(rows), len(heads), squeeze=False)
    for column, (layer, head) in enumerate(heads):
        # Position 0 often stands out by far; colours are for the rest.
        reach = np.percentile(np.abs(center_rows(study.profiles[layer].matrix)[head]), 98) or 1.0
        for axes, (name, matrices) in zip(panels[:, column], rows.items()):
            values = center_rows(matrices[layer])[head]
            image = axes.imshow(values, cmap="RdBu_r", vmin=-reach, vmax=reach, interpolation="nearest")
            axes.set_xticks([0, values.shape[1] - 1])
            axes.set_yticks([0, values.shape[0] - 1] if column == 0 else [])
            axes.tick_params(labelsize=7)
            if column == 0:
                axes.set_ylabel(name)
        panels[0, column].set_title(f"layer {layer}, head {head}", fontsize=10)
        figure.colorbar(image, ax=panels[:, column], orientation="horizontal", fraction=0.03, pad=0.01)
    return figure


def plot_sections(study):
    """Sections through the score along keys, centred on the query, for five queries; beside the fitted kernels."""
    from matplotlib.figure import Figure

    heads = _strongest(study)
    length = study.settings["length"]
    reach = min(REACH, (length - 1) // 3)
    queries = np.linspace(reach + 1, length - reach - 1, 5).astype(int)
    offsets = np.arange(-reach, reach + 1)
    figure = Figure(figsize=(9, 1 + 2.1 * len(heads)), layout="constrained")
    name = _largest(study, "tisa")
    figure.suptitle(f"Sections through the positional score around five queries (left) and {name} (right)")
    for row, (layer, head) in zip(figure.subplots(len(heads), 2, squeeze=False, sharey="row"), heads):
        for axes, matrix in zip(row, (study.profiles[layer].matrix[head], study.biases[name][layer][head])):
            for query in queries:
                section = matrix[query, query + offsets]
                axes.plot(offsets, section - section.mean(), label=f"query {query}", linewidth=1.2)
            axes.axvline(0, color="0.8", zorder=0)
            axes.tick_params(labelsize=8)
        row[0].set_ylabel(f"layer {layer}, head {head}")
    row[0].set_xlabel("key - query")
    row[1].set_xlabel("key - query")
    row[0].legend(fontsize=7)
    return figure


def plot_ranks(study):
    """Error of scores and change of hidden states against the rank of DIET-ABS, with the other conversions as lines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    ranks = study.settings["ranks"]
    for suffix, style in (("", "o-"), (CALIBRATED, "s--")):
        reports = [study.reports.get(f"diet_abs-{rank}{suffix}") for rank in ranks]
        if None in reports:
            continue
        label = f"diet_abs{suffix}"
        left.plot(ranks, [report.error for report in reports], style, label=label)
        right.plot(ranks, [report.change["relative_error"] for report in reports], style, label=label)
    others = [name for name in study.reports if not name.startswith("diet_abs")]
    colours = {name: f"C{2 + index}" for index, name in enumerate(n for n in others if not n.endswith(CALIBRATED))}
    for name in others:
        report = study.reports[name]
        style = {
            "color": colours[name.removesuffix(CALIBRATED)],
            "linestyle": "--" if name.endswith(CALIBRATED) else "-",
            "linewidth": 1.0,
        }
        left.axhline(report.error, **style)
        right.axhline(report.change["relative_error"], label=name, **style)
    right.axhline(
        study.reports[others[0]].change["relative_error_without_positions"], color="k", label="without positions"
    )
    for axes, title in ((left, "error of the positional score"), (right, "change of the final hidden states")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(ranks, [str(rank) for rank in ranks])
        axes.set_xlabel("rank of DIET-ABS")
        axes.set_title(title)
        axes.set_ylim(bottom=-0.02)
    right.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure
