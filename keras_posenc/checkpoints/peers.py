"""BERT from the objects of other libraries: keras-hub and tf-models-official. Neither is imported here."""

import keras
import numpy as np

from keras_posenc.checkpoints.building import build_for_loading
from keras_posenc.checkpoints.copying import as_is, copy_all
from keras_posenc.models import Bert, activations

ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu", "tanh")


def from_keras_hub(backbone):
    """A `Bert` with the weights of a keras-hub `BertBackbone` or `AlbertBackbone`.

    Outputs agree: `sequence_output` and `pooled_output` have the same names there.
    """
    kind = _kind(backbone, ("BertBackbone", "AlbertBackbone"), "from_keras_hub")
    albert = kind == "AlbertBackbone"
    if albert and (backbone.num_groups, backbone.num_inner_repetitions) != (1, 1):
        raise ValueError(
            "An ALBERT of several groups of layers cannot be read. Received: "
            f"num_groups={backbone.num_groups}, num_inner_repetitions={backbone.num_inner_repetitions}"
        )
    blocks = backbone.transformer_layers[0] if albert else backbone.transformer_layers
    model = Bert(
        vocab_size=backbone.vocabulary_size,
        num_layers=backbone.num_layers,
        num_heads=backbone.num_heads,
        hidden_dim=backbone.hidden_dim,
        intermediate_dim=backbone.intermediate_dim,
        max_length=backbone.max_sequence_length,
        num_segments=backbone.num_segments,
        embedding_dim=backbone.embedding_dim if albert else None,
        tie_layers=albert,
        activation=_activation(blocks[0].activation),
        dropout=backbone.dropout,
        epsilon=blocks[0].layer_norm_epsilon,
    )
    build_for_loading(model)
    pairs = {
        "token_embedding": (model.token_embedding, [backbone.token_embedding.embeddings]),
        "position_embedding": (model.encoder.input_positions[0], [backbone.position_embedding.position_embeddings]),
        "segment_embedding": (model.segment_embedding, backbone.segment_embedding.weights),
        "embeddings_layer_norm": (model.encoder.input_norm, backbone.embeddings_layer_norm.weights),
        "pooled_dense": (model.pooler, backbone.pooled_dense.weights),
    }
    if albert:
        pairs["embeddings_projection"] = (model.encoder.input_projection, backbone.embeddings_projection.weights)
    for index, (ours, theirs) in enumerate(zip(model.encoder.blocks, blocks)):
        pairs |= _block_pairs(
            f"transformer_layer_{index}",
            ours,
            theirs._self_attention_layer,
            theirs._self_attention_layer_norm,
            theirs._feedforward_intermediate_dense,
            theirs._feedforward_output_dense,
            theirs._feedforward_layer_norm,
        )
    return _copied(model, pairs)


def from_tf_models(encoder):
    """A `Bert` with the weights of a tf-models-official `BertEncoder` or `BertEncoderV2`.

    `sequence_output` and `pooled_output` have the same names there, and agree.
    """
    _kind(encoder, ("BertEncoder", "BertEncoderV2"), "from_tf_models")
    config = encoder.get_config()
    unlike = {name: config[name] for name in ("norm_first", "output_range", "with_dense_inputs") if config.get(name)}
    if unlike:
        raise ValueError(f"A BertEncoder with these settings cannot be read: {unlike}.")
    if not encoder._embedding_layer.built or not encoder._pooler_layer.built:
        raise ValueError("The BertEncoder has no weights yet. Call it on inputs first.")
    width = config["embedding_width"]
    blocks = encoder._transformer_layers
    model = Bert(
        vocab_size=config["vocab_size"],
        num_layers=config["num_layers"],
        num_heads=config["num_attention_heads"],
        hidden_dim=config["hidden_size"],
        intermediate_dim=config["inner_dim"],
        max_length=config["max_sequence_length"],
        num_segments=config["type_vocab_size"],
        embedding_dim=None if width in (None, config["hidden_size"]) else width,
        activation=_activation(blocks[0]._inner_activation),
        dropout=config["output_dropout"],
        attention_dropout=config["attention_dropout"],
        epsilon=blocks[0]._norm_epsilon,
    )
    build_for_loading(model)
    pairs = {
        "word_embeddings": (model.token_embedding, encoder._embedding_layer.weights),
        "position_embedding": (model.encoder.input_positions[0], encoder._position_embedding_layer.weights),
        "type_embeddings": (model.segment_embedding, encoder._type_embedding_layer.weights),
        "embeddings/layer_norm": (model.encoder.input_norm, encoder._embedding_norm_layer.weights),
        "pooler_transform": (model.pooler, encoder._pooler_layer.weights),
    }
    if model.encoder.input_projection is not None:
        pairs["embedding_projection"] = (model.encoder.input_projection, encoder._embedding_projection.weights)
    for index, (ours, theirs) in enumerate(zip(model.encoder.blocks, blocks)):
        pairs |= _block_pairs(
            f"transformer/layer_{index}",
            ours,
            theirs._attention_layer,
            theirs._attention_layer_norm,
            theirs._intermediate_dense,
            theirs._output_dense,
            theirs._output_layer_norm,
        )
    return _copied(model, pairs)


def _kind(theirs, names, function):
    """The name of the class, or base class, that is one of `names`."""
    found = [cls.__name__ for cls in type(theirs).__mro__ if cls.__name__ in names]
    if not found:
        raise ValueError(f"`{function}` takes a {' or '.join(names)}. Received: {type(theirs).__name__}")
    return found[0]


def _activation(theirs):
    """The argument of `Bert` for an activation, recognised by its values: the other libraries have it as a lambda."""
    if isinstance(theirs, str):
        return theirs
    points = np.linspace(-4, 4, 33, dtype="float32")
    values = np.asarray(theirs(points))
    for name in ACTIVATIONS:
        if np.allclose(values, keras.ops.convert_to_numpy(activations.get(name)(points)), atol=1e-6):
            return name
    raise ValueError(f"The activation {theirs!r} is none of {', '.join(ACTIVATIONS)}.")


def _block_pairs(name, ours, attention, attention_norm, intermediate, output, output_norm):
    """Our layers of one block and their weights, kernel before bias and scale before offset in each."""
    return {
        f"{name}/attention/query": (ours.attention.query_dense, attention._query_dense.weights),
        f"{name}/attention/key": (ours.attention.key_dense, attention._key_dense.weights),
        f"{name}/attention/value": (ours.attention.value_dense, attention._value_dense.weights),
        f"{name}/attention/output": (ours.attention.output_dense, attention._output_dense.weights),
        f"{name}/attention_norm": (ours.attention_norm, attention_norm.weights),
        f"{name}/intermediate": (ours.intermediate, intermediate.weights),
        f"{name}/output": (ours.output_dense, output.weights),
        f"{name}/output_norm": (ours.output_norm, output_norm.weights),
    }


def _copied(model, pairs):
    copies, arrays = [], Arrays()
    for name, (layer, theirs) in pairs.items():
        for index, weight in enumerate(layer.weights):
            copies += as_is(f"{name}/{index}", weight)
        arrays |= {f"{name}/{index}": weight for index, weight in enumerate(theirs)}
    copy_all(copies, arrays, source="The given model")
    return model


class Arrays(dict):
    """Names and variables of another library, read one at a time."""

    def shape(self, name):
        return tuple(super().__getitem__(name).shape)

    def __getitem__(self, name):
        return super().__getitem__(name).numpy()
