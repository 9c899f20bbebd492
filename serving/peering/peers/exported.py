"""This project's model, exported with its positions folded, and run by the code that runs requests in the server."""

from pathlib import Path

from serving.peering.peers.tensorflow_runtime import start, versions

SIGNATURE = "embeddings"


class Peer:
    """
    Args:
        xla: export with `--xla`.
    """

    def __init__(self, folder, work, threads, xla=False):
        start(threads)
        from serving.exporting import export_model
        from serving.exporting.sources import open_source
        from serving.server.servable import Servable

        model = open_source(folder).model
        path = export_model(model, Path(work) / "model", signatures=[SIGNATURE], warmup_lengths=(), xla=xla)
        self.servable = Servable(str(path))
        self.versions = versions("tensorflow", "keras", "keras_posenc")

    def prepare(self, inputs):
        return lambda: self.servable.run(SIGNATURE, inputs)
