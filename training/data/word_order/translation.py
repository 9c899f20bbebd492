"""Translation into a language that has the verb at the end.

    clause    -> phrase phrase verb                        subject, object, verb
               | phrase phrase "ni" verb "ta"              subject, agent, passive verb
    phrase    -> [place | relative] noun adjective* determiner
    place     -> phrase preposition
    relative  -> phrase verb "su" | phrase "ni" verb "ta" "su"     the noun is its subject
               | phrase verb "ko"                                  the noun is its object

Adjectives keep their order, verbs do not agree, and each other word has one translation: a source sentence has one
translation and a translation has one source. Exact matches and BLEU mean what they say.
"""

from training.data.records import Parallel
from training.data.word_order import grammar
from training.data.word_order.lexicon import (
    AGENT,
    AND,
    OBJECT_RELATIVE,
    PASSIVE,
    SUBJECT_RELATIVE,
    TARGET,
    TARGET_NOUNS,
)
from training.data.word_order.sampling import Sampler, split_of

GROUP = 1


def translate(sentence):
    """The words of the translation of a `grammar.Sentence`."""
    found = _clause(sentence.clauses[0])
    for clause in sentence.clauses[1:]:
        found += [TARGET[AND], *_clause(clause)]
    return found


def _clause(clause):
    return _phrase(clause.subject) + _predicate(clause.predicate)


def _predicate(predicate):
    verb = TARGET[predicate.verb]
    return _phrase(predicate.phrase) + ([AGENT, verb, PASSIVE] if predicate.passive else [verb])


def _phrase(phrase):
    core = phrase.core
    noun = TARGET_NOUNS[core.noun][core.plural]
    return [*_modifier(phrase.modifier), noun, *(TARGET[word] for word in (*core.adjectives, core.determiner))]


def _modifier(modifier):
    if modifier is None:
        return []
    if isinstance(modifier, grammar.Place):
        return [*_phrase(modifier.phrase), TARGET[modifier.preposition]]
    if isinstance(modifier, grammar.SubjectRelative):
        return [*_predicate(modifier.predicate), SUBJECT_RELATIVE]
    return [*_phrase(modifier.subject), TARGET[modifier.verb], OBJECT_RELATIVE]


def generate(split, size, seed, lengths):
    sampler, seen = Sampler(f"translation {split} {seed}"), set()
    source, target = [], []
    while len(source) < size:
        sentence = sampler.sentence(sampler.integer(*lengths))
        words = sentence.words()
        bag = tuple(sorted(words))
        if split_of(words) == split and bag not in seen:
            seen.add(bag)
            source.append(" ".join(words))
            target.append(" ".join(translate(sentence)))
    return Parallel(source, target)
