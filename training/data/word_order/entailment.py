"""Entailment, shaped like RTE: does the second sentence follow from the first?

The hypothesis states one fact of the premise, in the active or the passive, or the same fact with the roles of its two
nouns exchanged:

    the big dog who sees the owl helps the old cat / the old cat is helped by the big dog      entailment
    the big dog who sees the owl helps the old cat / the big dog is helped by the old cat      not_entailment

Examples come in fours: premise and hypothesis, each also with the exchange made, where the premise and the hypothesis
that agree entail. So each pair of bags of words has both labels equally often, and so has each premise and each
hypothesis.

The label is the parity of three things: nouns in another order, voice of the premise, voice of the hypothesis. A parity
of fair coins has no correlation with any part of them, and gradients have nothing to begin with. Here most predicates
are active, so that the order of the nouns alone is right more often than not. Words are few, nouns singular, and a
premise may be as short as its hypothesis, for the same purpose: an easier part to begin with. None of this changes the
balance, which holds within each four.
"""

import numpy as np

from training.data.records import Classification
from training.data.word_order import lexicon
from training.data.word_order.grammar import Sentence, facts, replace
from training.data.word_order.sampling import SHORTEST, Sampler, Style, share, split_of

GROUP = 4
LABELS = ("entailment", "not_entailment")  # RTE's 0 and 1
SHORTEST_PAIR = 2 * SHORTEST + 2  # from here on there are pairs of every length; of 11 words there is none
# Eight nouns are enough for premises of up to 25 words.
STYLE = Style(
    determiners=lexicon.DETERMINERS[:1],
    adjectives=lexicon.ADJECTIVES[:4],
    nouns=lexicon.NOUNS[:8],
    verbs=lexicon.VERBS[:4],
    passive=0.2,
    plural=0.0,
)


def groups(split, seed, lengths):
    """Endless `(premises, hypotheses)`, two lists of words in each: the first premise entails the first hypothesis
    and not the second, and the second premise the other way round."""
    sampler = Sampler(f"entailment {split} {seed}", STYLE)
    while True:
        premise = sampler.sentence(sampler.integer(SHORTEST, lengths[1] - SHORTEST))
        fact = sampler.pick(facts(premise))
        hypothesis = Sentence((fact.clause(sampler.chance(STYLE.passive)),))
        words, said = premise.words(), hypothesis.words()
        if not lengths[0] <= len(words) + len(said) <= lengths[1]:
            continue
        # Two sentences of the same words are in one split, any others by chance: without this, small splits would
        # have more of the former.
        if sorted(words) == sorted(said) and not sampler.chance(share(split)):
            continue
        if split_of(words) == split_of(said) == split:
            exchange = {fact.agent: fact.patient, fact.patient: fact.agent}
            yield [words, replace(premise, exchange).words()], [said, replace(hypothesis, exchange).words()]


def generate(split, size, seed, lengths):
    sampler = Sampler(f"entailment order {split} {seed}")
    first, second, labels = [], [], []
    for (premises, hypotheses), _ in zip(groups(split, seed, lengths), range(size // GROUP)):
        for index in sampler.shuffled(range(GROUP)):
            premise, hypothesis = divmod(index, 2)
            first.append(" ".join(premises[premise]))
            second.append(" ".join(hypotheses[hypothesis]))
            labels.append(int(premise != hypothesis))
    return Classification(first, second, np.array(labels, "int32"), LABELS)
