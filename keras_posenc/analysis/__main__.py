"""`python -m keras_posenc.analysis`: a study of what the attention of a model means, on a file of texts."""

import argparse
import dataclasses
import resource
import sys
import time
from pathlib import Path

import numpy as np

from keras_posenc import checkpoints
from keras_posenc.analysis.running import values_note
from keras_posenc.analysis.study.run import ANALYSES, Options, Study
from keras_posenc.analysis.study.store import Store, fingerprint
from keras_posenc.analysis.study.tables import write_csv, write_json, write_tables
from keras_posenc.analysis.study.texts import add_tags, read_texts
from keras_posenc.checkpoints import installed
from keras_posenc.utils.arguments import amount, count, names_of
from keras_posenc.utils.progress import Progress

DEFAULTS = Options()


def parser():
    from keras_posenc.analysis.identifiability_maps import MAPS

    made = argparse.ArgumentParser(
        prog="python -m keras_posenc.analysis",
        description="Studies the attention of a model on texts: effective attention, what is attended to, patterns, "
        "identifiability of tokens, hidden token attribution, structure of positions. Writes report.html, tables and "
        "figures. A run that was stopped goes on when it is started again.",
    )
    add = made.add_argument
    known = ", ".join(installed.KNOWN)
    add("--checkpoint", required=True, metavar="DIR", help=f"folder of a BERT or ALBERT, or installed weights: {known}")
    add("--finetuned", metavar="DIR", help="the same model after fine-tuning, to compare attention with")
    add("--tokenizer", metavar="DIR", help="where the vocabulary is, if not in --checkpoint")
    add("--text", type=Path, required=True, metavar="FILE", help="one text a line, a table, or CoNLL-U; .gz accepted")
    add(
        "--columns",
        metavar="A[,B]",
        help="columns with the text, or the two of a pair: names in the header, or numbers",
    )
    add("--header", action="store_true", help="the first line is a header (it is if --columns has names)")
    add("--output", type=Path, required=True, metavar="DIR", help="where report.html, tables/ and figures/ go")
    tags = made.add_mutually_exclusive_group()
    tags.add_argument("--tags", type=Path, metavar="FILE", help="part-of-speech tags, a line for each line of --text")
    tags.add_argument("--tagger", type=Path, metavar="FILE", help="CoNLL-U to fit a tagger on, for a text without tags")
    add("--limit", type=count, metavar="N", help="use the first N texts")
    add("--task", default=None, metavar="NAME", help="name of the texts in tables (default: the file's)")
    add(
        "--analyses",
        type=names_of("analysis", ANALYSES),
        default=DEFAULTS.analyses,
        metavar="A,B",
        help=f"of {', '.join(ANALYSES)} (default: all)",
    )
    add("--max-length", type=count, default=DEFAULTS.max_length, metavar="N", help="tokens of a text (%(default)s)")
    add(
        "--maps",
        type=names_of("map", list(MAPS)),
        default=DEFAULTS.maps,
        metavar="A,B",
        help=f"of identifiability: {', '.join(MAPS)} (default: {','.join(DEFAULTS.maps)})",
    )
    add("--folds", type=count, default=DEFAULTS.folds, metavar="N", help="of identifiability (%(default)s)")
    for name, what in (("identified", "identifiability"), ("attributed", "attribution"), ("ranked", "ranks of scores")):
        default = getattr(DEFAULTS, name)
        add(f"--{name}", type=count, default=default, metavar="N", help=f"texts for {what}, at most (%(default)s)")
    add("--method", choices=("random", "exact"), default=DEFAULTS.method, help="of attribution (%(default)s)")
    add("--probes", type=count, default=DEFAULTS.probes, metavar="N", help="random directions a token (%(default)s)")
    add("--pattern-maps", type=count, default=DEFAULTS.pattern_maps, metavar="N", help="maps to train on (%(default)s)")
    add(
        "--labelled-maps", type=Path, metavar="NPZ", help="maps (maps, n, n), labels and padding_mask, for the patterns"
    )
    add(
        "--examples",
        type=amount,
        default=DEFAULTS.examples,
        metavar="N",
        help="texts whose maps are shown (%(default)s)",
    )
    add("--seed", type=amount, default=DEFAULTS.seed, metavar="N", help="(%(default)s)")
    add("--fresh", action="store_true", help="throw away what an earlier run left in --output")
    return made


def parse(arguments=None):
    made = parser()
    options = made.parse_args(arguments)
    for name in ("checkpoint", "finetuned", "tokenizer"):
        value = getattr(options, name)
        if value is not None and value not in installed.KNOWN and not Path(value).exists():
            made.error(f"--{name} {value} does not exist, and is none of {', '.join(installed.KNOWN)}")
    for name in ("text", "tags", "tagger", "labelled_maps"):
        value = getattr(options, name)
        if value is not None and not value.is_file():
            made.error(f"--{name.replace('_', '-')} {value} is no file")
    if options.output.exists() and not options.output.is_dir():
        made.error(f"--output {options.output} is a file, not a folder")
    if options.columns is not None:
        options.columns = [column.strip() for column in options.columns.split(",")]
        if not 1 <= len(options.columns) <= 2 or not all(options.columns):
            made.error(f"--columns takes one column or two, not {','.join(options.columns)!r}")
    if options.max_length < 3:
        made.error(f"--max-length must be at least 3, for the special tokens, not {options.max_length}")
    options.task = options.task or options.text.name.split(".")[0]
    return options


def main(arguments=None):
    options = parse(arguments)
    begin = time.monotonic()
    try:
        _run(options, begin)
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"error: {error}")


def _run(options, begin):
    texts, skipped = read_texts(options.text, options.columns, options.header, options.limit)
    if not texts:
        raise ValueError(f"{options.text} has no text that can be used ({len(skipped)} lines were left out).")
    store = Store(options.output, _settings(options), options.fresh)
    checkpoint = _load(options.checkpoint)
    second = None if options.finetuned is None else _load(options.finetuned).model
    tokenizer = checkpoint.tokenizer if options.tokenizer is None else _load(options.tokenizer).tokenizer
    if tokenizer is None:
        raise ValueError(
            f"{options.tokenizer or options.checkpoint} has no tokenizer to read texts with. Name a folder that has "
            "one with --tokenizer."
        )
    longest = checkpoint.model.backbone if hasattr(checkpoint.model, "backbone") else checkpoint.model
    length = min(options.max_length, longest.encoder.max_length or options.max_length)
    inputs = tokenizer.encode([text.row for text in texts], length)
    cut = int((inputs["padding_mask"].sum(axis=1) == length).sum())
    tagger_rows = _add_tags(options, texts, checkpoint.model, tokenizer, skipped)
    tokens = [tokenizer.tokens(row[mask > 0]) for row, mask in zip(inputs["token_ids"], inputs["padding_mask"])]

    chosen = {field.name: getattr(options, field.name) for field in dataclasses.fields(Options)}
    labelled = _labelled(options.labelled_maps)
    made = Options(**{**chosen, "max_length": length})
    study = Study(checkpoint.model, inputs, tokens, [t.tags for t in texts], made, store, None, second, labelled)
    with Progress(study.steps()) as study.progress:
        found = study.run()
    examples = study.examples()

    from keras_posenc.analysis.study.report import Report  # matplotlib, needed from here on only

    head_size = longest.encoder.blocks[0].attention.key_dim
    skipped = [dataclasses.asdict(line) for line in skipped]
    summary = {
        "model": options.checkpoint,
        "positions": longest.encoder.position_spec,
        "sizes": f"{longest.encoder.num_layers} layers, {longest.encoder.num_heads} heads of {head_size}",
        **({"fine-tuned": options.finetuned} if options.finetuned else {}),
        "texts": f"{len(texts)} of {options.text.name}, {int(inputs['padding_mask'].sum())} tokens",
        "cut": f"{cut} texts have {length} tokens or were cut to them",
        "without tags": f"{study.untagged} texts",
        **tagger_rows,
        **({"effective attention": note} if (note := values_note(checkpoint.model)) else {}),
        "seconds of this start": round(time.monotonic() - begin),
        "memory": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB at most",
    }
    tables = write_tables(found, options.output / "tables")
    if skipped:
        write_csv(options.output / "tables" / "skipped.csv", skipped)
    write_json(options.output / "results.json", {"summary": summary, "options": chosen, "tables": tables})
    report = Report(f"Attention of {options.checkpoint}", options.task, found, head_size, options.output / "figures")
    rows = [{"what": name, "value": str(value)} for name, value in summary.items()]
    (options.output / "report.html").write_text(report.html(rows, examples, skipped), encoding="utf-8")
    for line in skipped[:10]:
        print(f"{options.text}:{line['line']}: left out: {line['reason']}", file=sys.stderr)
    if len(skipped) > 10:
        print(f"... {len(skipped)} lines in all, see tables/skipped.csv", file=sys.stderr)
    print(options.output / "report.html")


def _settings(options):
    """All that the results depend on; files by their content."""
    kept = {name: value for name, value in vars(options).items() if name not in ("output", "fresh", "examples")}
    for name in ("checkpoint", "finetuned", "tokenizer", "text", "tags", "tagger", "labelled_maps"):
        value = kept[name]
        if value is not None:
            place = Path(value) if Path(value).exists() else installed.find(value)
            kept[name] = [str(value), None if place is None else fingerprint(place)]
    return kept


def _load(place):
    """A checkpoint from a folder, or installed weights by their name."""
    return checkpoints.load(place) if Path(place).exists() else installed.load(place)


def _add_tags(options, texts, model, tokenizer, skipped):
    """Tags from a file or from a tagger, to texts that have none. Returns rows for the summary."""
    if options.tags is not None:
        skipped += add_tags(texts, options.tags)
    if options.tagger is None:
        return {}
    from keras_posenc.analysis.tagging import ProbeTagger, read_conllu

    backbone = getattr(model, "backbone", model)
    tagger = ProbeTagger.fit(backbone, tokenizer, read_conllu(options.tagger), progress=True)
    tagged = iter(tagger.tag([part for text in texts for part in text.parts], progress=True))
    for text in texts:
        text.tags = tuple(next(tagged) for _ in text.parts)
    accuracy = tagger.report.validation["chosen"]
    return {"tags": f"by a probe fitted on {options.tagger.name}, accuracy {accuracy:.1%} on held-out sentences"}


def _labelled(path):
    if path is None:
        return None
    with np.load(path) as arrays:
        missing = [name for name in ("maps", "labels") if name not in arrays]
        if missing:
            raise ValueError(f"{path} has no array {', '.join(missing)}. It has: {', '.join(arrays)}")
        return arrays["maps"], arrays["labels"], arrays["padding_mask"] if "padding_mask" in arrays else None


if __name__ == "__main__":
    main()
