"""Span questions, shaped like SQuAD: who did it, or to whom was it done?

A passage says that A does something to B and that B does the same to C, among other sentences. `who sees B ?` is
answered by A, `who is seen by B ?` by C. The same passage with A and C exchanged follows, with the same two questions
and the answers exchanged: the words of passage and question never decide between A and C. An answer is a determiner,
its adjectives and its noun, without what follows the noun.
"""

from training.data.records import Question
from training.data.word_order import lexicon
from training.data.word_order.grammar import Fact, Sentence, replace
from training.data.word_order.sampling import SHORTEST, Sampler, split_of

GROUP = 4
SHORTEST_PASSAGE = 2 * (SHORTEST + 1)  # two sentences with their periods
LONGEST_QUESTION = 9  # `who is seen by`, a noun with two adjectives, a question mark
FILLER = 12  # words of the longest sentence that the questions are not about


def ask(verb, core, passive):
    """The words of a question whose answer does the verb to `core`, or in the passive has it done to."""
    verb = [lexicon.BE[False], lexicon.PARTICIPLES[verb], lexicon.BY] if passive else [lexicon.VERB_FORMS[verb][False]]
    return [lexicon.WHO, *verb, *core.words(), lexicon.QUESTION]


def _passage(sampler, length):
    """The sentences of a passage of about `length` words, and A, B, C and the verb."""
    sampler.start()
    # A and C have the same number, or else exchanging them would change the form of a verb.
    plural = sampler.chance(0.5)
    a, c = (sampler.core(sampler.pick((0, 0, 1, 2)), plural) for _ in range(2))
    b = sampler.core(sampler.pick((0, 0, 1, 2)))
    verb = sampler.pick(lexicon.VERBS)
    clauses = [Fact(a, verb, b).clause(sampler.chance(0.5)), Fact(b, verb, c).clause(sampler.chance(0.5))]
    room = length - sum(len(clause.words()) + 1 for clause in clauses)
    while room > SHORTEST:
        clause = sampler.clause(min(room - 1, sampler.integer(SHORTEST, FILLER)))
        room -= len(clause.words()) + 1
        clauses.append(clause)
    return [Sentence((clause,)) for clause in sampler.shuffled(clauses)], a, b, c, verb


def _mentions(words, verb):
    forms = (*lexicon.VERB_FORMS[verb].values(), lexicon.PARTICIPLES[verb])
    return sum(word in forms for word in words)


def _words(sentences):
    return [word for sentence in sentences for word in (*sentence.words(), lexicon.PERIOD)]


def groups(split, seed, lengths):
    """Endless lists of four `(context, question, answer, place)`: lists of words, and where the answer begins."""
    sampler, seen = Sampler(f"questions {split} {seed}"), set()
    while True:
        sentences, a, b, c, verb = _passage(sampler, sampler.integer(*lengths))
        words = _words(sentences)
        bag = tuple(sorted(words))
        # The verb of the questions is in no other sentence: the answer is the only one.
        if not lengths[0] <= len(words) <= lengths[1] or _mentions(words, verb) != 2:
            continue
        if split_of(words) != split or bag in seen:
            continue
        seen.add(bag)
        questions = [ask(verb, b, passive) for passive in (False, True)]
        mirrored = [replace(sentence, {a: c, c: a}) for sentence in sentences]
        found = []
        for passage, answers in ((sentences, (a, c)), (mirrored, (c, a))):
            context = _words(passage)
            for question, answer in zip(questions, answers):
                found.append((context, question, answer.words(), _find(context, answer.words())))
        yield sampler.shuffled(found)


def _find(words, part):
    """Where `part` begins in `words`; nouns occur once in a passage."""
    return words.index(part[-1]) - len(part) + 1


def generate(split, size, seed, lengths):
    found = []
    for group, number in zip(groups(split, seed, lengths), range(size // GROUP)):
        for index, (context, question, answer, place) in enumerate(group):
            start = len(" ".join(context[:place])) + (place > 0)
            found.append(
                Question(
                    id=f"{split}-{seed}-{GROUP * number + index}",
                    question=" ".join(question),
                    context=" ".join(context),
                    answers=[(" ".join(answer), start)],
                )
            )
    return found
