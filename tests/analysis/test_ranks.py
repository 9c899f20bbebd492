"""Ranks of attention matrices and theorem 1 of DIET on real layers."""

import numpy as np
import pytest
from scipy.special import softmax

from keras_posenc import encodings
from keras_posenc.analysis import ranks
from keras_posenc.analysis.plots import ranks as plots
from keras_posenc.models import Bert

VOCAB, LAYERS, HEADS, WIDTH, SIZE, LENGTH = 60, 2, 2, 8, 4, 24
INSIDE = [name for name in encodings.names() if name != "diet_abs_lin"]


def make(position="learned", seed=1, **options):
    options = {"max_length": LENGTH, "dropout": 0.0, "num_layers": LAYERS, **options}
    model = Bert(VOCAB, num_heads=HEADS, hidden_dim=WIDTH, intermediate_dim=16, position=position, **options)
    model.build()
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape) * 0.5)
    return model


def texts(rng, short=20):
    """Two texts of different tokens in two segments, the second one shorter."""
    mask = np.ones((2, LENGTH), "int32")
    mask[1, short:] = 0
    tokens = np.stack([rng.permutation(VOCAB)[:LENGTH] for _ in range(2)]).astype("int32")
    segments = np.repeat([[0, 1]], LENGTH // 2, axis=1).repeat(2, axis=0).astype("int32")
    return {"token_ids": tokens, "segment_ids": segments, "padding_mask": mask}


@pytest.mark.parametrize("rank", [0, 1, 7, 40])
def test_the_rank_of_constructed_matrices_is_found(rank, rng):
    """Also in float32, where products leave singular values of rounding."""
    left, right = rng.normal(size=(2, 3, 64, rank))
    product = left @ right.swapaxes(-1, -2)
    np.testing.assert_array_equal(ranks.numerical_rank(product), rank)
    np.testing.assert_array_equal(ranks.numerical_rank(product.astype("float32")), rank)


def test_tolerance_is_a_share_of_the_largest_singular_value(rng):
    left, right = (np.linalg.qr(rng.normal(size=(20, 20)))[0] for _ in range(2))
    matrix = left * 10.0 ** -np.arange(20) @ right
    for digits in (1, 3, 5):
        assert ranks.numerical_rank(matrix, tolerance=0.5 * 10.0**-digits) == digits + 1


def check_scores(model, inputs):
    """The softmax of the scores is the attention of the model, and their ranks are within the bounds."""
    found = ranks.attention_scores(model, inputs)
    masked = np.where(inputs["padding_mask"], 0, -np.inf)[:, None, None]
    for scores, attention in zip(found, model(inputs, return_intermediates=True)["attention"]):
        np.testing.assert_allclose(softmax(np.asarray(scores) + masked, axis=-1), attention, atol=1e-5)
    accumulator = ranks.RankSeries()
    accumulator.add(found, inputs["padding_mask"])
    counted = accumulator.result()
    assert (counted.ranks <= ranks.rank_bounds(model, LENGTH)).all()
    assert (counted.ranks <= counted.lengths[:, None, None]).all()


@pytest.mark.parametrize("name", INSIDE)
def test_scores_are_what_the_softmax_gets(name, rng):
    check_scores(make(name), texts(rng))


@pytest.mark.parametrize("name", ["learned", "rotary", "diet_abs", "shaw", "synthesizer"])
def test_scores_of_shared_positions_and_segments(name, rng):
    check_scores(make(name, sharing="layer", segments="per_head"), texts(rng))


def test_scores_of_a_tied_model_with_per_head_segments(rng):
    check_scores(make("diet_abs", tie_layers=True, segments="per_head", embedding_dim=6), texts(rng))


def test_compressed_keys_have_no_square_scores(rng):
    with pytest.raises(ValueError, match="compressed"):
        ranks.attention_scores(make("diet_abs_lin", num_keys=5), texts(rng))


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "none", "rotary"])
def test_theorem_1_positions_at_the_input_leave_rank_d_h(position, rng):
    """Rotations do not change the number of columns either. The first layer, where tokens differ most, reaches it."""
    found = ranks.attention_ranks(make(position), [texts(rng)])
    np.testing.assert_array_equal(found.bounds, SIZE)
    np.testing.assert_array_equal(found.ranks[:, 0], SIZE)
    assert found.ranks.max() == SIZE


@pytest.mark.parametrize("d_p", [1, 3, 10])
def test_theorem_1_diet_abs_reaches_d_h_plus_d_p(d_p, rng):
    found = ranks.attention_ranks(make("diet_abs", position_options={"rank": d_p}), [texts(rng)])
    np.testing.assert_array_equal(found.bounds, SIZE + d_p)
    np.testing.assert_array_equal(found.ranks[:, 0], SIZE + d_p)
    assert found.ranks.max() == SIZE + d_p


def test_segments_add_at_most_their_number(rng):
    model = make("diet_abs", position_options={"rank": 3}, segments="per_head")
    found = ranks.attention_ranks(model, [texts(rng)])
    np.testing.assert_array_equal(found.bounds, SIZE + 3 + 2)
    np.testing.assert_array_equal(found.ranks[:, 0], SIZE + 3 + 2)


def test_relative_scalars_reach_the_length(rng):
    found = ranks.attention_ranks(make("diet_rel"), [texts(rng)])
    np.testing.assert_array_equal(found.ranks[:, 0], np.stack([found.lengths] * HEADS, axis=1))


@pytest.mark.parametrize("kind", ["scores", "attention"])
def test_padding_does_not_change_ranks(kind, rng):
    model, inputs = make("diet_abs", position_options={"rank": 2}), texts(rng)
    padded = ranks.attention_ranks(model, [inputs], kind, tolerance=1e-3)
    alone = [{name: x[b : b + 1, :n] for name, x in inputs.items()} for b, n in enumerate((LENGTH, 20))]
    separate = ranks.attention_ranks(model, alone, kind, tolerance=1e-3)
    np.testing.assert_array_equal(padded.ranks, separate.ranks)
    np.testing.assert_array_equal(padded.lengths, separate.lengths)
    assert [row["mean_rank"] for row in padded.rows()] == [row["mean_rank"] for row in separate.rows()]


def test_positional_matrices_are_the_products_of_figure_8():
    learned = make()
    table = np.asarray(learned.encoder.input_positions[0].table)
    attention = learned.encoder.blocks[1].attention
    query, key = (np.asarray(dense.kernel)[:, 1] for dense in (attention.query_dense, attention.key_dense))
    expected = (table @ query) @ (table @ key).T / np.sqrt(SIZE)
    np.testing.assert_allclose(ranks.positional_matrices(learned)[1, 1], expected, rtol=1e-4, atol=1e-5)
    diet = make("diet_abs", position_options={"rank": 3})
    encoding = diet.encoder.blocks[0].attention.position
    query, key = np.asarray(encoding.query_table)[1], np.asarray(encoding.key_table)[1]
    np.testing.assert_allclose(ranks.positional_matrices(diet)[0, 1], query @ key.T, rtol=1e-4, atol=1e-5)


def test_positional_matrices_have_the_scale_of_tupe():
    """Ke et al. divide all scores by sqrt(2 d_h)."""
    model = make("learned+tupe")
    table, attention = np.asarray(model.encoder.input_positions[0].table), model.encoder.blocks[1].attention
    query, key = (np.asarray(dense.kernel)[:, 1] for dense in (attention.query_dense, attention.key_dense))
    expected = (table @ query) @ (table @ key).T / np.sqrt(2 * SIZE) + attention.position.at(LENGTH).bias[0, 1]
    np.testing.assert_allclose(ranks.positional_matrices(model)[1, 1], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "position, options, expected",
    [
        ("learned", {}, SIZE),
        ("learned", {"embedding_dim": 3}, 3),  # ALBERT's narrow embeddings bound it further
        ("diet_abs", {"position_options": {"rank": 9}}, 9),
        ("diet_abs", {"position_options": {"rank": 9}, "sharing": "head"}, 9),
        ("learned+diet_abs", {"position_options": {"rank": 9}}, 9 + SIZE),
        ("diet_rel", {}, LENGTH),
        ("none", {}, 0),
    ],
    ids=str,
)
def test_ranks_of_positional_matrices(position, options, expected):
    found = ranks.positional_ranks(make(position, **options))
    np.testing.assert_array_equal(found.ranks, np.full((LAYERS, HEADS), expected))
    assert found.rows()[0]["head_size"] == SIZE


def test_content_has_no_positional_matrix():
    with pytest.raises(ValueError, match="no score of position alone"):
        ranks.positional_ranks(make("shaw"))


def test_accumulator_needs_matrices():
    with pytest.raises(ValueError, match="call `add` first"):
        ranks.RankSeries().result()
    with pytest.raises(ValueError, match="kind"):
        ranks.RankSeries("logits")


def test_ranks_can_be_drawn(rng, capsys):
    found = ranks.attention_ranks(make(), [texts(rng)] * 2, progress=True)
    assert "[2/2" in capsys.readouterr().err
    axes = plots.plot_attention_ranks({"learned": found}).axes[0]
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), SIZE)
    left, right = plots.plot_positional_ranks({"learned": ranks.positional_ranks(make())}).axes
    assert left.has_data() and right.get_yscale() == "log"
