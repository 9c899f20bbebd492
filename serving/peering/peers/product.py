"""A large product of matrices, by the libraries that the peers multiply with: how fast this processor multiplies."""

import importlib.metadata

import numpy as np

SIZE = 2048
FLOPS = 2 * SIZE**3


class Peer:
    """
    Args:
        library: `"numpy"`, `"tensorflow"` or `"torch"`.
    """

    def __init__(self, folder, work, threads, library):
        left, right = np.random.default_rng(0).normal(size=(2, SIZE, SIZE)).astype("float32")
        self.call = getattr(self, f"_{library}")(left, right, threads)
        self.versions = {library: importlib.metadata.version(library)}

    def prepare(self, inputs):
        def call():
            return {"corner": np.asarray(self.call())[:2, :2]}

        return call

    def _numpy(self, left, right, threads):
        return lambda: left @ right

    def _tensorflow(self, left, right, threads):
        from serving.peering.peers.tensorflow_runtime import start

        tf = start(threads)
        left, right = tf.constant(left), tf.constant(right)
        return lambda: tf.matmul(left, right).numpy()

    def _torch(self, left, right, threads):
        import torch

        torch.set_num_threads(threads)
        left, right = torch.from_numpy(left), torch.from_numpy(right)
        return lambda: left @ right
