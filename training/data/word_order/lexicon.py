"""The words: an English-looking source language, and the target language of the translation task.

A noun has a singular and a plural, a verb the two forms that agree with them and a participle for the passive. All
forms are regular, so that they are made here and not listed. A word of the target language is two or three syllables
that say nothing about the word it stands for.
"""

DETERMINERS = ("the", "my", "your", "his", "her", "our", "their")
NOUNS = tuple(
    "baker cat child cow dancer doctor dog driver duck farmer goat hen horse hunter king lion nurse owl painter "
    "pilot sailor singer teacher tiger".split()
)
ADJECTIVES = tuple("big brave calm clever kind loud old poor proud quiet rich small strong tall tired young".split())
VERBS = tuple("answer call follow greet guard help invite join lead meet push see teach thank visit watch".split())
PREPOSITIONS = ("near", "behind", "beside", "above", "below", "beyond")
WHO, BY, AND = "who", "by", "and"
BE = {False: "is", True: "are"}  # by whether the subject is plural
PERIOD, QUESTION = ".", "?"

# Verbs whose participle is not the stem with an ending, and nouns whose plural is not.
_PARTICIPLES = {"lead": "led", "meet": "met", "see": "seen", "teach": "taught"}
_PLURALS = {"child": "children"}


def _with_s(stem):
    return stem + ("es" if stem.endswith(("s", "h")) else "s")


NOUN_FORMS = {noun: {False: noun, True: _PLURALS.get(noun, noun + "s")} for noun in NOUNS}
VERB_FORMS = {verb: {False: _with_s(verb), True: verb} for verb in VERBS}  # by whether the subject is plural
PARTICIPLES = {verb: _PARTICIPLES.get(verb, verb.removesuffix("e") + "ed") for verb in VERBS}


def _categories():
    found = dict.fromkeys(DETERMINERS, ("determiner",))
    found.update(dict.fromkeys(ADJECTIVES, ("adjective",)))
    found.update(dict.fromkeys(PREPOSITIONS, ("preposition",)))
    found.update({word: (word,) for word in (WHO, BY, AND, PERIOD, QUESTION)})
    found.update({form: ("be", plural) for plural, form in BE.items()})
    for noun, forms in NOUN_FORMS.items():
        found.update({form: ("noun", noun, plural) for plural, form in forms.items()})
    for verb, forms in VERB_FORMS.items():
        found.update({form: ("verb", verb, plural) for plural, form in forms.items()})
        found[PARTICIPLES[verb]] = ("participle", verb)
    return found


# Word: its category, then for a noun, a verb or a participle its stem, then whether it is plural.
CATEGORIES = _categories()

# The particles of the target language: passive agent, passive verb, relative clauses whose noun is the subject or the
# object of the clause.
AGENT, PASSIVE, SUBJECT_RELATIVE, OBJECT_RELATIVE = "ni", "ta", "su", "ko"


def _target_word(index, syllables):
    found = ""
    for _ in range(syllables):
        index, rest = divmod(index, 50)
        found += "bdfgklmpsz"[rest // 5] + "aeiou"[rest % 5]
    return found


def _target_words():
    """A dict from stems (nouns and verbs) and other words of the source to words of the target."""
    stems = (*NOUNS, *VERBS, *ADJECTIVES, *PREPOSITIONS)
    # A step prime to 2500 scatters neighbours of the list over the two-syllable words, without collisions.
    found = {stem: _target_word(7 + 389 * index, 2) for index, stem in enumerate(stems)}
    found.update({word: _target_word(11 + 7 * index, 1) + "n" for index, word in enumerate(DETERMINERS)})
    found[AND] = "ya"
    return found


TARGET = _target_words()
TARGET_NOUNS = {noun: {False: TARGET[noun], True: TARGET[noun] + "ren"} for noun in NOUNS}
