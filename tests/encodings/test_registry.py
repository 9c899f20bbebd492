"""Names, options and errors of encodings."""

import numpy as np
import pytest

from keras_posenc import encodings


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ValueError, match="'diet'.*diet_abs.*tisa"):
        encodings.create("diet", num_heads=2, key_dim=4)


def test_unknown_options_list_the_known_ones():
    with pytest.raises(ValueError, match="takes kernals.*kernels"):
        encodings.create("tisa", {"kernals": 3}, num_heads=2, key_dim=4)


def test_specs():
    assert encodings.parse(None) == ["none"]
    assert encodings.parse("learned + tisa") == ["learned", "tisa"]
    assert encodings.split("learned+tisa") == (["learned"], ["tisa"])
    assert encodings.split("none") == ([], [])
    with pytest.raises(ValueError, match="once"):
        encodings.parse("tisa+tisa")


def test_a_name_cannot_be_taken_twice():
    with pytest.raises(ValueError, match="'tisa' is taken by Tisa"):

        @encodings.register("tisa")
        class Other(encodings.PositionEncoding):
            pass


@pytest.mark.parametrize("name", encodings.names())
def test_documentation(name):
    cls = encodings.get_class(name)
    assert "Reference:" in cls.__doc__ or name == "none"
    for option in encodings.options(name):
        if option != "initializer":
            assert f"{option}" in cls.__doc__, f"{option} is not documented"


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: encodings.DietAbs(2, 4, 8, rank=0), "`rank`.*at least 1.*rank=0"),
        (lambda: encodings.DietAbs(2, 4, 8, rank=2.5), "rank=2.5"),
        (lambda: encodings.DietAbs(2, None, 8), "needs `rank`, or `key_dim`"),
        (lambda: encodings.DietAbs(2, 4), "needs `max_length`"),
        (lambda: encodings.DietAbs(2, 4, -1), "max_length=-1"),
        (lambda: encodings.DietRel(0, 4, 8), "num_heads=0"),
        (lambda: encodings.DietAbs(2, 4, 8, extrapolate="wrap"), "'clip'.*extrapolate='wrap'"),
        (lambda: encodings.Tisa(2, extrapolate="clip"), "extrapolate='clip'"),
        (lambda: encodings.Tisa(2, kernels=-1), "kernels=-1"),
        (lambda: encodings.T5Bias(2, num_buckets=2), "num_buckets=2"),
        (lambda: encodings.T5Bias(2, max_distance=4), "max_distance=4"),
        (lambda: encodings.Rotary(2, 5), "even.*key_dim=5"),
        (lambda: encodings.Rotary(2, 4, layout="whole"), "layout='whole'"),
        (lambda: encodings.Rotary(2, 4, scaling="dynamic"), "needs `max_length`"),
        (lambda: encodings.Rotary(2, 4, scaling="linear", factor=0.5), "factor=0.5"),
        (lambda: encodings.Synthesizer(2, 4, 8, kind="sparse"), "kind='sparse'"),
        (lambda: encodings.Kerple(2, kind="exp"), "kind='exp'"),
        (lambda: encodings.Shaw(2, 4, max_distance=0), "max_distance=0"),
        (lambda: encodings.create("shaw+transformer_xl", num_heads=2, key_dim=4), "At most one"),
        (lambda: encodings.create("learned+tisa", num_heads=2, key_dim=4, max_length=4), "added to the input"),
        (lambda: encodings.create("tupe+tisa", num_heads=2, key_dim=4, max_length=4), "scale"),
    ],
)
def test_bad_constructors_name_the_value_and_the_remedy(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_encodings_at_the_input_and_biases_are_layers_of_their_own():
    x = np.zeros((2, 5, 8), "float32")
    assert encodings.Learned(max_length=6)(x).shape == (2, 5, 8)
    assert encodings.Tisa(num_heads=3)(x).shape == (1, 3, 5, 5)
    assert encodings.NoPosition()(x) is not None
    with pytest.raises(TypeError, match="PositionalAttention"):
        encodings.Shaw(2, 4)(x)
