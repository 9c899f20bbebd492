"""This project's model, exported with its positions folded, and run by the code that runs requests in the server."""

from pathlib import Path

from serving.peering.peers.tensorflow_runtime import start, versions

SIGNATURE = "embeddings"


class Peer:
    """
    Args:
        xla: export with `--xla`.
        parts: export with `--parts` at the number of threads, and let TensorFlow have its threads between operations.
    """

    def __init__(self, folder, work, threads, xla=False, parts=False):
        start(threads, within=1 if parts else threads)
        from serving.exporting import export_model
        from serving.exporting.sources import open_source
        from serving.server.servable import Servable

        model = open_source(folder).model
        options = {"xla": xla, "parts": threads if parts else 1}
        path = export_model(model, Path(work) / "model", signatures=[SIGNATURE], warmup_lengths=(), **options)
        self.servable = Servable(str(path))
        self.versions = versions("tensorflow", "keras", "keras_posenc")

    def prepare(self, inputs):
        return lambda: self.servable.run(SIGNATURE, inputs)
