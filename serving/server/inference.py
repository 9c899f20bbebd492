"""Classify, Regress and MultiInference: signatures over serialized `tf.Example`s, with results of a fixed form."""

import numpy as np
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import classification_pb2, inference_pb2, regression_pb2

from serving.server import tensors
from serving.server.errors import ServingError, failed_precondition, invalid
from serving.server.servable import DEFAULT_SIGNATURE

CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"


def serialized(given):
    """List of the bytes of the examples in an `Input` message, the common context written before each."""
    kind = given.WhichOneof("kind")
    examples = getattr(given, kind).examples if kind else ()
    if not examples:
        raise invalid("Input is empty.")
    # Concatenated messages are their merge, so context and example need not be taken apart.
    context = given.example_list_with_context.context.SerializeToString() if kind.endswith("context") else b""
    return [context + example.SerializeToString() for example in examples]


def classify(servable, signature_name, examples):
    """`ClassificationResult` of a list of bytes."""
    outputs = _prepare_classify(servable, _signature(servable, signature_name, CLASSIFY, "classification"))
    found = servable.run(signature_name, {"inputs": _array(examples)}, outputs)
    classes, scores = found.get("classes"), found.get("scores")
    for name, values, dtype in (("classes", classes, "DT_STRING"), ("scores", scores, "DT_FLOAT")):
        if values is None:
            continue
        if values.ndim != 2:
            raise invalid(f"Expected Tensor shape: [batch_size num_classes] but got {_shape(values)}")
        if _type(values) != dtype:
            raise invalid(f"Expected {name} Tensor of {dtype}. Got: {_type(values)}")
        if len(values) != len(examples):
            raise invalid(f"Expected {name} output batch size of {len(examples)}. Got: {len(values)}")
    if classes is not None and scores is not None and classes.shape[1] != scores.shape[1]:
        raise invalid(
            f"Tensors class and score should match in dim_size(1). Got {classes.shape[1]} vs. {scores.shape[1]}"
        )
    result = classification_pb2.ClassificationResult()
    for row in range(len(examples)):
        classified = result.classifications.add().classes
        for column in range((classes if scores is None else scores).shape[1]):
            label = "" if classes is None else classes[row, column].decode(errors="replace")
            classified.add(label=label, score=0.0 if scores is None else scores[row, column])
    return result


def regress(servable, signature_name, examples):
    """`RegressionResult` of a list of bytes."""
    _prepare_regress(servable, _signature(servable, signature_name, REGRESS, "regression"))
    values = servable.run(signature_name, {"inputs": _array(examples)}, ["outputs"])["outputs"]
    if not (values.ndim == 1 or (values.ndim == 2 and values.shape[1] == 1)):
        raise invalid(
            f"Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got {_shape(values)}"
        )
    if len(values) != len(examples):
        raise invalid(f"Input batch size did not match output batch size: {len(examples)} vs. {len(values)}")
    if _type(values) != "DT_FLOAT":
        raise invalid(f"Expected output Tensor of DT_FLOAT.  Got: {_type(values)}")
    result = regression_pb2.RegressionResult()
    for value in values.ravel().tolist():
        result.regressions.add(value=value)
    return result


def multi(servable, tasks, examples):
    """List of `InferenceResult`, without model specs, for `InferenceTask`s on the same examples."""
    seen, feeds = set(), set()
    for task in tasks:
        name = task.model_spec.signature_name or DEFAULT_SIGNATURE
        if name in seen:
            raise invalid(f"Duplicate evaluation of signature: {name}")
        seen.add(name)
        if name not in servable.signatures:
            raise invalid(f"Requested signature not found in model graph: {name}")
        signature = servable.signatures[name]
        if task.method_name == CLASSIFY:
            _prepare_classify(servable, signature)
        elif task.method_name == REGRESS:
            _prepare_regress(servable, signature)
        else:
            raise ServingError("UNIMPLEMENTED", f"Unsupported signature method_name: {task.method_name}")
        feeds.add(signature.inputs["inputs"].name)
        if len(feeds) > 1:
            raise invalid("Input tensor must be the same for all Signatures.")
    results = []
    for task in tasks:
        result = inference_pb2.InferenceResult()
        name = task.model_spec.signature_name
        if task.method_name == CLASSIFY:
            result.classification_result.CopyFrom(classify(servable, name, examples))
        else:
            result.regression_result.CopyFrom(regress(servable, name, examples))
        results.append(result)
    return results


def _signature(servable, name, method, kind):
    name = name or DEFAULT_SIGNATURE
    if name not in servable.signatures:
        raise invalid(f"No signature was found with the name: {name}")
    signature = servable.signatures[name]
    if servable.check_methods and signature.method_name != method:
        raise invalid(f"Expected {kind} signature method_name to be {method}. Was: {signature.method_name}")
    return signature


def _prepare_classify(servable, signature):
    """Outputs to ask for."""
    if servable.check_methods and signature.method_name != CLASSIFY:
        raise invalid(f"Expected classification signature method_name to be {CLASSIFY}. Was: {signature.method_name}")
    if len(signature.inputs) != 1:
        raise invalid("Expected one input Tensor.")
    if len(signature.outputs) not in (1, 2):
        raise invalid(f"Expected one or two output Tensors, found {len(signature.outputs)}")
    if "inputs" not in signature.inputs:
        raise failed_precondition(f"No classification inputs found in SignatureDef: {signature}")
    outputs = [name for name in ("classes", "scores") if name in signature.outputs]
    if not outputs:
        raise failed_precondition(
            'Expected classification signature outputs to contain at least one of "classes" or "scores". '
            f"Signature was: {signature}"
        )
    return outputs


def _prepare_regress(servable, signature):
    if servable.check_methods and signature.method_name != REGRESS:
        raise invalid(f"Expected regression signature method_name to be {REGRESS}. Was: {signature.method_name}")
    if len(signature.inputs) != 1:
        raise invalid("Expected one input Tensor.")
    if len(signature.outputs) != 1:
        raise invalid("Expected one output Tensor.")
    for name in ("inputs", "outputs"):
        if name not in getattr(signature, name):
            raise failed_precondition(f"No regression {name} found in SignatureDef: {signature}")


def _array(examples):
    return np.array(examples, dtype=object)


def _shape(values):
    return f"[{','.join(map(str, values.shape))}]"


def _type(values):
    return types_pb2.DataType.Name(tensors.data_type(values))
