"""Does a request fit a signature? TF-Serving's checks, in its order and its words."""

import numpy as np
import tensorflow as tf

from serving.server import tensors
from serving.server.errors import ServingError, invalid

METHODS = tuple(f"tensorflow/serving/{name}" for name in ("predict", "classify", "regress"))


def method(signature):
    """Refuses signatures of unknown methods; TF-Serving does so with --enable_signature_method_name_check."""
    if signature.method_name not in METHODS:
        expected = ", ".join(METHODS)
        raise ServingError(
            "INTERNAL",
            f"Expected prediction signature method_name to be one of {{{expected}}}. Was: {signature.method_name}",
        )


def inputs(signature, given):
    """Dict of arrays in the order of the signature, its defaults filled in. Names are checked."""
    names, wanted = sorted(given), sorted(signature.inputs)
    if len(names) > len(wanted) or (len(names) < len(wanted) and not signature.defaults):
        extra, missing = (",".join(sorted(set(a) - set(b))) for a, b in ((names, wanted), (wanted, names)))
        raise invalid(
            f"input size does not match signature: {len(names)}!={len(wanted)} len({{{','.join(names)}}}) != "
            f"len({{{','.join(wanted)}}}). Sent extra: {{{extra}}}. Missing but required: {{{missing}}}."
        )
    found = {}
    for alias in wanted:
        if alias in given:
            found[alias] = given[alias]
        elif alias in signature.defaults:
            found[alias] = tensors.decode(signature.defaults[alias], alias)
        else:
            raise invalid(
                f"Signature input alias: {alias}(feed name: {signature.inputs[alias].name}) not found in request and "
                f"no default value provided. Inputs expected to be in the request {{{','.join(names)}}}, or default "
                f"input alias set: {','.join(sorted(signature.defaults))}"
            )
    if any(name not in found for name in names):
        used = ",".join(name for name in names if name in found)
        raise invalid(f"Inputs contains invalid name. Used request inputs: {used}, request input: {','.join(names)}")
    return found


def outputs(signature, output_filter):
    """Names of the outputs to compute."""
    known = sorted(signature.outputs)
    seen = set()
    for alias in output_filter:
        if alias not in signature.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {alias} Outputs expected to be in the set "
                f"{{{','.join(known)}}}."
            )
        if alias in seen:
            raise invalid(f"duplicate output tensor alias: {alias}")
        seen.add(alias)
    return tuple(sorted(seen)) or tuple(known)


def values(signature, arrays):
    """Types and shapes. A session would find a wrong shape in the middle of the graph, or not at all."""
    for index, alias in enumerate(sorted(arrays, key=lambda name: signature.inputs[name].name)):
        info, array = signature.inputs[alias], arrays[alias]
        if not isinstance(array, np.ndarray):
            raise invalid(f"tensor parsing error: {alias}")
        if tensors.data_type(array) != info.dtype:
            wanted, got = tf.dtypes.as_dtype(info.dtype), tf.dtypes.as_dtype(tensors.data_type(array))
            raise invalid(f"Expects arg[{index}] to be {_name(wanted)} but {_name(got)} is provided")
        if info.tensor_shape.unknown_rank:
            continue
        shape = [dim.size for dim in info.tensor_shape.dim]
        if len(shape) != array.ndim or any(a not in (-1, b) for a, b in zip(shape, array.shape)):
            got, wanted = (f"[{','.join(map(str, sizes))}]".replace("-1", "?") for sizes in (array.shape, shape))
            raise invalid(f"Input {alias} has shape {got}, which is not compatible with the signature's {wanted}")


def _name(dtype):
    """TensorFlow's C++ name: float for float32, double for float64."""
    return {"float32": "float", "float64": "double"}.get(dtype.name, dtype.name)
