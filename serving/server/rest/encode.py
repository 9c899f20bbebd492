"""Arrays to JSON, in pieces of bounded size.

A map of (12, 12, 128, 128) attention weights is 25 MB of text. It is written slab by slab, so that no call keeps the
interpreter for long and the first bytes leave while the last are not written yet. orjson prints the shortest decimal
that gives the same float32 or float64 back, and whole numbers with ".0".

Strings that are not UTF-8, in outputs not named `*_bytes`, get U+FFFD; TF-Serving would send what is no JSON.
"""

import base64

import numpy as np
import orjson

from serving.server.errors import invalid

SLAB = 1 << 16  # elements written by one call
CHUNK = 1 << 18  # bytes sent at once, at least
NUMBERS = {"float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "bool"}
NAMES = {"float16": "half"}


def encode_predictions(outputs, rows):
    """Pieces of the JSON text of a predict response.

    Args:
        outputs: dict of arrays by name.
        rows: True for `{"predictions": [...]}`, False for `{"outputs": ...}`.

    Raises:
        ServingError: INVALID_ARGUMENT at the call, not later, for what JSON cannot say.
    """
    if not outputs:
        raise invalid("Cannot convert empty tensor map to JSON")
    if rows:
        _check_batch(outputs)
    printers = {name: _printer(name, array) for name, array in outputs.items()}
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        value = _pieces(array, printers[name])
    elif rows:
        value = _objects_by_row(outputs, printers)
    else:
        value = _object(outputs, printers)
    return _gather(b'{"predictions":' if rows else b'{"outputs":', value)


def encode_classifications(result):
    """JSON text of a `ClassificationResult`."""
    if not result.classifications:
        raise invalid("Cannot convert empty ClassificationResults to JSON")
    rows = []
    for row in result.classifications:
        classes = (b"[%b,%b]" % (orjson.dumps(entry.label), _print_float(entry.score)) for entry in row.classes)
        rows.append(b"[%b]" % b",".join(classes))
    return b'{"results":[%b]}' % b",".join(rows)


def encode_regressions(result):
    """JSON text of a `RegressionResult`."""
    if not result.regressions:
        raise invalid("Cannot convert empty RegressionResults to JSON")
    return b'{"results":[%b]}' % b",".join(_print_float(entry.value) for entry in result.regressions)


def _check_batch(outputs):
    batch = None
    for name, array in outputs.items():
        if array.ndim == 0:
            raise invalid(f"Tensor name: {name} has no shape information ")
        if batch not in (None, len(array)):
            raise invalid(f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {batch}")
        batch = len(array)


def _printer(name, array):
    """The function that writes parts of this array."""
    if array.dtype.kind in "OSU":
        return _print_bytes if name.endswith("_bytes") else _print_strings
    if array.dtype.name not in NUMBERS:
        kind = NAMES.get(array.dtype.name, array.dtype.name)
        raise invalid(f"Failed to write JSON value for tensor type: {kind}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return _print_floats
    return _print_numbers


def _print_numbers(part):
    if part.ndim == 0:
        part = part[()] if part.dtype.kind == "f" else part.item()
    elif not part.flags.c_contiguous:
        part = np.ascontiguousarray(part)
    return orjson.dumps(part, option=orjson.OPT_SERIALIZE_NUMPY)


def _print_floats(part):
    """orjson writes `null` for what is not finite: those places are filled with TF-Serving's tokens."""
    strange = part[~np.isfinite(part)]
    tokens = np.where(np.isnan(strange), b"NaN", np.where(strange > 0, b"Infinity", b"-Infinity")).tolist()
    finite = _print_numbers(part).split(b"null")
    return b"".join(piece for pair in zip(finite, [*tokens, b""]) for piece in pair)


def _print_float(value):
    part = np.array(value, np.float32)
    return _print_numbers(part) if np.isfinite(part) else _print_floats(part)


def _print_strings(part):
    return _print_objects(part, lambda value: value.decode(errors="replace"))


def _print_bytes(part):
    return _print_objects(part, lambda value: {"b64": base64.b64encode(value).decode()})


def _print_objects(part, convert):
    values = np.empty(part.size, object)
    values[:] = [convert(value if isinstance(value, bytes) else str(value).encode()) for value in part.ravel()]
    return orjson.dumps(values.reshape(part.shape).tolist())


def _pieces(part, text):
    if part.size <= SLAB:
        yield text(part)
        return
    size = part.size // len(part)
    step = max(1, SLAB // size)
    yield b"["
    for start in range(0, len(part), step):
        if start:
            yield b","
        if size > SLAB:
            yield from _pieces(part[start], text)
        else:
            yield text(part[start : start + step])[1:-1]
    yield b"]"


def _object(arrays, printers):
    for number, (name, array) in enumerate(arrays.items()):
        yield b"%b%b:" % (b"," if number else b"{", orjson.dumps(name))
        yield from _pieces(array, printers[name])
    yield b"}"


def _objects_by_row(arrays, printers):
    yield b"["
    for number in range(len(next(iter(arrays.values())))):
        if number:
            yield b","
        yield from _object({name: array[number, ...] for name, array in arrays.items()}, printers)
    yield b"]"


def _gather(start, pieces):
    """Pieces joined to chunks that are worth a system call."""
    waiting, length = [start], len(start)
    for piece in pieces:
        waiting.append(piece)
        length += len(piece)
        if length >= CHUNK:
            yield b"".join(waiting)
            waiting, length = [], 0
    yield b"".join([*waiting, b"}"])
