"""ONNX Runtime, after its transformer optimizer has fused attention, layer normalisation and gelu."""

import importlib.metadata
from pathlib import Path

import numpy as np

from serving.peering import weights
from serving.peering.peers import onnx_file


class Peer:
    def __init__(self, folder, work, threads):
        import onnxruntime
        from onnxruntime.transformers import optimizer

        plain = onnx_file.write(folder, Path(work) / "bert.onnx")
        config = weights.read_config(folder)
        sizes = dict(num_heads=config["num_attention_heads"], hidden_size=config["hidden_size"])
        optimized = optimizer.optimize_model(str(plain), "bert", opt_level=1, **sizes)
        fused = {name: count for name, count in optimized.get_fused_operator_statistics().items() if count}
        self.notes = "fused: " + ", ".join(f"{count} {name}" for name, count in fused.items())
        optimized.save_model_to_file(str(Path(work) / "optimized.onnx"))
        plain.unlink()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.session = onnxruntime.InferenceSession(
            str(Path(work) / "optimized.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self.dtypes = {
            given.name: np.int32 if "int32" in given.type else np.int64 for given in self.session.get_inputs()
        }
        self.versions = {name: importlib.metadata.version(name) for name in ("onnxruntime", "onnx", "torch")}

    def prepare(self, inputs):
        given = {name: value.astype(self.dtypes[name]) for name, value in onnx_file.named(inputs).items()}
        return lambda: dict(zip(onnx_file.OUTPUTS, self.session.run(list(onnx_file.OUTPUTS), given)))
