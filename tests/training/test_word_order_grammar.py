"""The language: one tree for each sentence, agreement, exact lengths, one translation for each sentence and back."""

import pytest
import word_order_reference as reference

from training.data import word_order
from training.data.word_order import grammar, lexicon
from training.data.word_order.acceptability import KINDS, pairs
from training.data.word_order.sampling import Sampler

EXAMPLES = [
    ("the dog sees the cat", True),
    ("the dogs see the cat", True),
    ("the dogs sees the cat", False),
    ("the cat is seen by the dog", True),
    ("the cat are seen by the dog", False),
    ("the big old dog sees the cat", True),
    ("the dog big sees the cat", False),
    ("the dog near the cats sees the owl", True),
    ("the dog near the cats see the owl", False),
    ("the dog who sees the cats helps the owl", True),
    ("the dog who the cats see helps the owl", True),
    ("the dog who the cats see help the owl", False),
    ("the dog who the cats sees help the owl", False),
    ("the dog sees the cat and the owl helps the hen", True),
    ("the dog sees the cat and the owl", False),
    ("the dog sees the cat the owl helps", False),
    ("sees the dog the cat", False),
    ("the dog sees", False),
    ("the dog", False),
    ("", False),
]


@pytest.mark.parametrize("text, grammatical", EXAMPLES)
def test_examples(text, grammatical):
    words = text.split()
    assert grammar.is_grammatical(words) == grammatical
    assert len(reference.derivations(words)) == int(grammatical)


def test_an_unknown_word_is_not_grammatical():
    with pytest.raises(grammar.NotGrammatical, match="Expected noun at word 2, found zebra"):
        grammar.parse("the zebra sees the cat".split())


@pytest.mark.parametrize("length", [5, 6, 7, 9, 12, 17, 26])
def test_trees_have_the_length_asked_for_and_are_the_only_ones(length):
    sampler = Sampler("lengths")
    for _ in range(30):
        sentence = sampler.sentence(length)
        words = sentence.words()
        assert len(words) == length
        assert grammar.parse(words) == sentence
        assert len(reference.derivations(words)) == 1


def test_nouns_are_distinct_up_to_the_longest_length():
    sampler = Sampler("nouns")
    for _ in range(100):
        nouns = [word for word in sampler.sentence(64).words() if lexicon.CATEGORIES[word][0] == "noun"]
        stems = [lexicon.CATEGORIES[noun][1] for noun in nouns]
        assert len(set(stems)) == len(stems)


@pytest.mark.parametrize("kind", KINDS)
def test_the_chart_parser_rejects_every_kind_of_change(kind):
    found = pairs("dev", 0, (6, 16), kinds=(kind,))
    for _ in range(60):
        good, bad, _ = next(found)
        assert len(reference.derivations(good)) == 1
        assert not reference.derivations(bad)


def test_every_construction_occurs():
    sampler, text = Sampler("constructions"), " "
    for _ in range(200):
        text += " ".join(sampler.sentence(sampler.integer(6, 16)).words()) + " . "
    assert {word for word in lexicon.CATEGORIES if word != "?"} == set(text.split())


def test_facts_agree_with_the_chart_parser():
    sampler = Sampler("facts")
    for _ in range(100):
        sentence = sampler.sentence(sampler.integer(5, 18))

        def noun(core):
            words = core.words()
            return words[0], frozenset(words[1:-1]), words[-1]

        own = {(noun(fact.agent), fact.verb, noun(fact.patient)) for fact in grammar.facts(sentence)}
        assert own == reference.facts(reference.derivations(sentence.words())[0])


def test_translation_by_hand():
    def target(text):
        return " ".join(word_order.translation.translate(grammar.parse(text.split())))

    words = {word: lexicon.TARGET[word] for word in ("the", "big", "near", "see", "help", "and")}
    words |= {noun: lexicon.TARGET[noun] for noun in ("dog", "cat", "owl")}

    def said(text):
        return " ".join(words.get(word, word) for word in text.split())

    assert target("the big dog sees the cat") == said("dog big the cat the see")
    assert target("the cat is seen by the dog") == said("cat the dog the ni see ta")
    assert target("the dog near the cat sees the owl") == said("cat the near dog the owl the see")
    assert target("the dog who sees the cat helps the owl") == said("cat the see su dog the owl the help")
    assert target("the dog who the cat sees helps the owl") == said("cat the see ko dog the owl the help")
    assert target("the dog who is seen by the cat helps the owl") == said("cat the ni see ta su dog the owl the help")
    assert target("the dog sees the cat and the cat sees the owl") == said(
        "dog the cat the see and cat the owl the see"
    )
    assert target("the dogs see the cat") == said("dog") + "ren " + said("the cat the see")


@pytest.mark.parametrize("split", ["dev", "test_longer"])
def test_a_translation_has_one_source(split):
    data = word_order.load("translation", split, size=300)
    for source, target in zip(data.source, data.target):
        assert reference.untranslate(target.split()) == source
        assert len(source.split()) <= len(target.split()) + source.count("by")


def test_target_words_are_distinct_and_not_source_words():
    source, target = set(word_order.vocabulary()), word_order.target_vocabulary()
    assert len(set(target)) == len(target)
    assert source & set(target) == {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##s"}
    assert len(set(lexicon.TARGET.values())) == len(lexicon.TARGET)
