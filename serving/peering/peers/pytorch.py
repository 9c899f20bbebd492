"""transformers' `BertModel` on torch, in its inference mode and with its default attention."""

import importlib.metadata


class Peer:
    def __init__(self, folder, work, threads):
        import torch

        torch.set_num_threads(threads)
        self.torch = torch
        self.model = model(folder)
        self.notes = f"attention: {self.model.config._attn_implementation}"
        self.versions = {name: importlib.metadata.version(name) for name in ("torch", "transformers")}

    def prepare(self, inputs):
        given = named(inputs)

        def call():
            with self.torch.inference_mode():
                found = self.model(**given)
            return {"sequence_output": found.last_hidden_state.numpy(), "pooled_output": found.pooler_output.numpy()}

        return call


def model(folder, **options):
    """The model of a folder, for inference."""
    from transformers import BertModel

    return BertModel.from_pretrained(str(folder), **options).eval()


def named(inputs):
    """Our inputs as tensors, under Hugging Face's names."""
    import torch

    names = {"token_ids": "input_ids", "padding_mask": "attention_mask", "segment_ids": "token_type_ids"}
    return {theirs: torch.from_numpy(inputs[ours]).long() for ours, theirs in names.items()}
