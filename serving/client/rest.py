"""REST: JSON over connections that stay open."""

import base64
import contextlib
import json
import time
from urllib.parse import quote

import numpy as np
import orjson
import urllib3

from serving.client import inputs
from serving.client.errors import BY_STATUS, Failure

CONNECTIONS = 64
CHUNK = 1 << 20
DTYPES = {  # TensorFlow's names to NumPy's
    "DT_FLOAT": "float32",
    "DT_DOUBLE": "float64",
    "DT_BOOL": "bool",
    "DT_STRING": "object",
    **{f"DT_{sign}INT{size}": f"{sign}int{size}".lower() for sign in ("", "U") for size in (8, 16, 32, 64)},
}
KINDS = {bool: "b", int: "i", float: "f", str: "O", dict: "O"}  # of JSON's values to NumPy's
MISFITS = (AttributeError, OverflowError, TypeError, ValueError)  # of values that cannot be of a type


class Rest:
    """
    Args:
        url: `http://host:port`, perhaps with a path before `/v1`.
        model, version, label: which model.
        headers: dict, sent with each call.
        certificates: file with the certificates to trust.
        connections: that are kept open for threads that share this.
    """

    def __init__(self, url, model, version=None, label=None, headers=None, certificates=None, connections=CONNECTIONS):
        self.url = f"{url.rstrip('/')}/v1/models/{quote(model, safe='')}"
        if version is not None:
            self.url += f"/versions/{version}"
        elif label is not None:
            self.url += f"/labels/{quote(label, safe='')}"
        self.headers = {"content-type": "application/json", **(headers or {})}
        trusted = {} if certificates is None else {"ca_certs": certificates}
        self._pool = urllib3.PoolManager(maxsize=connections, retries=False, **trusted)
        self._signatures = {}

    def close(self):
        self._pool.clear()

    def prepare(self, given, signature, outputs=()):
        """Body of a request in the column form. REST has no filter of outputs."""
        return body(given, signature)

    def send(self, request, timeout):
        """The answer as bytes."""
        return self._exchange("POST", f"{self.url}:predict", timeout, request)

    def decode(self, answer, signature, timeout):
        """Dict of arrays, with the dtypes that the metadata of the model say."""
        found = loads(answer)["outputs"]
        known = self._outputs(signature, timeout)
        if _fit(known, found):
            with contextlib.suppress(*MISFITS):
                return _arrays(known, found)
        known = self._outputs(signature, timeout, fresh=True)  # a new version is served
        try:
            return _arrays(known, found)
        except MISFITS as error:
            types = ", ".join(f"{name}: {dtype}" for name, (dtype, _) in known.items()) or "nothing"
            problem = f"The answer is not what the metadata of '{signature}' say ({types}): {error}."
            raise Failure("INTERNAL", f"{problem} If the model was just replaced, ask again.") from error

    def status(self, timeout):
        """`{version: (state, error message)}`."""
        found = loads(self._exchange("GET", self.url, timeout))["model_version_status"]
        return {int(each["version"]): (each["state"], each["status"]["error_message"]) for each in found}

    def metadata(self, timeout):
        """`{signature: {"inputs": {name: (dtype, shape)}, "outputs": ...}}`."""
        found = loads(self._exchange("GET", f"{self.url}/metadata", timeout))["metadata"]["signature_def"]
        return {
            name: {side: {key: _tensor(info) for key, info in each[side].items()} for side in ("inputs", "outputs")}
            for name, each in found["signature_def"].items()
        }

    def _outputs(self, signature, timeout, fresh=False):
        if fresh or signature not in self._signatures:
            self._signatures = self.metadata(timeout)
        return self._signatures.get(signature, {"outputs": {}})["outputs"]

    def _exchange(self, method, url, timeout, sent=None):
        end = time.monotonic() + timeout
        try:
            limits = urllib3.Timeout(connect=timeout, read=timeout)
            response = self._pool.request(
                method, url, body=sent, headers=self.headers, timeout=limits, preload_content=False
            )
            try:
                parts = []
                while part := response.read(CHUNK):  # a read's own limit starts anew with each piece
                    parts.append(part)
                    if time.monotonic() > end:
                        raise Failure("DEADLINE_EXCEEDED", f"The answer was not complete after {timeout:.3g} seconds.")
            except BaseException:
                response.close()  # what is left of the answer must not be read as the next
                raise
            response.release_conn()
        except urllib3.exceptions.NewConnectionError as error:  # refused; for urllib3 that is a timeout as well
            raise Failure("UNAVAILABLE", str(error)) from error
        except urllib3.exceptions.TimeoutError as error:
            raise Failure("DEADLINE_EXCEEDED", f"No answer within {timeout:.3g} seconds.") from error
        except urllib3.exceptions.LocationValueError as error:
            raise ValueError(f"{url} is no address: {error}") from error
        except urllib3.exceptions.HTTPError as error:
            raise Failure("UNAVAILABLE", str(error)) from error
        data = b"".join(parts)
        if response.status != 200:
            code = BY_STATUS.get(response.status, "INTERNAL")
            raise Failure(code, f"{_message(data)} (HTTP {response.status})", _wait(response.headers))
        return data


def _fit(known, found):
    """Whether an answer has the outputs of a signature, of their types. A single one comes without its name."""
    named = isinstance(found, dict) and "b64" not in found
    if not (set(found) == set(known) if named else len(known) == 1):
        return False
    return all(_is_kind(found[name] if named else found, dtype) for name, (dtype, _) in known.items())


def _is_kind(value, dtype, surely=True):
    """Whether an output is of this type, as far as its first value tells.

    TF-Serving writes floats with a point or an exponent, others without. Other servers may write whole floats without
    and NaN as null, and an output may have no values: those may be of the type, but not surely.
    """
    kind, expected = KINDS.get(type(_first(value))), dtype and np.dtype(dtype).kind.replace("u", "i")
    if expected is None or kind == expected:
        return True
    return not surely and (kind is None or (kind, expected) == ("i", "f"))


def _arrays(known, found):
    """Dict of arrays of an answer. A single output comes without its name."""
    if len(known) == 1:
        found = {next(iter(known)): found}
    elif not isinstance(found, dict):
        raise TypeError("it is one output without a name")
    types = {name: known[name][0] if name in known else None for name in found}
    for name, dtype in types.items():
        if not _is_kind(found[name], dtype, surely=False):
            raise TypeError(f"'{name}' has {_first(found[name])!r}")
    return {name: array(value, types[name]) for name, value in found.items()}


def body(given, signature):
    """JSON text of a predict request, in the column form."""
    columns = {name: _column(value) for name, value in given.items()}
    content = {"signature_name": signature, "inputs": columns}
    if not all(isinstance(value, np.ndarray) for value in columns.values()):
        return json.dumps(content, default=np.ndarray.tolist).encode()  # knows NaN and Infinity, as TF-Serving does
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


def _column(value):
    value = np.asarray(value)
    if value.dtype.kind in "OSU":
        return _nested(inputs.as_bytes(value.tolist()))
    if value.dtype.kind == "f" and not np.isfinite(value).all() or value.ndim == 0:
        return value.tolist()
    return np.ascontiguousarray(value)


def _nested(value):
    if isinstance(value, np.ndarray):
        return [_nested(each) for each in value]
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def loads(data):
    """JSON with the NaN and Infinity of TF-Serving, which are no JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return json.loads(data)
        except ValueError as error:
            raise Failure("INTERNAL", f"The answer is no JSON: {data[:200]!r}") from error


def array(value, dtype=None):
    """An array of parsed JSON; strings become an object array of bytes."""
    if dtype == "object" or (dtype is None and isinstance(_first(value), (str, dict))):
        return _strings(value)
    return np.array(value, dtype)


def _first(value):
    while isinstance(value, list) and value:
        value = value[0]
    return value


def _strings(value):
    if isinstance(value, list):
        parts = [_strings(each) for each in value]
        found = np.empty((len(parts), *(parts[0].shape if parts else ())), object)
        for place, part in enumerate(parts):
            found[place] = part if part.shape else part[()]
        return found
    found = np.empty((), object)
    found[()] = base64.b64decode(value["b64"]) if isinstance(value, dict) else value.encode()
    return found


def _tensor(info):
    shape = info["tensor_shape"]
    unknown = shape.get("unknown_rank")
    dims = None if unknown else tuple(int(dim["size"]) for dim in shape.get("dim", ()))
    return DTYPES.get(info["dtype"]), dims


def _message(data):
    try:
        return orjson.loads(data)["error"]
    except (ValueError, KeyError, TypeError):
        return data[:500].decode(errors="replace").strip() or "no message"


def _wait(headers):
    """Seconds of `Retry-After`, if it has seconds."""
    value = headers.get("retry-after", "")
    return float(value) if value.isdigit() else None
