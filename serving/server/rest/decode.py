"""The body of a predict request to arrays, by the rules of TF-Serving's REST API.

    {"signature_name": "...", "instances": [...]}    row form: one entry per example
    {"signature_name": "...", "inputs": ...}         column form: one value per input

The dtype of an input comes from the signature. Integers are taken for floats if nothing is lost, floats never for
integers; `{"b64": "..."}` is a string of bytes. Lists are flattened level by level with functions that run in C and
keep the Python type of each leaf, so 1, 1.0 and true stay apart. Only when something does not fit does `_explain` walk
over the values one by one, to find the first that TF-Serving would name.
"""

import base64
import binascii
from itertools import chain
from math import isfinite
from typing import NamedTuple

import numpy as np
from tensorflow.core.framework import types_pb2

from serving.server.errors import ServingError, invalid
from serving.server.rest.parsing import parse_object, text_of, type_of

MAX_RANK = 64  # NumPy's; no SavedModel has more
INTEGERS = {
    types_pb2.DT_INT8: np.int8,
    types_pb2.DT_INT16: np.int16,
    types_pb2.DT_INT32: np.int32,
    types_pb2.DT_INT64: np.int64,
    types_pb2.DT_UINT8: np.uint8,
    types_pb2.DT_UINT32: np.uint32,
    types_pb2.DT_UINT64: np.uint64,
}
# dtype, its largest value, and the largest integer up to which all of them are floats of that type.
FLOATS = {
    types_pb2.DT_FLOAT: (np.float32, float(np.finfo(np.float32).max), 2**24 - 1),
    types_pb2.DT_DOUBLE: (np.float64, float(np.finfo(np.float64).max), 2**53 - 1),
}


class PredictRequest(NamedTuple):
    """Signature name ("" if none was given), arrays by name, and whether the answer is in rows or in columns."""

    signature_name: str
    inputs: dict
    rows: bool


def decode_predict(body, find_signature):
    """
    Args:
        body: bytes of the request.
        find_signature: function from a signature name to its `SignatureDef`.

    Raises:
        ServingError: INVALID_ARGUMENT, UNIMPLEMENTED for dtypes without JSON form, or whatever `find_signature` raises.
    """
    document = parse_object(body)
    name = signature_name(document)
    dtypes = {key: info.dtype for key, info in find_signature(name).inputs.items()}
    if not dtypes:
        raise invalid(f"Failed to get input map for signature: {name or 'DEFAULT'}")
    if "instances" in document:
        return PredictRequest(name, _from_rows(document, dtypes), True)
    if "inputs" in document:
        return PredictRequest(name, _from_columns(document["inputs"], dtypes), False)
    raise invalid("Missing 'inputs' or 'instances' key")


def signature_name(document):
    name = document.get("signature_name", "")
    if type(name) is not str:
        problem = "not formatted correctly. 'signature_name' key must be a string value."
        raise invalid(f"JSON Value: {text_of(document)} {problem}")
    return name


def _from_rows(document, dtypes):
    rows = document["instances"]
    if "inputs" in document:
        problem = "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
        raise invalid(f"JSON Value: {text_of(document)} {problem}")
    if type(rows) is not list:
        raise invalid(f"JSON Value: {text_of(document)} Excepting 'instances' to be an list/array")
    if not rows:
        raise invalid(f"JSON Value: {text_of(document)} No values in 'instances' array")
    named = _is_named(rows[0])
    if not named and len(dtypes) > 1:
        problem = "expecting list of objects as multiple input tensors required as per tensorinfo_map"
        raise invalid(f"instances is a plain list, but {problem}")
    for number, row in enumerate(rows):
        if _is_named(row) != named:
            expected = "object but got list" if named else "value/list but got object"
            raise invalid(f"Expecting {expected} at item {number} of input list")
    if not named:
        (name,) = dtypes
        return {name: _rows_to_array(rows, dtypes[name], "")}
    for number, row in enumerate(rows):
        if row.keys() != dtypes.keys():
            raise _wrong_keys(number, row, dtypes)
    return {name: _rows_to_array([row[name] for row in rows], dtypes[name], name) for name in dtypes}


def _wrong_keys(number, row, dtypes):
    problem = f"JSON object: {text_of(row)} keys must be equal to: {','.join(sorted(dtypes))}"
    for name in row:
        if name not in dtypes:
            problem = f"JSON object: does not have named input: {name}"
            return invalid(
                f"Failed to process element: {number} key: {name} of 'instances' list. "
                f"Error: INVALID_ARGUMENT: {problem}"
            )
    return invalid(f"Failed to process element: {number} of 'instances' list. {problem}")


def _rows_to_array(rows, dtype, name):
    array = _to_array(rows, dtype)
    if array is not None:
        return array
    key = f" key: {name}" if name else ""
    first = None
    for number, row in enumerate(rows):
        try:
            shape = _shape(row)
            count = _explain(row, shape, dtype)
            if first is None:
                first = shape, count
            elif count != first[1]:
                raise invalid(f"Expecting tensor size: {first[1]} but got: {count}")
            elif shape != first[0]:
                raise invalid(f"Expecting shape {_print(first[0])} but got: {_print(shape)}")
        except ServingError as error:
            problem = f"of 'instances' list. Error: {error.code}: {error.message}"
            raise invalid(f"Failed to process element: {number}{key} {problem}") from None
    return _slowly(rows, (len(rows), *first[0]), dtype)


def _from_columns(value, dtypes):
    if not _is_named(value):
        if len(dtypes) > 1:
            problem = "expecting an object as multiple input tensors required as per tensorinfo_map"
            raise invalid(f"inputs is a plain value/list, but {problem}")
        value = {next(iter(dtypes)): value}
    arrays = {}
    for name, dtype in dtypes.items():
        if name not in value:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
        arrays[name] = _to_array(value[name], dtype)
        if arrays[name] is None:
            shape = _shape(value[name])
            _explain(value[name], shape, dtype)
            arrays[name] = _slowly(value[name], shape, dtype)
    return arrays


def _is_named(value):
    return type(value) is dict and not is_base64(value)


def is_base64(value):
    return len(value) == 1 and type(value.get("b64")) is str


def _to_array(value, dtype):
    """The array, or None if some value needs a closer look."""
    shape, level = [], [value]
    while level and type(level[0]) is list:
        if set(map(type, level)) != {list} or len(sizes := set(map(len, level))) != 1 or len(shape) == MAX_RANK:
            return None
        shape.append(sizes.pop())
        level = list(chain.from_iterable(level))
    types = set(map(type, level))
    try:
        flat = _flat(level, types, dtype)
    except OverflowError:  # of an integer beyond its dtype
        return None
    return None if flat is None else flat.reshape(shape)


def _flat(level, types, dtype):
    if dtype in INTEGERS:
        return np.array(level, INTEGERS[dtype]) if types <= {int} else None
    if dtype in FLOATS:
        return _floats(level, types, *FLOATS[dtype]) if types <= {int, float} else None
    if dtype == types_pb2.DT_BOOL:
        return np.array(level, bool) if types <= {bool} else None
    if dtype == types_pb2.DT_STRING and types <= {str}:
        return _objects([text.encode() for text in level])
    return None


def _floats(level, types, kind, largest, largest_integer):
    values = np.array(level, np.float64)
    magnitude = np.abs(values).max(initial=0)
    if not np.isfinite(magnitude):
        magnitude = np.abs(values[np.isfinite(values)]).max(initial=0)
    if magnitude > largest:
        return None
    # Most tensors are small numbers; only if there is a large one does it matter which of them were integers.
    if int in types and magnitude > largest_integer:
        if max(abs(value) for value in level if type(value) is int) > largest_integer:
            return None
    return values.astype(kind)


def _objects(values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _shape(value):
    """The shape that the first element of each level promises."""
    shape = []
    while type(value) is list:
        shape.append(len(value))
        if len(shape) == MAX_RANK:
            raise invalid(f"Encountered list at unexpected level: {MAX_RANK} expected < {MAX_RANK}")
        if not value:
            break
        value = value[0]
    return tuple(shape)


def _explain(value, shape, dtype, level=0):
    """Number of leaves; raises for the first value that does not fit."""
    if type(value) is not list:
        if level != len(shape):
            problem = f"found at incorrect level: {level + 1} in the JSON DOM. Expected at level: {len(shape)}"
            raise invalid(f"JSON Value: {text_of(value)} {problem}")
        _leaf(value, dtype)
        return 1
    if level >= len(shape):
        raise invalid(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    if len(value) != shape[level]:
        problem = f"at level: {level} expected size: {shape[level]}"
        raise invalid(f"Encountered list at unexpected size: {len(value)} {problem}")
    return sum(_explain(item, shape, dtype, level + 1) for item in value)


def _slowly(value, shape, dtype):
    """An array of values that are all right one by one: strings among base64 objects."""
    level = [value]
    for _ in shape:
        level = list(chain.from_iterable(level))
    return _objects([_leaf(leaf, dtype) for leaf in level]).reshape(shape)


def _leaf(value, dtype):
    """One value as the model gets it."""
    kind = type(value)
    if dtype == types_pb2.DT_STRING and kind is dict:
        return decode_base64(value)
    if dtype in INTEGERS:
        limits = np.iinfo(INTEGERS[dtype])
        fits = kind is int and limits.min <= value <= limits.max
    elif dtype in FLOATS:
        fits = kind in (int, float)
        if fits and not _is_lossless(value, *FLOATS[dtype]):
            target = _name(dtype)
            raise invalid(f"Cannot convert JSON value: {text_of(value)} to {target} without loss of precision.")
    elif dtype in (types_pb2.DT_BOOL, types_pb2.DT_STRING):
        fits = kind is (bool if dtype == types_pb2.DT_BOOL else str)
    elif kind is dict:
        fits = False
    else:
        raise ServingError("UNIMPLEMENTED", f"Conversion of JSON Value: {text_of(value)} to type: {_name(dtype)}")
    if not fits:
        problem = f"Type: {type_of(value)} is not of expected type: {_name(dtype)}"
        raise invalid(f"JSON Value: {text_of(value)} {problem}")
    return value.encode() if kind is str else value


def _is_lossless(value, _, largest, largest_integer):
    if type(value) is int:
        return abs(value) <= largest_integer
    return not isfinite(value) or abs(value) <= largest


def decode_base64(value):
    """Bytes of `{"b64": "..."}`; padding may be missing, as for TF-Serving."""
    if not is_base64(value):
        raise invalid(f"JSON Value: {text_of(value)} not formatted correctly for base64 data")
    text = "".join(value["b64"].split())
    digits = text.rstrip("=")
    try:
        if len(text) > len(digits) and len(text) % 4:
            raise binascii.Error("wrong padding")
        return base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except ValueError:
        raise invalid("Unable to base64 decode") from None


def _name(dtype):
    return types_pb2.DataType.Name(dtype).removeprefix("DT_").lower()


def _print(shape):
    return f"[{','.join(map(str, shape))}]"
