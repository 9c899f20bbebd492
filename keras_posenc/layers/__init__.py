"""Attention with positions, and the blocks around it."""

from keras_posenc.layers.attention import PositionalAttention
from keras_posenc.layers.blocks import TransformerBlock
from keras_posenc.layers.decoder import TransformerDecoder
from keras_posenc.layers.decoder_block import TransformerDecoderBlock
from keras_posenc.layers.encoder import TransformerEncoder
from keras_posenc.layers.linformer import LinformerAttention
from keras_posenc.layers.named import (
    AlibiAttention,
    DietAbsAttention,
    DietAbsLinformerAttention,
    DietRelAttention,
    FireAttention,
    KerpleAttention,
    NamedAttention,
    RotaryAttention,
    ShawAttention,
    SynthesizerAttention,
    T5Attention,
    TisaAttention,
    TransformerXLAttention,
    TupeAttention,
    TupeRelAttention,
)

__all__ = [
    "AlibiAttention",
    "DietAbsAttention",
    "DietAbsLinformerAttention",
    "DietRelAttention",
    "FireAttention",
    "KerpleAttention",
    "LinformerAttention",
    "NamedAttention",
    "PositionalAttention",
    "RotaryAttention",
    "ShawAttention",
    "SynthesizerAttention",
    "T5Attention",
    "TisaAttention",
    "TransformerBlock",
    "TransformerDecoder",
    "TransformerDecoderBlock",
    "TransformerEncoder",
    "TransformerXLAttention",
    "TupeAttention",
    "TupeRelAttention",
]
