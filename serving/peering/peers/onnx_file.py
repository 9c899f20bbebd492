"""BERT as an ONNX file, for the runtimes that read one."""

import numpy as np

from serving.peering import weights
from serving.peering.peers import pytorch

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUTS = ("sequence_output", "pooled_output")


def write(folder, file):
    """Exports transformers' model with free batch and length.

    Attention is exported in its plain form and by torch's older exporter: that is the graph in which ONNX Runtime's
    transformer optimizer finds attention layers.
    """
    import torch

    class Flat(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, *given):
            found = self.inner(**dict(zip(INPUTS, given)))
            return found.last_hidden_state, found.pooler_output

    model = Flat(pytorch.model(folder, attn_implementation="eager")).eval()
    example = pytorch.named(weights.inputs(weights.read_config(folder), 2, 8))
    free = {name: {0: "batch", 1: "length"} for name in (*INPUTS, OUTPUTS[0])}
    torch.onnx.export(
        model,
        tuple(example[name] for name in INPUTS),
        str(file),
        input_names=list(INPUTS),
        output_names=list(OUTPUTS),
        dynamic_axes={**free, OUTPUTS[1]: {0: "batch"}},
        dynamo=False,
    )
    return file


def named(inputs):
    """Our inputs as int64 arrays, under Hugging Face's names."""
    names = {"token_ids": "input_ids", "padding_mask": "attention_mask", "segment_ids": "token_type_ids"}
    return {theirs: inputs[ours].astype(np.int64) for ours, theirs in names.items()}
