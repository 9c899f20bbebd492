"""Bert against NumPy, and what has to hold for every encoding and way of sharing."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy.special import erf, softmax
from tiny import CASES, HEADS, LAYERS, MAX_LENGTH, VOCAB, WIDTH, inputs, make

from keras_posenc import encodings
from keras_posenc.models import Bert, build


def array(tensor):
    return ops.convert_to_numpy(tensor)


def close(ours, theirs, tolerance=2e-5):
    np.testing.assert_allclose(array(ours), array(theirs), rtol=tolerance, atol=tolerance)


def numpy_bert(model, data, bias_of_layer=lambda layer, length: 0.0):
    """The forward pass of BERT and ALBERT as their papers describe it, one head at a time, in float64."""

    def dense(layer, x):
        return x @ array(layer.kernel).astype("float64") + array(layer.bias)

    def norm(layer, x):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return x * array(layer.gamma) + array(layer.beta)

    encoder, length = model.encoder, data["token_ids"].shape[1]
    x = array(model.token_embedding.embeddings).astype("float64")[data["token_ids"]]
    if model.segments == "input":
        x = x + array(model.segment_embedding.embeddings)[data["segment_ids"]]
    for encoding in encoder.input_positions:
        x = x + array(encoding.table)[:length]
    x = norm(encoder.input_norm, x)
    if encoder.input_projection is not None:
        x = dense(encoder.input_projection, x)
    hidden = (1 - data["padding_mask"][:, None, :]) * -1e30
    for layer in range(encoder.num_layers):
        block = encoder.blocks[0] if encoder.tie_layers else encoder.blocks[layer]
        attention = block.attention
        attended = np.zeros_like(x)
        for head in range(HEADS):
            q, k, v = (
                x @ array(d.kernel)[:, head] + array(d.bias)[head]
                for d in (attention.query_dense, attention.key_dense, attention.value_dense)
            )
            bias = bias_of_layer(layer, length)
            scores = q @ k.swapaxes(1, 2) / np.sqrt(WIDTH // HEADS) + (bias[head] if np.ndim(bias) else bias) + hidden
            attended += softmax(scores, axis=-1) @ v @ array(attention.output_dense.kernel)[head]
        x = norm(block.attention_norm, x + attended + array(attention.output_dense.bias))
        inner = dense(block.intermediate, x)
        inner = inner * (1 + erf(inner / np.sqrt(2))) / 2
        x = norm(block.output_norm, x + dense(block.output_dense, inner))
    return x, np.tanh(dense(model.pooler, x[:, 0]))


@pytest.mark.parametrize("options", [{}, {"embedding_dim": 4, "tie_layers": True}], ids=["bert", "albert"])
def test_is_the_model_of_the_papers(options, rng):
    model, data = make("learned", **options), inputs(rng)
    sequence, pooled = numpy_bert(model, data)
    outputs = model(data)
    close(outputs["sequence_output"], sequence)
    close(outputs["pooled_output"], pooled)


def test_albert_with_tisa_has_a_scoring_function_per_layer(rng):
    """TISA's ALBERT shares its parameters over layers, but has 3SHL positional ones."""
    model, data = make("tisa", embedding_dim=4, tie_layers=True, position_options={"kernels": 3}), inputs(rng)
    assert model.position_summary(None).positions == 3 * 3 * HEADS * LAYERS

    def bias(layer, length):
        encoding = model.encoder.positions[layer]
        a, b, c = (array(w) for w in (encoding.amplitudes, encoding.sharpness, encoding.centers))
        offset = np.arange(length) - np.arange(length)[:, None]
        distance = offset[..., None, None] - c
        return (a * np.exp(-np.abs(b) * distance**2)).sum(2).transpose(2, 0, 1)

    close(model(data)["sequence_output"], numpy_bert(model, data, bias)[0])


# Every encoding; who holds it depends on the way of sharing alone, so that a few do for the other ways.
ENOUGH = [(name, "none") for name in encodings.names()]
ENOUGH += [("diet_abs", "head"), ("diet_abs", "layer"), ("shaw", "layer"), ("synthesizer", "head")]


@pytest.mark.parametrize("position,sharing", ENOUGH)
def test_tied_layers_are_layers_with_equal_weights(position, sharing, rng):
    options = {} if position == "diet_abs_lin" else {"segments": "per_head"}
    tied, untied = (make(position, sharing, tie_layers=tie, **options) for tie in (True, False))
    outside = ("token_embedding", "segment_embedding", "pooler")
    for name in outside:
        if getattr(tied, name) is not None:
            getattr(untied, name).set_weights(getattr(tied, name).get_weights())
    for name in ("input_norm", "input_positions", "positions", "segment_biases"):
        ours, theirs = getattr(tied.encoder, name), getattr(untied.encoder, name)
        if isinstance(ours, list):
            for one, other in zip(ours, theirs):
                other.set_weights(one.get_weights())
        else:
            theirs.set_weights(ours.get_weights())
    tied_block = tied.encoder.blocks[0]
    for index, block in enumerate(untied.encoder.blocks):
        own = {id(w) for part in (block.attention.position, block.attention.segment_bias) if part for w in part.weights}
        for target, source in zip([w for w in block.weights if id(w) not in own], tied_block.weights, strict=True):
            target.assign(source)
        if sharing != "layer":
            if tied.encoder.positions:
                block.attention.position.set_weights(tied.encoder.positions[index].get_weights())
            if tied.encoder.segment_biases:
                block.attention.segment_bias.set_weights(tied.encoder.segment_biases[index].get_weights())
    data = inputs(rng)
    close(tied(data)["sequence_output"], untied(data)["sequence_output"])


@pytest.mark.parametrize("position,sharing", ENOUGH)
def test_padding_folding_and_intermediates_change_nothing(position, sharing, rng):
    model, data = make(position, sharing), inputs(rng, batch=1, padding=0)
    outputs = model(data)
    padded = {name: np.concatenate([x, np.zeros((1, 3), "int32")], 1) for name, x in data.items()}
    close(model(padded)["sequence_output"][:, :6], outputs["sequence_output"])

    seen = model(data, return_intermediates=True)
    close(seen["sequence_output"], outputs["sequence_output"], 1e-6)
    close(seen["hidden_states"][-1], outputs["sequence_output"], 1e-6)
    assert len(seen["hidden_states"]) == LAYERS + 1 and len(seen["values"]) == LAYERS
    for attention, values in zip(seen["attention"], seen["values"]):
        assert attention.shape[:3] == (1, HEADS, 6) and values.shape[2] == attention.shape[3]
        close(ops.sum(attention, axis=-1), np.ones((1, HEADS, 6)))

    model.fold_positions(MAX_LENGTH)
    close(model(data)["sequence_output"], outputs["sequence_output"])
    model.unfold_positions()
    close(model(data)["sequence_output"], outputs["sequence_output"], 1e-6)


@pytest.mark.integration
@pytest.mark.parametrize(
    "position,sharing,tie_layers",
    [(*case, False) for case in CASES] + [(name, "none", True) for name in ("diet_abs", "shaw", "rotary+tisa")],
)
def test_survives_a_keras_file(position, sharing, tie_layers, rng, tmp_path):
    segments = "input" if position == "diet_abs_lin" else "per_head"
    model = make(position, sharing, tie_layers=tie_layers, embedding_dim=4, segments=segments, activation="gelu_tanh")
    data = inputs(rng)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    assert loaded.count_params() == model.count_params()
    close(loaded(data)["pooled_output"], model(data)["pooled_output"], 1e-6)


@pytest.mark.parametrize("position", encodings.names())
def test_bfloat16_differs_by_its_rounding_only(position, rng):
    model = make(position, dtype="mixed_bfloat16")
    exact = make(position, dtype="float32")
    for weight in model.weights:
        assert weight.dtype == "float32"
    data = inputs(rng)
    low, high = (array(ops.cast(m(data)["sequence_output"], "float32")) for m in (model, exact))
    # Normalised outputs are of order one; bfloat16 keeps 8 bits, lost in some tens of roundings.
    assert np.abs(low - high).mean() < 0.05


def test_without_positions_order_is_lost(rng):
    data = inputs(rng, batch=1, padding=0)
    order = np.array([0, 4, 2, 5, 1, 3])
    moved = {name: x[:, order] for name, x in data.items()}
    bag = make("none")
    close(bag(moved)["sequence_output"], array(bag(data)["sequence_output"])[:, order])

    # A bias that is far above the scores of any content makes each token look at the one before.
    ordered = make("diet_rel", num_layers=1)
    table = ordered.encoder.blocks[0].attention.position.table
    table.assign(np.broadcast_to(1e4 * (np.arange(2 * MAX_LENGTH - 1) == MAX_LENGTH), table.shape))
    for tokens in (data, moved):
        attention = array(ordered(tokens, return_intermediates=True)["attention"][0])
        np.testing.assert_allclose(attention[0, :, 1:], np.broadcast_to(np.eye(6)[:-1], (HEADS, 5, 6)), atol=1e-6)


@pytest.mark.parametrize("segments", ["input", "per_head", "none"])
def test_inputs_left_out_are_one_segment_without_padding(segments, rng):
    model, data = make("diet_abs", segments=segments), inputs(rng, padding=0)
    data["segment_ids"] = np.zeros_like(data["token_ids"])
    close(model({"token_ids": data["token_ids"]})["pooled_output"], model(data)["pooled_output"], 1e-6)
    data["segment_ids"] = data["segment_ids"].copy()
    data["segment_ids"][:, 3:] = 1
    change = np.abs(
        array(model({"token_ids": data["token_ids"]})["pooled_output"]) - array(model(data)["pooled_output"])
    )
    assert (change.max() > 1e-4) == (segments != "none")


def test_takes_symbolic_inputs_of_any_length(rng):
    model = make("tisa", max_length=None)
    symbolic = {name: keras.Input((None,), dtype="int32", name=name) for name in inputs(rng)}
    functional = keras.Model(symbolic, model(symbolic))
    for length in (3, MAX_LENGTH + 5):
        data = inputs(rng, length=length)
        close(functional(data)["pooled_output"], model(data)["pooled_output"], 1e-6)


def test_errors_name_what_is_wrong(rng):
    model, data = make(), inputs(rng)
    with pytest.raises(ValueError, match="padding_masks"):
        model({"token_ids": data["token_ids"], "padding_masks": data["padding_mask"]})
    with pytest.raises(ValueError, match="needs 'token_ids'"):
        model({"segment_ids": data["segment_ids"]})
    with pytest.raises(ValueError, match="takes a dict"):
        model(data["token_ids"])
    with pytest.raises(ValueError, match="1 for tokens and 0 for padding"):
        model({**data, "padding_mask": -1e9 * (1.0 - data["padding_mask"])})
    with pytest.raises(ValueError, match="max_length=10"):
        model(inputs(rng, length=11))
    with pytest.raises(ValueError, match="Pass `num_keys`"):
        Bert(VOCAB, 1, 2, 8, 16, position="diet_abs_lin", sharing="layer")
    with pytest.raises(ValueError, match="compressed keys"):
        Bert(VOCAB, 1, 2, 8, 16, position="diet_rel", sharing="layer", num_keys=4)
    with pytest.raises(ValueError, match="belong to no segment"):
        Bert(VOCAB, 1, 2, 8, 16, position="learned", segments="per_head", sharing="layer", num_keys=4)
    with pytest.raises(ValueError, match="'layer'"):
        Bert(VOCAB, 1, 2, 8, 16, sharing="all")


def test_extrapolates_where_asked_to(rng):
    model = make("learned+diet_abs", extrapolate="interpolate")
    assert model(inputs(rng, length=2 * MAX_LENGTH))["sequence_output"].shape == (2, 2 * MAX_LENGTH, WIDTH)


def test_summary_says_where_positions_are(capsys):
    model = build("bert_tiny", position="learned+tisa", kernels=3, segments="per_head", max_length=16)
    found = model.position_summary(None)
    assert found.positions == 16 * 128 + 2 * 3 * 3 * 2
    assert found.segments == 2 * 2 * 4
    assert found.total == model.count_params()
    places = {row.encoding: (row.doors, row.copies) for row in found.rows}
    assert places == {"learned": (("embed",), 1), "tisa": (("bias",), 2), "segments": (("bias",), 2)}
    model.summary()
    printed = capsys.readouterr().out
    assert "encoder/block_*/attention, 2 of them" in printed and f"Position parameters: {found.positions:,}" in printed


def test_summary_of_shared_positions():
    rows = make("diet_rel", "layer").position_summary(None).rows
    assert [row.where for row in rows] == ["encoder, one for 2 layers"]
    rows = make("diet_rel", "head", tie_layers=True).position_summary(None).rows
    assert [row.where for row in rows] == ["encoder, one for each of 2 layers, one for all heads"]


def test_weights_differ_from_one_another():
    """Each kernel has an initializer of its own: one for all would make layers alike."""
    model = build("bert_tiny", position="learned", max_length=16)
    sums = [float(ops.sum(ops.abs(w))) for w in model.weights if w.name in ("kernel", "embeddings")]
    assert len(sums) == 2 * 6 + 3 + 1 and len(set(sums)) == len(sums)
