"""What the pictures of identifiability show is what was measured."""

import numpy as np
import pytest

from keras_posenc.analysis.identifiability import CrossLayerRates, HiddenRates, LayerRates, NeighbourRates, Piece
from keras_posenc.analysis.plots import identifiability as plots


def piece(rate, map="linear", source=1, target=0, tested=1, offset=0, fold=0):
    return Piece(map, source, target, tested, offset, fold, "test", rate, rate / 2, 0.1, 10, "", "")


def lines(figure):
    return {line.get_label(): line.get_ydata() for line in figure.axes[0].lines}


def test_lines_are_percentages_of_each_layer_with_bands_of_a_deviation():
    pieces = [
        piece(r, source=layer, tested=layer, fold=f)
        for f, d in enumerate((-0.1, 0.1))
        for layer, r in ((1, 0.8 + d), (2, 0.5 + d))
    ]
    figure = plots.plot_layers(LayerRates(pieces))
    shown = lines(figure)
    np.testing.assert_allclose(shown["linear, cosine"], [80, 50])
    np.testing.assert_allclose(shown["linear, L2"], [40, 25])
    np.testing.assert_allclose(shown["chance, 10.0 %"], 10)
    band = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    deviation = 100 * np.std([0.7, 0.9], ddof=1)
    assert (band.min(), band.max()) == pytest.approx((50 - deviation, 80 + deviation))


def test_hidden_to_hidden_is_labelled_by_its_layers():
    figure = plots.plot_layers(HiddenRates([piece(0.9, source=1, target=0), piece(0.7, source=2, target=1)]))
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["1→0", "2→1"]
    np.testing.assert_allclose(lines(figure)["linear, cosine"], [90, 70])


def test_heatmap_has_fits_down_and_tests_across():
    rates = {(1, 1): 0.9, (1, 2): 0.2, (2, 1): 0.7, (2, 2): 0.8}
    figure = plots.plot_cross_layer(CrossLayerRates([piece(r, source=a, tested=b) for (a, b), r in rates.items()]))
    np.testing.assert_allclose(figure.axes[0].images[0].get_array(), [[90, 20], [70, 80]])
    assert [text.get_text() for text in figure.axes[0].texts] == ["90", "20", "70", "80"]


def test_neighbours_have_a_line_for_each_place_and_the_baseline_beside():
    pieces = [piece(0.1 * abs(k) + 0.2 * (k > 0), source=layer, offset=k) for k in (-2, -1, 1) for layer in (1, 2)]
    pieces += [piece(0.05, "naive", source=layer, offset=k) for k in (-2, -1, 1) for layer in (1, 2)]
    shown = lines(plots.plot_neighbours(NeighbourRates(pieces)))
    np.testing.assert_allclose(shown["linear, token -2"], [20, 20])
    np.testing.assert_allclose(shown["linear, token +1"], [30, 30])
    np.testing.assert_allclose(shown["naive"], [5, 5])
