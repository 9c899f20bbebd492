"""`python -m training.translate`: trains an encoder-decoder on parallel text, and translates with it.

    python -m training.translate --data_dir=multi30k --source=en --target=de --test=test_2016_flickr --output=runs/en-de
    python -m training.translate --output=runs/en-de --decode=- < some.en > some.de

At the end the dev and test sets are translated by beam search (10 hypotheses, length penalty 0.6, as in DIET) with the
best checkpoint, or with the mean of the last ones (`--average`), and scored by sacreBLEU. The folder gets
`results.json`, `translations/`, and `model/`, which `keras_posenc.checkpoints.load` opens and `--decode` uses.

Defaults are those of Vaswani et al. for `transformer_base`: Adam with betas 0.9 and 0.98, the schedule `noam` with
factor 1 and 4000 steps of warm-up, label smoothing 0.1, no weight decay. Smaller models have `inverse_sqrt` with
a peak of 1e-3 after a tenth of all steps. Killed and started again, it goes on where it stopped.
"""

import gzip
import json
import sys
from pathlib import Path

from absl import flags

from keras_posenc import checkpoints, encodings, models
from keras_posenc.checkpoints.folder import is_own
from keras_posenc.layers.stack import SHARING
from keras_posenc.models.presets import PRESETS
from keras_posenc.utils.binary import start
from training import engine, model_flags, parallel_flags, resuming
from training.engine import flags as train_flags
from training.engine.folder import RunFolder
from training.engine.strategy import is_chief
from training.files import write_text
from training.tasks import decoding
from training.tasks.translate import Translate, scores
from training.tokenizers import JointTokenizer

SIZES = PRESETS["EncoderDecoder"]
VASWANI = "transformer_base"


def define(values):
    """Defines all flags of this binary in `values`, usually `absl.flags.FLAGS`."""
    named = dict(flag_values=values)
    parallel_flags.define(values)
    flags.DEFINE_enum("model", "transformer_tiny", sorted(SIZES), "Size of the model.", **named)
    known = ", ".join(encodings.names())
    flags.DEFINE_string("positions", "sinusoidal", f"Of encoder and decoder, joined by +: {known}.", **named)
    flags.DEFINE_string("decoder_positions", None, "Of the decoder's self-attention, if others.", **named)
    flags.DEFINE_string("cross_positions", "none", "Of cross-attention: none, same (DIET's), or names.", **named)
    flags.DEFINE_enum("sharing", None, list(SHARING), "Of position weights over heads or layers.", **named)
    flags.DEFINE_float("dropout", None, "Of embeddings and blocks; 0.1 by default.", **named)
    flags.DEFINE_list("model_options", [], "Further arguments of the model and its positions, name=value.", **named)
    flags.DEFINE_integer("max_length", 128, "Tokens of a sentence; longer pairs are not trained on.", 4, **named)
    flags.DEFINE_float("label_smoothing", 0.1, "Probability spread over all tokens.", 0.0, 0.9, **named)
    flags.DEFINE_bool("static", None, "All batches of --max_length tokens; the default on TPU and with XLA.", **named)
    flags.DEFINE_integer("bleu_sample", 0, "Sentences of dev translated greedily at each evaluation.", 0, **named)
    flags.DEFINE_integer("average", 1, "Translate with the mean of so many last checkpoints; 1: the best.", 1, **named)
    flags.DEFINE_integer("beam", 10, "Hypotheses of the search; 1 is greedy.", 1, **named)
    flags.DEFINE_float("length_penalty", 0.6, "Exponent of the length penalty.", 0.0, **named)
    flags.DEFINE_integer("decode_batch", 32, "Sentences that are translated together.", 1, **named)
    flags.DEFINE_string("decode", None, "Translate this file (- for standard input) with the run in --output.", **named)
    flags.DEFINE_string("decode_to", "-", "Where these translations go; - for standard output.", **named)
    # None: depends on the model and on one another, see `_options`.
    depend = dict(learning_rate=None, schedule=None, warmup=None)
    train_flags.define(values, batch=64, epochs=20.0, beta_2=0.98, epsilon=1e-9, weight_decay=0.0, **depend)


def _options(values, model_options):
    """Training options, with defaults that go together."""
    schedule = values.schedule or ("noam" if values.model == VASWANI else "inverse_sqrt")
    noam = schedule == "noam"
    return train_flags.options(
        values,
        schedule=schedule,
        learning_rate=(1.0 if noam else 1e-3) if values.learning_rate is None else values.learning_rate,
        warmup=(4000 if noam else 0.1) if values.warmup is None else values.warmup,
        model_width=values.model_width or {**SIZES[values.model], **model_options}["hidden_dim"],
        keep=max(values.keep, values.average),
    )


def _model_options(values):
    options = {"cross_position": values.cross_positions, **model_flags.parse_options(values.model_options)}
    given = {"sharing": values.sharing, "dropout": values.dropout, "decoder_position": values.decoder_positions}
    return {**options, **{name: value for name, value in given.items() if value is not None}}


def _check_model(values, model_options):
    """Builds one layer of the model, which finds out what cannot be built or cannot decode."""
    small = {**model_options, "num_layers": 1, "vocab_size": 8}
    models.build(values.model, position=values.positions, max_length=values.max_length, **small)


def run(values):
    """Trains and evaluates, or translates, as the parsed flags say. Returns the results."""
    if values.output is None:
        raise ValueError("--output is needed: the folder of the run.")
    train_flags.check_output(values.output)
    if values.decode is not None:
        return _decode(values)
    if values.average > 1 and values.ema is not None:
        raise ValueError("--average and --ema are two ways to average weights: leave one out.")
    model_options = _model_options(values)
    options, data = _options(values, model_options), parallel_flags.Data(values)
    static = (options.strategy == "tpu" or options.xla) if values.static is None else values.static
    settings = dict(
        preset=values.model,
        position=values.positions,
        options=model_options,
        max_length=values.max_length,
        label_smoothing=values.label_smoothing,
        static=static,
        sample=values.bleu_sample,
    )
    done = resuming.finished(Translate.name, {**settings, **data.about}, options, values.output)
    search = dict(beam=values.beam, penalty=values.length_penalty, average=values.average)
    results = Path(values.output) / "results.json"
    if done is not None and results.is_file():
        found = json.loads(results.read_text(encoding="utf-8"))
        if found["search"] == search:
            _print(found, values.output)
            return found
    strategy = engine.start(options)
    _check_model(values, model_options)
    sets = {name: data.load(name) for name in data.sets}
    tokenizer = data.tokenizer(values.output, sets["train"])
    dev = {name: sets[name] for name in ("dev",) if name in sets}
    task = Translate(
        tokenizer, sets["train"], dev, batch=options.batch, seed=options.seed, about=data.about, **settings
    )
    if not dev:
        task.primary = None  # nothing is evaluated: the last checkpoint counts as the best
    options.validate(strategy.num_replicas_in_sync, task.num_examples)
    _check_average(values.average, options, task)
    if task.left_out:
        print(f"{task.left_out} pairs have more than {values.max_length} tokens and are left out", flush=True)
    trained = engine.run(task, options, values.output, strategy)
    if not is_chief(strategy):
        return None
    count = _count(values, trained["steps"], options.total_steps(task.num_examples))
    model, averaged = _final_model(task, values, count), count
    checkpoints.save(model, Path(values.output) / "model", tokenizer, overwrite=True)
    held_out = {name: of for name, of in sets.items() if name != "train"}
    translated = {name: _evaluate(model, tokenizer, of, name, values, search) for name, of in held_out.items()}
    found = {"search": search, "sets": translated, "parameters": model.count_params(), "training": trained}
    found["averaged"] = averaged
    write_text(results, json.dumps(found, indent=1) + "\n")
    _print(found, values.output)
    return found


def _check_average(average, options, task):
    total, count = options.total_steps(task.num_examples), len(options.evaluation_steps(task.num_examples))
    if options.checkpoint_every is not None:
        loop = options.steps_per_loop  # at whose end they are written
        count = max(count, total // (-(-options.checkpoint_every // loop) * loop))
    if average > count:
        raise ValueError(
            f"--average={average} needs as many checkpoints, and this run is going to have {count}. Set "
            f"--checkpoint_every or --eval_every to {max(1, total // average)} or less."
        )


def _count(values, steps, total):
    """How many checkpoints are averaged: fewer than `--average` only if patience ended training before there were more.

    Where checkpoints are missing because a smaller `--keep` or `--average` dropped them, the number stays as asked for,
    which is then an error.
    """
    kept = engine.newest_steps(values.output)
    evaluated = {entry["step"] for entry in RunFolder(values.output, {}).history()}
    if len(kept) >= values.average or steps == total or not evaluated <= set(kept):
        return values.average
    print(f"--average={values.average}: training ended early, with {len(kept)} checkpoint(s) to average", flush=True)
    return len(kept)


def _final_model(task, values, count):
    """The model that translates: the best checkpoint, or the mean of the last `count`."""
    model = task.build_model()
    if values.average > 1:
        return engine.restore_average(model, values.output, count)
    return engine.restore(model, values.output)


def _evaluate(model, tokenizer, data, name, values, search):
    """Scores of a set. Its translations are written, and not made again if they are there."""
    kind = "-".join(f"{key}{value:g}" for key, value in search.items())
    file = Path(values.output) / "translations" / f"{name}.{kind}.txt"
    if not file.is_file():
        print(f"translating {name}, {len(data)} sentences", file=sys.stderr, flush=True)
        options = dict(batch=values.decode_batch, beam=values.beam, penalty=values.length_penalty)
        found, _ = decoding.translate(model, tokenizer, data.source, **options)
        write_text(file, "".join(text + "\n" for text in found))
    hypotheses = file.read_text(encoding="utf-8").split("\n")[:-1]
    cut = decoding.count_cut(model, tokenizer.tokenize(data.source))
    return {**scores(hypotheses, data.target), "sentences": len(data), "cut": cut, "translations": str(file)}


def _decode(values):
    folder = Path(values.output) if is_own(values.output) else Path(values.output) / "model"
    if not is_own(folder):
        raise ValueError(f"'{values.output}' has no trained model in it. Train it first, without --decode.")
    if values.decode != "-" and not Path(values.decode).is_file():
        raise FileNotFoundError(f"No file '{values.decode}', which --decode names.")
    model, tokenizer = checkpoints.load(folder).model, JointTokenizer(folder / "spiece.model")
    with _lines(values.decode) as lines, _sink(values.decode_to) as sink:

        def write(text):
            sink.write(text)
            sink.flush()

        batch = values.decode_batch
        at_once = 1 if values.decode == "-" and sys.stdin.isatty() else 16 * batch
        options = dict(batch=batch, beam=values.beam, penalty=values.length_penalty)
        total, cut = decoding.translate_lines(model, tokenizer, lines, write, at_once, **options)
    if cut:
        print(f"{cut} of {total} lines were longer than {model.max_length - 1} pieces and were cut", file=sys.stderr)
    return {"lines": total, "cut": cut}


def _lines(name):
    # Only "\n" ends a line: one with other separators in it must stay one, for the order to be kept.
    if name == "-":
        return open(sys.stdin.fileno(), encoding="utf-8", newline="\n", closefd=False)
    with open(name, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return (gzip.open if packed else open)(name, "rt", encoding="utf-8", newline="\n")


def _sink(name):
    if name == "-":
        return open(sys.stdout.fileno(), "w", encoding="utf-8", newline="\n", closefd=False)
    return open(name, "w", encoding="utf-8", newline="\n")


def _print(found, output):
    for name, of in found["sets"].items():
        print(f"{name}: BLEU {of['bleu']:.2f}, chrF {of['chrf']:.2f}, exact {of['exact']:.3f} ({of['sentences']})")
        print(f"  {of['bleu_signature']}")
        if of.get("cut"):
            print(f"  {of['cut']} of {of['sentences']} sources were longer than the model reads and were cut")
    print(f"The model is in {Path(output) / 'model'}", flush=True)


if __name__ == "__main__":
    start(define, run, engine.ERRORS)
