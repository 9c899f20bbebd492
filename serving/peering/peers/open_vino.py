"""OpenVINO on the CPU, in float32: it would choose bfloat16 by itself on processors that have it."""

import importlib.metadata
from pathlib import Path

from serving.peering.peers import onnx_file


class Peer:
    def __init__(self, folder, work, threads):
        import openvino

        file = onnx_file.write(folder, Path(work) / "bert.onnx")
        core = openvino.Core()
        self.compiled = core.compile_model(
            core.read_model(str(file)),
            "CPU",
            {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"},
        )
        self.versions = {name: importlib.metadata.version(name) for name in ("openvino", "torch")}

    def prepare(self, inputs):
        request, given = self.compiled.create_infer_request(), onnx_file.named(inputs)

        def call():
            found = request.infer(given)
            return {name: found[name] for name in onnx_file.OUTPUTS}

        return call
