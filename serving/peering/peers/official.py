"""tf-models-official's `BertEncoderV2`, in graph mode."""

import os

import numpy as np

from serving.peering import weights
from serving.peering.peers.tensorflow_runtime import start, versions


class Peer:
    def __init__(self, folder, work, threads):
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        tf = self.tf = start(threads)
        from official.nlp.modeling import networks

        config = weights.read_config(folder)
        self.model = networks.BertEncoderV2(
            vocab_size=config["vocab_size"],
            hidden_size=config["hidden_size"],
            num_layers=config["num_hidden_layers"],
            num_attention_heads=config["num_attention_heads"],
            max_sequence_length=config["max_position_embeddings"],
            type_vocab_size=config["type_vocab_size"],
            inner_dim=config["intermediate_size"],
            inner_activation=lambda x: tf.nn.gelu(x, approximate=False),
        )
        self._call(self._named(weights.inputs(config, 1, 2)))  # makes the variables
        self._copy(weights.read_tensors(folder), config)
        self.versions = versions("tensorflow", "tf-models-official")

    def prepare(self, inputs):
        given = self._named(inputs)
        function = self.tf.function(self._call, autograph=False).get_concrete_function(given)

        def call():
            found = function(given)
            return {name: found[name].numpy() for name in ("sequence_output", "pooled_output")}

        return call

    def _call(self, values):
        return self.model(values, training=False)

    def _named(self, inputs):
        names = {"token_ids": "input_word_ids", "segment_ids": "input_type_ids", "padding_mask": "input_mask"}
        return {theirs: self.tf.constant(inputs[ours]) for ours, theirs in names.items()}

    def _copy(self, tensors, config):
        model, heads = self.model, config["num_attention_heads"]
        size = config["hidden_size"] // heads

        def dense(layer, name, shape=None, bias=None):
            kernel, offset = tensors[f"{name}.weight"].T, tensors[f"{name}.bias"]
            layer.set_weights([kernel.reshape(shape or kernel.shape), offset.reshape(bias or offset.shape)])

        def norm(layer, name):
            layer.set_weights([tensors[f"{name}.weight"], tensors[f"{name}.bias"]])

        tables = {
            "word": model._embedding_layer,
            "position": model._position_embedding_layer,
            "token_type": model._type_embedding_layer,
        }
        for name, layer in tables.items():
            layer.set_weights([np.asarray(tensors[f"embeddings.{name}_embeddings.weight"])])
        norm(model._embedding_norm_layer, "embeddings.LayerNorm")
        dense(model._pooler_layer, "pooler.dense")
        for index, block in enumerate(model._transformer_layers):
            name, attention = f"encoder.layer.{index}", block._attention_layer
            for part in ("query", "key", "value"):
                layer = getattr(attention, f"_{part}_dense")
                dense(layer, f"{name}.attention.self.{part}", (-1, heads, size), (heads, size))
            dense(attention._output_dense, f"{name}.attention.output.dense", (heads, size, -1))
            norm(block._attention_layer_norm, f"{name}.attention.output.LayerNorm")
            dense(block._intermediate_dense, f"{name}.intermediate.dense")
            dense(block._output_dense, f"{name}.output.dense")
            norm(block._output_layer_norm, f"{name}.output.LayerNorm")
