"""Parallel text: two plain files, line by line translations of each other, gzip or not."""

from itertools import zip_longest
from pathlib import Path

from training.data import tables
from training.data.records import Parallel


def load(source, target, on_error="raise"):
    """Pairs of sentences.

    Args:
        source, target: a file, or lists of as many files.
        on_error: `"raise"`, `"skip"` or `tables.Problems`. Pairs of which one side is empty are left out and reported
            in either case, as every parallel corpus has some; files with different numbers of lines are always an
            error, since nobody knows where they went apart.

    Returns: `Parallel`.
    """
    sources, targets = ([Path(f) for f in ([s] if isinstance(s, str | Path) else s)] for s in (source, target))
    if len(sources) != len(targets):
        raise ValueError(f"Expected as many source files as target files. Received: {len(sources)} and {len(targets)}")
    problems = tables.Problems.of(on_error)
    before, pairs = len(problems.found), Parallel([], [])
    for one, other in zip(sources, targets):
        for ours, theirs in _pairs(one, other, problems):
            pairs.source.append(ours)
            pairs.target.append(theirs)
    problems.report(before)
    if not len(pairs):
        raise ValueError(f"{', '.join(map(str, sources))}: expected pairs of sentences, received none")
    return pairs


def load_folder(folder, splits, source, target, on_error="raise"):
    """`load` for files named as `train.en` and `train.de`, of one split or several.

    Args:
        folder: where the files are.
        splits: a name such as `"train"`, or a list of them.
        source, target: languages, the suffixes of the files; `.gz` may follow.
    """
    splits = [splits] if isinstance(splits, str) else splits
    files = [[tables.find([folder], [f"{split}.{language}"]) for split in splits] for language in (source, target)]
    return load(*files, on_error=on_error)


def _pairs(one, other, problems):
    # Bad lines are kept, so that they do not shift one side against the other: each is a pair less.
    sides = (tables.lines(file, problems, keep_bad=True) for file in (one, other))
    for number, (ours, theirs) in enumerate(zip_longest(*sides), start=1):
        if ours is None or theirs is None:
            short, long = (one, other) if ours is None else (other, one)
            raise ValueError(
                f"{short}:{number}: expected as many lines as '{long}' has, received the end of the file after "
                f"{number - 1}"
            )
        (_, ours), (_, theirs) = ours, theirs
        if ours is None or theirs is None:
            continue
        ours, theirs = ours.strip(), theirs.strip()
        if ours and theirs:
            yield ours, theirs
        else:
            empty = other if ours else one
            problems.leave_out(empty, number, "expected a sentence, received an empty line; the pair is left out")
