"""Trees of the language, the words of a tree, and the tree of words.

    sentence  -> clause ("and" clause)*
    clause    -> phrase predicate
    predicate -> verb phrase | be participle "by" phrase
    phrase    -> determiner adjective* noun [place | relative]
    place     -> preposition phrase
    relative  -> "who" predicate | "who" phrase verb

Finite verbs agree in number with their subject, which for the predicate of a relative clause is the noun before
"who". A noun has at most one modifier, which makes the nearest noun the only one to attach to: every sentence has one
tree, found by looking one word ahead. Nothing but the order of the words says who does what to whom.
"""

import dataclasses

from training.data.word_order.lexicon import AND, BE, BY, CATEGORIES, NOUN_FORMS, PARTICIPLES, VERB_FORMS, WHO


@dataclasses.dataclass(frozen=True)
class Core:
    """A noun with its determiner and adjectives: a phrase without its modifier."""

    determiner: str
    adjectives: tuple
    noun: str
    plural: bool

    def words(self):
        return [self.determiner, *self.adjectives, NOUN_FORMS[self.noun][self.plural]]


@dataclasses.dataclass(frozen=True)
class Phrase:
    """A core and what follows it: `Place`, `SubjectRelative`, `ObjectRelative` or `None`."""

    core: Core
    modifier: object = None

    def words(self):
        return self.core.words() + (self.modifier.words(self.core) if self.modifier else [])


@dataclasses.dataclass(frozen=True)
class Place:
    preposition: str
    phrase: Phrase

    def words(self, head):
        return [self.preposition, *self.phrase.words()]


@dataclasses.dataclass(frozen=True)
class Predicate:
    """What is said of a subject. In the passive the phrase is the agent, else the patient."""

    verb: str
    passive: bool
    phrase: Phrase

    def words(self, subject):
        if self.passive:
            verb = [BE[subject.plural], PARTICIPLES[self.verb], BY]
        else:
            verb = [VERB_FORMS[self.verb][subject.plural]]
        return verb + self.phrase.words()


@dataclasses.dataclass(frozen=True)
class SubjectRelative:
    """`the cat who sees the dog`."""

    predicate: Predicate

    def words(self, head):
        return [WHO, *self.predicate.words(head)]


@dataclasses.dataclass(frozen=True)
class ObjectRelative:
    """`the cat who the dog sees`."""

    subject: Phrase
    verb: str

    def words(self, head):
        return [WHO, *self.subject.words(), VERB_FORMS[self.verb][self.subject.core.plural]]


@dataclasses.dataclass(frozen=True)
class Clause:
    subject: Phrase
    predicate: Predicate

    def words(self):
        return self.subject.words() + self.predicate.words(self.subject.core)


@dataclasses.dataclass(frozen=True)
class Sentence:
    clauses: tuple

    def words(self):
        found = self.clauses[0].words()
        for clause in self.clauses[1:]:
            found += [AND, *clause.words()]
        return found


@dataclasses.dataclass(frozen=True)
class Fact:
    """The agent does the verb to the patient; the two are `Core`s."""

    agent: Core
    verb: str
    patient: Core

    def clause(self, passive):
        """The fact as a clause of its own."""
        subject, other = (self.patient, self.agent) if passive else (self.agent, self.patient)
        return Clause(Phrase(subject), Predicate(self.verb, passive, Phrase(other)))


def facts(sentence):
    """Every `Fact` a sentence states, in its main clauses and in its relative clauses."""
    found = []

    def say(subject, predicate):
        agent, patient = subject, predicate.phrase.core
        if predicate.passive:
            agent, patient = patient, agent
        found.append(Fact(agent, predicate.verb, patient))
        visit(predicate.phrase)

    def visit(phrase):
        modifier = phrase.modifier
        if isinstance(modifier, Place):
            visit(modifier.phrase)
        elif isinstance(modifier, SubjectRelative):
            say(phrase.core, modifier.predicate)
        elif isinstance(modifier, ObjectRelative):
            found.append(Fact(modifier.subject.core, modifier.verb, phrase.core))
            visit(modifier.subject)

    for clause in sentence.clauses:
        visit(clause.subject)
        say(clause.subject.core, clause.predicate)
    return found


def replace(tree, cores):
    """The tree with every `Core` that is a key of the dict `cores` replaced by its value."""
    if isinstance(tree, Core):
        return cores.get(tree, tree)
    if isinstance(tree, tuple):
        return tuple(replace(part, cores) for part in tree)
    if dataclasses.is_dataclass(tree):
        parts = {field.name: replace(getattr(tree, field.name), cores) for field in dataclasses.fields(tree)}
        return type(tree)(**parts)
    return tree


class NotGrammatical(ValueError):
    """The words are no sentence of the language."""


def parse(words):
    """The one `Sentence` that these words are, or `NotGrammatical`."""
    reader = _Reader(words)
    clauses = [reader.clause()]
    while reader.category() == AND:
        reader.take(AND)
        clauses.append(reader.clause())
    reader.take("end")
    return Sentence(tuple(clauses))


def is_grammatical(words):
    try:
        parse(words)
    except NotGrammatical:
        return False
    return True


class _Reader:
    """Reads from left to right, one method for each line of the grammar."""

    def __init__(self, words):
        self.words, self.place = list(words), 0

    def category(self):
        if self.place == len(self.words):
            return "end"
        return CATEGORIES.get(self.words[self.place], ("unknown",))[0]

    def take(self, category):
        """The next word and what the lexicon says of it, which must be of this category."""
        if self.category() != category:
            found = " ".join(self.words[self.place : self.place + 1]) or "the end"
            raise NotGrammatical(f"Expected {category} at word {self.place + 1}, found {found}: {' '.join(self.words)}")
        if category == "end":
            return None
        word = self.words[self.place]
        self.place += 1
        return word, *CATEGORIES[word][1:]

    def agree(self, subject, plural):
        if subject.plural != plural:
            words = " ".join(self.words)
            raise NotGrammatical(f"'{self.words[self.place - 1]}' does not agree with its subject: {words}")

    def clause(self):
        subject = self.phrase()
        return Clause(subject, self.predicate(subject.core))

    def predicate(self, subject):
        if self.category() == "be":
            self.agree(subject, self.take("be")[1])
            _, verb = self.take("participle")
            self.take(BY)
            return Predicate(verb, True, self.phrase())
        return Predicate(self.verb(subject), False, self.phrase())

    def verb(self, subject):
        _, verb, plural = self.take("verb")
        self.agree(subject, plural)
        return verb

    def phrase(self):
        determiner, adjectives = self.take("determiner")[0], []
        while self.category() == "adjective":
            adjectives.append(self.take("adjective")[0])
        _, noun, plural = self.take("noun")
        core = Core(determiner, tuple(adjectives), noun, plural)
        return Phrase(core, self.modifier(core))

    def modifier(self, core):
        if self.category() == "preposition":
            return Place(self.take("preposition")[0], self.phrase())
        if self.category() != WHO:
            return None
        self.take(WHO)
        if self.category() != "determiner":
            return SubjectRelative(self.predicate(core))
        subject = self.phrase()
        return ObjectRelative(subject, self.verb(subject.core))
