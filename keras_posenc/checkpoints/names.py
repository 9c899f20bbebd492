"""What Hugging Face calls the weights of BERT, ALBERT and their heads."""

from keras_posenc.checkpoints.copying import as_is, dense, norm
from keras_posenc.encodings.learned import Learned

WORDS = "embeddings.word_embeddings.weight"
ALBERT_LAYER = "encoder.albert_layer_groups.0.albert_layers.0."

# Names of a layer's parts, from those of `TransformerBlock`.
PARTS = {
    "bert": {
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "attention_output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "intermediate": "intermediate.dense",
        "output": "output.dense",
        "output_norm": "output.LayerNorm",
    },
    "albert": {
        "query": "attention.query",
        "key": "attention.key",
        "value": "attention.value",
        "attention_output": "attention.dense",
        "attention_norm": "attention.LayerNorm",
        "intermediate": "ffn",
        "output": "ffn_output",
        "output_norm": "full_layer_layer_norm",
    },
}

# Where the pooler and the masked-LM head are: (transform, norm, bias).
POOLER = {"bert": "pooler.dense", "albert": "pooler"}
MASKED_LM = {
    "bert": ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions"),
    "albert": ("predictions.dense", "predictions.LayerNorm", "predictions"),
}

# Whole heads that may be in a file without being asked for, and buffers that are no weights.
HEADS = ("cls.", "predictions.", "sop_classifier.", "classifier.", "qa_outputs.")
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


def modern(name):
    """The name of today for one of the first BERT files, whose normalisations have `gamma` and `beta`."""
    for old, new in ((".LayerNorm.gamma", ".LayerNorm.weight"), (".LayerNorm.beta", ".LayerNorm.bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def find_prefix(names):
    """What stands before `embeddings.`: `bert.`, `albert.`, nothing, or more where a wrapper was saved."""
    found = [name.removesuffix(WORDS) for name in names if name.endswith(WORDS)]
    if len(found) != 1:
        some = ", ".join(sorted(names)[:5])
        raise ValueError(
            f"Expected one tensor '...{WORDS}', as BERT and ALBERT have. Found {len(found)} among {len(list(names))} "
            f"tensors: {some}, ..."
        )
    return found[0]


def outer_prefix(prefix):
    """What stands before the names of heads."""
    return prefix.removesuffix("albert.").removesuffix("bert.")


def layer_name(kind, index):
    return ALBERT_LAYER if kind == "albert" else f"encoder.layer.{index}."


def backbone_copies(model, kind, prefix, with_pooler):
    """The copies for a `Bert`, and the names of tensors that another kind of positions or segments leaves unused."""
    encoder = model.encoder
    unused = []
    copies = as_is(prefix + WORDS, model.token_embedding.embeddings)
    positions, segments = (prefix + f"embeddings.{what}_embeddings.weight" for what in ("position", "token_type"))
    learned = [encoding for encoding in encoder.input_positions if isinstance(encoding, Learned)]
    if learned:
        copies += as_is(positions, learned[0].table)
    else:
        unused.append(positions)
    if model.segment_embedding is not None:
        copies += as_is(segments, model.segment_embedding.embeddings)
    else:
        unused.append(segments)
    copies += norm(prefix + "embeddings.LayerNorm", encoder.input_norm)
    if encoder.input_projection is not None:
        copies += dense(prefix + "encoder.embedding_hidden_mapping_in", encoder.input_projection)
    for index, block in enumerate(encoder.blocks):
        name = prefix + layer_name(kind, index)
        copies += _block_copies(block, PARTS[kind], name)
        unused += [f"{name}{PARTS[kind][part]}.{what}" for part in _absent(block) for what in ("weight", "bias")]
    if with_pooler:
        copies += dense(prefix + POOLER[kind], model.pooler)
    return copies, unused


def _absent(block):
    """Projections that scores without content do not have."""
    layers = {"query": block.attention.query_dense, "key": block.attention.key_dense}
    return [part for part, layer in layers.items() if layer is None]


def _block_copies(block, parts, prefix):
    attention = block.attention
    name = {part: prefix + theirs for part, theirs in parts.items()}
    copies = []
    for part, layer in (
        ("query", attention.query_dense),
        ("key", attention.key_dense),
        ("value", attention.value_dense),
    ):
        copies += [] if layer is None else dense(name[part], layer)
    copies += dense(name["attention_output"], attention.output_dense, inputs=2)
    copies += norm(name["attention_norm"], block.attention_norm)
    copies += dense(name["intermediate"], block.intermediate) + dense(name["output"], block.output_dense)
    return copies + norm(name["output_norm"], block.output_norm)


def head_copies(model, task, kind, prefix, names):
    """The copies for what a head adds to its backbone.

    Args:
        prefix: what stands before the names of heads.
        names: those of the file, to find the bias of the masked-LM head, which is under one or two names.
    """
    if task == "masked_lm":
        transform, layer_norm, bias = (prefix + name for name in MASKED_LM[kind])
        # One weight of two names. Where a file has both and they differ, transformers reads the decoder's.
        bias = next((f"{bias}{b}" for b in (".decoder.bias", ".bias") if f"{bias}{b}" in names), f"{bias}.bias")
        return dense(transform, model.transform) + norm(layer_norm, model.norm) + as_is(bias, model.decoder_bias)
    return dense(prefix + ("qa_outputs" if task == "span" else "classifier"), model.output_dense)
