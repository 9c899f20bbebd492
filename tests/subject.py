"""The layer under test for every encoding: input positions where it has them, then attention."""

import keras
import numpy as np

from keras_posenc import encodings
from keras_posenc.layers import LinformerAttention, PositionalAttention

HEADS, SIZE, WIDTH, MAX_LENGTH, NUM_KEYS = 3, 4, 12, 12, 5

# Beside the registered default of each encoding.
VARIANTS = {
    "alibi": [{"num_heads": 6}],
    "diet_abs": [{"rank": 2}, {"share_heads": True}],
    "diet_rel": [{"share_heads": True}],
    "fire": [{"initial_threshold": 3.0}],
    "floater": [{"hidden_dim": 5, "substeps": 2}],
    "kerple": [{"kind": "power"}],
    "rotary": [
        {"layout": "interleaved"},
        {"scaling": "linear", "factor": 2.0},
        {"scaling": "ntk", "factor": 4.0},
        {"scaling": "dynamic", "factor": 2.0, "max_length": 4},
    ],
    "shaw": [{"max_distance": 2}, {"share_heads": False, "max_distance": 3}, {"use_values": False}],
    "sinusoidal": [{"layout": "concatenated"}],
    "synthesizer": [
        {"kind": "factorized", "rank": 3},
        {"kind": "dense"},
        {"kind": "random", "mixed": True},
        {"kind": "dense", "mixed": True},
        {"kind": "random", "bidirectional": False},
        {"kind": "dense", "bidirectional": False},
    ],
    "t5": [{"bidirectional": False}, {"num_buckets": 8, "max_distance": 6}],
    "tisa": [{"kernels": 1}],
    "tupe": [{"untie_cls": False}, {"share_heads": True}],
    "tupe_rel": [{"num_buckets": 8, "max_distance": 6}],
}

CASES = [(name, options) for name in encodings.names() for options in [{}, *VARIANTS.get(name, [])]]
UNCOMPRESSED = [case for case in CASES if not getattr(encodings.get_class(case[0]), "compresses_keys", False)]


def case_id(case):
    name, options = case
    return "-".join([name, *(f"{key}={value}" for key, value in options.items())])


@keras.saving.register_keras_serializable(package="tests")
class Subject(keras.layers.Layer):
    """`PositionalAttention` with the encoding, or after it if the encoding enters at the input."""

    def __init__(self, encoding, options=None, value_dim=None, num_segments=None, **kwargs):
        super().__init__(**kwargs)
        self.encoding_name, self.options = encoding, dict(options or {})
        self.value_dim, self.num_segments = value_dim, num_segments
        common = {"num_heads": HEADS, "key_dim": SIZE, "value_dim": value_dim, "max_length": MAX_LENGTH}
        shared = ("num_heads", "max_length", "share_heads", "extrapolate")
        common.update({name: self.options[name] for name in shared if name in self.options})
        own = {name: value for name, value in self.options.items() if name not in common}
        cls = encodings.get_class(encoding)
        if getattr(cls, "compresses_keys", False):
            own.setdefault("num_keys", NUM_KEYS)
        self.encoding = cls(**common, **own, dtype=self.dtype_policy)
        self.at_input = "embed" in cls.doors
        heads, attention = common["num_heads"], {"dtype": self.dtype_policy, "name": "attention"}
        if getattr(cls, "compresses_keys", False):
            attention.update(num_keys=own["num_keys"], position=self.encoding)
            self.attention = LinformerAttention(heads, SIZE, MAX_LENGTH, value_dim, **attention)
        else:
            attention.update(num_segments=num_segments, position=None if self.at_input else self.encoding)
            self.attention = PositionalAttention(heads, SIZE, value_dim, max_length=MAX_LENGTH, **attention)

    def build(self, query_shape, value_shape=None):
        if self.at_input:
            self.encoding.build(query_shape)
        self.attention.build(query_shape, value_shape)
        self.built = True

    def call(
        self,
        query,
        value=None,
        attention_mask=None,
        segment_ids=None,
        start_index=None,
        cache=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        given = dict(attention_mask=attention_mask, segment_ids=segment_ids, start_index=start_index, cache=cache)
        given = {name: argument for name, argument in given.items() if argument is not None}
        if self.at_input:
            start = 0 if start_index is None else start_index
            total = None if cache is None else cache["value"].shape[2]
            query = self.encoding(query, start_index=start, total_length=total, training=training)
            value = None if value is None else self.encoding(value, training=training)
        return self.attention(
            query,
            value,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
            training=training,
            **given,
        )

    def get_config(self):
        return {
            **super().get_config(),
            "encoding": self.encoding_name,
            "options": self.options,
            "value_dim": self.value_dim,
            "num_segments": self.num_segments,
        }


def make_subject(case, dtype="float64", seed=1, query_width=WIDTH, **kwargs):
    """A built subject whose weights are all random and of order one, so that no term can hide."""
    subject = Subject(*case, dtype=dtype, **kwargs)
    subject.build((None, None, query_width))
    randomize(subject, seed)
    return subject


def randomize(layer, seed=1, scale=0.5):
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        if weight.dtype != "uint32":  # seed generators
            weight.assign(rng.normal(size=weight.shape) * scale)
