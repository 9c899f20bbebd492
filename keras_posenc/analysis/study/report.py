"""The report of a study: what was found, in words, figures and tables."""

import numpy as np

from keras_posenc.analysis.patterns import PATTERNS
from keras_posenc.analysis.plots import attribution as attribution_plots
from keras_posenc.analysis.plots import identifiability as identifiability_plots
from keras_posenc.analysis.plots import patterns as pattern_plots
from keras_posenc.analysis.plots import ranks as rank_plots
from keras_posenc.analysis.plots import similarity as similarity_plots
from keras_posenc.analysis.plots import structure as structure_plots
from keras_posenc.analysis.plots import token_types as type_plots
from keras_posenc.analysis.study.page import Page
from keras_posenc.analysis.token_types import TYPES


class Report:
    """Fills a `Page` from the results of a `Study`.

    Args:
        title, subtitle: of the page.
        found: dict of results by name.
        head_size: of the model.
        figures: folder in which each figure is also saved.
    """

    def __init__(self, title, subtitle, found, head_size, figures):
        self.page, self.found, self.head_size, self.figures = Page(title, subtitle), found, head_size, figures
        figures.mkdir(parents=True, exist_ok=True)

    def html(self, summary, examples, skipped):
        """The whole page. `summary`: rows of two columns about the run; `skipped`: rows of lines left out."""
        self.page.section("The study")
        self.page.table(summary)
        self.page.table(skipped, f"{len(skipped)} lines were left out", folded=True)
        parts = [
            ("correlation", self._effective),
            ("types", self._types),
            ("patterns", self._patterns),
            ("similarity", self._similarity),
            ("identify", self._identifiability),
            ("own", self._attribution),
            ("gram", self._positions),
        ]
        for name, write in parts:
            if name in self.found:
                write()
        if examples:
            self._examples(examples)
        return self.page.html()

    def _figure(self, name, figure, caption=""):
        path = self.figures / f"{name}.png"
        figure.savefig(path, dpi=110, bbox_inches="tight")
        self.page.figure(path.read_bytes(), caption)

    def _tables(self, *names):
        for name in names:
            if hasattr(self.found.get(name), "rows"):
                rows = self.found[name].rows()
                self.page.table(rows, f"tables/{name}.csv, {len(rows)} rows", folded=True)

    def _examples(self, examples):
        self.page.section(
            "Maps",
            "Rows attend to columns. Raw attention is the sum of the other two: effective attention, which reaches the "
            "output of the head, and null attention, which the values cancel. Blue is positive and orange negative. "
            "Effective attention is no distribution: it has negative weights, and its rows have any sum.",
        )
        self.page.maps(examples)

    def _effective(self):
        result = self.found["correlation"]
        short = result.lengths <= self.head_size
        text = (
            f"Attention is not identifiable where a text has more tokens than a head has dimensions, here "
            f"{self.head_size}: parts of it then do not reach the output of the head. Effective attention is what "
            "is left without these parts (Brunner et al., 2020, section 3)."
        )
        rows = []
        for name, chosen in ((f"up to {self.head_size} tokens", short), (f"beyond {self.head_size} tokens", ~short)):
            if chosen.any():
                values = result.correlation[chosen]
                low, middle, high = np.nanpercentile(values, [5, 50, 95])
                rows.append(
                    {
                        "texts": name,
                        "number": int(chosen.sum()),
                        "mean correlation": float(np.nanmean(values)),
                        "median": middle,
                        "5 percent": low,
                        "95 percent": high,
                    }
                )
        self.page.section("Raw and effective attention", text)
        self.page.table(rows)
        self._figure(
            "correlation",
            similarity_plots.plot_correlation(result, self.head_size),
            "Pearson correlation of raw and effective maps by length of the text (Brunner et al., figure 1a).",
        )
        self._tables("correlation")

    def _types(self):
        result = self.found["types"]
        self.page.section(
            "What is attended to",
            "Attention to delimiters, punctuation and parts of speech, raw against effective (Sun & Marasovi\u0107, "
            "2021, section 3.2; Brunner et al., figure 1b and 1c). Without tags, only delimiters and punctuation are "
            "told from other tokens.",
        )
        sums = {kind: result.get(kind, "cls", "mass")[-1].mean(axis=0) for kind in ("raw", "effective")}
        all_layers = {kind: result.get(kind, "all", "mass").mean(axis=(0, 1)) for kind in ("raw", "effective")}
        norms = self.found["norms"].get("effective", "all", "mass").mean(axis=(0, 1)) if "norms" in self.found else None
        rows = [
            {
                "to": name,
                "share of tokens": float(result.tokens[t]),
                "from [CLS], last layer, raw": float(sums["raw"][t]),
                "effective": float(sums["effective"][t]),
                "from all, all layers, raw": float(all_layers["raw"][t]),
                "effective ": float(all_layers["effective"][t]),
                **({} if norms is None else {"by norm": float(norms[t])}),
            }
            for t, name in enumerate(TYPES)
            if result.tokens[t] > 0
        ]
        self.page.table(rows)
        self.page.text(
            "Sums of weights, with signs, averaged over heads. By norm: the share of the lengths of weighted value "
            "vectors (Kobayashi et al., 2020), the alternative that the papers name."
        )
        present = tuple(name for name, share in zip(TYPES, result.tokens) if share > 0)
        self._figure("types_cls", type_plots.plot_cls_attention(result, "mass"))
        self._figure("types_cls_heads", type_plots.plot_cls_heads(result))
        self._figure("types_layers", type_plots.plot_attention_by_layer(result, types=present))
        self._tables("types", "norms")

    def _patterns(self):
        result = self.found["patterns"]
        report = self.found["pattern_report"]
        self.page.section(
            "Patterns",
            "Maps sorted into five patterns by a network trained on maps made by code (and on labelled ones where "
            f"given). Of held-out maps it names {report.accuracy['all']:.1%} rightly; how well that carries over to a "
            "model's maps is for the reader to judge. The papers trained theirs on maps labelled by hand (Sun & "
            "Marasovi\u0107, table 2).",
        )
        rows = [
            {"task": task, "attention": kind, **{n: float(v) for n, v in zip(PATTERNS, values)}}
            for task in result.counts
            for kind, values in zip(("raw", "effective"), result.percentages(task))
        ]
        self.page.table(rows)
        self._figure("patterns", pattern_plots.plot_patterns(result))
        for task in result.counts:
            self._figure(f"patterns_{task}", pattern_plots.plot_patterns_by_layer(result, task))
        self._figure("patterns_confusion", pattern_plots.plot_confusion(report))
        self._tables("patterns", "pattern_report")

    def _similarity(self):
        self.page.section(
            "Before and after fine-tuning",
            "Cosine similarity of the attention maps of the two models on the same texts, by layer and head (Sun & "
            "Marasovi\u0107, section 3.3). What changes most is what the task needed.",
        )
        self._figure("similarity", similarity_plots.plot_similarity(self.found["similarity"]))
        self._tables("similarity")

    def _identifiability(self):
        self.page.section(
            "Which tokens can be told from their embeddings",
            "The share of tokens whose embedding, behind a map fitted on other texts, is nearest to its own input "
            "among those of its text (Brunner et al., section 4).",
        )
        self._figure("identifiability", identifiability_plots.plot_layers(self.found["identify"]))
        if self.found["cross_layer"].pieces:
            name = self.found["cross_layer"].maps[0]
            figure = identifiability_plots.plot_cross_layer(self.found["cross_layer"], name)
            self._figure("cross_layer", figure, "Maps of one layer, tested on all (figure 2b).")
            figure = identifiability_plots.plot_neighbours(self.found["neighbours"], name)
            self._figure("neighbours", figure, "Neighbouring tokens (appendix B.5).")
        self._tables("identify", "cross_layer", "hidden_to_hidden", "neighbours")

    def _attribution(self):
        self.page.section(
            "Which tokens an embedding is made of",
            "Hidden token attribution: the contribution of each input to each embedding, by the norm of the Jacobian "
            "(Brunner et al., section 5).",
        )
        plots = {
            "own": (attribution_plots.plot_own_contribution, "What tokens have left of themselves (figure 3)."),
            "own_by_type": (attribution_plots.plot_own_by_type, "The same by type of token (appendix C.5)."),
            "neighbour_contribution": (attribution_plots.plot_neighbours, "What neighbours contribute (figure 4)."),
            "context": (attribution_plots.plot_context_by_type, "What types of tokens get from each other."),
            "around_sep": (attribution_plots.plot_context_around, "What [CLS] gets from around [SEP] (figure 18)."),
        }
        for name, (plot, caption) in plots.items():
            self._figure(f"attribution_{name}", plot(self.found[name]), caption)
        self._tables(*plots)

    def _positions(self):
        self.page.section(
            "Positions",
            "How far position embeddings and positional scores depend on the distance alone (TISA, section 3), the "
            "ranks of attention matrices (DIET, figures 2 and 8), and attention by offset and between segments.",
        )
        plots = {
            "gram": structure_plots.plot_position_gram,
            "cosines": structure_plots.plot_position_cosines,
            "sections": structure_plots.plot_sections,
            "shifts": structure_plots.plot_shifts,
            "positional_ranks": rank_plots.plot_positional_ranks,
            "score_ranks": rank_plots.plot_attention_ranks,
            "ranks": rank_plots.plot_attention_ranks,
            "offsets": structure_plots.plot_offset_attention,
            "segments": structure_plots.plot_segment_attention,
            "segment_biases": structure_plots.plot_segment_biases,
        }
        for name, plot in plots.items():
            result = self.found.get(name)
            if isinstance(result, str):
                self.page.text(f"Not shown, {name.replace('_', ' ')}: {result}")
            elif result is not None:
                self._figure(f"positions_{name}", plot(result))
        self._tables(*plots)
