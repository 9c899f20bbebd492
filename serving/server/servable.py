"""One version of a model, loaded: its signatures as functions of arrays.

A signature is traced once for each set of outputs that is asked for, with the shapes of its `SignatureDef`; requests
then run that function whatever their batch or length. Outputs that a filter leaves out are pruned from the graph.
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

from serving.server import batching, checks, tensors
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
        self._functions, self._queues = {}, []
        self._lock = threading.Lock()
        try:
            self._model = _load(path)
            for name in self._model.signatures:
                self._function(name, checks.outputs(self.signatures[name], ()))
        except ServingError:
            raise
        except Exception as error:  # whatever a damaged file can bring about
            raise from_tensorflow(error) from error

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
            results = function([tf.constant(array) for array in arrays.values()])
            return {alias: tensors.array(result) for alias, result in zip(order, results) if alias in outputs}
        except ServingError:
            raise
        except Exception as error:  # TensorFlow's own, and what its Python half raises for odd models
            raise batching.explain(from_tensorflow(error), arrays) from None

    def close(self):
        """Frees what the model holds. No request may be under way."""
        for queue in self._queues:
            batching.QUEUES.give_back(self._parameters, queue)
        self._functions, self._queues, self._model = {}, [], None
        _give_back_memory()

    def _function(self, name, outputs):
        """Names of the outputs, and the function from tensors to them."""
        found = self._functions.get((name, outputs))
        if found is None:
            with self._lock:
                found = self._functions.get((name, outputs))
                if found is None and len(self._functions) >= MAX_FUNCTIONS:
                    found = self._functions[name, checks.outputs(self.signatures[name], ())]
                if found is None:
                    found = self._functions[name, outputs] = outputs, self._trace(name, outputs)
        return found

    def _trace(self, name, outputs):
        if name not in self._model.signatures:
            raise failed_precondition(f'Serving signature key "{name}" is not a function of the SavedModel.')
        loaded = self._model.signatures[name]
        infos = sorted(self.signatures[name].inputs.items())
        specs = [tf.TensorSpec(tf.TensorShape(info.tensor_shape), info.dtype, alias) for alias, info in infos]

        def run(*arguments):
            found = loaded(**{alias: argument for (alias, _), argument in zip(infos, arguments)})
            return [found[output] for output in outputs]

        if self._parameters is None or not specs:
            return _direct(tf.function(run, input_signature=specs, autograph=False).get_concrete_function())
        queue = batching.QUEUES.take(self._parameters)
        self._queues.append(queue)
        return _direct(batching.batched(run, specs, self._parameters, queue))


def _give_back_memory():
    gc.collect()  # loaded models are full of cycles
    # The C library keeps what was freed, up to several versions of a model. GNU's gives it back if asked.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _load(path):
    """TF-Serving has the operations of tensorflow_text built in; here they are registered when a model needs them."""
    try:
        return tf.saved_model.load(path, tags=list(TAGS))
    except Exception as error:
        if "Op type not registered" not in str(error) or importlib.util.find_spec("tensorflow_text") is None:
            raise
    importlib.import_module("tensorflow_text")
    return tf.saved_model.load(path, tags=list(TAGS))


def _direct(concrete):
    """Calls a concrete function with flat tensors; the structure checks of Python's call cost more than the call."""
    inner, captured = concrete.inference_fn, list(concrete.captured_inputs)
    return lambda arguments: inner.call_flat(*arguments, *captured)
