"""One version of a model, loaded: its signatures as functions of arrays.

A signature is made a function once for each set of outputs that is asked for; requests then run that function whatever
their batch or length. Outputs that a filter leaves out are pruned from the graph.
"""

import contextlib
import ctypes
import gc
import importlib.util
import json
import os
import threading

import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf import saved_model_pb2

from serving.server import batching, checks, sessions, tensors
from serving.server.errors import ServingError, failed_precondition, from_tensorflow, not_found

TAGS = ("serve",)
DEFAULT_SIGNATURE = "serving_default"
DESCRIPTION = "assets.extra/keras_posenc.json"  # of models that this project exported
MAX_FUNCTIONS = 256  # clients choose output filters; past this many sets, all outputs are computed and selected from


def read_signatures(path, tags=TAGS):
    """Dict of `SignatureDef`s of the graph with these tags in the SavedModel folder `path`."""
    files = [os.path.join(path, f"saved_model.{ending}") for ending in ("pb", "pbtxt")]
    file = next(filter(tf.io.gfile.exists, files), None)
    if file is None:
        raise not_found(f"Could not find SavedModel .pb or .pbtxt at supplied export directory path: {path}")
    saved = saved_model_pb2.SavedModel()
    try:
        with tf.io.gfile.GFile(file, "rb") as stream:
            text_format.Parse(stream.read(), saved) if file.endswith("txt") else saved.ParseFromString(stream.read())
    except Exception as error:  # protobuf's DecodeError is not one class in all its implementations
        raise ServingError("DATA_LOSS", f"Can't parse {file} as a SavedModel") from error
    for graph in saved.meta_graphs:
        if set(graph.meta_info_def.tags) == set(tags):
            return dict(graph.signature_def)
    raise not_found(
        f"Could not find meta graph def matching supplied tags: {{ {' '.join(sorted(tags))} }}. To inspect available "
        "tag-sets in the SavedModel, please use the SavedModel CLI: `saved_model_cli`"
    )


def read_description(path):
    """What the exporter wrote of a model, or `None`: only pages for people use it, so a damaged one does no harm."""
    try:
        with tf.io.gfile.GFile(os.path.join(path, DESCRIPTION)) as stream:
            found = json.load(stream)
    except (tf.errors.OpError, ValueError):
        return None
    return found if isinstance(found, dict) else None


class Servable:
    """
    Args:
        path: folder of the version.
        batching_parameters: `batching.Parameters`, or `None` to run each request by itself.
        check_methods: refuse signatures with unknown method names.
    """

    def __init__(self, path, batching_parameters=None, check_methods=False):
        self.path = path
        self.signatures = read_signatures(path)
        self.description = read_description(path)
        self._parameters = batching_parameters
        self.check_methods = check_methods
        self._functions, self._queues, self._session = {}, [], None
        self._lock = threading.Lock()
        failure = None
        try:
            self._load()
        except Exception as error:  # whatever a damaged file can bring about
            failure = error if isinstance(error, ServingError) else from_tensorflow(error)
        if failure is not None:  # raised out here, it does not hold the session by TensorFlow's stack
            self.close()
            raise failure

    def signature(self, name):
        """`SignatureDef` of a name; the empty one is `serving_default`."""
        name = name or DEFAULT_SIGNATURE
        if name not in self.signatures:
            raise failed_precondition(f'Serving signature key "{name}" not found.')
        return self.signatures[name]

    def run(self, name, inputs, output_filter=()):
        """Outputs of the signature `name` as a dict of arrays."""
        name = name or DEFAULT_SIGNATURE
        signature = self.signature(name)
        if self.check_methods:
            checks.method(signature)
        arrays = checks.inputs(signature, inputs)
        outputs = checks.outputs(signature, output_filter)
        checks.values(signature, arrays)
        if self._parameters is not None:
            batching.check_sizes(arrays.values())
        try:
            order, function = self._function(name, outputs)
            results = function(list(arrays.values()))
            return {alias: tensors.array(result) for alias, result in zip(order, results) if alias in outputs}
        except ServingError:
            raise
        except Exception as error:  # TensorFlow's own, and what its Python half raises for odd models
            raise from_tensorflow(error) from None

    def close(self):
        """Frees what the model holds. No request may be under way."""
        for queue in self._queues:
            queue.close()
        self._functions, self._queues = {}, []
        if self._session is not None:
            self._session.close()
        self._session = None
        _give_back_memory()

    def _load(self):
        """TF-Serving has tensorflow_text's operations built in; here they are registered when a model needs them."""
        try:
            return self._open()
        except Exception as error:
            if "Op type not registered" not in str(error) or importlib.util.find_spec("tensorflow_text") is None:
                raise
        self.close()
        importlib.import_module("tensorflow_text")
        self._open()

    def _open(self):
        self._session = sessions.open_session(self.path, TAGS)
        for name, signature in self.signatures.items():
            if _is_function(signature):
                self._function(name, checks.outputs(signature, ()))

    def _function(self, name, outputs):
        """Names of the outputs, and the function from arrays to them."""
        found = self._functions.get((name, outputs))
        if found is None:
            with self._lock:
                found = self._functions.get((name, outputs))
                if found is None and len(self._functions) >= MAX_FUNCTIONS:
                    found = self._functions[name, checks.outputs(self.signatures[name], ())]
                if found is None:
                    found = self._functions[name, outputs] = outputs, self._make_function(name, outputs)
        return found

    def _make_function(self, name, outputs):
        signature = self.signatures[name]
        if not _is_function(signature):
            raise failed_precondition(f'Serving signature key "{name}" is not a function of the SavedModel.')
        inputs = sorted(signature.inputs)
        feeds = [signature.inputs[alias].name for alias in inputs]
        function = sessions.function(self._session, feeds, [signature.outputs[alias].name for alias in outputs])
        if self._parameters is None or not feeds:
            return function
        self._queues.append(batching.Queue(function, inputs, self._parameters))
        return self._queues[-1].run


def _is_function(signature):
    """Whether it has outputs, all of them tensors; what initialises a model is stored as a signature too."""
    infos = [*signature.inputs.values(), *signature.outputs.values()]
    return bool(signature.outputs) and all(":" in info.name for info in infos)


def _give_back_memory():
    """To the system: what Python and the C library keep without using it."""
    gc.collect()  # loaded models are full of cycles
    # The C library keeps what was freed, up to several versions of a model. GNU's gives it back if asked.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
