"""The task heads: their equations, training, and two replicas."""

import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops
from tiny import MAX_LENGTH, VOCAB, WIDTH, inputs, make, randomize

from keras_posenc import encodings
from keras_posenc.models import Classifier, MaskedLM, SpanPredictor, TokenClassifier

HEADS = {
    "masked_lm": MaskedLM,
    "classify": lambda backbone: Classifier(backbone, 3),
    "span": SpanPredictor,
    "token_classify": lambda backbone: TokenClassifier(backbone, 5),
}


def array(tensor):
    return ops.convert_to_numpy(tensor)


def with_head(task, *args, **options):
    model = HEADS[task](make(*args, **options))
    model.build()
    randomize(model)
    return model


def test_masked_lm_decodes_with_the_token_embeddings(rng):
    model, data = with_head("masked_lm", embedding_dim=4, activation="relu"), inputs(rng)
    x = array(model.backbone(data)["sequence_output"]).astype("float64")
    x = np.maximum(x @ array(model.transform.kernel) + array(model.transform.bias), 0)
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    x = x * array(model.norm.gamma) + array(model.norm.beta)
    expected = x @ array(model.backbone.token_embedding.embeddings).T + array(model.decoder_bias)
    np.testing.assert_allclose(array(model(data)["logits"]), expected, rtol=1e-4, atol=1e-4)


def test_masked_positions_select_logits(rng):
    model, data = with_head("masked_lm"), inputs(rng)
    everywhere = array(model(data)["logits"])
    chosen = np.array([[3, 0], [1, 1]], "int32")
    some = array(model({**data, "masked_positions": chosen})["logits"])
    np.testing.assert_allclose(some, everywhere[np.arange(2)[:, None], chosen], rtol=1e-5, atol=1e-5)


def test_sequence_and_token_classes(rng):
    data = inputs(rng)
    model = with_head("classify")
    pooled = array(model.backbone(data)["pooled_output"])
    expected = pooled @ array(model.output_dense.kernel) + array(model.output_dense.bias)
    np.testing.assert_allclose(array(model(data)["logits"]), expected, rtol=1e-5, atol=1e-5)
    model = with_head("token_classify")
    hidden = array(model.backbone(data)["sequence_output"])
    expected = hidden @ array(model.output_dense.kernel) + array(model.output_dense.bias)
    np.testing.assert_allclose(array(model(data)["logits"]), expected, rtol=1e-5, atol=1e-5)


def test_spans_do_not_start_or_end_in_padding(rng):
    model, data = with_head("span"), inputs(rng, padding=2)
    outputs = model(data)
    hidden = array(model.backbone(data)["sequence_output"])
    expected = hidden @ array(model.output_dense.kernel) + array(model.output_dense.bias)
    real = data["padding_mask"] == 1
    for column, name in enumerate(("start_logits", "end_logits")):
        np.testing.assert_allclose(array(outputs[name])[real], expected[..., column][real], rtol=1e-5, atol=1e-5)
        assert array(ops.softmax(outputs[name]))[~real].max() == 0


@pytest.mark.integration
@pytest.mark.parametrize("task", HEADS)
def test_survives_a_keras_file(task, rng, tmp_path):
    model, data = with_head(task, "diet_abs", "layer", dtype="mixed_bfloat16"), inputs(rng)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.dtype_policy.name == "mixed_bfloat16"
    for name, output in model(data).items():
        assert keras.backend.standardize_dtype(output.dtype) == "float32"
        np.testing.assert_allclose(array(loaded(data)[name]), array(output), rtol=1e-6, atol=1e-6)


def test_intermediates_and_folding_reach_the_backbone(rng):
    model, data = with_head("classify", "t5"), inputs(rng)
    assert set(model(data)) == {"logits"}
    seen = model(data, return_intermediates=True)
    assert set(seen) == {"logits", "hidden_states", "attention", "values"}
    model.fold_positions(MAX_LENGTH)
    assert all(e.folded_length for e in encodings_of(model))
    np.testing.assert_allclose(array(model(data)["logits"]), array(seen["logits"]), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="folded"):
        model(data, training=True)
    model.unfold_positions()
    model(data, training=True)


def encodings_of(model):
    return [layer for layer in model._flatten_layers() if isinstance(layer, encodings.PositionEncoding) and layer.doors]


@pytest.mark.parametrize("position", encodings.names())
def test_a_step_compiled_by_xla(position, rng):
    """The loss is that of the eager model, and the step reaches the positions."""
    model, data = with_head("token_classify", position, num_layers=1, pooler=False), inputs(rng)
    labels = rng.integers(0, 5, data["token_ids"].shape)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    expected = float(loss(labels, model(data)["logits"]))
    weights = [w for encoding in encodings_of(model) for w in encoding.trainable_weights]
    before = [array(w).copy() for w in weights]
    model.compile(keras.optimizers.SGD(0.1), loss={"logits": loss}, jit_compile=True)
    history = model.fit(data, {"logits": labels}, batch_size=2, verbose=0).history
    assert history["loss"][0] == pytest.approx(expected, rel=1e-4)
    moved = [np.abs(array(w) - old).max() > 0 for w, old in zip(weights, before)]
    assert any(moved) == bool(weights)


def test_masked_lm_learns_a_batch(rng):
    model = with_head("masked_lm", "tisa", tie_layers=True, embedding_dim=4, pooler=False)
    data = {**inputs(rng), "masked_positions": np.array([[1, 2], [0, 3]], "int32")}
    labels = np.take_along_axis(data["token_ids"], data["masked_positions"], 1)
    model.compile(
        keras.optimizers.Adam(0.01), loss={"logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}
    )
    history = model.fit(data, {"logits": labels}, epochs=5, batch_size=2, verbose=0).history["loss"]
    assert history[-1] < history[0]


TWO_REPLICAS = """
import keras, numpy as np, tensorflow as tf
from tiny import inputs, make, randomize
from keras_posenc.models import Classifier, EncoderDecoder, MaskedLM

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
data, labels = inputs(np.random.default_rng(0), batch=4), np.array([0, 1, 2, 1])

translation = {name: data["token_ids"] for name in ("token_ids", "target_ids")}

def step(make_model, data, labels, strategy):
    with strategy.scope():
        model = make_model()
        model.build()
        randomize(model)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss={"logits": loss})
    model.fit(data, {"logits": labels}, batch_size=4, verbose=0, shuffle=False)
    return model.get_weights()

mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert mirrored.num_replicas_in_sync == 2
for case in [
    (lambda: Classifier(make("diet_abs", "layer", num_layers=1), 3), data, labels),
    (lambda: Classifier(make("learned+shaw", num_layers=1), 3), data, labels),
    (lambda: Classifier(make("tisa", embedding_dim=4, tie_layers=True), 3), data, labels),
    (lambda: MaskedLM(make("transformer_xl", "head", num_layers=1)), data, data["token_ids"]),
    (
        lambda: EncoderDecoder(40, 1, 2, 8, 16, max_length=10, position="diet_rel", sharing="layer", dropout=0.0),
        translation,
        data["token_ids"],
    ),
]:
    one, two = step(*case, tf.distribute.get_strategy()), step(*case, mirrored)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
print("equal")
"""


@pytest.mark.integration
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.distribute")
def test_two_replicas_make_the_step_of_one():
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", TWO_REPLICAS], cwd=here, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.strip() == "equal", done.stderr[-3000:]


def test_errors_name_what_is_wrong(rng):
    with pytest.raises(ValueError, match="pooler=True"):
        Classifier(make(pooler=False), 2)
    with pytest.raises(ValueError, match="num_classes=0"):
        Classifier(make(), 0)
    with pytest.raises(ValueError, match="masked_positions"):
        with_head("classify")({**inputs(rng), "masked_positions": np.zeros((2, 1), "int32")})


def test_sizes_of_outputs(rng):
    data = inputs(rng)
    shapes = {task: {k: tuple(v.shape) for k, v in with_head(task)(data).items()} for task in HEADS}
    assert shapes == {
        "masked_lm": {"logits": (2, 6, VOCAB)},
        "classify": {"logits": (2, 3)},
        "span": {"start_logits": (2, 6), "end_logits": (2, 6)},
        "token_classify": {"logits": (2, 6, 5)},
    }
    hidden = with_head("classify")(data, return_intermediates=True)["hidden_states"]
    assert all(tuple(x.shape) == (2, 6, WIDTH) for x in hidden)
