"""The language once more, as a table of rules for a chart parser that knows nothing of the generator's trees.

`derivations` finds every tree of a sentence by trying every rule at every span, `facts` reads who does what to whom
off a tree, `untranslate` reads a translation with a stack.
"""

import functools

from training.data.word_order import lexicon

RULES = {
    "S": ["C", "C and S"],
    "C": ["NP0 VP0", "NP1 VP1"],
    "NP": ["NP0", "NP1"],
    "O": ["NP0 v0", "NP1 v1"],
}
for n in "01":
    RULES |= {
        f"VP{n}": [f"v{n} NP", f"be{n} participle by NP"],
        f"NP{n}": [f"determiner A{n}"],
        f"A{n}": [f"adjective A{n}", f"n{n}", f"n{n} M{n}"],
        f"M{n}": ["preposition NP", f"who VP{n}", "who O"],
    }
RULES = {left: [tuple(right.split()) for right in rights] for left, rights in RULES.items()}


def _terminal(word):
    category, *more = lexicon.CATEGORIES[word]
    if category in ("noun", "verb"):
        return f"{category[0]}{int(more[1])}"
    return f"be{int(more[0])}" if category == "be" else category


def derivations(words):
    """All trees of the words: tuples of a symbol and its children, terminals with their word."""
    words = tuple(words)
    terminals = [_terminal(word) for word in words]

    @functools.cache
    def trees(symbol, start, end):
        if symbol not in RULES:
            return [(symbol, words[start])] if end == start + 1 and terminals[start] == symbol else []
        return [(symbol, *children) for right in RULES[symbol] for children in rows(right, start, end)]

    @functools.cache
    def rows(symbols, start, end):
        if end - start < len(symbols):
            return []
        if len(symbols) == 1:
            return [(tree,) for tree in trees(symbols[0], start, end)]
        found = []
        for middle in range(start + 1, end):
            first = trees(symbols[0], start, middle)
            if first:
                found += [(one, *rest) for one in first for rest in rows(symbols[1:], middle, end)]
        return found

    return trees("S", 0, len(words))


def facts(tree):
    """Set of `(agent, verb, patient)`; a noun is its determiner, the set of its adjectives, and its form."""
    found = set()

    def child(tree, *symbols):
        return next((part for part in tree[1:] if part[0].rstrip("01") in symbols), None)

    def stem(word):
        return lexicon.CATEGORIES[word][1]

    def noun(phrase):
        if phrase[0] == "NP":
            return noun(phrase[1])
        adjectives, rest = set(), phrase[2]
        while rest[1][0] == "adjective":
            adjectives.add(rest[1][1])
            rest = rest[2]
        own = (phrase[1][1], frozenset(adjectives), rest[1][1])
        if len(rest) > 2:
            modify(own, rest[2])
        return own

    def modify(own, modifier):
        what = modifier[2]
        if what[0] == "NP":
            noun(what)
        elif what[0] == "O":
            found.add((noun(what[1]), stem(what[2][1]), own))
        else:
            predicate(own, what)

    def predicate(subject, tree):
        other = noun(child(tree, "NP"))
        if tree[1][0].startswith("be"):
            found.add((other, stem(tree[2][1]), subject))
        else:
            found.add((subject, stem(tree[1][1]), other))

    while tree:
        clause = child(tree, "C")
        predicate(noun(clause[1]), clause[2])
        tree = child(tree, "S")
    return found


def untranslate(words):
    """The source of a translation, by a stack of what has been read: `(words, plural)` of each phrase."""
    stems = {target: source for source, target in lexicon.TARGET.items()}
    nouns = {form: (noun, plural) for noun, forms in lexicon.TARGET_NOUNS.items() for plural, form in forms.items()}
    words, clauses, stack, modifier, place = list(words), [], [], None, 0
    words.append("end")
    while place < len(words):
        word = words[place]
        place += 1
        if word in nouns:
            (noun, plural), adjectives = nouns[word], []
            while stems[words[place]] in lexicon.ADJECTIVES:
                adjectives.append(stems[words[place]])
                place += 1
            core = [stems[words[place]], *adjectives, lexicon.NOUN_FORMS[noun][plural]]
            place += 1
            stack.append((core + (modifier(plural) if modifier else []), plural))
            modifier = None
        elif word in stems and stems[word] in lexicon.PREPOSITIONS:
            inner, preposition = stack.pop()[0], stems[word]
            modifier = functools.partial(lambda plural, p, inner: [p, *inner], p=preposition, inner=inner)
        elif word in ("end", lexicon.TARGET["and"]):
            assert not modifier and not stack
        else:
            passive = word == "ni"
            verb = stems[words[place] if passive else word]
            place += 2 * passive
            other, other_plural = stack.pop()
            predicate = functools.partial(_predicate, verb=verb, passive=passive, other=other)
            if words[place] == "su":
                modifier, place = functools.partial(lambda plural, p: ["who", *p(plural)], p=predicate), place + 1
            elif words[place] == "ko":
                said = ["who", *other, lexicon.VERB_FORMS[verb][other_plural]]
                modifier, place = functools.partial(lambda plural, said: said, said=said), place + 1
            else:
                subject, plural = stack.pop()
                clauses.append(subject + predicate(plural))
    return " and ".join(" ".join(clause) for clause in clauses)


def _predicate(plural, verb, passive, other):
    if passive:
        return [lexicon.BE[plural], lexicon.PARTICIPLES[verb], "by", *other]
    return [lexicon.VERB_FORMS[verb][plural], *other]
