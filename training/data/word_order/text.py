"""Text for masked language models: documents of sentences.

A sentence may be followed by one of its facts in a sentence of its own, active or passive, so that a masked word can
be told from the sentence before by who reads the order.
"""

from training.data.word_order.grammar import Sentence, facts
from training.data.word_order.lexicon import PERIOD
from training.data.word_order.sampling import SHORTEST, Sampler, split_of

GROUP = 1
SENTENCES = (4, 12)  # of a document
AGAIN = 0.4  # how often a fact is stated again


def _sentence(sampler, split, lengths):
    while True:
        sentence = sampler.sentence(sampler.integer(*lengths))
        if split_of(sentence.words()) == split:
            return sentence


def _again(sampler, sentence, split, longest):
    """A fact of the sentence as a sentence of its own, in this split and not too long, or `None`."""
    words = sentence.words()
    for fact in sampler.shuffled(facts(sentence)):
        for passive in sampler.shuffled((False, True)):
            said = Sentence((fact.clause(passive),))
            found = said.words()
            if found != words and split_of(found) == split and len(found) <= longest:
                return said
    return None


def _two_sentences(sampler, split, lengths):
    """A sentence and a fact of it; drawn until there is one in the split, or else small splits would have few."""
    while True:
        sentence = _sentence(sampler, split, lengths)
        again = _again(sampler, sentence, split, lengths[1])
        if again is not None:
            return [sentence, again]


def generate(split, size, seed, lengths):
    """A list of documents, each a list of sentences (strings that end in a period)."""
    sampler, documents = Sampler(f"text {split} {seed}"), []
    # A passive has two words more than its active: with no room for one there is nothing to say again.
    again = AGAIN if lengths[1] >= SHORTEST + 2 else 0.0
    for _ in range(size):
        document, count = [], sampler.integer(*SENTENCES)
        while len(document) < count:
            if count - len(document) > 1 and sampler.chance(again):
                document += _two_sentences(sampler, split, lengths)
            else:
                document.append(_sentence(sampler, split, lengths))
        documents.append([" ".join([*sentence.words(), PERIOD]) for sentence in document])
    return documents
