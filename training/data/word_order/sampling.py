"""Random trees of exactly the length asked for, and which split a sentence belongs to."""

import dataclasses
import random
import zlib

from training.data.word_order import lexicon
from training.data.word_order.grammar import (
    Clause,
    Core,
    ObjectRelative,
    Phrase,
    Place,
    Predicate,
    Sentence,
    SubjectRelative,
)

SHORTEST = 5  # words of the shortest sentence: determiner, noun, verb, determiner, noun
LONGEST = 64  # words up to which a sentence has no noun twice
SPLITS = ("train", "dev", "test", "test_longer")
_SHARES = ("train",) * 5 + SPLITS[1:]


def split_of(words):
    """The split in which a sentence may occur, given by its bag of words alone.

    So whatever the seed, the size, the lengths and the task, sentences of two splits never have the same words, in
    whatever order. A passage counts as one sentence.
    """
    return _SHARES[zlib.crc32(" ".join(sorted(words)).encode()) % len(_SHARES)]


def share(split):
    """The part of all sentences that is in a split."""
    return _SHARES.count(split) / len(_SHARES)


@dataclasses.dataclass(frozen=True)
class Style:
    """What trees are made of.

    Attributes:
        determiners, adjectives, verbs: to choose from.
        nouns: those that a sentence uses first; one that needs more takes them from the others of the lexicon.
        passive: how often a predicate is passive where there is room for it.
        plural: how often a noun is.
    """

    determiners: tuple = lexicon.DETERMINERS
    adjectives: tuple = lexicon.ADJECTIVES
    nouns: tuple = lexicon.NOUNS
    verbs: tuple = lexicon.VERBS
    passive: float = 0.5
    plural: float = 0.5


DEFAULT = Style()


class Sampler:
    """Random choices and random trees. A seed gives the same ones on every machine and version of Python.

    Args:
        seed: any string.
        style: a `Style`, by default of all words.
    """

    def __init__(self, seed, style=DEFAULT):
        # The one method of `random.Random` whose sequence Python promises not to change.
        self.random = random.Random(seed).random
        self.style = style
        self._nouns = []

    def integer(self, low, high):
        """From `low` to `high`, both included."""
        return low + int(self.random() * (high - low + 1))

    def pick(self, options):
        return options[int(self.random() * len(options))]

    def chance(self, probability):
        return self.random() < probability

    def shuffled(self, items):
        items = list(items)
        for index in range(len(items) - 1, 0, -1):
            other = self.integer(0, index)
            items[index], items[other] = items[other], items[index]
        return items

    def start(self):
        """Forgets which nouns have been used."""
        self._nouns = []

    def sentence(self, length):
        """A `Sentence` of exactly `length` words, at least 5. No noun occurs twice in up to 64 words."""
        self.start()
        clauses = []
        while length >= 2 * SHORTEST + 1 and self.chance(0.25):
            first = self.integer(SHORTEST, length - SHORTEST - 1)
            clauses.append(self.clause(first))
            length -= first + 1
        return Sentence((*clauses, self.clause(length)))

    def clause(self, length):
        subject = self._uneven(2, length - 3)
        phrase = self.phrase(subject)
        return Clause(phrase, self.predicate(length - subject))

    def predicate(self, length):
        passive = length >= 5 and self.chance(self.style.passive)
        return Predicate(self.pick(self.style.verbs), passive, self.phrase(length - (3 if passive else 1)))

    def phrase(self, length):
        rest = length - 2
        # A modifier has at least three words: two words left are two adjectives.
        adjectives = rest if rest < 3 else self.pick([n for n in (0, 0, 1, 2) if rest - n == 0 or rest - n >= 3])
        core = self.core(adjectives)
        return Phrase(core, self.modifier(rest - adjectives) if rest > adjectives else None)

    def core(self, adjectives=0, plural=None):
        if not self._nouns:
            others = [noun for noun in lexicon.NOUNS if noun not in self.style.nouns]
            self._nouns = self.shuffled(others) + self.shuffled(self.style.nouns)
        chosen = []
        while len(chosen) < adjectives:
            adjective = self.pick(self.style.adjectives)
            if adjective not in chosen:
                chosen.append(adjective)
        plural = self.chance(self.style.plural) if plural is None else plural
        return Core(self.pick(self.style.determiners), tuple(chosen), self._nouns.pop(), plural)

    def modifier(self, length):
        kinds = ["place"] + ["subject"] * (length >= 4) + ["object"] * (length >= 4)
        kind = self.pick(kinds)
        if kind == "place":
            return Place(self.pick(lexicon.PREPOSITIONS), self.phrase(length - 1))
        if kind == "subject":
            return SubjectRelative(self.predicate(length - 1))
        return ObjectRelative(self.phrase(length - 2), self.pick(self.style.verbs))

    def _uneven(self, low, high):
        """Low values as often as all others, so that both ends of a sentence can be simple."""
        return min(high, low + self.integer(0, 2)) if self.chance(0.5) else self.integer(low, high)
