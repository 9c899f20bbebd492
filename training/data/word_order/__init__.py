"""The word-order benchmark: a small language, made by code, in which order carries the meaning.

Tasks are shaped like CoLA (`acceptability`), RTE (`entailment`), SQuAD (`questions`), WMT (`translation`) and a text
corpus (`text`). Without the order of the words, acceptability and entailment are at chance by construction, and a
question has two equally good answers. Nothing is downloaded; a seed gives the same data everywhere.

>>> from training.data import word_order
>>> train = word_order.load("entailment", "train", size=4)
>>> sorted(train.labels.tolist())
[0, 0, 1, 1]
"""

import dataclasses
import types

from training.data.word_order import acceptability, entailment, lexicon, questions, sampling, text, translation

SPLITS = sampling.SPLITS


@dataclasses.dataclass(frozen=True)
class Task:
    """What there is to know about a task before loading it.

    Attributes:
        description: one line.
        module: where it is made.
        lengths, longer: `(shortest, longest)` in words of an example of train, dev and test, and of `test_longer`: of
            both sentences of an entailment, of the passage of a question (with its periods), of the source of a
            translation, of each sentence of a text (without its period; one that states a fact again may be
            shorter).
        shortest: the least that an example can have.
        special: tokens that are not counted in the lengths: those of BERT's format, and the question.
        sizes: dict from splits to the number of examples if none is asked for (documents, for text).
    """

    description: str
    module: types.ModuleType
    lengths: tuple
    longer: tuple
    shortest: int
    special: int
    sizes: dict

    @property
    def group(self):
        """Neighbouring examples that belong together; their number divides every size.

        Shuffling groups rather than examples, with a batch that is a multiple of it, lets what does not depend on the
        order cancel within each batch.
        """
        return self.module.GROUP

    @property
    def max_length(self):
        """Tokens of the longest example of train, dev and test."""
        return self.lengths[1] + self.special

    @property
    def longer_max_length(self):
        """Tokens of the longest example of `test_longer`."""
        return self.longer[1] + self.special


def _sizes(train, others):
    return {split: train if split == "train" else others for split in SPLITS}


TASKS = {
    "acceptability": Task(
        "is this word order a sentence of the language? (like CoLA)",
        acceptability,
        lengths=(6, 12),
        longer=(14, 24),
        shortest=sampling.SHORTEST,
        special=2,
        sizes=_sizes(12000, 1000),
    ),
    "entailment": Task(
        "does the second sentence follow from the first? (like RTE)",
        entailment,
        lengths=(12, 18),
        longer=(20, 30),
        shortest=entailment.SHORTEST_PAIR,
        special=3,
        sizes=_sizes(24000, 1000),
    ),
    "questions": Task(
        "who does it, or to whom is it done? (like SQuAD)",
        questions,
        lengths=(18, 30),
        longer=(32, 50),
        shortest=questions.SHORTEST_PASSAGE,
        special=3 + questions.LONGEST_QUESTION,
        sizes=_sizes(24000, 1000),
    ),
    "translation": Task(
        "translation into a language with the verb at the end",
        translation,
        lengths=(5, 14),
        longer=(16, 26),
        shortest=sampling.SHORTEST,
        special=2,
        sizes=_sizes(12000, 1000),
    ),
    "text": Task(
        "documents for masked language models",
        text,
        lengths=(5, 14),
        longer=(16, 26),
        shortest=sampling.SHORTEST,
        special=2,
        sizes=_sizes(4000, 200),
    ),
}


def load(task, split, size=None, seed=0, lengths=None):
    """The examples of a split.

    No sentence (no passage, for questions) of a split is in another one, in whatever order its words are, and for
    whatever `size`, `seed`, `lengths` and task. The first examples of a larger size are those of a smaller one.

    Args:
        task: one of `TASKS`.
        split: `"train"`, `"dev"`, `"test"`, or `"test_longer"`, whose examples are longer than all others.
        size: number of examples, a multiple of `TASKS[task].group`; documents, for text.
        seed: another seed gives other examples.
        lengths: `(shortest, longest)` in words, if not those of `TASKS[task]`.

    Returns: `Classification` for acceptability and entailment, a list of `Question`, a `Parallel`, or for text a list
        of documents that are lists of sentences.
    """
    if task not in TASKS:
        raise ValueError(f"Unknown task: {task!r}. Known: {', '.join(TASKS)}.")
    if split not in SPLITS:
        raise ValueError(f"Unknown split: {split!r}. Known: {', '.join(SPLITS)}.")
    about = TASKS[task]
    size = about.sizes[split] if size is None else size
    if size < 0 or size % about.group:
        raise ValueError(
            f"Examples of '{task}' come in groups of {about.group}, over which labels are balanced: `size` must be a "
            f"multiple of it. Received: {size}"
        )
    lengths = tuple(lengths or (about.longer if split == "test_longer" else about.lengths))
    if len(lengths) != 2 or not about.shortest <= lengths[0] <= lengths[1] <= sampling.LONGEST:
        raise ValueError(
            f"`lengths` of '{task}' must be (shortest, longest), from {about.shortest} to {sampling.LONGEST} words. "
            f"Received: {lengths}"
        )
    return about.module.generate(split, size, seed, lengths)


# Word-piece tokenizers want one piece that begins with '##'. No word needs it.
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_PIECE = "##s"


def vocabulary():
    """Pieces for `keras_posenc.checkpoints.tokenizer.WordPiece`, one for each word of the language."""
    return [*_SPECIAL, *sorted(lexicon.CATEGORIES), _PIECE]


def target_vocabulary():
    """Pieces for the target language of the translation task."""
    particles = (lexicon.AGENT, lexicon.PASSIVE, lexicon.SUBJECT_RELATIVE, lexicon.OBJECT_RELATIVE)
    nouns = {form for forms in lexicon.TARGET_NOUNS.values() for form in forms.values()}
    return [*_SPECIAL, *sorted({*lexicon.TARGET.values(), *nouns, *particles}), _PIECE]
