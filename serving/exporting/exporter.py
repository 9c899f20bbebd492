"""From a model to a version folder that TF-Serving loads."""

import contextlib
import tempfile
from pathlib import Path

import tensorflow as tf

from keras_posenc.checkpoints.tokenizer import SentencePiece
from keras_posenc.folding import fold_positions, position_encodings, unfold_positions
from keras_posenc.models import Bert, heads
from keras_posenc.utils import checks
from serving.exporting import description, folder, texts, warmup
from serving.exporting.fused import fused
from serving.exporting.half import halved
from serving.exporting.parts import Parts
from serving.exporting.signatures import Signatures, check_backend


def export_model(
    model,
    base,
    tokenizer=None,
    version=None,
    max_length=None,
    fold=True,
    xla=False,
    half=False,
    parts=1,
    labels=None,
    signatures=None,
    warmup_lengths=None,
    warmup_batches=warmup.BATCHES,
):
    """Writes a model as a SavedModel with the signatures of `serving.exporting.signatures`.

    Positions are folded for the export, and the model is afterwards as it was. Nothing of keras_posenc or Keras is
    needed to load the result.

    Args:
        model: a `Bert` or a head around one, built.
        base: folder of the model's versions. Its name is what clients call the model.
        tokenizer: from `keras_posenc.checkpoints`, for the signature `text`.
        version: number, by default the one after the highest in `base`. An existing one is an error.
        max_length: largest number of tokens of a request; by default that of the model.
        fold: compute positions once, into variables of `max_length`. A model that is already folded is exported as it
            is, if its folds are long enough.
        xla: compile with XLA. TF-Serving then needs `--xla_cpu_compilation_enabled`, and each new shape is compiled.
        half: export a bfloat16 copy of the model: half the size, and outputs within about a hundredth of their range.
        parts: cut sequences into so many parts that run beside each other (or texts into so many groups, where they can
            be shared out evenly), for a runtime with so many cores, one thread within and so many between operations;
            see `serving.exporting.parts`.
        labels: names of the classes.
        signatures: names of those to export beside `serving_default`; all by default.
        warmup_lengths: lengths of warm-up requests, for every signature; `()` for none.
        warmup_batches: batch sizes of them.

    Returns: path of the version folder.

    Example:

    >>> import tempfile
    >>> from serving.exporting import export_model
    >>> model = keras_posenc.models.build("bert_tiny", position="diet_rel", max_length=16)
    >>> path = export_model(model, tempfile.mkdtemp() + "/tiny", warmup_lengths=())
    >>> path.parent.name, path.name
    ('tiny', '1')
    """
    check_backend()
    base = Path(base)
    _check(model, tokenizer, labels)
    max_length = model_max_length(model) if max_length is None else max_length
    _check_parts(parts, xla, max_length)
    model = halved(model) if half else model
    lengths = warmup.usual_lengths(max_length) if warmup_lengths is None else tuple(warmup_lengths)
    with (
        folder.new_version(base, version) as pending,
        _folded(model, max_length, fold),
        tempfile.TemporaryDirectory() as beside,
    ):
        encoder = None if tokenizer is None else texts.in_graph(tokenizer, max_length, beside)
        cut = Parts(parts)
        made = Signatures(model, max_length, encoder, xla, signatures, cut)
        backbone = getattr(model, "backbone", model)
        planned = list(
            warmup.requests(
                made.names, lengths, warmup_batches, backbone.vocab_size, backbone.encoder.num_layers, max_length
            )
        )
        with fused(model, cut, xla) as joined:
            functions = made.concrete()
        _save(model, functions, encoder, joined, pending.path)
        if planned:
            warmup.write(pending.path, base.name, planned)
        about = description.describe(
            model,
            max_length,
            made.names,
            labels=None if labels is None else list(labels),
            tokenizer=_tokenizer_about(tokenizer),
            xla=bool(xla),
            half=bool(half),
            parts=parts,
            warmup={"lengths": list(lengths), "batches": list(warmup_batches), "requests": len(planned)},
        )
        description.write(pending.path, about)
    return pending.final


def model_max_length(model):
    """Number of positions a model was made for."""
    return getattr(model, "backbone", model).encoder.max_length


def _check(model, tokenizer, labels):
    if not isinstance(model, (Bert, heads.Head)):
        raise ValueError(
            "Only a Bert, or a head of keras_posenc.models around one, can be exported. Received: "
            f"{type(model).__name__}"
        )
    if not model.built:
        raise ValueError(f"'{model.name}' has no weights yet. Call `build()` or call it on inputs first.")
    vocab_size = getattr(model, "backbone", model).vocab_size
    if tokenizer is not None and len(tokenizer.vocabulary) > vocab_size:
        raise ValueError(
            f"The tokenizer has {len(tokenizer.vocabulary)} pieces, but the model embeddings for {vocab_size}. Export "
            "the model with its own tokenizer, or without one."
        )
    classes = getattr(model, "num_classes", None)
    if labels is not None and len(labels) != classes:
        raise ValueError(f"There are {len(labels)} labels for {classes or 'no'} classes. Received: {list(labels)}")


def _check_parts(parts, xla, max_length):
    checks.positive_int("export_model", "parts", parts)
    if parts > max_length:
        raise ValueError(f"A sequence of max_length={max_length} has fewer rows than parts. Received: parts={parts}")
    if parts > 1 and xla:
        raise ValueError(
            "XLA compiles the model into one program, whose parts would not run beside each other. Received: "
            f"parts={parts}, xla={xla}. Use one of them."
        )


@contextlib.contextmanager
def _folded(model, max_length, fold):
    """The model with its positions folded, and as it was afterwards."""
    given = [e.folded_length for e in position_encodings(model) if e.folded_length is not None]
    if given:
        if not fold or min(given) < max_length:
            raise ValueError(
                f"The positions of '{model.name}' are folded at length {min(given)} already, which does not fit "
                f"max_length={max_length}, fold={fold}. Call `unfold_positions` on the model first."
            )
        yield
        return
    if not fold:
        yield
        return
    fold_positions(model, max_length)
    try:
        yield
    finally:
        unfold_positions(model)


def _save(model, functions, encoder, joined, path):
    root = tf.Module()
    if encoder is not None:
        root.tokenizer = encoder  # with its tables, and the vocabulary as an asset
    root.weights = _variables(model, functions.values(), encoder, joined)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(root, str(path), signatures=functions, options=options)


def _variables(model, functions, encoder, joined):
    """The variables that functions use, by name: weights of the model, those `joined` of several, and its folded
    positions.

    What is used by none, such as the weights that folds were made of, is not exported.
    """
    names = {id(weight.value): weight.path for weight in model.variables}
    names |= {id(variable): name for name, variable in joined.items()}
    others = set() if encoder is None else {id(variable) for variable in encoder.variables}
    used = {id(v): v for function in functions for v in function.graph.variables if id(v) not in others}
    folds = [key for key in used if key not in names]
    names.update({key: f"folded_positions/{index}" for index, key in enumerate(folds)})
    found = {}
    for key, variable in used.items():
        name = names[key]
        # The position encodings of tied layers have one path.
        repeated = sum(other == name or other.startswith(f"{name}:") for other in found)
        found[f"{name}:{repeated}" if repeated else name] = variable
    return found


def _tokenizer_about(tokenizer):
    if tokenizer is None:
        return None
    return {
        "kind": "sentence_piece" if isinstance(tokenizer, SentencePiece) else "word_piece",
        "lowercase": tokenizer.lowercase,
        "pieces": len(tokenizer.vocabulary),
    }
