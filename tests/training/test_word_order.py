"""The benchmark: bags of words at chance, labels true, answers exact, splits disjoint, data reproducible."""

import collections
import hashlib

import numpy as np
import pytest
import word_order_reference as reference

from keras_posenc.checkpoints.tokenizer import WordPiece
from training.data import records, word_order
from training.data.word_order.bag_of_words import BagOfWords

CLASSIFICATION = ["acceptability", "entailment"]


def bag(text):
    return tuple(sorted(text.split()))


def sentences(task, data):
    """What must not be in two splits: sentences, or for questions passages."""
    if task in CLASSIFICATION:
        return data.first + (data.second or [])
    if task == "questions":
        return [question.context for question in data]
    return data.source if task == "translation" else [line.removesuffix(" .") for page in data for line in page]


def examples_of(task, split, size):
    data = word_order.load(task, split, size=size)
    return zip(data.texts, data.labels)


@pytest.mark.parametrize("split", word_order.SPLITS)
@pytest.mark.parametrize(
    "task, seen",
    [
        ("acceptability", lambda first, second: bag(first)),
        ("acceptability", lambda first, second: (bag(first), first.split()[0], first.split()[-1])),
        ("entailment", lambda first, second: (bag(first), bag(second))),
        ("entailment", lambda first, second: bag(f"{first} {second}")),
        ("entailment", lambda first, second: first),
        ("entailment", lambda first, second: second),
    ],
    ids=["bag", "bag and ends", "two bags", "one bag of both", "premise only", "hypothesis only"],
)
def test_labels_are_balanced_over_everything_but_order(task, seen, split):
    data = word_order.load(task, split, size=800)
    counts = collections.defaultdict(lambda: [0, 0])
    for index, label in enumerate(data.labels):
        counts[seen(data.first[index], data.second and data.second[index])][label] += 1
    assert len(counts) >= 100
    assert all(negative == positive for negative, positive in counts.values())


@pytest.mark.parametrize("task, ends", [("acceptability", False), ("acceptability", True), ("entailment", False)])
def test_a_trained_bag_of_words_is_at_chance(task, ends):
    """Not entailment with the words at the ends: which noun comes first is order, and decides."""
    train, test = (word_order.load(task, split, size=1200) for split in ("train", "test"))
    model = BagOfWords(word_order.vocabulary(), ends=ends).fit(train, epochs=4)
    deviation = 0.5 / np.sqrt(len(test))
    assert abs(model.accuracy(test) - 0.5) < 3 * deviation


@pytest.mark.parametrize("task", CLASSIFICATION)
def test_the_bag_of_words_does_learn_what_words_say(task):
    """The control: is the sentence, or the second of two, passive?"""
    found = []
    for split in ("train", "test"):
        data = word_order.load(task, split, size=1200)
        texts = data.second or data.first
        data.labels = np.array([" by " in text for text in texts], "int32")
        found.append(data)
    assert BagOfWords(word_order.vocabulary()).fit(found[0], epochs=4).accuracy(found[1]) > 0.95


@pytest.mark.parametrize("split", ["train", "test_longer"])
def test_acceptable_is_what_the_chart_parser_accepts(split):
    data = word_order.load("acceptability", split, size=100)
    assert [len(reference.derivations(text.split())) for text in data.first] == data.labels.tolist()


@pytest.mark.parametrize("split", ["train", "test_longer"])
def test_entailed_is_what_the_premise_states(split):
    data = word_order.load("entailment", split, size=100)
    for premise, hypothesis, label in zip(data.first, data.second, data.labels):
        stated, said = (reference.facts(reference.derivations(text.split())[0]) for text in (premise, hypothesis))
        assert data.label_names[label] == ("entailment" if said <= stated else "not_entailment")


def test_the_order_of_the_nouns_alone_is_right_more_often_than_not_and_voices_decide():
    """What learning begins with, and what it has to find: whether the hypothesis has its nouns in the premise's order
    is right where neither or both of the two are passive, and wrong elsewhere."""
    right = collections.defaultdict(list)
    for (premise, hypothesis), label in examples_of("entailment", "train", 4000):
        if " who " in premise or " and " in premise:
            continue
        first, second = (text.split() for text in (premise, hypothesis))
        nouns = [word for word in second if word_order.lexicon.CATEGORIES[word][0] == "noun"]
        same = first.index(nouns[0]) < first.index(nouns[1])
        right[("by" in first) != ("by" in second)].append(same == (label == 0))
    assert all(right[False]) and not any(right[True])
    assert len(right[False]) > 2 * len(right[True]) > 200


def test_answers_are_the_spans_that_the_passage_states():
    for example in word_order.load("questions", "dev", size=120):
        (answer, start), words = example.answers[0], example.question.split()
        assert example.context[start : start + len(answer)] == answer
        assert start == 0 or example.context[start - 1] == " "
        stated = [reference.facts(reference.derivations(s.split())[0]) for s in example.context.split(" . ")[:-1]]
        last = example.context.split(" . ")[-1].removesuffix(" .")
        facts = set().union(*stated, reference.facts(reference.derivations(last.split())[0]))
        # The statement that the question becomes with its answer for `who`; `who` takes a singular verb.
        passive = words[1] == "is"
        verb = word_order.lexicon.CATEGORIES[words[2] if passive else words[1]][1]
        known = words[4 if passive else 2 : -1]
        known = (known[0], frozenset(known[1:-1]), known[-1])
        fits = {patient if passive else agent for agent, v, patient in facts if v == verb and known in (agent, patient)}
        fits -= {known}
        answer = answer.split()
        assert fits == {(answer[0], frozenset(answer[1:-1]), answer[-1])}


def test_the_words_of_a_question_do_not_say_the_answer():
    answers = collections.defaultdict(collections.Counter)
    for example in word_order.load("questions", "test", size=400):
        answers[bag(example.context), bag(example.question)][example.answers[0][0]] += 1
    assert len(answers) == 200
    assert all(sorted(counts.values()) == [1, 1] for counts in answers.values())


def test_text_states_facts_again():
    again = 0
    for document in word_order.load("text", "dev", size=20):
        assert all(line.endswith(" .") for line in document)
        facts = [reference.facts(reference.derivations(line.split()[:-1])[0]) for line in document]
        again += sum(after <= before for before, after in zip(facts, facts[1:]))
    assert again > 20


@pytest.mark.parametrize("task", word_order.TASKS)
def test_splits_share_no_bag_whatever_the_seed_and_lengths(task):
    about, found = word_order.TASKS[task], {}
    for split in word_order.SPLITS:
        for seed in (0, 1):
            data = word_order.load(task, split, size=40 if task == "text" else 200, seed=seed, lengths=about.lengths)
            found.setdefault(split, set()).update(map(bag, sentences(task, data)))
    assert sum(map(len, found.values())) == len(set().union(*found.values()))


def test_no_task_trains_on_what_another_is_tested_on():
    """Masked language models may be pretrained on the text and tested on the other tasks."""
    found = {"train": set(), "test": set()}
    for task in ("acceptability", "entailment", "translation", "text"):
        for split, bags in found.items():
            bags.update(map(bag, sentences(task, word_order.load(task, split, size=100, lengths=(12, 14)))))
    assert found["train"].isdisjoint(found["test"])


@pytest.mark.parametrize("task", word_order.TASKS)
def test_lengths_are_within_bounds_and_all_of_them_occur(task):
    about = word_order.TASKS[task]
    assert about.longer[0] > about.lengths[1]
    bounds = {"test": (None, about.lengths), "test_longer": (None, about.longer), "dev": ((20, 21),) * 2}
    for split, (asked, (low, high)) in bounds.items():
        data = word_order.load(task, split, size=600 if task != "text" else 100, lengths=asked)
        if task == "entailment":
            counts = {len(first.split()) + len(second.split()) for first, second in data.texts}
        else:
            counts = {len(text.split()) for text in sentences(task, data)}
        if task == "text":
            counts = {count for count in counts if count >= low}  # a fact stated again is short
        assert counts == set(range(low, high + 1))


@pytest.mark.parametrize("task", word_order.TASKS)
def test_every_word_is_one_token_and_examples_fit(task):
    tokenizer, about = WordPiece(word_order.vocabulary()), word_order.TASKS[task]
    for split, longest in (("dev", about.max_length), ("test_longer", about.longer_max_length)):
        data = word_order.load(task, split, size=60)
        texts = [(e.question, e.context) for e in data] if task == "questions" else sentences(task, data)
        texts = data.texts if task in CLASSIFICATION else texts
        encoded = tokenizer.encode(texts)
        words = [len(t.split()) + 2 if isinstance(t, str) else len(" ".join(t).split()) + 3 for t in texts]
        assert encoded["padding_mask"].sum(axis=1).tolist() == words
        assert max(words) <= longest
        assert tokenizer.unknown_id not in encoded["token_ids"]


def test_every_target_word_is_one_token():
    tokenizer = WordPiece(word_order.target_vocabulary())
    target = word_order.load("translation", "dev", size=200).target
    assert [len(ids) for ids in tokenizer.tokenize(target)] == [len(text.split()) for text in target]
    assert tokenizer.decode(tokenizer.tokenize(target[:1])[0]) == target[0]


@pytest.mark.parametrize("task", word_order.TASKS)
def test_a_seed_is_a_data_set_and_a_smaller_size_its_beginning(task):
    def load(size, seed):
        data = word_order.load(task, "train", size=size, seed=seed)
        if task == "translation":
            return list(zip(data.source, data.target))
        return list(zip(data.texts, data.labels)) if task in CLASSIFICATION else data

    assert load(40, 3) == load(40, 3) == load(80, 3)[:40]
    assert load(40, 3) != load(40, 4)


@pytest.mark.parametrize("task, kind", [("acceptability", records.Classification), ("translation", records.Parallel)])
def test_default_sizes(task, kind):
    data = word_order.load(task, "dev")
    assert isinstance(data, kind) and len(data) == word_order.TASKS[task].sizes["dev"]


def test_the_data_are_the_same_on_every_machine():
    data = word_order.load("entailment", "train", size=400)
    text = "\n".join(f"{first}\t{second}\t{label}" for (first, second), label in zip(data.texts, data.labels))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "0cefb3ee83ec600e"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("cola", "train"), "Unknown task: 'cola'. Known: acceptability"),
        (("text", "validation"), "Unknown split: 'validation'. Known: train"),
        (("entailment", "train", 10), "groups of 4"),
        (("acceptability", "train", -2), "groups of 2"),
        (("acceptability", "train", 10, 0, (4, 9)), "from 5 to 64 words. Received: \\(4, 9\\)"),
        (("acceptability", "train", 10, 0, (9, 8)), "Received: \\(9, 8\\)"),
        (("acceptability", "train", 10, 0, (9, 80)), "Received: \\(9, 80\\)"),
        (("acceptability", "train", 10, 0, (9,)), "must be \\(shortest, longest\\)"),
    ],
)
def test_errors_say_what_was_received(arguments, message):
    with pytest.raises(ValueError, match=message):
        word_order.load(*arguments)
