"""`python -m training.prepare_corpus`: text to shards of packed rows, for `training.pretrain`.

    python -m training.prepare_corpus --input='text/*.txt.gz' --train_vocabulary --vocabulary_size=30522 --output=corpus
    python -m training.prepare_corpus --tfds=wikipedia/20230601.en,wikipedia/20230601.de --data_dir=gs://bucket/tfds \\
        --tokenizer=pieces --length=512 --shards=1000 --output=gs://bucket/corpus -- --runner=DataflowRunner ...

What follows `--` are the options of an Apache Beam pipeline, and Beam runs it (`pip install keras_posenc[beam]`).
Without them the same steps run in this process. The shards are the same either way.
"""

from absl import app, flags

from training.corpus import flags as corpus_flags
from training.corpus import preparing, running

FLAGS = flags.FLAGS


def define(values):
    """Defines all flags of this binary in `values`, usually `absl.flags.FLAGS`."""
    named = dict(flag_values=values)
    flags.DEFINE_string("output", None, "Folder of the corpus, which must not have one.", **named)
    pieces = "Folder of a vocabulary, e.g. that of a checkpoint or of another corpus."
    flags.DEFINE_string("tokenizer", None, pieces, **named)
    corpus_flags.define(values)


def main(arguments):
    beam = arguments[1:]
    if FLAGS.output is None or any(not argument.startswith("-") for argument in beam):
        raise app.UsageError("--output is needed; options of Beam are written after -- as --name=value.")
    try:
        _run(beam or None)
    except (ValueError, OSError, ImportError) as error:
        raise SystemExit(f"error: {error}") from error


def _run(beam):
    preparing.check(FLAGS.output, FLAGS.dev_share)
    read, source = corpus_flags.read_inputs(FLAGS)
    tokenizer = corpus_flags.make_tokenizer(FLAGS, read, FLAGS.tokenizer)
    job = corpus_flags.make_job(FLAGS, FLAGS.output, tokenizer, source)
    corpus = running.prepare(job, read, FLAGS.workers, beam)
    if corpus is None:
        print(f"The pipeline is running. {FLAGS.output} is a corpus when it has a corpus.json.")
        return
    about = corpus.about
    full = (about["tokens"] + 2 * about["rows"]) / (about["rows"] * about["length"])
    print(
        f"{FLAGS.output}: {about['documents']} documents, {about['sentences']} sentences, {about['tokens']} tokens in "
        f"{about['rows']} rows of {about['length']} ({full:.1%} full), {len(about['shards'])} files, vocabulary of "
        f"{about['vocabulary']}"
    )


if __name__ == "__main__":
    define(FLAGS)
    flags.adopt_module_key_flags(corpus_flags)
    app.run(main)
