"""A small SavedModel with a signature for every rule of the REST API, and a server of it."""

import contextlib
import http.client
import json
import time

import tensorflow as tf
from tensorflow_serving.config import model_server_config_pb2

from serving.server.handlers import Handlers, Target
from serving.server.loading import AVAILABLE
from serving.server.manager import Manager
from serving.server.metrics import Metrics
from serving.server.rest.app import RestServer, Settings

NAMES = ("token_ids", "segment_ids", "padding_mask")


def _spec(shape, dtype, name):
    return tf.TensorSpec(shape, dtype, name)


class Model(tf.Module):
    def __init__(self, offset):
        super().__init__()
        self.offset = tf.Variable(float(offset))

    @tf.function(input_signature=[_spec([None], tf.float32, "x")])
    def serving_default(self, x):
        return {"y": x / 2 + self.offset}

    @tf.function(input_signature=[_spec([None, None], tf.int32, name) for name in NAMES])
    def ids(self, token_ids, segment_ids, padding_mask):
        total = tf.reduce_sum((token_ids + segment_ids) * padding_mask, axis=1)
        return {"logits": tf.cast(total, tf.float32)[:, None], "length": tf.reduce_sum(padding_mask, axis=1)}

    @tf.function(input_signature=[_spec([None], tf.string, "text")])
    def strings(self, text):
        return {"text": text, "raw_bytes": text, "length": tf.strings.length(text)}

    @tf.function(input_signature=[_spec([None], tf.int32, "size")])
    def maps(self, size):
        ramp = tf.range(tf.size(size) * 2 * size[0] * size[0])
        return {"maps": tf.reshape(tf.sin(tf.cast(ramp, tf.float32)), [-1, 2, size[0], size[0]])}

    @tf.function(input_signature=[_spec([None], tf.float32, "x")])
    def half(self, x):
        return {"y": tf.cast(x, tf.float16)}

    @tf.function(input_signature=[_spec([None], tf.float32, "x")])
    def unbatched(self, x):
        return {"mean": tf.reduce_mean(x), "y": x}

    @tf.function(input_signature=[_spec([None], tf.float32, "x")])
    def strange(self, x):
        return {"y": x / 0.0}

    @tf.function(input_signature=[_spec([None], tf.float32, "seconds")])
    def slow(self, seconds):
        end = tf.timestamp() + tf.cast(seconds[0], tf.float64)
        tf.while_loop(lambda i: tf.timestamp() < end, lambda i: i + 1, [0])
        return {"y": seconds}

    @tf.function(input_signature=[_spec([None], tf.string, "inputs")])
    def classify(self, inputs):
        found = tf.io.parse_example(inputs, {"f": tf.io.FixedLenFeature([], tf.float32)})["f"]
        return {"classes": tf.tile([["low", "high"]], [tf.size(inputs), 1]), "scores": tf.stack([-found, found], 1)}

    @tf.function(input_signature=[_spec([None], tf.string, "inputs")])
    def regress(self, inputs):
        features = {"f": tf.io.FixedLenFeature([], tf.float32), "n": tf.io.FixedLenFeature([], tf.int64)}
        found = tf.io.parse_example(inputs, features)
        return {"outputs": found["f"] * tf.cast(found["n"], tf.float32)}


SIGNATURES = (
    "serving_default",
    "ids",
    "strings",
    "maps",
    "half",
    "unbatched",
    "strange",
    "slow",
    "classify",
    "regress",
)


def save(folder, version, offset):
    """Writes `folder/version`, whose `serving_default` is x / 2 + offset."""
    model = Model(offset)
    tf.saved_model.save(model, f"{folder}/{version}", signatures={name: getattr(model, name) for name in SIGNATURES})


@contextlib.contextmanager
def serve(folder, loader=None, **settings):
    """A REST server of the model in `folder`, named "m" and "a/b c"."""
    config = model_server_config_pb2.ModelServerConfig()
    for name in ("m", "a/b c"):
        model = config.model_config_list.config.add(name=name, base_path=str(folder), model_platform="tensorflow")
        model.model_version_policy.all.SetInParent()
    manager, metrics = Manager(loader, poll_seconds=0), Metrics()
    manager.start(config)
    while any(
        state != AVAILABLE for model in config.model_config_list.config for _, state, _ in states(manager, model)
    ):
        time.sleep(0.01)
    config.model_config_list.config[0].version_labels["stable"] = 1
    manager.reload(config)
    server = RestServer(Handlers(manager, metrics), metrics, Settings(**settings))
    try:
        yield server
    finally:
        server.stop(1)
        manager.stop()


def states(manager, model):
    return manager.states(Target(model.name))


class Client:
    """One keep-alive connection, on nothing but the standard library."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("localhost", port, timeout=60)

    def __call__(self, method, path, body=None, headers=None):
        """Status, headers, and the body: read as JSON if it says so."""
        body = json.dumps(body) if isinstance(body, dict) else body
        self.connection.request(method, path, body, headers or {})
        response = self.connection.getresponse()
        data, headers = response.read(), {name.lower(): value for name, value in response.getheaders()}
        if headers.get("content-type") == "application/json" and data:
            data = json.loads(data)
        return response.status, headers, data

    def post(self, body, path="/v1/models/m:predict", **headers):
        status, _, data = self("POST", path, body, headers)
        return status, data

    def close(self):
        self.connection.close()
