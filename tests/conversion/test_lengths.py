import warnings

import numpy as np
import pytest
from conversion_models import HEADS, LENGTH, inputs
from conversion_models import make as make_model

from keras_posenc import encodings
from keras_posenc.conversion import extend_length

LONGER = LENGTH + 9
EXTENDABLE = sorted(set(encodings.names()) - {"synthesizer", "diet_abs_lin"})
UNDOUBTED = {"alibi", "fire", "kerple", "none", "shaw", "t5", "tisa", "transformer_xl"}


def make(position="learned", **options):
    return make_model(position, num_layers=1, **options)


def output(model, tokens):
    return np.asarray(model(tokens)["sequence_output"])


@pytest.mark.filterwarnings("ignore:.*not to be trusted")
@pytest.mark.parametrize("method", [None, "clip", "interpolate"])
@pytest.mark.parametrize("position", [*EXTENDABLE, "learned+tisa", "diet_rel+learned", "diet_abs+t5"])
def test_old_lengths_are_unchanged_and_longer_ones_run(rng, position, method):
    model = make(position)
    longer = extend_length(model, LONGER, method)
    tokens = inputs(rng)
    np.testing.assert_array_equal(output(longer, tokens), output(model, tokens))
    result = output(longer, inputs(rng, length=LONGER))
    assert result.shape[1] == LONGER and np.isfinite(result).all()


@pytest.mark.filterwarnings("ignore:.*not to be trusted")
@pytest.mark.parametrize("position", ["rotary", "rotary+tisa"])
def test_dynamic_scaling_counts_from_the_trained_length(rng, position):
    """The model took longer inputs before: their base, and their outputs, stay."""
    model = make(position, position_options={"scaling": "dynamic"})
    tokens = inputs(rng, length=LONGER - 2)
    np.testing.assert_array_equal(output(extend_length(model, LONGER), tokens), output(model, tokens))


@pytest.mark.parametrize("position", EXTENDABLE)
def test_where_it_cannot_be_expected_to_work_there_is_a_warning(position):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        extend_length(make(position), LONGER)
    told = [str(w.message) for w in caught if "not to be trusted" in str(w.message)]
    assert len(told) == (0 if position in UNDOUBTED else 1)


@pytest.mark.filterwarnings("ignore:.*not to be trusted")
def test_clipped_distances_are_one_distance():
    table = np.asarray(make("diet_rel").encoder.blocks[0].attention.position.table)
    longer = extend_length(make("diet_rel"), LONGER).encoder.blocks[0].attention.position.table
    more = LONGER - LENGTH
    np.testing.assert_array_equal(longer[:, more:-more], table)
    np.testing.assert_array_equal(longer[:, :more], np.repeat(table[:, :1], more, axis=1))
    assert longer.shape == (HEADS, 2 * LONGER - 1)


@pytest.mark.filterwarnings("ignore:.*not to be trusted")
def test_of_a_sum_each_part_is_continued_in_its_own_way():
    """T5's buckets are defined at all distances; a table is squeezed, so that its ends stay at the ends."""
    short, long = (m.encoder.blocks[0].attention.position.encodings for m in extended("diet_abs+t5"))
    np.testing.assert_array_equal(long[1].at(LONGER).bias, short[1].at(LONGER).bias)
    known, squeezed = (np.asarray(part.at(n).bias) for part, n in ((short[0], LENGTH), (long[0], LONGER)))
    ends = np.ix_([0], range(HEADS), [0, -1], [0, -1])
    np.testing.assert_allclose(squeezed[ends], known[ends], rtol=1e-5)


def extended(position):
    model = make(position)
    return model, extend_length(model, LONGER)


@pytest.mark.filterwarnings("ignore:.*not to be trusted")
def test_extended_models_are_trained_further_or_folded():
    model = extend_length(make("diet_abs"), LONGER, "clip")
    model.fold_positions(LONGER)
    assert model.encoder.max_length == LONGER


def test_what_has_no_continuation_is_an_error():
    with pytest.raises(ValueError, match="no way to continue"):
        extend_length(make("synthesizer"), LONGER)
    with pytest.raises(ValueError, match="Linformer"):
        extend_length(make("learned", num_keys=4), LONGER)
    with pytest.raises(ValueError, match=f"takes {LENGTH} tokens already"):
        extend_length(make(), LENGTH)
    with pytest.raises(ValueError, match="'synthesizer'.*no way to continue"):
        extend_length(make("diet_abs+synthesizer"), LONGER)
