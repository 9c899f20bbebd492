"""Where to train: one device, several, several machines, a TPU."""

import json
import os

import keras
import tensorflow as tf

from training.engine.options import STRATEGIES


def make(name, tpu=None, devices=None, virtual_devices=0):
    """A `tf.distribute.Strategy`.

    Args:
        name: `"one_device"`, `"mirrored"` (all GPUs of this machine, or virtual devices), `"multi_worker_mirrored"`
            (this process is a worker, as `TF_CONFIG` says) or `"tpu"`.
        tpu: name or address of the TPU; `"local"` on a TPU VM.
        devices: device names, e.g. `["GPU:0", "GPU:1"]`; all there are by default.
        virtual_devices: split the CPU into so many devices. Only before TensorFlow has run anything.
    """
    if name not in STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}. Received: strategy={name!r}")
    if virtual_devices > 1:
        _split_cpu(virtual_devices)
    if name == "one_device":
        return tf.distribute.OneDeviceStrategy((devices or _devices()[:1])[0])
    if name == "mirrored":
        devices = devices or _devices()
        if len(devices) < 2:
            raise ValueError(
                f"strategy='mirrored' trains on several devices, and here is only {devices[0]}. Use 'one_device', or "
                "virtual_devices=2 to try it."
            )
        return tf.distribute.MirroredStrategy(devices)
    return _multi_worker() if name == "multi_worker_mirrored" else _tpu(tpu)


def set_precision(precision, strategy_name):
    """Sets the dtype policy of the layers built from here on and returns its name."""
    policy = precision or ("mixed_bfloat16" if strategy_name == "tpu" else "float32")
    keras.config.set_dtype_policy(policy)
    return policy


def is_chief(strategy):
    """Whether this process writes checkpoints, logs and results."""
    resolver = strategy.cluster_resolver
    if resolver is None or not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return True
    task_type, task_id = resolver.task_type, resolver.task_id
    if task_type is None or task_type == "chief":
        return True
    return task_type == "worker" and task_id == 0 and "chief" not in resolver.cluster_spec().as_dict()


def wait_for_all(strategy):
    """Returns when all workers have come here: what the chief wrote before, the others can read."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):

        def meet():
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.ones(()))

        strategy.run(tf.function(meet))


def _devices():
    gpus = [f"GPU:{index}" for index in range(len(tf.config.list_logical_devices("GPU")))]
    return gpus or [f"CPU:{index}" for index in range(len(tf.config.list_logical_devices("CPU")))]


def _split_cpu(count):
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    except RuntimeError:
        found = len(tf.config.list_logical_devices("CPU"))
        if found != count:
            raise ValueError(
                f"virtual_devices={count} must be set before TensorFlow runs anything; there are {found} CPU device(s) "
                "in this process already. Make the strategy first."
            ) from None


def _multi_worker():
    try:
        config = json.loads(os.environ.get("TF_CONFIG", ""))
        workers = config["cluster"]["worker"] + config["cluster"].get("chief", [])
        config["task"]["type"], config["task"]["index"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            "strategy='multi_worker_mirrored' needs the environment variable TF_CONFIG in each worker, e.g. "
            '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}. '
            f"Received: TF_CONFIG={os.environ.get('TF_CONFIG')!r}"
        ) from None
    if len(workers) < 2:
        raise ValueError(f"TF_CONFIG names one worker only ({workers[0]}). Use strategy='mirrored' or 'one_device'.")
    return tf.distribute.MultiWorkerMirroredStrategy()


def _tpu(tpu):
    if not tpu:
        raise ValueError("strategy='tpu' needs the name or address of a TPU: tpu='name', or 'local' on a TPU VM.")
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except Exception as error:
        raise ValueError(
            f"There is no TPU {tpu!r} that this process can use ({type(error).__name__}: {error}). Check the name, the "
            "zone and the project, and that this TensorFlow was built for TPUs."
        ) from error
    return tf.distribute.TPUStrategy(resolver)
