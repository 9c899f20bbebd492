"""`python -m keras_posenc.conversion`: a checkpoint converted in all ways, and what each costs."""

import argparse
import sys
from pathlib import Path

from keras_posenc import checkpoints
from keras_posenc.checkpoints import installed
from keras_posenc.conversion import study
from keras_posenc.utils.arguments import amount, count

SHORTEST = 8  # tokens that a text must have to be used


def _counts(text):
    """An argparse type: whole numbers of at least 1, joined by commas, sorted."""
    return sorted({count(part.strip()) for part in text.split(",")})


def parser():
    made = argparse.ArgumentParser(
        prog="python -m keras_posenc.conversion",
        description="Converts the positions of a trained model to TISA, T5, DIET-REL and DIET-ABS, with the profile of "
        "an average word and calibrated on texts, and shows how much of the positional score each explains and how the "
        "outputs change.",
    )
    add = made.add_argument
    known = ", ".join(installed.KNOWN)
    add(
        "--checkpoint",
        required=True,
        metavar="DIR",
        help=f"folder of a BERT or ALBERT, one of our own, or the name of installed weights: {known}",
    )
    add("--tokenizer", metavar="DIR", help="where the vocabulary is, if not in --checkpoint; the same choices")
    add("--text", type=Path, required=True, metavar="FILE", help="texts, one per line")
    add("--output", type=Path, required=True, metavar="DIR", help="where tables and pictures go")
    add("--kernels", type=_counts, default="1,3,5", metavar="A,B", help="kernels of TISA (default: %(default)s)")
    add("--ranks", type=_counts, default="8,16,32,64,128", metavar="A,B", help="of DIET-ABS (default: %(default)s)")
    add("--length", type=count, default=64, metavar="N", help="positions, and tokens of a text (default: %(default)s)")
    add("--sentences", type=count, default=32, metavar="N", help="texts to compare outputs on (default: %(default)s)")
    add(
        "--calibration",
        type=amount,
        default=128,
        metavar="N",
        help="further texts to calibrate on, 0 for none (default: %(default)s)",
    )
    add("--save", metavar="NAME", help="also save this converted model in --output, e.g. tisa-5-calibrated")
    add("--seed", type=amount, default=0, metavar="N", help="of masks, fits and shuffles (default: %(default)s)")
    return made


def parse(arguments=None):
    made = parser()
    options = made.parse_args(arguments)
    for name in ("checkpoint", "tokenizer"):
        value = getattr(options, name)
        if value is not None and value not in installed.KNOWN and not Path(value).exists():
            made.error(f"--{name} {value} does not exist, and is none of {', '.join(installed.KNOWN)}")
    if not options.text.is_file():
        made.error(f"--text {options.text} is no file")
    if options.output.exists() and not options.output.is_dir():
        made.error(f"--output {options.output} is a file, not a folder")
    if options.length < SHORTEST:
        made.error(f"--length must be at least {SHORTEST}, not {options.length}")
    known = study.names(options.kernels, options.ranks, options.calibration > 0)
    if options.save is not None:
        if options.save not in known:
            made.error(f"--save: unknown conversion {options.save!r}; known: {', '.join(known)}")
        if (options.output / options.save).exists():
            made.error(f"--save: {options.output / options.save} exists; remove it or choose another --output")
    return options


def read_texts(path, tokenizer, number, length):
    """The first `number` lines of at least `SHORTEST` tokens that are no headings (`= ... =`), and their tokens."""
    texts = []
    with open(path, encoding="utf-8") as file:
        for line in (line.strip() for line in file):
            if line and not line.startswith("=") and tokenizer.encode([line])["padding_mask"].sum() >= SHORTEST:
                texts.append(line)
            if len(texts) == number:
                return texts, tokenizer.encode(texts, length)
    raise ValueError(f"{path} has {len(texts)} lines of {SHORTEST} tokens or more, and {number} are needed.")


def main(arguments=None):
    options = parse(arguments)
    from keras_posenc.conversion import plots
    from keras_posenc.conversion.profile import check_source, get_backbone
    from keras_posenc.utils.progress import Progress

    try:
        loaded = _load(options.checkpoint)
        tokenizer = loaded.tokenizer if options.tokenizer is None else _load(options.tokenizer).tokenizer
        if tokenizer is None:
            raise ValueError(
                f"{options.tokenizer or options.checkpoint} has no tokenizer to read texts with. Name a folder that "
                "has one with --tokenizer."
            )
        encoder = get_backbone(loaded.model).encoder
        check_source(encoder)
        if options.length > encoder.max_length:
            raise ValueError(f"--length must be at most {encoder.max_length}, the positions of the model.")
        number = options.sentences + options.calibration
        texts, tokens = read_texts(options.text, tokenizer, number, options.length)
        options.output.mkdir(parents=True, exist_ok=True)
    except (ValueError, OSError, ImportError) as error:
        sys.exit(str(error))
    compared, further = ({name: part[rows] for name, part in tokens.items()} for rows in _parts(options.sentences))
    total = 1 + len(study.names(options.kernels, options.ranks, options.calibration > 0))
    with Progress(total) as progress:
        found, kept = study.run(
            loaded.model,
            compared,
            further if options.calibration else None,
            texts[: options.sentences],
            options.kernels,
            options.ranks,
            options.length,
            options.seed,
            progress,
            keep=options.save,
            mask_id=tokenizer.mask_id,
        )
    print(study.table(found))
    study.write(found, options.output)
    plots.plot_all(found, options.output)
    if kept is not None:
        checkpoints.save(kept, options.output / options.save, tokenizer)
    print(f"\nWritten to {options.output}", file=sys.stderr)


def _load(place):
    """A checkpoint from a folder, or installed weights by their name."""
    if place in installed.KNOWN and not Path(place).exists():
        return installed.load(place)
    return checkpoints.load(place)


def _parts(number):
    return slice(None, number), slice(number, None)


if __name__ == "__main__":
    main()
