"""Entailment, shaped like RTE: does the second sentence follow from the first?

The hypothesis states one fact of the premise, in the active or the passive, or the same fact with the roles (or the
adjectives) of its two nouns exchanged:

    the big dog who sees the owl helps the old cat / the old cat is helped by the big dog      entailment
    the big dog who sees the owl helps the old cat / the big dog is helped by the old cat      not_entailment
    the big dog who sees the owl helps the old cat / the big cat is helped by the old dog      not_entailment

Examples come in fours: premise and hypothesis, each also with the exchange made, where the premise and the hypothesis
that agree entail. So each pair of bags of words has both labels equally often, and so has each premise and each
hypothesis.
"""

import dataclasses

import numpy as np

from training.data.records import Classification
from training.data.word_order.grammar import Sentence, facts, replace
from training.data.word_order.sampling import SHORTEST, Sampler, split_of

GROUP = 4
LABELS = ("entailment", "not_entailment")  # RTE's 0 and 1
SHORTEST_PAIR = 2 * SHORTEST + 2  # one of the two is passive: a premise is no hypothesis of its own


def exchanges(fact):
    """Dicts for `grammar.replace` that exchange the nouns of a fact, or only their adjectives.

    The two nouns have the same number, or else the exchange would change the form of a verb.
    """
    one, other = fact.agent, fact.patient
    if one.plural != other.plural:
        return []
    found = [{one: other, other: one}]
    if set(one.adjectives) != set(other.adjectives):
        found.append(
            {
                one: dataclasses.replace(one, adjectives=other.adjectives),
                other: dataclasses.replace(other, adjectives=one.adjectives),
            }
        )
    return found


def groups(split, seed, lengths):
    """Endless `(premises, hypotheses)`, two lists of words in each: the first premise entails the first hypothesis
    and not the second, and the second premise the other way round."""
    sampler, seen = Sampler(f"entailment {split} {seed}"), set()
    while True:
        premise = sampler.sentence(sampler.integer(SHORTEST, lengths[1] - SHORTEST))
        words = premise.words()
        if split_of(words) != split:
            continue
        bag = tuple(sorted(words))
        options = [(fact, passive, e) for fact in facts(premise) for passive in (False, True) for e in exchanges(fact)]
        for fact, passive, exchange in sampler.shuffled(options):
            hypothesis = Sentence((fact.clause(passive),))
            said = hypothesis.words()
            bags = bag, tuple(sorted(said))
            fits = lengths[0] <= len(words) + len(said) <= lengths[1] and said != words
            if fits and split_of(said) == split and bags not in seen:
                seen.add(bags)
                yield [words, replace(premise, exchange).words()], [said, replace(hypothesis, exchange).words()]
                break


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
