"""Requests stored with a model, made before anybody else's: `assets.extra/tf_serving_warmup_requests`.

The file is a TFRecord of `PredictionLog`. A version becomes available when all of them have been answered; a request
that fails is a model that does not work, and the version is not served.
"""

import os
import time

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from serving.server import inference, tensors
from serving.server.errors import ServingError, from_tensorflow, invalid

FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")
MAX_RECORDS = 1000


def warm_up(servable, metrics=None, iterations=1):
    """Replays the requests of a servable's folder, each `iterations` times. Returns how many requests the file has."""
    file = os.path.join(servable.path, FILE)
    if not tf.io.gfile.exists(file):
        return 0
    start, status, count = time.perf_counter(), "OK", 0
    try:
        for log in _read(file):
            count += 1
            if count > MAX_RECORDS:
                raise invalid(f"Number of warmup records exceeds the maximum ({MAX_RECORDS}) at {file}")
            for _ in range(iterations):
                _replay(servable, log)
    except ServingError as error:
        status = error.code
        raise
    finally:
        if metrics is not None:
            metrics.warmed(servable.path, status, time.perf_counter() - start)
    return count


def _read(file):
    try:
        for record in tf.compat.v1.io.tf_record_iterator(file):
            yield prediction_log_pb2.PredictionLog.FromString(record)
    except DecodeError as error:
        raise invalid(f"Failed to parse warmup record from {file}") from error
    except tf.errors.DataLossError as error:
        message = f"{error.message}. Please verify your warmup data is in TFRecord format."
        raise ServingError("DATA_LOSS", message) from error
    except tf.errors.OpError as error:
        raise from_tensorflow(error) from error


def _replay(servable, log):
    kind = log.WhichOneof("log_type")
    if kind == "predict_log":
        request = log.predict_log.request
        inputs = {name: tensors.decode(proto, name) for name, proto in request.inputs.items()}
        servable.run(request.model_spec.signature_name, inputs, request.output_filter)
    elif kind in ("classify_log", "regress_log"):
        request = getattr(log, kind).request
        run = inference.classify if kind == "classify_log" else inference.regress
        run(servable, request.model_spec.signature_name, inference.serialized(request.input))
    elif kind == "multi_inference_log":
        request = log.multi_inference_log.request
        inference.multi(servable, request.tasks, inference.serialized(request.input))
    else:
        raise ServingError("UNIMPLEMENTED", f"Unsupported log_type for warmup: {kind}")
