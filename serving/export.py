"""`python -m serving.export`: a checkpoint as a SavedModel that TF-Serving loads as it is.

    python -m serving.export --checkpoint=runs/mrpc/model --export_base=exported/mrpc

The version folder appears when all of it is written. The signatures are those of `serving.exporting.signatures`; with a
tokenizer beside the checkpoint there is also `text`, from strings.
"""

from absl import flags

from keras_posenc.utils.binary import start
from serving.exporting import export_model, warmup
from serving.exporting.reading import report
from serving.exporting.sources import open_source


def define(values):
    """Defines all flags of this binary in `values`, usually `absl.flags.FLAGS`."""
    named = dict(flag_values=values)
    places = "A folder of keras_posenc or Hugging Face, a .keras file, or known weights such as minilm."
    flags.DEFINE_string("checkpoint", None, places, **named)
    flags.DEFINE_string("export_base", None, "Folder of the model's versions; its name is the model's.", **named)
    flags.DEFINE_integer("version", None, "Number of the version; by default the next free one.", 1, **named)
    flags.DEFINE_string("task", None, "Which stored head to export; 'backbone' for none.", **named)
    flags.DEFINE_integer("max_length", None, "Most tokens of a request; by default the model's.", 1, **named)
    flags.DEFINE_bool("fold", True, "Compute positions once, at export.", **named)
    flags.DEFINE_bool("xla", False, "Compile with XLA; TF-Serving needs --xla_cpu_compilation_enabled.", **named)
    flags.DEFINE_bool("half", False, "Weights and products in bfloat16.", **named)
    parts = (
        "Cut sequences into so many parts that run beside each other: the number of cores of the server, which then "
    )
    parts += "needs --tensorflow_intra_op_parallelism=1 and --tensorflow_inter_op_parallelism at that number."
    flags.DEFINE_integer("parts", 1, parts, 1, **named)
    flags.DEFINE_bool("text", True, "Export the tokenizer, if there is one, as the signature 'text'.", **named)
    flags.DEFINE_list("labels", None, "Names of the classes; by default those of the checkpoint.", **named)
    flags.DEFINE_list("signatures", None, "Only these, beside serving_default.", **named)
    lengths = f"Lengths of warm-up requests; by default those of {list(warmup.LENGTHS)} that fit."
    flags.DEFINE_list("warmup_lengths", None, lengths, **named)
    flags.DEFINE_list("warmup_batches", list(map(str, warmup.BATCHES)), "Batch sizes of warm-up requests.", **named)
    flags.DEFINE_bool("warmup", True, "Write warm-up requests.", **named)


def run(values):
    """Exports as the parsed flags say. Returns the path of the version folder."""
    if values.checkpoint is None or values.export_base is None:
        raise ValueError("--checkpoint and --export_base are needed.")
    lengths = _numbers("warmup_lengths", values.warmup_lengths)
    source = open_source(values.checkpoint, values.task)
    path = export_model(
        source.model,
        values.export_base,
        tokenizer=source.tokenizer if values.text else None,
        version=values.version,
        max_length=values.max_length,
        fold=values.fold,
        xla=values.xla,
        half=values.half,
        parts=values.parts,
        labels=values.labels or source.labels,
        signatures=values.signatures,
        warmup_lengths=lengths if values.warmup else (),
        warmup_batches=_numbers("warmup_batches", values.warmup_batches),
    )
    print(report(path))
    return path


def _numbers(name, values):
    try:
        return None if values is None else tuple(int(value) for value in values)
    except ValueError as error:
        raise ValueError(f"--{name} takes whole numbers. Received: {','.join(values)}") from error


if __name__ == "__main__":
    start(define, run, (ValueError, OSError, ImportError), quiet=True)
