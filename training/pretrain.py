"""`python -m training.pretrain`: masked language modelling without next-sentence prediction, as DIET pretrains.

    python -m training.pretrain --config=bert_tiny --input='text/*.txt' --train_vocabulary --output=runs/tiny
    python -m training.pretrain --config=diet_english --corpus=gs://bucket/corpus --positions=diet_rel \\
        --segments=none --strategy=tpu --tpu=local --output=gs://bucket/runs/diet_rel

Trains on a corpus that `training.prepare_corpus` made, or makes one of plain text in the run's folder first. The model,
with its tokenizer, ends in `OUTPUT/model`, which `training.finetune --checkpoint` reads. Killed and started again with
the same command, it continues.
"""

import os

import tensorflow as tf
from absl import flags

from keras_posenc import checkpoints
from keras_posenc.checkpoints.tokenizer import WordPiece, load_tokenizer
from keras_posenc.utils.binary import start
from training import configs, engine, ignored, model_flags
from training.corpus import flags as corpus_flags
from training.corpus import preparing, running, shards
from training.corpus.reading import RowStream
from training.data import word_order
from training.engine import flags as train_flags
from training.engine.strategy import is_chief
from training.tasks.masked_lm import MaskedLanguageModel, check_rate
from training.tasks.models import find, own_tokenizer


def define(values):
    """Defines all flags of this binary in `values`, usually `absl.flags.FLAGS`."""
    recipes = "\n".join(f"{name}: {config.reproduces}" for name, config in configs.CONFIGS.items())
    named = dict(flag_values=values)
    flags.DEFINE_string(
        "corpus", None, "Folder that training.prepare_corpus made; or name text by --input, ...", **named
    )
    flags.DEFINE_enum("config", None, list(configs.CONFIGS), f"Recipe; other flags change it.\n{recipes}", **named)
    flags.DEFINE_float("mask_rate", 0.15, "Share of tokens to predict.", **named)
    flags.DEFINE_bool("whole_words", False, "Mask all pieces of a word together.", **named)
    flags.DEFINE_integer("eval_rows", 1024, "Held-out rows to evaluate on, at most.", lower_bound=0, **named)
    corpus_flags.define(values)
    model_flags.define(values)
    train_flags.define(values, batch=32, learning_rate=1e-4, warmup=0.025)


def apply_config(values):
    """Makes the recipe of `--config` the defaults of the other flags."""
    if values.config is not None:
        for name, value in configs.CONFIGS[values.config].flags().items():
            values.set_default(name, value)


def check_flags(values):
    """Raises what is wrong with the model or the masks, before a vocabulary is trained and text is tokenized."""
    check_rate(values.mask_rate)
    preparing.check_share(values.dev_share)
    # Any vocabulary does for fresh weights: one layer is built, to see that it can be.
    tokenizer = None if values.checkpoint else WordPiece(word_order.vocabulary())
    source = model_source(values, tokenizer, values.length)
    if values.corpus is not None:
        # Its rows have a length of their own, and the model is built as soon as it is open.
        ignored.refuse(values, "--corpus", corpus_flags.preparing_names())
        source.check("masked_lm")
    elif values.checkpoint is not None:
        source.build("masked_lm", length=values.length, flag="--length")
    else:
        source.check("masked_lm", length=values.length, flag="--length")


def model_source(values, tokenizer, length):
    """The `ModelSource` of the flags; fresh weights have positions for rows of `length` tokens."""
    more = {} if values.checkpoint else {"max_length": max(512, length)}
    return model_flags.source(values, tokenizer, **more)


def open_corpus(values):
    """The corpus that the flags name, made of plain text if it is not there yet."""
    if (values.corpus is not None) == corpus_flags.given(values):
        raise ValueError("Name a prepared corpus with --corpus, or text with one of --input, --tfds and --task.")
    if values.corpus is not None:
        corpus = shards.Corpus.open(values.corpus)
        if values["length"].present and values.length != corpus.length:
            raise ValueError(
                f"'{values.corpus}' has rows of {corpus.length} tokens. Received: --length={values.length}"
            )
        return corpus
    if values.strategy == "multi_worker_mirrored":
        raise ValueError(
            "Workers do not prepare text: do it once with training.prepare_corpus, and name it with --corpus."
        )
    output = os.path.join(values.output, "corpus")
    read, source = corpus_flags.read_inputs(values)
    if tf.io.gfile.exists(os.path.join(output, shards.INDEX)):
        corpus = shards.Corpus.open(output)
        asked = {"length": values.length, "dev_share": values.dev_share, "source": list(source)}
        if "trained_vocabulary" in corpus.about:  # older ones do not say
            asked["trained_vocabulary"] = corpus_flags.trained_vocabulary(values)
        changed = {name: corpus.about[name] for name, value in asked.items() if corpus.about[name] != value}
        if changed:
            raise ValueError(f"'{output}' was made with {changed}, and the flags say otherwise. Use another --output.")
        return corpus
    folder = values.tokenizer or values.checkpoint
    tokenizer = corpus_flags.make_tokenizer(values, read, folder and find(folder))
    return running.prepare(corpus_flags.make_job(values, output, tokenizer, source), read, values.workers)


def _check_vocabularies(values, corpus, tokenizer):
    named = {}
    if values.tokenizer is not None:
        named[values.tokenizer] = load_tokenizer(find(values.tokenizer))
    if values.checkpoint is not None:
        named[values.checkpoint] = own_tokenizer(find(values.checkpoint), strict=values.tokenizer is None)
    for folder, own in named.items():
        if own is not None and own.vocabulary != tokenizer.vocabulary:
            raise ValueError(f"'{folder}' has another vocabulary than the corpus in '{corpus.folder}'.")


def make_task(values, options, corpus):
    """The task that the flags describe."""
    tokenizer = corpus.tokenizer()
    _check_vocabularies(values, corpus, tokenizer)
    source = model_source(values, tokenizer, corpus.length)
    stream = RowStream(corpus, "train", options.batch, options.seed)
    held_out = corpus.array("dev", values.eval_rows)
    if not len(held_out):
        print(f"'{corpus.folder}' has no held-out rows: nothing is evaluated. A larger --dev_share holds some out.")
    about = {"corpus": corpus.about["source"], "tokenizer": corpus.about["tokenizer"], "eval_rows": len(held_out)}
    return MaskedLanguageModel(
        source,
        stream,
        held_out,
        options.batch,
        corpus.length,
        values.mask_rate,
        values.whole_words,
        options.seed,
        about,
    )


def run(values):
    """Trains, saves the model, and returns the results of the run."""
    if values.output is None:
        raise ValueError("--output is needed.")
    apply_config(values)
    options = train_flags.options(values, remote=True)
    strategy = engine.start(options)
    check_flags(values)
    task = make_task(values, options, open_corpus(values))
    results = engine.run(task, options, values.output, strategy)
    if is_chief(strategy):
        folder = os.path.join(values.output, "model")
        model = engine.restore(task.build_model(), values.output)
        checkpoints.save(model, folder, task.source.tokenizer, overwrite=True)
        print(f"{results['steps']} steps; best on held-out text: {results['best']}; the model is in {folder}")
    return results


if __name__ == "__main__":
    start(define, run, engine.ERRORS)
