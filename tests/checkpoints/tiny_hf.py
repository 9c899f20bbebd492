"""Tiny Hugging Face models with random weights of order one, saved as files, and what they answer."""

import json

import numpy as np

VOCAB, LAYERS, HEADS, WIDTH, INNER, POSITIONS = 37, 3, 2, 8, 12, 11


def config(kind, **options):
    import transformers

    sizes = dict(
        vocab_size=VOCAB,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        max_position_embeddings=POSITIONS,
    )
    if kind == "albert":
        sizes["embedding_size"] = 6
    cls = {"bert": transformers.BertConfig, "albert": transformers.AlbertConfig}[kind]
    return cls(**{**sizes, **options})


def model(kind, task="Model", **options):
    """A transformers model, e.g. `BertForMaskedLM`, for inference."""
    import torch
    import transformers

    torch.manual_seed(0)
    name = {"bert": "Bert", "albert": "Albert"}[kind] + task
    made = getattr(transformers, name)(config(kind, **options)).eval()
    with torch.no_grad():
        for key, weight in made.named_parameters():
            weight.normal_(std=0.4)
            if key.lower().endswith("norm.weight"):
                weight.add_(1.0)
    return made


def save(made, folder, how="safetensors"):
    """Writes a folder: one safetensors file, shards of it, or torch's own format."""
    if how == "bin":
        import torch

        folder.mkdir(parents=True, exist_ok=True)
        made.config.save_pretrained(folder)
        torch.save(made.state_dict(), folder / "pytorch_model.bin")
    else:
        made.save_pretrained(folder, **({"max_shard_size": "1KB"} if how == "sharded" else {}))
    return folder


def inputs(rng, batch=3, length=9, segments=2):
    """Random tokens; the last row ends in padding."""
    mask = np.ones((batch, length), "int32")
    mask[-1, length - 4 :] = 0
    return {
        "token_ids": rng.integers(0, VOCAB, (batch, length), dtype="int32"),
        "segment_ids": np.sort(rng.integers(0, segments, (batch, length), dtype="int32"), axis=1),
        "padding_mask": mask,
    }


def answer(made, given):
    """What transformers computes, as a dict of arrays; hidden states are a list."""
    import torch

    with torch.no_grad():
        out = made(
            input_ids=torch.tensor(given["token_ids"]).long(),
            token_type_ids=torch.tensor(given["segment_ids"]).long(),
            attention_mask=torch.tensor(given["padding_mask"]).long(),
            output_hidden_states=True,
        )
    found = {k: v.numpy() for k, v in out.items() if hasattr(v, "numpy")}
    return {**found, "hidden_states": [h.numpy() for h in out.hidden_states]}


def rewrite(folder, change):
    """Changes the tensors of a folder's `model.safetensors`, with a function from a dict to a dict."""
    from safetensors.numpy import load_file, save_file

    file = folder / "model.safetensors"
    save_file({k: np.ascontiguousarray(v) for k, v in change(load_file(file)).items()}, file)


def set_config(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
