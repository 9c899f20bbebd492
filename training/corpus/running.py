"""The same steps, run in this process or by Apache Beam."""

import concurrent.futures
import itertools
import multiprocessing
import os

import tensorflow as tf

from training.corpus.shards import INDEX, Corpus

CHUNK = 256  # documents that are tokenized together


def prepare(job, inputs, workers=0, beam=None):
    """Makes a corpus.

    Args:
        job: a `Job`.
        inputs: list of inputs.
        workers: number of processes that tokenize; 0 for this one.
        beam: arguments of a Beam pipeline, e.g. `["--runner=DirectRunner"]`, to run it there. `None` to run it here,
            where all token ids have to fit into memory.

    Returns: the `Corpus`; `None` if the pipeline was handed to a runner that does not wait for its end.
    """
    job.begin()
    if beam is not None:
        run_beam(job, inputs, beam)
        return Corpus.open(job.output) if tf.io.gfile.exists(os.path.join(job.output, INDEX)) else None
    run_here(job, inputs, workers)
    return Corpus.open(job.output)


def run_here(job, inputs, workers=0):
    """Runs the steps in this process, tokenizing in others if there are `workers`."""
    documents = itertools.chain.from_iterable(item.documents() for item in inputs)
    places = {}
    for found in _tokenized(job, documents, workers):
        for place, document in found:
            places.setdefault(place, []).append(document)
    return job.finish([job.write(place, places[place]) for place in sorted(places)])


def _tokenized(job, documents, workers):
    chunks = iter(lambda: list(itertools.islice(documents, CHUNK)), [])
    if not workers:
        yield from map(job.tokenize, chunks)
        return
    # TensorFlow does not survive a fork.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, context) as pool:
        pending = []
        for chunk in chunks:
            pending.append(pool.submit(_tokenize, job, chunk))
            if len(pending) > 4 * workers:
                yield pending.pop(0).result()
        for future in pending:
            yield future.result()


def _tokenize(job, chunk):
    return list(job.tokenize(chunk))


def run_beam(job, inputs, arguments):
    """Runs the steps as a Beam pipeline.

    Inputs are read in parallel, a file or a shard of a data set each; documents are grouped by shard, and a worker
    holds one shard in memory. The index is the last step, after all shards, so it works with every runner.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise ImportError(
            "Running on Beam needs apache-beam: pip install 'keras_posenc[beam]'. Small corpora are prepared in this "
            "process without it: give no runner options."
        ) from error

    with beam.Pipeline(options=PipelineOptions(arguments)) as pipeline:
        _ = (
            pipeline
            | "inputs" >> beam.Create(inputs)
            | "spread" >> beam.Reshuffle()
            | "read" >> beam.FlatMap(_documents)
            | "chunks" >> beam.BatchElements(min_batch_size=16, max_batch_size=CHUNK)
            | "tokenize" >> beam.FlatMap(job.tokenize)
            | "shards" >> beam.GroupByKey()
            | "write" >> beam.MapTuple(job.write)
            | "all" >> beam.combiners.ToList()
            | "index" >> beam.Map(job.finish)
        )


def _documents(item):
    return item.documents()
