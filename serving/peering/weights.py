"""One model for everybody: a Hugging Face folder of random weights, and the inputs."""

import json
from pathlib import Path

import numpy as np

SEED = 0
SIZES = {  # layers, heads, width, width of the feed-forward networks, tokens, positions
    "bert_tiny": (2, 2, 128, 512, 30522, 512),
    "bert_small": (4, 8, 512, 2048, 30522, 512),
    "bert_base": (12, 12, 768, 3072, 30522, 512),
}


def configuration(size):
    """Hugging Face's `config.json` of a named size, or of a tuple like those of `SIZES`."""
    layers, heads, width, inner, tokens, positions = SIZES[size] if isinstance(size, str) else size
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "hidden_size": width,
        "intermediate_size": inner,
        "vocab_size": tokens,
        "max_position_embeddings": positions,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "pad_token_id": 0,
    }


def write(folder, config):
    """Writes `config.json` and `model.safetensors` with random weights, the same for the same sizes."""
    from safetensors.numpy import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    tensors = {}
    for name, shape in _shapes(config).items():
        # Biases and scales are random too, so that leaving one out would be seen.
        values = rng.normal(scale=0.02, size=shape) + (name.endswith("LayerNorm.weight"))
        tensors[name] = values.astype("float32")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    return folder


def read_config(folder):
    return json.loads((Path(folder) / "config.json").read_text())


def read_tensors(folder):
    """Dict of arrays under Hugging Face's names."""
    from safetensors.numpy import load_file

    return load_file(Path(folder) / "model.safetensors")


def inputs(config, batch, length):
    """Dict of int32 `token_ids`, `segment_ids` and `padding_mask`: full rows, as in a benchmark without padding."""
    rng = np.random.default_rng(SEED + batch)
    token_ids = rng.integers(1, config["vocab_size"], (batch, length)).astype("int32")
    segment_ids = np.repeat((np.arange(length) >= length // 2)[None], batch, axis=0).astype("int32")
    return {"token_ids": token_ids, "segment_ids": segment_ids, "padding_mask": np.ones_like(token_ids)}


def _shapes(config):
    width, inner = config["hidden_size"], config["intermediate_size"]
    tables = {
        "word": config["vocab_size"],
        "position": config["max_position_embeddings"],
        "token_type": config["type_vocab_size"],
    }
    found = {f"embeddings.{name}_embeddings.weight": (size, width) for name, size in tables.items()}

    def pair(name, *shape):
        found[f"{name}.weight"], found[f"{name}.bias"] = shape, shape[:1]

    pair("embeddings.LayerNorm", width)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"encoder.layer.{layer}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            pair(f"{prefix}.attention.{name}", width, width)
        pair(f"{prefix}.attention.output.LayerNorm", width)
        pair(f"{prefix}.intermediate.dense", inner, width)
        pair(f"{prefix}.output.dense", width, inner)
        pair(f"{prefix}.output.LayerNorm", width)
    pair("pooler.dense", width, width)
    return found
