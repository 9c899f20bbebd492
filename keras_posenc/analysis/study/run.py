"""All analyses of one model on one set of texts, in pieces that a stopped run does not lose."""

import dataclasses

import numpy as np
from keras import ops

from keras_posenc.analysis import offsets, patterns, ranks, structure
from keras_posenc.analysis.attribution import HiddenTokenAttribution
from keras_posenc.analysis.attribution_summary import (
    ContextAround,
    ContextByType,
    NeighbourContribution,
    OwnContribution,
)
from keras_posenc.analysis.identifiability import CrossLayerRates, Identifiability
from keras_posenc.analysis.norms import attention_norms, output_kernels
from keras_posenc.analysis.running import Runner, batches, check_keys, select
from keras_posenc.analysis.similarity import CorrelationByLength, SimilarityOfModels
from keras_posenc.analysis.study.store import Pieces
from keras_posenc.analysis.token_types import SEP, TYPES, AttentionByType, stack_types, token_types
from keras_posenc.conversion.profile import get_backbone

ANALYSES = ("attention", "patterns", "identifiability", "attribution", "positions")
CHUNK = 4  # batches of a piece


@dataclasses.dataclass
class Options:
    """What a study is told.

    Attributes:
        analyses: names out of `ANALYSES`.
        max_length: tokens of a text.
        maps: of identifiability.
        folds: of identifiability.
        identified, attributed, ranked: largest numbers of texts for identifiability, for attribution and for the ranks
            of scores; of more texts a random sample is taken.
        method, probes: of attribution.
        pattern_maps: number of maps to make for the training of the pattern classifier.
        examples: number of texts whose maps are in the report.
        task: name of the texts in tables.
        seed: of samples, folds, probes and the pattern classifier.
    """

    analyses: tuple = ANALYSES
    max_length: int = 128
    maps: tuple = ("naive", "linear")
    folds: int = 10
    identified: int = 500
    attributed: int = 500
    ranked: int = 64
    method: str = "random"
    probes: int = 2
    pattern_maps: int = 3000
    examples: int = 4
    task: str = "text"
    seed: int = 0


def _hidden(index):
    """Name of the piece with the hidden states of a text."""
    return f"hidden/{index:06d}"


class Study:
    """Runs the analyses of a model, each of which is one method that returns results.

    Args:
        model: a `Bert` or a model with a head around one.
        inputs: dict of `token_ids`, `segment_ids`, `padding_mask`, `(texts, length)`.
        tokens: for each text its tokens as strings.
        tags: for each text `None`, or for each of its parts a list of `(word, tag)`.
        options: `Options`.
        store: a `Store`.
        progress: an object with `step(what, count)`.
        second: the same model after fine-tuning, to compare with, or `None`.
        labelled: maps labelled by the user, for the pattern classifier, or `None`.
    """

    def __init__(self, model, inputs, tokens, tags, options, store, progress, second=None, labelled=None):
        self.model, self.second, self.options, self.store, self.progress = model, second, options, store, progress
        self.inputs, self.tokens = inputs, tokens
        self.labelled = labelled
        check_keys(model)
        self.batches = batches(inputs)
        self.chunks = [self.batches[begin : begin + CHUNK] for begin in range(0, len(self.batches), CHUNK)]
        self.types, self.untagged = self._types(tags)
        self._runner = None

    @property
    def runner(self):
        self._runner = self._runner or Runner(self.model)
        return self._runner

    @property
    def has_pairs(self):
        return bool((self.inputs["segment_ids"] > 0).any())

    def _types(self, tags):
        """Types of all tokens; a text whose words are not those of its tags counts as untagged."""
        found, untagged = [], 0
        for tokens, sentences in zip(self.tokens, tags):
            try:
                found.append(token_types(tokens, sentences))
                untagged += sentences is None
            except ValueError:
                found.append(token_types(tokens))
                untagged += 1
        return found, untagged

    def sample(self, count):
        """Indices of `count` texts at random, or of all of them, in their order."""
        number = len(self.tokens)
        if number <= count:
            return np.arange(number)
        return np.sort(np.random.default_rng(self.options.seed).choice(number, count, replace=False))

    def run(self):
        """A dict of results by name, as far as they were asked for."""
        found = {}
        asked = self.options.analyses
        classifier = self._classifier() if "patterns" in asked else None
        if {"attention", "patterns", "identifiability"} & set(asked):
            found |= self._maps(classifier, asked)
        if self.second is not None:
            found["similarity"] = self._similarity()
        if "identifiability" in asked:
            found |= self._identifiability()
        if "attribution" in asked:
            found |= self._attribution()
        if "positions" in asked:
            found |= self._positions()
        return found

    def _classifier(self):
        path = self.store.work / "patterns.keras"
        if not path.is_file():
            made = patterns.PatternClassifier.train(self.options.pattern_maps, self.labelled, seed=self.options.seed)
            made.save(path)
        self.progress.step("pattern classifier")
        return patterns.PatternClassifier.load(path)

    # What is summed over batches

    def _sums(self, asked):
        sums = {}
        if "attention" in asked:
            sums |= {"correlation": CorrelationByLength(), "types": AttentionByType(), "norms": AttentionByType()}
            sums |= {"offsets": offsets.AttentionByOffset(), "ranks": ranks.RankSeries("attention")}
            sums |= {"segments": offsets.AttentionBySegment()} if self.has_pairs else {}
        if "patterns" in asked:
            sums["patterns"] = patterns.PatternCounts()
        return sums

    def _chunked(self, name, chunks, make, add, beside=lambda indices: ()):
        """Sums over all chunks: `make()` gives a dict of empty ones, `add(sums, indices)` adds a batch to them.

        `beside(indices)` names the pieces that `add` stores itself, without which a chunk is not done.
        """
        total = make()
        for number, chunk in enumerate(chunks):
            piece = f"{name}-{number:04d}"
            needed = [piece, *(each for indices in chunk for each in beside(indices))]
            if not all(map(self.store.has, needed)):
                sums = make()
                for indices in chunk:
                    add(sums, indices)
                self.store.put(piece, {key: value.to_dict() for key, value in sums.items()})
            kept = self.store.get(piece)
            for key, value in total.items():
                value.merge(type(value).from_dict(kept[key]))
            self.progress.step(f"{name}, {sum(map(len, chunk))} texts")
        return total

    def _maps(self, classifier, asked):
        chosen = set(self.sample(self.options.identified).tolist()) if "identifiability" in asked else set()
        kernels = output_kernels(self.model)

        def add(sums, indices):
            batch = self.runner(select(self.inputs, indices), indices)
            mask = batch.mask
            if "correlation" in sums:
                sums["correlation"].add(batch.attention, batch.effective, mask)
                types, first = stack_types([self.types[i] for i in indices], mask.shape[1])
                sums["types"].add(batch.attention, batch.effective, types, mask, first)
                norms = ops.convert_to_numpy(attention_norms(batch.attention, batch.values, kernels, mask))
                norms = norms / np.maximum(norms.sum(axis=-1, keepdims=True), 1e-9)
                sums["norms"].add(batch.attention, norms, types, mask, first)
                sums["offsets"].add(batch.attention, mask)
                sums["ranks"].add(batch.attention, mask)
                if "segments" in sums:
                    sums["segments"].add(batch.attention, batch.inputs["segment_ids"], mask)
            if "patterns" in sums:
                raw, effective = (classifier.classify(maps, mask) for maps in (batch.attention, batch.effective))
                sums["patterns"].add(raw, effective, self.options.task)
            for row, index in enumerate(indices):
                if int(index) in chosen:
                    self.store.put(_hidden(index), {"states": batch.hidden_states[row][:, mask[row]]})

        def beside(indices):
            return [_hidden(index) for index in indices if int(index) in chosen]

        total = self._chunked("attention maps", self.chunks, lambda: self._sums(asked), add, beside)
        found = {name: sums.result() for name, sums in total.items()}
        if classifier is not None:
            found["pattern_report"] = classifier.report
        return found

    def _similarity(self):
        other = Runner(self.second)

        def add(sums, indices):
            inputs = select(self.inputs, indices)
            before, after = self.runner(inputs), other(inputs)
            sums["similarity"].add(before.attention, after.attention, before.mask, before.effective, after.effective)

        made = self._chunked("fine-tuned model", self.chunks, lambda: {"similarity": SimilarityOfModels()}, add)
        return made["similarity"].result()

    def _identifiability(self):
        chosen = self.sample(self.options.identified)
        states = [self.store.get(_hidden(index))["states"] for index in chosen]
        sentences = np.repeat(np.arange(len(states)), [part.shape[1] for part in states])
        states = np.concatenate(states, axis=1)
        probe = Identifiability(states[0], states[1:], sentences, folds=self.options.folds, seed=self.options.seed)
        linear = [name for name in self.options.maps if name != "naive"][:1]
        last = len(states) - 1
        experiments = {
            "identify": lambda **kept: probe.identify(self.options.maps, **kept),
            "cross_layer": lambda **kept: probe.cross_layer(linear, **kept) if linear else CrossLayerRates([]),
            "hidden_to_hidden": lambda **kept: probe.hidden_to_hidden(
                self.options.maps,
                sorted({(last, to) for to in range(last)} | {(n, n - 1) for n in probe.layers}),
                **kept,
            ),
            "neighbours": lambda **kept: probe.neighbours(self.options.maps, **kept),
        }
        found = {}
        for name, experiment in experiments.items():
            with Pieces(self.store, f"identifiability/{name}") as pieces:
                found[name] = experiment(done=pieces.done, on_result=pieces.keep)
            self.progress.step(name.replace("_", " "))
        return found

    def _attribution(self):
        compute = HiddenTokenAttribution(self.model)
        chosen = set(self.sample(self.options.attributed).tolist())
        kept = [np.array([i for i in indices if int(i) in chosen]) for indices in self.batches]
        kept = [indices for indices in kept if len(indices)]

        def make():
            layers = compute.layers
            return {
                "own": OwnContribution(layers),
                "own_by_type": OwnContribution(layers, TYPES),
                "neighbour_contribution": NeighbourContribution(layers),
                "context": ContextByType(layers, TYPES),
                "around_sep": ContextAround(layers),
            }

        def add(sums, indices):
            inputs = select(self.inputs, indices)
            found = compute(inputs, self.options.method, self.options.probes, self.options.seed)
            types, _ = stack_types([self.types[i] for i in indices], inputs["token_ids"].shape[1])
            sums["own"].add(found)
            sums["own_by_type"].add(found, types)
            sums["neighbour_contribution"].add(found)
            sums["context"].add(found, types)
            sums["around_sep"].add(found, (types == SEP).argmax(axis=1))

        return self._chunked("attribution", [[part] for part in kept], make, add)

    def _positions(self):
        """What the model knows of positions without a text, as far as its encoding allows."""
        found = {}
        length = min(self.options.max_length, get_backbone(self.model).encoder.max_length or self.options.max_length)
        chosen = self.sample(self.options.ranked)
        texts = [np.intersect1d(part, chosen) for part in self.batches]
        inputs = [select(self.inputs, part) for part in texts if len(part)]
        analyses = {
            "gram": lambda: structure.position_gram(self.model),
            "cosines": lambda: structure.position_cosines(self.model),
            "sections": lambda: structure.positional_sections(self.model, length=length),
            "shifts": lambda: structure.position_shifts(self.model, length=length),
            "positional_ranks": lambda: ranks.positional_ranks(self.model, length),
            "score_ranks": lambda: ranks.attention_ranks(self.model, inputs),
            "segment_biases": lambda: structure.segment_biases(self.model),
        }
        for name, analysis in analyses.items():
            try:
                found[name] = analysis()
            except ValueError as error:
                found[name] = str(error)
            self.progress.step(f"positions: {name.replace('_', ' ')}")
        return found

    def steps(self):
        """Number of steps of the progress bar."""
        asked = self.options.analyses
        total = len(self.chunks) * bool({"attention", "patterns", "identifiability"} & set(asked))
        total += len(self.chunks) * (self.second is not None) + ("patterns" in asked)
        total += 4 * ("identifiability" in asked) + 7 * ("positions" in asked)
        if "attribution" in asked:
            chosen = set(self.sample(self.options.attributed).tolist())
            total += sum(any(int(i) in chosen for i in indices) for indices in self.batches)
        return total

    def examples(self):
        """Maps of some texts, neither the shortest nor the longest, for the report."""
        lengths = np.array([len(tokens) for tokens in self.tokens])
        order = np.argsort(lengths, kind="stable")
        places = np.linspace(0.3, 0.9, self.options.examples) * (len(order) - 1)
        found = []
        for index in order[np.unique(places.astype(int))] if self.options.examples else ():
            batch = self.runner(select(self.inputs, [index]))
            count = lengths[index]
            found.append(
                {
                    "text": " ".join(self.tokens[index]).replace(" ##", ""),
                    "tokens": list(self.tokens[index]),
                    "raw": batch.attention[0, :, :, :count, :count],
                    "effective": batch.effective[0, :, :, :count, :count],
                }
            )
        return found
