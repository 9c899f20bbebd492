"""Requests that a server makes to itself before a version goes live, so that no client pays for first calls.

TF-Serving reads them from `assets.extra/tf_serving_warmup_requests`, a TFRecord file of `PredictionLog` messages.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import tensorflow as tf

FILE = "assets.extra/tf_serving_warmup_requests"
LIMIT = 1000  # records that TF-Serving accepts
LENGTHS, BATCHES = (16, 32, 64, 128), (1,)


def usual_lengths(max_length):
    """The default lengths that a model takes, or its largest if it takes none of them."""
    return tuple(length for length in LENGTHS if length <= max_length) or (max_length,)


def _messages():
    try:
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2
    except ImportError as error:
        raise ImportError(
            "Warm-up requests need tensorflow-serving-api: install keras_posenc with its extra 'serving', or export "
            "without warm-up (no lengths)."
        ) from error
    return predict_pb2, prediction_log_pb2


def requests(signatures, lengths, batches, vocab_size, num_layers, max_length):
    """`(signature, inputs)` for every signature, length and batch size; inputs are dicts of arrays.

    Args:
        signatures: names.
        lengths, batches: numbers of tokens and of rows.
        vocab_size, num_layers, max_length: of the model.
    """
    for name, values in (("lengths", lengths), ("batches", batches)):
        if any(value < 1 for value in values):
            raise ValueError(f"Warm-up {name} must be at least 1. Received: {list(values)}")
    if any(length > max_length for length in lengths):
        raise ValueError(f"Warm-up lengths must be at most max_length={max_length}. Received: {list(lengths)}")
    count = len(signatures) * len(lengths) * len(batches)
    if count > LIMIT:
        raise ValueError(f"TF-Serving takes at most {LIMIT} warm-up requests. Asked for: {count}; choose fewer.")
    rng = np.random.default_rng(0)
    for length in lengths:
        for batch in batches:
            ids = rng.integers(0, vocab_size, (batch, length), dtype="int32")
            given = {"token_ids": ids, "segment_ids": np.zeros_like(ids), "padding_mask": np.ones_like(ids)}
            for name in signatures:
                if name == "text":
                    # One letter is one token in most vocabularies; with the special tokens that is the length.
                    text = np.full(batch, " ".join("a" * max(length - 2, 1)), object)
                    yield name, {"text": text, "text_pair": np.full(batch, "", object)}
                elif name == "layer_attention":
                    yield name, {**given, "layer": (np.arange(batch) % num_layers).astype("int32")}
                else:
                    yield name, given


def write(folder, model_name, made):
    """Writes requests into a version folder. Returns their number.

    Args:
        folder: of the version.
        model_name: as clients call the model.
        made: from `requests`.
    """
    predict_pb2, prediction_log_pb2 = _messages()
    file = Path(folder) / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with tf.io.TFRecordWriter(str(file)) as writer:
        for signature, inputs in made:
            request = predict_pb2.PredictRequest()
            request.model_spec.name, request.model_spec.signature_name = model_name, signature
            for name, value in inputs.items():
                request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
            log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
            writer.write(log.SerializeToString())
            count += 1
    return count


def counts(folder):
    """Number of warm-up requests of each kind, `{"predict serving_default": 4, ...}`; `None` without a file."""
    file = Path(folder) / FILE
    if not file.is_file():
        return None
    _, prediction_log_pb2 = _messages()
    found = Counter()
    for record in tf.data.TFRecordDataset(str(file)):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        kind = log.WhichOneof("log_type")
        spec = log.predict_log.request.model_spec if kind == "predict_log" else None
        name = (spec.signature_name or "serving_default") if spec is not None else ""
        found[f"{(kind or 'empty').removesuffix('_log')} {name}".strip()] += 1
    return dict(found)
