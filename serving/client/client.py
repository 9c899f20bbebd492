"""The client: what to ask, of which model."""

import numpy as np

from serving.client import inputs
from serving.client.results import Result
from serving.client.retries import Retry

KINDS = (None, "raw", "effective")


def connect(address, model="default", version=None, label=None, **options):
    """The transport for an address.

    Args:
        address: `host:port`, `http://...` or `https://...` for REST; `grpc://host:port`, `grpcs://host:port` (with
            TLS) or `unix:path` for gRPC.
        model, version, label: which model.
        **options: of `rest.Rest` or `grpc.Grpc`.
    """
    if version is not None and label is not None:
        raise ValueError("A model is chosen by version or by label, not by both.")
    scheme, separator, rest = address.partition("://")
    if address.startswith("unix:") or scheme in ("grpc", "grpcs"):
        from serving.client.grpc import Grpc

        target = address if address.startswith("unix:") else rest.rstrip("/")
        return Grpc(target, model, version, label, secure=scheme == "grpcs", **options)
    if separator and scheme not in ("http", "https"):
        raise ValueError(f"Addresses are host:port, http(s)://, grpc(s):// or unix:path. Received: {address!r}")
    from serving.client.rest import Rest

    return Rest(address if separator else f"http://{address}", model, version, label, **options)


class Client:
    """Talks to one model of a server. Threads may share it; connections stay open until `close`.

    Args:
        address: `host:port`, `http://...` or `https://...` for REST; `grpc://host:port`, `grpcs://host:port` (with
            TLS) or `unix:path` for gRPC.
        model: its name on the server.
        version: number, or `label`: name of a version; by default the newest that is loaded.
        labels: names of the classes, if the model has some.
        timeout: seconds for a call with all its attempts.
        retry: `Retry`.
        lengths: that token ids are padded to, e.g. `(16, 32, 64, 128)`: the rows of a call to the smallest that holds
            the longest of them; longer rows stay as they are, and results are cut back to what was given. For servers
            with batching, which refuse inputs of different lengths that come together: with one length for all calls
            none are refused, with several fewer. None may be above what the model takes.
        **options: `headers` (REST) or `metadata` (gRPC), dicts that are sent with each call, e.g. with a token;
            `certificates`: file with the certificates to trust.
    """

    def __init__(
        self,
        address,
        model="default",
        version=None,
        label=None,
        labels=None,
        timeout=30.0,
        retry=None,
        lengths=(),
        **options,
    ):
        self.address, self.timeout, self.retry = address, timeout, retry or Retry()
        self.labels = None if labels is None else tuple(labels)
        self.lengths = inputs.check_lengths(lengths)
        self.transport = connect(address, model, version, label, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes the connections."""
        self.transport.close()

    def read(self, texts, pairs=None, attention=None, layer=None, timeout=None):
        """Sends text to the signature `text`; maps are asked for in a second call, with the tokens it returned.

        Args:
            texts: a string or several.
            pairs: second texts, as many.
            attention, layer: as for `run`.
            timeout: seconds for each call.

        Returns: a `Result`.
        """
        wanted = _check_kind(attention, layer)
        found = self.predict(inputs.strings(texts, pairs), "text", timeout=timeout)
        ids = {name: found[name] for name in ("token_ids", "segment_ids", "padding_mask")}
        if not wanted:
            return self._result(ids, {"logits": found["logits"]}, None, pieces=found["tokens"])
        return self._ask(ids, wanted, layer, timeout, pieces=found["tokens"])

    def run(self, token_ids, segment_ids=None, padding_mask=None, attention=None, layer=None, timeout=None):
        """Sends token ids; rows may have different lengths and are padded here.

        Args:
            token_ids, segment_ids, padding_mask: one row or several.
            attention: `None`, "raw", or "effective" for both.
            layer: only the maps of this layer, which keeps answers small. By default of all.
            timeout: seconds.

        Returns: a `Result`.
        """
        wanted = _check_kind(attention, layer)
        return self._ask(inputs.batch(token_ids, segment_ids, padding_mask), wanted, layer, timeout)

    def predict(self, given, signature="serving_default", outputs=(), timeout=None):
        """Any signature of any model.

        Args:
            given: dict of arrays; strings are object arrays of bytes or of str.
            signature: name.
            outputs: names of those wanted, all by default. Over gRPC the others are not computed.
            timeout: seconds.

        Returns: dict of arrays; strings are object arrays of bytes.
        """
        transport = self.transport
        request = transport.prepare(given, signature, outputs)
        found = self._call(lambda left: transport.decode(transport.send(request, left), signature, left), timeout)
        missing = [name for name in outputs if name not in found]
        if missing:
            raise ValueError(f"'{signature}' returns {', '.join(sorted(found))}; not {', '.join(missing)}.")
        return {name: found[name] for name in outputs} if outputs else found

    def status(self, timeout=None):
        """`{version: (state, error message)}`; the state of one that answers is `AVAILABLE`."""
        return self._call(self.transport.status, timeout)

    def metadata(self, timeout=None):
        """`{signature: {"inputs": {name: (dtype, shape)}, "outputs": ...}}`; -1 is a free dimension."""
        return self._call(self.transport.metadata, timeout)

    def _ask(self, ids, wanted, layer, timeout, **more):
        """The `Result` for token ids."""
        padded = inputs.pad(ids, self.lengths)
        given, signature = padded, "serving_default"
        if layer is not None:
            given, signature = {**padded, "layer": np.full(len(ids["token_ids"]), layer, np.int32)}, "layer_attention"
        elif wanted:
            signature = wanted[-1]  # it has the name of the last of its maps
        found = self.predict(given, signature, ("logits", *wanted), timeout)
        return self._result(padded, found, layer, **more).cut(ids["token_ids"].shape[1])

    def _result(self, ids, found, layer, **more):
        maps = {"raw": found.get("attention"), "effective": found.get("effective_attention")}
        return Result(found["logits"], **ids, **maps, **more, layer=layer, label_names=self.labels)

    def _call(self, attempt, timeout):
        return self.retry.call(attempt, self.timeout if timeout is None else timeout, self.address)


def _check_kind(attention, layer):
    """Names of the outputs with maps."""
    if attention not in KINDS:
        raise ValueError(f"attention is one of {KINDS}. Received: {attention!r}")
    if layer is not None and (attention is None or layer < 0):
        raise ValueError(f'layer counts from 0 and is for attention="raw" or "effective". Received: {layer}')
    return {None: (), "raw": ("attention",), "effective": ("attention", "effective_attention")}[attention]
