"""Who is measured.

This module, `worker` and `weights` are imported in the environment of the peers too, which has no TensorFlow.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Entry:
    """
    Args:
        label: what tables call it.
        module: in `serving.peering.peers`, with a class `Peer`.
        options: keyword arguments of that class.
        elsewhere: whether it runs in the environment of the peers, if there is one.
    """

    label: str
    module: str
    options: dict = field(default_factory=dict)
    elsewhere: bool = False


BASELINE = "ours"
PEERS = {
    "ours": Entry("ours, exported in parts", "exported", {"parts": True}),
    "ours_whole": Entry("ours, exported whole", "exported"),
    "ours_xla": Entry("ours, exported with XLA", "exported", {"xla": True}),
    "keras_hub": Entry("keras-hub", "hub"),
    "keras_hub_xla": Entry("keras-hub, XLA", "hub", {"xla": True}),
    "tf_models": Entry("tf-models-official", "official"),
    "torch": Entry("transformers on torch", "pytorch", elsewhere=True),
    "onnxruntime": Entry("ONNX Runtime, optimized", "onnx_runtime", elsewhere=True),
    "openvino": Entry("OpenVINO", "open_vino", elsewhere=True),
}
# Large products, whose fastest is the limit that forward passes are compared with.
PRODUCTS = {
    "product_numpy": Entry("product, NumPy", "product", {"library": "numpy"}),
    "product_tensorflow": Entry("product, TensorFlow", "product", {"library": "tensorflow"}),
    "product_torch": Entry("product, torch", "product", {"library": "torch"}, elsewhere=True),
}
ENTRIES = {**PEERS, **PRODUCTS}


def flops(config, batch, length):
    """Floating-point operations of the products of a forward pass, the pooler's left out (it sees one token).

    Args:
        config: dict with Hugging Face's names of the sizes.
    """
    width, inner = config["hidden_size"], config["intermediate_size"]
    dense = 2 * length * width * (4 * width + 2 * inner)
    attention = 2 * 2 * length * length * width
    return batch * config["num_hidden_layers"] * (dense + attention)
