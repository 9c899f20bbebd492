"""Position structure: Toeplitz R^2, cosines, sections, shifts, segments, attention by offset."""

import keras
import numpy as np
import pytest
from scipy.special import softmax

from keras_posenc import checkpoints, encodings
from keras_posenc.analysis import offsets, structure
from keras_posenc.analysis.plots import structure as plots
from keras_posenc.models import Bert, EncoderDecoder

VOCAB, LAYERS, HEADS, LENGTH = 20, 2, 2, 16


def make(position="learned", seed=1, **options):
    options = {"max_length": LENGTH, "dropout": 0.0, "num_layers": LAYERS, **options}
    model = Bert(VOCAB, num_heads=HEADS, hidden_dim=8, intermediate_dim=16, position=position, **options)
    model.build()
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape) * 0.5)
    return model


def toeplitz_matrix(line):
    n = (len(line) + 1) // 2
    return np.array([[line[j - i + n - 1] for j in range(n)] for i in range(n)])


def random_maps(rng, batch=3, n=9):
    """Attention `(batch, layers, heads, n, n)`, the last text three tokens shorter, and its padding mask."""
    mask = np.ones((batch, n), "int32")
    mask[-1, n - 3 :] = 0
    maps = softmax(rng.normal(size=(batch, LAYERS, HEADS, n, n)) * 2 + np.log(mask)[:, None, None, None], axis=-1)
    return maps, mask


@pytest.fixture(autouse=True)
def no_warning_for_log_of_zero():
    with np.errstate(divide="ignore"):
        yield


# E_P E_P^T


def test_waves_have_a_toeplitz_gram_matrix():
    """`sin a sin b + cos a cos b = cos(a - b)`: TISA's R^2 of the sinusoidal encoding is 1, with and without 0."""
    for row in structure.position_gram(make("sinusoidal"), lengths=(8, 16)).rows():
        assert row["r2"] == pytest.approx(1) and row["r2_without_first"] == pytest.approx(1)
        assert row["r2_off_diagonal"] == pytest.approx(1)


def test_random_embeddings_are_like_random_embeddings(rng):
    """Their R^2 is near `w / (w + n)` in all, and 2 / n off the diagonal, and that is what the comparison says."""
    n, width = 256, 128
    (row,) = structure.position_gram(rng.normal(size=(n, width)), lengths=[n]).rows()
    assert row["r2"] == pytest.approx(width / (width + n), abs=0.02)
    assert row["r2_off_diagonal"] == pytest.approx(2 / n, abs=0.004)
    assert abs(row["r2"] - row["random_r2"]) < 6 * row["random_r2_sd"] + 1e-3
    assert abs(row["r2_off_diagonal"] - row["random_r2_off_diagonal"]) < 6 * row["random_r2_off_diagonal_sd"] + 1e-3


def test_a_first_position_of_its_own_lowers_r2_alone():
    waves = structure.input_positions(encodings_built("sinusoidal"), 32)
    waves[0] *= 10
    (row,) = structure.position_gram(waves, lengths=[32], seeds=1).rows()
    assert row["r2"] < 0.5 and row["r2_without_first"] == pytest.approx(1)


def encodings_built(name, width=16):
    encoding = encodings.create(name, max_length=32)
    encoding.build((None, None, width))
    return encoding


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "floater", "learned+tisa", "learned+sinusoidal"])
def test_input_positions_are_what_the_model_adds(position):
    """Two equal tokens differ at the input of the first layer by their positions."""
    model = make(position)
    table = structure.input_positions(model, 6)
    zero = np.zeros((1, 6, 8), "float32")
    for encoding in model.encoder.input_positions:
        zero = encoding(zero)
    np.testing.assert_allclose(table, zero[0], atol=1e-5)
    assert len(structure.input_positions(model)) == LENGTH


def test_other_models_with_positions_at_the_input():
    """An encoder-decoder, and a functional model of anyone's."""
    pair = EncoderDecoder(VOCAB, 1, 2, 8, 16, max_length=12, position="learned")
    pair.build()
    np.testing.assert_array_equal(structure.input_positions(pair), pair.encoder.input_positions[0].table)
    inputs = keras.Input((None, 8))
    model = keras.Model(inputs, encodings.Learned(max_length=5)(inputs))
    np.testing.assert_array_equal(structure.input_positions(model), model.layers[1].table)


@pytest.mark.parametrize("position, what", [("diet_abs", "DietAbs"), ("rotary", "Rotary"), ("none", "none")])
def test_a_model_without_input_positions_says_so(position, what):
    with pytest.raises(ValueError, match=f"no position embeddings to its input.*{what}"):
        structure.position_gram(make(position))


def test_lengths_that_cannot_be_are_refused(rng):
    table = rng.normal(size=(10, 4))
    with pytest.raises(ValueError, match="from 3 to the 10 positions"):
        structure.position_gram(table, lengths=[2, 11])
    with pytest.raises(ValueError, match="has 10 positions, but 11"):
        structure.position_cosines(table, 11)
    with pytest.raises(ValueError, match="matrix"):
        structure.position_gram(table[0])


# Cosines


def test_cosines_are_those_of_the_definition(rng):
    table = rng.normal(size=(7, 4))
    table[3] = 0
    found = structure.position_cosines(table)
    pairs = [
        a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-9) for i, a in enumerate(table) for b in table[i + 1 :]
    ]
    np.testing.assert_allclose(found.pairs, pairs, atol=1e-12)
    (row,) = found.rows()
    assert row["mean"] == pytest.approx(np.mean(pairs)) and row["sd"] == pytest.approx(np.std(pairs))


# Sections and shifts


def test_sections_are_rows_aligned_to_the_diagonal(rng):
    matrices = rng.normal(size=(LAYERS, HEADS, 9, 9))
    found = structure.sections(matrices, queries=[0, 4, 8], reach=3)
    np.testing.assert_array_equal(found.values[1, 0, 1], matrices[1, 0, 4, 1:8])
    np.testing.assert_array_equal(found.values[0, 1, 0, 3:], matrices[0, 1, 0, :4])
    assert np.isnan(found.values[:, :, 0, :3]).all() and np.isnan(found.values[:, :, 2, 4:]).all()
    assert len(found.rows()) == LAYERS * HEADS * (4 + 7 + 4)


def test_sections_of_a_relative_bias_are_equal():
    found = structure.positional_sections(make("diet_rel"), reach=4)
    np.testing.assert_allclose(found.spread, 0, atol=1e-6)
    assert structure.positional_sections(make("diet_abs"), reach=4).spread.min() > 0.1
    assert found.queries.min() > 4  # [CLS] is out of reach


def test_sections_outside_the_text_are_refused(rng):
    with pytest.raises(ValueError, match="from 0 to 8"):
        structure.sections(rng.normal(size=(1, 1, 9, 9)), queries=[9])


def test_a_relative_bias_is_all_shift_and_tupe_treats_cls_apart():
    relative = structure.position_shifts(make("diet_rel"))
    np.testing.assert_allclose(relative.r2, 1)
    np.testing.assert_array_equal(relative.first_column + relative.first_row, 0)
    # The relative part of TUPE is a Toeplitz matrix but for the cells that [CLS] has of its own.
    model = make("tupe_rel")
    for block in model.encoder.blocks:
        for weight in block.attention.position.weights:
            if weight.name in ("positions", "query_projection", "key_projection"):
                weight.assign(np.zeros(weight.shape))
    tupe = structure.position_shifts(model)
    np.testing.assert_allclose(tupe.r2_without_first, 1)
    assert tupe.r2.max() < 0.99
    assert (tupe.first_row + tupe.first_column).min() > 0.5


def test_shares_of_the_first_row_and_column(rng):
    """Where row 0 of a Toeplitz matrix is moved, what is left unexplained is mostly there; column 0 likewise."""
    matrix = toeplitz_matrix(rng.normal(size=39))
    moved = np.stack([matrix, matrix])[None]
    moved[0, 0, 0] += 5
    moved[0, 1, :, 0] -= 5
    found = structure.shifts(moved)
    assert found.first_row[0, 0] > 0.4 and found.first_column[0, 0] < 0.1
    assert found.first_column[0, 1] > 0.4 and found.first_row[0, 1] < 0.1
    np.testing.assert_allclose(found.r2_without_first, 1)


# Attention by offset


def test_attention_that_shifts_is_explained_by_its_offset():
    """Without content, a relative bias gives attention that is the softmax of a line, at least far from the ends."""
    n, reach = 12, 2
    maps = np.zeros((1, 1, 1, n, n))
    maps[..., np.arange(1, n), np.arange(n - 1)] = 1.0  # everyone looks at the token before
    accumulator = offsets.AttentionByOffset(reach)
    accumulator.add(maps)
    found = accumulator.result()
    np.testing.assert_allclose(found.mean[0, 0], [0, 1, 0, 0, 0])
    assert found.r2[0, 0] == pytest.approx(1) and found.r2_without_first[0, 0] == pytest.approx(1)
    assert found.to_first[0, 0] == pytest.approx(1 / (n - 1))


def test_vertical_attention_is_not():
    """All look at [CLS]: offsets explain little of that, and nothing is left without position 0."""
    maps = np.zeros((1, 1, 1, 20, 20))
    maps[..., 0] = 1
    accumulator = offsets.AttentionByOffset()
    accumulator.add(maps)
    found = accumulator.result()
    assert found.to_first[0, 0] == 1 and found.r2[0, 0] < 0.25


def test_offset_attention_is_the_mean_over_pairs(rng):
    maps, mask = random_maps(rng)
    accumulator = offsets.AttentionByOffset(reach=3)
    accumulator.add(maps, mask)
    found = accumulator.result()
    for index, offset in enumerate(found.offsets):
        values = [
            maps[b, 1, 0, i, i + offset]
            for b in range(3)
            for i in range(9)
            if 0 <= i + offset < 9 and mask[b, i] and mask[b, i + offset]
        ]
        assert found.mean[1, 0, index] == pytest.approx(np.mean(values))


@pytest.mark.parametrize("kind", ["offset", "segment"])
def test_padding_and_batches_change_nothing(kind, rng):
    """Text by text without padding, as a list of layers, gives what a padded batch gives."""
    maps, mask = random_maps(rng)
    segments = np.sort(rng.integers(0, 2, mask.shape), axis=1)

    def update(accumulator, rows, length, layers):
        more = () if kind == "offset" else (segments[rows, :length],)
        accumulator.add(layers, *more, mask[rows, :length])

    make_one = offsets.AttentionByOffset if kind == "offset" else offsets.AttentionBySegment
    padded, alone = make_one(), make_one()
    noisy = maps + (1 - mask)[:, None, None, :, None]  # what stands in the rows of padding is of no account
    update(padded, slice(0, 3), 9, noisy)
    for b, length in enumerate(mask.sum(axis=1)):
        update(alone, slice(b, b + 1), length, list(maps[b, :, None, :, :length, :length]))
    assert padded.result().rows() == [pytest.approx(row, nan_ok=True) for row in alone.result().rows()]


def test_r2_of_maps_is_that_of_the_definition(rng):
    maps, _ = random_maps(rng)
    accumulator = offsets.AttentionByOffset()
    accumulator.add(maps[:1])
    found = accumulator.result()
    expected = structure.shifts(maps[0])
    np.testing.assert_allclose(found.r2, expected.r2)
    np.testing.assert_allclose(found.r2_without_first, expected.r2_without_first)


def test_accumulators_refuse_what_they_cannot_read(rng):
    maps, mask = random_maps(rng)
    with pytest.raises(ValueError, match="call `add` first"):
        offsets.AttentionByOffset().result()
    with pytest.raises(ValueError, match="list of"):
        offsets.AttentionByOffset().add(maps[0, 0])
    with pytest.raises(ValueError, match="padding_mask"):
        offsets.AttentionByOffset().add(maps, mask[:, :5])
    with pytest.raises(ValueError, match="num_segments=2"):
        offsets.AttentionBySegment().add(maps, mask * 2)


# Segments


def test_segment_attention_by_hand(rng):
    maps, mask = random_maps(rng)
    segments = np.sort(rng.integers(0, 2, mask.shape), axis=1)
    accumulator = offsets.AttentionBySegment()
    accumulator.add(maps, segments, mask)
    found = accumulator.result()
    np.testing.assert_allclose(found.mass.sum(axis=-1), 1)  # all attention is on real tokens
    np.testing.assert_allclose(found.uniform.sum(axis=-1), 1)
    shares = [
        maps[b, 1, 1, i, (segments[b] == 1) & (mask[b] == 1)].sum()
        for b in range(3)
        for i in range(9)
        if mask[b, i] and segments[b, i] == 0
    ]
    assert found.mass[1, 1, 0, 1] == pytest.approx(np.mean(shares))


def test_equal_attention_is_the_uniform_one(rng):
    _, mask = random_maps(rng)
    maps = np.broadcast_to((mask / mask.sum(1, keepdims=True))[:, None, None, None], (3, 1, 1, 9, 9))
    accumulator = offsets.AttentionBySegment()
    accumulator.add(maps, np.repeat([[0, 0, 0, 0, 1, 1, 1, 1, 1]], 3, axis=0), mask)
    np.testing.assert_allclose(accumulator.result().mass[0, 0], accumulator.result().uniform)


@pytest.mark.parametrize("sharing", ["none", "head", "layer"])
def test_without_words_the_attention_of_the_model_is_the_content_free_one(sharing):
    """With queries of zero, the model itself attends by position and segment alone (DIET, figure 6)."""
    model = make("diet_rel", sharing=sharing, segments="per_head")
    for block in model.encoder.blocks:
        for weight in block.attention.query_dense.weights:
            weight.assign(np.zeros(weight.shape))
    segment_ids = np.repeat([0, 1], [5, 4])
    inputs = {"token_ids": np.arange(9)[None], "segment_ids": segment_ids[None].astype("int32")}
    attention = [np.asarray(layer)[0] for layer in model(inputs, return_intermediates=True)["attention"]]
    np.testing.assert_allclose(structure.content_free_attention(model, segment_ids), attention, atol=1e-6)


def test_segment_biases_are_those_of_each_layer():
    model = make("diet_rel", segments="per_head")
    found = structure.segment_biases(model)
    tables = [block.attention.segment_bias.table for block in model.encoder.blocks]
    np.testing.assert_array_equal(found.tables, np.asarray(tables))
    assert found.rows()[3]["from_0_to_1"] == pytest.approx(float(tables[1][1, 0, 1]))
    with pytest.raises(ValueError, match="per_head"):
        structure.segment_biases(make("diet_rel"))


# Pictures


def test_every_result_can_be_drawn(rng):
    maps, mask = random_maps(rng)
    by_offset, by_segment = offsets.AttentionByOffset(3), offsets.AttentionBySegment()
    by_offset.add(maps, mask)
    by_segment.add(maps, mask, mask)
    model = make("learned+diet_rel", segments="per_head")
    ids = np.repeat([0, 1], 4)
    drawn = [
        (plots.plot_position_gram(structure.position_gram(model)), 2),
        (plots.plot_position_cosines({"a": structure.position_cosines(model)}), 1),
        (plots.plot_sections(structure.positional_sections(model)), HEADS),
        (plots.plot_shifts(structure.position_shifts(model)), 3),
        (plots.plot_positional_scores(structure.position_shifts(model), layer=1), HEADS),
        (plots.plot_offset_attention(by_offset.result()), LAYERS + 1),
        (plots.plot_segment_biases(structure.segment_biases(model)), 4),
        (plots.plot_segment_attention(by_segment.result()), 4),
        (plots.plot_content_free_attention(structure.content_free_attention(model, ids), ids), HEADS),
    ]
    for figure, panels in drawn:
        filled = [axes for axes in figure.axes if axes.get_title() and axes.has_data()]
        assert len(filled) == panels and figure.get_suptitle() + filled[0].get_title()


# Real weights


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, expected",
    [
        ("minilm", {128: (0.324, 0.522, 0.686), 256: (0.511, None, None), 512: (0.474, 0.477, None)}),
        ("xtremedistil", {128: (0.932, 0.932, None), 512: (0.770, 0.765, None)}),
    ],
)
def test_real_models(name, expected):
    """Values computed apart from this library; MiniLM's 128 positions are below random vectors' 0.75 in all."""
    if checkpoints.installed.find(name) is None:
        pytest.skip(f"{name} is not installed")
    rows = {row["length"]: row for row in structure.position_gram(checkpoints.installed.load(name).model).rows()}
    for length, values in expected.items():
        for key, value in zip(("r2", "r2_off_diagonal", "r2_without_first"), values):
            assert value is None or rows[length][key] == pytest.approx(value, abs=6e-4)
    if name == "minilm":
        assert rows[128]["random_r2"] == pytest.approx(0.75, abs=0.01)
        assert rows[512]["random_r2"] == pytest.approx(0.43, abs=0.01)
