"""Hidden token attribution against finite differences, whole Jacobians, and its own error estimate."""

import keras
import numpy as np
import pytest

from keras_posenc import encodings
from keras_posenc.analysis.attribution import HiddenTokenAttribution, hidden_token_attribution
from keras_posenc.analysis.attribution_probes import Probes, contributions_of, group_by_length
from keras_posenc.models import Bert, Classifier

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="derives with TensorFlow's tapes")

WIDTH = 8
CASES = {
    "learned": dict(position="learned", segments="input"),
    "diet_abs": dict(position="diet_abs", segments="per_head"),
    "rotary": dict(position="rotary", segments="per_head", sharing="layer"),
    "shaw": dict(position="shaw", segments="input"),
}
INPUTS = {
    "token_ids": np.array([[1, 7, 3, 9, 2, 0], [1, 4, 4, 8, 5, 2], [1, 6, 2, 0, 0, 0]]),
    "segment_ids": np.array([[0, 0, 0, 1, 1, 0], [0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]]),
    "padding_mask": np.array([[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]),
}


def make(position="learned", dtype="float64", **kwargs):
    """A small model with weights large enough that attention is not uniform and all doors matter."""
    model = Bert(12, 2, 2, WIDTH, 12, max_length=8, position=position, dtype=dtype, dropout=0.0, **kwargs)
    model.build()
    rng = np.random.default_rng(5)
    for weight in model.weights:
        scale = 0.2 if weight.ndim == 1 else 0.5
        weight.assign(rng.normal(0.8 if weight.name == "gamma" else 0.0, scale, weight.shape))
    return model


def normalised(norms):
    """`(batch, layers, target, source)` norms to contributions, by the equation and the padding mask."""
    mask = INPUTS["padding_mask"].astype(bool)
    norms = norms * (mask[:, None, None, :] & mask[:, None, :, None])
    return norms / np.maximum(norms.sum(axis=-1, keepdims=True), 1e-30)


def jacobian_by_differences(model, step=1e-5):
    """Norms of central differences of the hidden states of a whole model call, through the token embedding table.

    Every token of every moved copy of the sentences gets a row of the table of its own, so that moving a row moves one
    token. Segments and positions are added to that row: the derivative is that by the sum.
    """
    ids = INPUTS["token_ids"]
    batch, length = ids.shape
    moves = np.zeros((2, length, WIDTH, 1, length, WIDTH))
    for sign, source, axis in np.ndindex(2, length, WIDTH):
        moves[sign, source, axis, 0, source, axis] = step if sign == 0 else -step
    table = np.asarray(model.token_embedding.embeddings)[ids] + moves  # (2, length, width, batch, length, width)
    copies = 2 * length * WIDTH
    rows = copies * batch * length
    wide = Bert.from_config({**model.get_config(), "vocab_size": rows, "name": "wide"})
    wide.build()
    for weight, old in zip(wide.weights, model.weights):
        weight.assign(table.reshape(rows, WIDTH) if weight.shape[0] == rows else old)
    inputs = {name: np.tile(array, (copies, 1)) for name, array in INPUTS.items()}
    inputs["token_ids"] = np.arange(rows).reshape(copies * batch, length)
    states = wide(inputs, return_intermediates=True)["hidden_states"][1:]
    states = np.stack([np.asarray(state) for state in states], axis=1)
    ahead, behind = states.reshape(2, length, WIDTH, batch, 2, length, WIDTH)
    slopes = (ahead - behind) / (2 * step)  # (source, axis, batch, layer, target, width)
    return np.moveaxis(np.sqrt(np.sum(slopes**2, axis=(1, 5))), 0, -1)


@pytest.mark.parametrize(
    "position,sharing", [(name, "layer") for name in encodings.names()] + [("shaw", "none"), ("tupe", "none")]
)
def test_blocks_from_hidden_states_are_the_rest_of_a_call(position, sharing):
    """`TransformerEncoder.run_blocks` on the first hidden states gives what the whole call gives."""
    linear = position == "diet_abs_lin"
    segments = dict(num_keys=3, segments="input") if linear else dict(segments="per_head")
    model = make(position, sharing=sharing, tie_layers=sharing == "none", **segments)
    whole = model(INPUTS, return_intermediates=True)
    given = {} if linear else {"segment_ids": INPUTS["segment_ids"]}
    mask = INPUTS["padding_mask"].astype(bool)
    rest = model.encoder.run_blocks(whole["hidden_states"][0], mask, **given)
    np.testing.assert_allclose(rest, whole["sequence_output"], atol=1e-12)
    other = model.encoder.run_blocks(whole["hidden_states"][0][:, ::-1], mask, **given)
    assert np.abs(np.asarray(other - rest)).max() > 1e-3


@pytest.mark.parametrize("case", ["learned", "diet_abs", "shaw"])
def test_equals_finite_differences(case):
    model = make(**CASES[case])
    found = hidden_token_attribution(model, INPUTS, source="sum").contributions
    np.testing.assert_allclose(found, normalised(jacobian_by_differences(model)), atol=2e-6)


def test_equals_the_whole_jacobian_by_the_input_of_the_first_block():
    model = make(**CASES["rotary"])
    mask = INPUTS["padding_mask"].astype(bool)
    x = model(INPUTS, return_intermediates=True)["hidden_states"][0]
    segment_ids = INPUTS["segment_ids"]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        hidden = x
        positions = model.encoder.handed_positions(6, 6, 0, segment_ids, False)
        for block in model.encoder.blocks:
            hidden = block(hidden, padding_mask=mask, positions=positions[0])
    jacobian = tape.batch_jacobian(hidden, x, experimental_use_pfor=False).numpy()
    norms = np.sqrt(np.sum(jacobian**2, axis=(2, 4)))[:, None]
    found = hidden_token_attribution(model, INPUTS, layers=[2]).contributions
    np.testing.assert_allclose(found, normalised(norms), atol=1e-6)


@pytest.fixture(scope="module")
def subject():
    keras.utils.set_random_seed(7)
    return HiddenTokenAttribution(make(**CASES["diet_abs"]), layers=[0, 1, 2])


@pytest.fixture(scope="module")
def exact(subject):
    return subject(INPUTS)


def test_contributions_to_a_token_sum_to_one_and_padding_has_none(exact):
    mask = INPUTS["padding_mask"].astype(bool)
    sums = exact.contributions.sum(axis=-1)
    np.testing.assert_allclose(sums, np.broadcast_to(mask[:, None], sums.shape), atol=1e-6)
    assert (exact.contributions.swapaxes(2, 3)[~np.broadcast_to(mask[:, None], sums.shape)] == 0).all()
    assert exact.standard_error is None


def test_at_layer_zero_every_token_is_its_own_only_contributor(exact):
    assert exact.layers.tolist() == [0, 1, 2]
    np.testing.assert_allclose(exact.contributions[1, 0], np.eye(6), atol=1e-7)


def test_padding_changes_nothing(subject, exact):
    for row, length in enumerate(INPUTS["padding_mask"].sum(axis=1)):
        alone = subject({name: array[row : row + 1, :length] for name, array in INPUTS.items()})
        np.testing.assert_allclose(alone.contributions[0], exact.contributions[row, :, :length, :length], atol=1e-6)


def test_a_token_may_be_padding_before_the_end(subject):
    hole = {name: array[1:2].copy() for name, array in INPUTS.items()}
    hole["padding_mask"][0, 2] = 0
    found = subject(hole).contributions[0]
    assert (found[:, 2] == 0).all() and (found[:, :, 2] == 0).all()
    np.testing.assert_allclose(found.sum(axis=-1)[:, [0, 1, 3, 4, 5]], 1, atol=1e-6)


@pytest.mark.parametrize("method", ["exact", "random"])
def test_memory_changes_the_chunks_only(subject, method):
    plenty = subject(INPUTS, method, probes=3)
    little = subject(INPUTS, method, probes=3, max_memory=1)
    np.testing.assert_allclose(little.contributions, plenty.contributions, atol=1e-6)


def test_all_orthogonal_probes_are_exact(subject, exact):
    found = subject(INPUTS, "random", probes=WIDTH)
    np.testing.assert_allclose(found.contributions, exact.contributions, atol=1e-6)
    np.testing.assert_allclose(found.standard_error, 0, atol=1e-6)


def test_the_stated_error_is_the_error():
    """For Jacobians of effective rank 12.7, over many seeds: the mean square of the error, and how often 2 hold it."""
    rng, width, tokens = np.random.default_rng(0), 64, 10
    turned = np.linalg.qr(rng.normal(size=(tokens, width, width)))[0]
    jacobians = rng.normal(size=(tokens, width, width)) * np.exp(-np.arange(width) / 16) @ turned
    jacobians *= rng.uniform(0.3, 1, size=(tokens, 1, 1))
    norms = np.sqrt(np.sum(jacobians**2, axis=(1, 2)))
    mask = np.ones((1, tokens), bool)
    deviations, errors = [], []
    for seed in range(150):
        probes = Probes(width, 5, seed, "float64")
        directions = probes.draw(np.arange(tokens)[None], mask).directions[0]
        squares = np.sum(np.einsum("nij,npj->npi", jacobians, directions) ** 2, axis=-1)
        sums = [np.broadcast_to(np.sum(power, axis=1), (1, 1, tokens, tokens)) for power in (squares, squares**2)]
        contributions, stated = contributions_of(*sums, mask, probes)
        deviations.append(contributions[0, 0, 0] - norms / norms.sum())
        errors.append(stated[0, 0, 0])
    assert 0.85 < np.mean(np.square(deviations)) / np.mean(np.square(errors)) < 1.2
    # A normal error would give 0.95, Student's with four degrees of freedom 0.88.
    assert 0.85 < np.mean(np.abs(deviations) <= 2 * np.array(errors)) < 0.95


def test_the_stated_error_of_a_model_has_the_size_of_its_error(subject, exact):
    """Jacobians of width 8 are close to rank one, where a first-order error is too small, by up to 1.3."""
    runs = [subject(INPUTS, "random", probes=5, seed=seed) for seed in range(40)]
    deviations = np.stack([run.contributions - exact.contributions for run in runs])[:, :, 1:]
    errors = np.stack([run.standard_error for run in runs])[:, :, 1:]
    assert 0.9 < np.sqrt(np.mean(deviations**2) / np.mean(errors**2)) < 1.4


def test_error_falls_with_probes(subject, exact):
    def deviation(probes):
        found = [subject(INPUTS, "random", probes=probes, seed=seed).contributions for seed in range(8)]
        return np.sqrt(np.mean((np.stack(found) - exact.contributions) ** 2))

    assert deviation(6) < 0.6 * deviation(1)


def test_a_sentence_gives_the_same_in_any_batch(subject):
    together = subject(INPUTS, "random", probes=2).contributions
    turned = subject({name: array[::-1] for name, array in INPUTS.items()}, "random", probes=2).contributions
    np.testing.assert_allclose(turned[::-1], together, atol=1e-6)
    other = subject(INPUTS, "random", probes=2, seed=1).contributions
    assert np.abs(other - together).max() > 1e-3


def test_task_models_are_read_by_their_backbone():
    backbone = make()
    task = Classifier(backbone, 2)
    assert HiddenTokenAttribution(task).model is backbone


def test_errors_say_what_to_do():
    model = make()
    with pytest.raises(ValueError, match="from 0 to 2"):
        hidden_token_attribution(model, INPUTS, layers=[3])
    with pytest.raises(ValueError, match="method='exact'"):
        hidden_token_attribution(model, INPUTS, "random", probes=WIDTH + 1)
    with pytest.raises(ValueError, match="backbone"):
        hidden_token_attribution(keras.Sequential(), INPUTS)


def test_groups_have_similar_lengths_and_every_sentence_once():
    lengths = np.array([20, 3, 0, 19, 21, 40, 20, 3])
    mask = np.arange(50) < lengths[:, None]
    groups = group_by_length(mask, tokens=64, waste=0.1)
    assert sorted(row for rows, _ in groups for row in rows) == [0, 1, 3, 4, 5, 6, 7]
    for rows, length in groups:
        assert length == lengths[rows].max() and lengths[rows].min() >= 0.9 * length
        assert len(rows) == 1 or len(rows) * length <= 64
    assert {length for _, length in group_by_length(mask, trim=False)} == {50}
