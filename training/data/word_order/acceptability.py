"""Acceptability, shaped like CoLA: is this a sentence of the language?

Sentences come in pairs, one of them grammatical and the other the same words in another order, which is not. Both have
the same first and the same last word. So every bag of words, with or without the words at the ends, has both labels
equally often, and whoever does not see the order is right half of the time.
"""

import numpy as np

from training.data.records import Classification
from training.data.word_order.grammar import is_grammatical
from training.data.word_order.lexicon import CATEGORIES
from training.data.word_order.sampling import Sampler, split_of

GROUP = 2
LABELS = ("unacceptable", "acceptable")  # CoLA's 0 and 1
TRIES = 8  # places tried for one kind of change before the next kind is tried


def _adjacent(words, sampler):
    """Two neighbours exchanged: `the dog big`, `dog the`, `the sees dog`."""
    first = sampler.integer(1, len(words) - 3)
    return _exchanged(words, first, first + 1)


def _distant(words, sampler):
    """Two words of different categories exchanged, at least one other between them."""
    first, second = _two_places(words, sampler)
    if second - first < 2 or CATEGORIES[words[first]][0] == CATEGORIES[words[second]][0]:
        return None
    return _exchanged(words, first, second)


def _moved(words, sampler):
    """One word, often the verb, taken elsewhere."""
    start, end = _two_places(words, sampler)
    if sampler.chance(0.5):
        start, end = end, start
    rest = words[:start] + words[start + 1 :]
    return rest[:end] + [words[start]] + rest[end:]


def _agreement(words, sampler):
    """A singular and a plural noun exchanged, so that a verb, perhaps far away, disagrees with its subject."""
    nouns = [place for place in range(1, len(words) - 1) if CATEGORIES[words[place]][0] == "noun"]
    if len(nouns) < 2:
        return None
    first, second = sampler.shuffled(nouns)[:2]
    if CATEGORIES[words[first]][2] == CATEGORIES[words[second]][2]:
        return None
    return _exchanged(words, first, second)


def _shuffled(words, sampler):
    """All words between the first and the last in a random order: the easiest to tell, from which learning starts."""
    return [words[0], *sampler.shuffled(words[1:-1]), words[-1]]


KINDS = {"shuffled": _shuffled, "adjacent": _adjacent, "distant": _distant, "moved": _moved, "agreement": _agreement}


def _exchanged(words, first, second):
    words = list(words)
    words[first], words[second] = words[second], words[first]
    return words


def _two_places(words, sampler):
    """Neither the first word nor the last."""
    first = sampler.integer(1, len(words) - 2)
    second = sampler.integer(1, len(words) - 3)
    second += second >= first
    return min(first, second), max(first, second)


def corrupt(words, sampler, kinds=tuple(KINDS)):
    """The words in an order that is no sentence, or `None` if none was found, and the kind of the change."""
    for kind in sampler.shuffled(kinds):
        for _ in range(TRIES):
            changed = KINDS[kind](words, sampler)
            if changed is not None and not is_grammatical(changed):
                return changed, kind
    return None, None


def pairs(split, seed, lengths, kinds=tuple(KINDS)):
    """Endless `(grammatical, changed, kind)`, the first two lists of words; no bag of words comes twice.

    Args:
        split, seed, lengths: as in `word_order.load`.
        kinds: which of `KINDS` to change sentences by.
    """
    sampler, seen = Sampler(f"acceptability {split} {seed}"), set()
    while True:
        words = sampler.sentence(sampler.integer(*lengths)).words()
        bag = tuple(sorted(words))
        if split_of(words) != split or bag in seen:
            continue
        changed, kind = corrupt(words, sampler, kinds)
        if changed is not None:
            seen.add(bag)
            yield words, changed, kind


def generate(split, size, seed, lengths):
    sampler = Sampler(f"acceptability labels {split} {seed}")
    texts, labels = [], []
    for (good, bad, _), _ in zip(pairs(split, seed, lengths), range(size // GROUP)):
        for words, label in sampler.shuffled([(good, 1), (bad, 0)]):
            texts.append(" ".join(words))
            labels.append(label)
    return Classification(texts, None, np.array(labels, "int32"), LABELS)
