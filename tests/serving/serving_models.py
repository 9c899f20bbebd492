"""Small SavedModels for the tests of the server, and helpers to serve and wait."""

import os
import shutil
import time

import numpy as np
import tensorflow as tf
from tensorflow_serving.config import model_server_config_pb2

from serving.server.loading import Loader
from serving.server.manager import Manager

FEATURES = {"x": tf.io.FixedLenFeature([], tf.float32), "bias": tf.io.FixedLenFeature([], tf.float32, 0.0)}


def spec(shape, dtype, name):
    return tf.TensorSpec(shape, dtype, name)


class Model(tf.Module):
    """`y = factor * x`, and signatures that show what the server does with them."""

    def __init__(self, factor):
        super().__init__()
        self.factor = tf.Variable(float(factor))

    @tf.function(input_signature=[spec([None, 3], tf.float32, "x")])
    def scale(self, x):
        return {"y": self.factor * x}

    @tf.function(input_signature=[spec([None, None], tf.int32, "ids"), spec([None], tf.float32, "weight")])
    def seen(self, ids, weight):
        """What the model is given: rows and columns of the batch it runs on, and the inputs."""
        rows, columns = tf.unstack(tf.shape(ids))
        return {
            "rows": tf.fill([rows], rows),
            "columns": tf.fill([rows], columns),
            "sums": tf.reduce_sum(ids, 1),
            "weight": weight,
        }

    @tf.function(input_signature=[spec([None], tf.int32, "index")])
    def fragile(self, index):
        """`value` cannot be computed for an index above 2, `echo` always."""
        return {"echo": index, "value": tf.gather(tf.constant([1.0, 2.0, 3.0]), index)}

    @tf.function(input_signature=[spec([None], tf.string, "text")])
    def twice(self, text):
        return {"text": tf.strings.join([text, text])}

    @tf.function(input_signature=[spec([None], tf.int32, "steps")])
    def work(self, steps):
        """Takes time in proportion to `steps`."""
        matrix = tf.while_loop(
            lambda i, _: i < steps[0],
            lambda i, m: (i + 1, tf.linalg.matmul(m, m) / 200.0),
            [tf.constant(0), tf.ones([200, 200])],
        )[1]
        return {"done": tf.fill(tf.shape(steps), matrix[0, 0])}

    @tf.function(input_signature=[spec([None], tf.string, "inputs")])
    def classify(self, inputs):
        parsed = tf.io.parse_example(inputs, FEATURES)
        value = self.factor * parsed["x"] + parsed["bias"]
        classes = tf.tile([["no", "yes"]], [tf.size(inputs), 1])
        return {"classes": classes, "scores": tf.stack([-value, value], 1)}

    @tf.function(input_signature=[spec([None], tf.string, "inputs")])
    def regress(self, inputs):
        parsed = tf.io.parse_example(inputs, FEATURES)
        return {"outputs": self.factor * parsed["x"] + parsed["bias"]}


SIGNATURES = ("seen", "fragile", "twice", "work", "classify", "regress")


def save(path, factor=2.0, names=SIGNATURES):
    """Writes a `Model` to a version folder, with `scale` as its default signature."""
    model = Model(factor)
    signatures = {"serving_default": model.scale, **{name: getattr(model, name) for name in names}}
    tf.saved_model.save(model, str(path), signatures)
    return path


def save_tf1(path):
    """A SavedModel without objects, as TensorFlow 1 wrote them, whose two signatures share their input."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        inputs = tf.compat.v1.placeholder(tf.string, [None], "examples")
        value = tf.compat.v1.get_variable("factor", initializer=3.0) * tf.io.parse_example(inputs, FEATURES)["x"]
        session.run(tf.compat.v1.global_variables_initializer())
        describe = tf.compat.v1.saved_model.build_tensor_info
        definition = tf.compat.v1.saved_model.build_signature_def
        given = {"inputs": describe(inputs)}
        scores = {"scores": describe(tf.stack([-value, value], 1))}
        builder = tf.compat.v1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {
                "serving_default": definition(given, scores, "tensorflow/serving/classify"),
                "regress": definition(given, {"outputs": describe(value)}, "tensorflow/serving/regress"),
            },
        )
        builder.save()
    return path


def example(x, **features):
    values = {"x": x, **features}
    feature = {name: tf.train.Feature(float_list=tf.train.FloatList(value=[v])) for name, v in values.items()}
    return tf.train.Example(features=tf.train.Features(feature=feature))


def add_version(source, base, number):
    """Puts a copy of a version folder into place at once, as an export does."""
    hidden = os.path.join(base, f"writing-{number}")
    shutil.copytree(source, hidden)
    os.rename(hidden, os.path.join(base, str(number)))


def break_version(base, number):
    folder = os.path.join(base, f"broken-{number}")
    os.makedirs(folder)
    with open(os.path.join(folder, "saved_model.pb"), "wb") as file:
        file.write(b"no graph")
    os.rename(folder, os.path.join(base, str(number)))


def config(**base_paths):
    """`ModelServerConfig` of models by name."""
    found = model_server_config_pb2.ModelServerConfig()
    found.model_config_list.SetInParent()
    for name, path in base_paths.items():
        found.model_config_list.config.add(name=name, base_path=str(path), model_platform="tensorflow")
    return found


def manager(**options):
    """A manager that looks often and does not wait between attempts."""
    loader = {"retries": 0, "retry_interval": 0.01, **options.pop("loader", {})}
    return Manager(Loader(**loader), **{"poll_seconds": 0.05, **options})


def until(condition, seconds=30.0):
    """Waits for something that has to happen."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.02)


ROW = np.array([[1.0, 2.0, 3.0]], np.float32)
