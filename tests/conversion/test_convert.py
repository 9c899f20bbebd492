import numpy as np
import pytest
from conversion_models import HEADS, LAYERS, LENGTH, WIDTH, hidden, inputs, make
from scipy.special import softmax

from keras_posenc.conversion import (
    ConversionReport,
    positional_profiles,
    to_diet_abs,
    to_diet_rel,
    to_t5,
    to_tisa,
    without_positions,
)
from keras_posenc.conversion.report import IGNORED, mask_tokens
from keras_posenc.conversion.toeplitz import center_rows

CONVERSIONS = {
    "tisa": lambda model, **more: to_tisa(model, 2, steps=8, verbose=False, **more),
    "diet_rel": to_diet_rel,
    "t5": lambda model, **more: to_t5(model, 8, 16, **more),
    "diet_abs": lambda model, **more: to_diet_abs(model, 4, **more),
}


def equal_positions(model):
    table = getattr(model, "backbone", model).encoder.input_positions[0].table
    table.assign(np.repeat(np.asarray(table)[:1], LENGTH, axis=0))
    return model


def with_random_kernels(model, rng):
    for block in model.encoder.blocks:
        encoding = block.attention.position
        encoding.amplitudes.assign(rng.normal(size=encoding.amplitudes.shape))
        encoding.sharpness.assign(rng.uniform(0.02, 0.5, encoding.sharpness.shape))
        encoding.centers.assign(rng.normal(size=encoding.centers.shape) * 3)
    return model


@pytest.mark.parametrize("calibrated", [False, True])
def test_tisa_shaped_scores_are_recovered(rng, calibrated):
    """A model whose positional score is a sum of kernels becomes the same model."""
    model = with_random_kernels(make("tisa", position_options={"kernels": 2}), rng)
    more = {"calibration": inputs(rng)} if calibrated else {}
    converted, report = to_tisa(model, 2, verbose=False, **more)
    assert report.r2.min() > 0.99
    tokens = inputs(rng)
    error = np.linalg.norm(hidden(converted, tokens) - hidden(model, tokens)) / np.linalg.norm(hidden(model, tokens))
    assert error < 0.05


@pytest.mark.parametrize("source", ["diet_abs", "diet_rel", "tisa", "t5", "alibi", "tupe", "fire"])
@pytest.mark.parametrize("calibrated", [False, True])
def test_any_bias_is_a_diet_abs_of_full_rank(rng, source, calibrated):
    model = make(source)
    more = {"calibration": inputs(rng)} if calibrated else {}
    converted, report = to_diet_abs(model, LENGTH, **more)
    np.testing.assert_allclose(report.r2, 1, atol=1e-6)
    tokens = inputs(rng)
    np.testing.assert_allclose(hidden(converted, tokens), hidden(model, tokens), atol=2e-4)


@pytest.mark.parametrize("source", ["diet_rel", "t5", "tisa", "alibi"])
def test_any_relative_bias_is_a_diet_rel(rng, source):
    model = make(source)
    converted, report = to_diet_rel(model)
    np.testing.assert_allclose(report.r2, 1, atol=1e-6)
    tokens = inputs(rng)
    np.testing.assert_allclose(hidden(converted, tokens), hidden(model, tokens), atol=2e-4)


def test_t5_is_recovered(rng):
    options = {"num_buckets": 8, "max_distance": 16}
    model = make("t5", position_options=options)
    converted, report = to_t5(model, **options)
    np.testing.assert_allclose(report.r2, 1, atol=1e-6)


def test_diet_abs_leaves_the_tail_of_the_singular_values():
    """Eckart and Young: the squared error is that of the values left out, and falls to zero at the head size."""
    model = make()
    profiles = positional_profiles(model)
    values = np.array([np.linalg.svd(center_rows(p.matrix), compute_uv=False) for p in profiles])
    head_size = WIDTH // HEADS
    shares = []
    for rank in range(1, head_size + 3):
        _, report = to_diet_abs(model, rank, profiles=profiles)
        tail = np.square(values[..., rank:]).sum(-1) / np.square(values).sum(-1)
        np.testing.assert_allclose(1 - report.r2, tail, atol=1e-6)
        shares.append(report.share)
    assert (np.diff(shares[:head_size]) > 0).all()
    np.testing.assert_allclose(shares[head_size - 1 :], 1, atol=1e-6)


def test_no_relative_encoding_explains_more_than_diet_rel():
    model = make()
    best = to_diet_rel(model)[1].r2
    for name in ("tisa", "t5"):
        assert (CONVERSIONS[name](model)[1].r2 <= best + 1e-6).all()


@pytest.mark.parametrize("name", CONVERSIONS)
@pytest.mark.parametrize("options", [dict(), dict(segments="none"), dict(embedding_dim=6, tie_layers=True)], ids=str)
def test_equal_position_embeddings_are_no_positions(rng, name, options):
    """Then there is nothing to convert, and the function does not change."""
    model = equal_positions(make(**options))
    tokens = inputs(rng)
    converted, report = CONVERSIONS[name](model)
    np.testing.assert_allclose(hidden(converted, tokens), hidden(model, tokens), atol=1e-5)
    assert report.parameters_before == LENGTH * (options.get("embedding_dim") or WIDTH)


def test_the_mean_position_in_tied_embeddings_does_not_change_probabilities(rng):
    model = equal_positions(make(head=True))
    tokens = inputs(rng)
    ours, theirs = (softmax(np.asarray(m(tokens)["logits"]), -1) for m in (without_positions(model), model))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("position", ["learned", "none", "learned+t5", "diet_abs"])
def test_a_supplement_starts_as_the_same_function(rng, position):
    model = make(position, head=True)
    tokens = inputs(rng)
    converted, report = to_tisa(model, 3, mode="supplement", steps=8, verbose=False)
    np.testing.assert_array_equal(np.asarray(converted(tokens)["logits"]), np.asarray(model(tokens)["logits"]))
    assert report.parameters_after - report.parameters_before == 3 * 3 * HEADS * LAYERS


def test_a_supplement_with_an_amplitude_adds_the_fit():
    model = make()
    whole, report = to_tisa(model, 2, mode="supplement", amplitude=1.0, steps=8, verbose=False)
    replaced, other = to_tisa(model, 2, steps=8, verbose=False)
    for ours, theirs in zip(whole.encoder.blocks, replaced.encoder.blocks):
        np.testing.assert_allclose(ours.attention.position.amplitudes, theirs.attention.position.amplitudes)
    np.testing.assert_allclose(report.r2, other.r2)


@pytest.mark.parametrize("name", CONVERSIONS)
def test_all_other_weights_are_kept(name):
    model = make(head=True)
    converted, _ = CONVERSIONS[name](model)
    old = {w.path: np.asarray(w) for w in model.weights if "/learned/" not in w.path}
    new = {w.path: np.asarray(w) for w in converted.weights if f"/{name}/" not in w.path}
    assert old.keys() == new.keys()
    table = next(path for path in old if path.endswith("token_embedding/embeddings"))
    mean = np.asarray(model.backbone.encoder.input_positions[0].table).mean(axis=0)
    np.testing.assert_allclose(new.pop(table), old.pop(table) + mean, atol=1e-6)
    for path in old:
        np.testing.assert_array_equal(new[path], old[path])


def test_the_original_is_left_alone(rng):
    model, tokens = make(), inputs(rng)
    before = hidden(model, tokens)
    for convert in CONVERSIONS.values():
        convert(model, calibration=tokens)
    np.testing.assert_array_equal(hidden(model, tokens), before)


def test_a_calibrated_bias_is_the_best_for_the_scores_of_the_texts(rng):
    """In the first layer, no other bias brings the scores nearer to the original's: the profile's does not either."""
    model, tokens = make(num_layers=1), inputs(rng, padding=0)
    errors = []
    for more in ({"calibration": tokens}, {}):
        converted, _ = to_diet_abs(model, LENGTH, **more)
        bias = np.asarray(converted.encoder.blocks[0].attention.position.at(LENGTH).bias)
        errors.append(np.square(center_rows(scores(model, tokens) - scores(converted, tokens) - bias)).sum())
    assert errors[0] < 0.99 * errors[1]


def scores(model, tokens):
    x = model(tokens, return_intermediates=True)["hidden_states"][0]
    attention = model.encoder.blocks[0].attention
    query, key = (np.asarray(dense(x)) for dense in (attention.query_dense, attention.key_dense))
    return np.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(attention.key_dim)


def test_the_report_compares_with_having_no_positions(rng):
    model, tokens = make(head=True), inputs(rng)
    converted, report = to_diet_rel(model, inputs=tokens, mask_id=1)
    removed = hidden(without_positions(model), tokens)
    original = hidden(model, tokens)
    error = np.linalg.norm(removed - original) / np.linalg.norm(original)
    assert report.change["relative_error_without_positions"] == pytest.approx(error, rel=1e-5)
    masked, labels = mask_tokens(tokens["token_ids"], tokens["padding_mask"].astype(bool), 1)
    wanted = labels != IGNORED
    for name, subject in (("loss_original", model), ("loss", converted)):
        chances = softmax(np.asarray(subject({**tokens, "token_ids": masked})["logits"]).astype("float64"), -1)
        loss = -np.log(np.take_along_axis(chances[wanted], labels[wanted][:, None], axis=1)).mean()
        assert report.change[name] == pytest.approx(loss, rel=1e-5)


def test_masking_is_fifteen_percent_of_inner_tokens(rng):
    tokens, real = np.arange(2 * 42).reshape(2, 42) + 5, np.ones((2, 42), bool)
    real[1, 22:] = False
    masked, labels = mask_tokens(tokens, real, 1)
    assert ((labels != IGNORED).sum(axis=1) == (6, 3)).all()
    assert (labels[:, [0, 41]] == IGNORED).all() and (labels[1, 21:] == IGNORED).all()
    np.testing.assert_array_equal(masked == 1, labels != IGNORED)
    np.testing.assert_array_equal(np.where(masked == 1, labels, masked), tokens)
    np.testing.assert_array_equal(mask_tokens(tokens, real, 1)[0], masked)


def test_heads_count_by_their_positional_score():
    report = ConversionReport("x", 4, np.array([[1.0, 0.0]]), np.array([[3.0, 1.0]]), 1, 1, 1, 1)
    assert report.share == pytest.approx(0.75) and report.error == pytest.approx(0.5)


def test_a_share_of_no_score_is_no_number():
    report = ConversionReport("x", 4, np.array([[1.0, -np.inf]]), np.zeros((1, 2)), 1, 1, 1, 1)
    assert np.isnan(report.share) and np.isnan(report.error) and np.isnan(report.r2_by_layer).all()


def test_refusals(rng):
    with pytest.raises(ValueError, match="TISA already"):
        to_tisa(make("tisa"), mode="supplement", verbose=False)
    with pytest.raises(ValueError, match="nothing to calibrate"):
        to_tisa(make(), mode="supplement", calibration=inputs(rng), verbose=False)
    with pytest.raises(ValueError, match="must be one of 'replace', 'supplement'"):
        to_tisa(make(), mode="both")
    with pytest.raises(ValueError, match="`kernels` must be an integer of at least 1"):
        to_tisa(make(), kernels=0)
    with pytest.raises(ValueError, match="no use for: length"):
        to_diet_rel(make(), calibration=inputs(rng), length=5)
    with pytest.raises(ValueError, match="padding only at their end"):
        to_diet_rel(make(), calibration={"token_ids": np.ones((1, 3), int), "padding_mask": np.array([[0, 1, 1]])})
    with pytest.raises(ValueError, match="sharing='layer'"):
        to_diet_rel(make(segments="per_head", sharing="layer"))
