import numpy as np
import pytest
from conversion_models import HEADS, LAYERS, LENGTH, VOCAB, make
from scipy.special import softmax

from keras_posenc.conversion import positional_profile, positional_profiles, toeplitz_r2


def attention_maps(model, rng):
    tokens = {"token_ids": rng.integers(0, VOCAB, (1, LENGTH), dtype="int32")}
    return [np.asarray(attention)[0] for attention in model(tokens, return_intermediates=True)["attention"]]


def with_equal_words(model):
    table = model.token_embedding.embeddings
    table.assign(np.repeat(np.asarray(table)[:1], VOCAB, axis=0))
    return model


@pytest.mark.parametrize("words", ["expected", "average"])
@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(segments="per_head"),
        dict(segments="none"),
        dict(embedding_dim=6, tie_layers=True),
        dict(position="diet_abs", rank=4),
        dict(position="learned+t5"),
        dict(position="diet_rel", sharing="layer"),
        dict(position="tisa", tie_layers=True),
        dict(position="tupe"),
        dict(position="sinusoidal"),
    ],
    ids=str,
)
def test_where_all_words_are_equal_the_profile_is_the_attention(rng, words, options):
    """The softmax of the profile is then the attention of the model, in every layer."""
    options = dict(options)
    if "rank" in options:
        options["position_options"] = {"rank": options.pop("rank")}
    model = with_equal_words(make(**options))
    profiles = positional_profiles(model, words=words)
    assert len(profiles) == LAYERS
    for profile, attention in zip(profiles, attention_maps(model, rng)):
        np.testing.assert_allclose(softmax(profile.matrix, axis=-1), attention, atol=1e-5)


def test_expected_is_the_mean_over_all_pairs_of_words():
    model = make()
    attention = model.encoder.blocks[0].attention
    queries, keys = [], []
    for word in range(VOCAB):
        tokens = {"token_ids": np.full((1, LENGTH), word)}
        x = model(tokens, return_intermediates=True)["hidden_states"][0]
        queries.append(np.asarray(attention.query_dense(x))[0])
        keys.append(np.asarray(attention.key_dense(x))[0])
    scores = np.einsum("vihd,wjhd->hij", queries, keys) / VOCAB**2 / np.sqrt(attention.key_dim)
    rest = scores - positional_profile(model).matrix
    np.testing.assert_allclose(rest, np.broadcast_to(rest[:, :1, :1], rest.shape), atol=1e-4)


def test_linear_is_formula_12():
    model = make()
    words = np.asarray(model.token_embedding.embeddings).mean(axis=0)
    positions = np.asarray(model.encoder.input_positions[0].table)
    attention = model.encoder.blocks[0].attention
    query, key = (np.asarray(dense.kernel) for dense in (attention.query_dense, attention.key_dense))
    found = positional_profile(model, words="linear").matrix
    for head in range(HEADS):
        product = query[:, head] @ key[:, head].T / np.sqrt(attention.key_dim)
        cross = (words @ product @ positions.T)[None] + (positions @ product @ words)[:, None]
        np.testing.assert_allclose(found[head], cross + positions @ product @ positions.T, rtol=1e-4, atol=1e-4)


def test_toeplitz_parts():
    profile = positional_profile(make(), layer=1, length=9)
    assert profile.matrix.shape == (HEADS, 9, 9) and profile.toeplitz.shape == (HEADS, 17)
    np.testing.assert_allclose(profile.r2, toeplitz_r2(profile.matrix))
    np.testing.assert_allclose(profile.toeplitz[:, 8 + 2], np.trace(profile.matrix, 2, 1, 2) / 7)


def test_a_relative_bias_is_toeplitz():
    profile = positional_profile(make("diet_rel"))
    np.testing.assert_allclose(profile.r2, 1)
    np.testing.assert_allclose(profile.r2_off_diagonal, 1)


def test_centred_rows_have_mean_zero_and_the_same_softmax():
    plain, centred = (positional_profile(make(), center_rows=c).matrix for c in (False, True))
    np.testing.assert_allclose(centred.mean(-1), 0, atol=1e-9)
    np.testing.assert_allclose(softmax(plain, -1), softmax(centred, -1), atol=1e-9)


@pytest.mark.parametrize("position", ["rotary", "shaw", "transformer_xl", "synthesizer"])
def test_positions_that_act_on_content_have_no_profile(position):
    with pytest.raises(ValueError, match="no score of position alone"):
        positional_profile(make(position))


@pytest.mark.parametrize("layer", [-1, LAYERS, 1.5])
def test_layers_that_do_not_exist(layer):
    with pytest.raises(ValueError, match=f"from 0 to {LAYERS - 1}"):
        positional_profile(make(), layer=layer)


def test_linear_is_of_the_first_layer():
    with pytest.raises(ValueError, match="first layer"):
        positional_profile(make(), layer=1, words="linear")


def test_the_scale_of_tupe_counts():
    """Ke et al. divide all scores by sqrt(2 d_h), also those of positions at the input."""
    model = make("learned+tupe")
    attention = model.encoder.blocks[0].attention
    words = np.asarray(model.token_embedding.embeddings).mean(axis=0)
    positions = np.asarray(model.encoder.input_positions[0].table)
    query, key = (np.asarray(dense.kernel)[:, 0] for dense in (attention.query_dense, attention.key_dense))
    product = query @ key.T / np.sqrt(2 * attention.key_dim)
    cross = (words @ product @ positions.T)[None] + (positions @ product @ words)[:, None]
    found = positional_profile(model, words="linear").matrix[0]
    np.testing.assert_allclose(found, cross + positions @ product @ positions.T, rtol=1e-4, atol=1e-4)
