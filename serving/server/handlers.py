"""Requests, whatever protocol brought them: names in, arrays out, `ServingError` when something is wrong.

All methods block until the result is there; call them from a worker thread. All of them raise `ServingError` only.
"""

import contextlib
from typing import NamedTuple

from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

from serving.server import inference
from serving.server.errors import invalid
from serving.server.servable import DEFAULT_SIGNATURE


class Target(NamedTuple):
    """Which model: by name only (the highest version that is loaded), or with a version, or with a label."""

    name: str
    version: int | None = None
    label: str | None = None


class Handlers:
    """
    Args:
        manager: `manager.Manager`, who has the models.
        metrics: `metrics.Metrics`, or `None`.
    """

    def __init__(self, manager, metrics=None):
        self.manager = manager
        self.metrics = metrics

    def models(self):
        """Names of the models that are configured."""
        return self.manager.names()

    def signature(self, target, signature_name=""):
        """`SignatureDef` under that name; the empty name is `serving_default`. For REST, whose words it uses."""
        name = signature_name or DEFAULT_SIGNATURE
        with self.manager.use(target) as (servable, _):
            if name not in servable.signatures:
                raise invalid(f'Serving signature name: "{name}" not found in signature def')
            return servable.signatures[name]

    def predict(self, target, signature_name, inputs, output_filter=()):
        """Runs a signature.

        Args:
            target: `Target`.
            signature_name: name, or "" for `serving_default`.
            inputs: dict of arrays by the signature's input names; strings are object arrays of bytes.
            output_filter: names of the outputs to compute; all if empty.

        Returns:
            outputs (dict of arrays; strings are object arrays of bytes), version, signature name.
        """
        with self.manager.use(target) as (servable, version):
            with self._runtime(target, "Predict"):
                outputs = servable.run(signature_name, inputs, output_filter)
        return outputs, version, signature_name or DEFAULT_SIGNATURE

    def classify(self, target, signature_name, examples):
        """`ClassificationResult` for a list of `tf.train.Example` (or their bytes), version, signature name."""
        return self._infer(target, signature_name, examples, "Classify", inference.classify)

    def regress(self, target, signature_name, examples):
        """`RegressionResult` for a list of `tf.train.Example` (or their bytes), version, signature name."""
        return self._infer(target, signature_name, examples, "Regress", inference.regress)

    def multi_inference(self, target, tasks, examples):
        """List of `InferenceResult` for `InferenceTask`s of one model on the same examples, and the version."""
        examples = self._bytes(target, examples)
        with self.manager.use(target) as (servable, version):
            with self._runtime(target, "MultiInference"):
                return inference.multi(servable, tasks, examples), version

    def metadata(self, target):
        """`GetModelMetadataResponse` with the field `signature_def`."""
        with self.manager.use(target) as (servable, version):
            signatures = get_model_metadata_pb2.SignatureDefMap()
            for name, signature in servable.signatures.items():
                signatures.signature_def[name].CopyFrom(signature)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = target.name
        response.model_spec.version.value = version
        response.metadata["signature_def"].Pack(signatures)
        return response

    def description(self, target):
        """What the exporter wrote of a model of this project, a dict, or `None`."""
        with self.manager.use(target) as (servable, _):
            return servable.description

    def status(self, target):
        """`GetModelStatusResponse`: versions that are loading, available, unloading, or have ended, newest first."""
        response = get_model_status_pb2.GetModelStatusResponse()
        for version, state, error in self.manager.states(target):
            found = response.model_version_status.add(version=version, state=state)
            found.status.error_code = 0 if error is None else error.number
            found.status.error_message = "" if error is None else error.message
        return response

    def reload(self, config):
        """Serves what a `ModelServerConfig` says, and returns when its new models are loaded."""
        self.manager.reload(config)

    def _infer(self, target, signature_name, examples, api, function):
        examples = self._bytes(target, examples)
        with self.manager.use(target) as (servable, version):
            with self._runtime(target, api):
                result = function(servable, signature_name, examples)
        return result, version, signature_name or DEFAULT_SIGNATURE

    def _bytes(self, target, examples):
        examples = [e if isinstance(e, bytes) else e.SerializeToString() for e in examples]
        if not examples:
            raise invalid("Input is empty.")
        if self.metrics is not None:
            self.metrics.examples(target.name, len(examples))
        return examples

    def _runtime(self, target, api):
        return contextlib.nullcontext() if self.metrics is None else self.metrics.runtime(target.name, api)
