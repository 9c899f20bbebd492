"""Fitted maps against NumPy's solution, against each other and on what only some can undo."""

import dataclasses
import os

import numpy as np
import pytest

from keras_posenc.analysis.identifiability import Identifiability
from keras_posenc.analysis.identifiability_data import TRAIN, VALIDATION, pack_tokens, split_folds
from keras_posenc.analysis.identifiability_maps import MAPS, Pairs, Ridge, Trained
from keras_posenc.checkpoints import installed


@pytest.fixture
def pairs(rng):
    """Noisy linear pairs with an offset, three folds; the targets are in another order than the sources."""
    source = (rng.normal(size=(400, 6)) @ rng.normal(size=(6, 6)) + 2).astype("float32")
    answer = rng.permutation(400)
    target = np.empty((400, 5), "float32")
    target[answer] = source @ rng.normal(size=(6, 5)) + 3 + rng.normal(size=(400, 5))
    return Pairs(source, target, np.arange(400), answer, split_folds(np.arange(400), 3))


def train_loss(data, fold, g):
    query, answer = data.of(fold, TRAIN)
    return np.square(g(data.source[query]) - data.target[answer]).mean()


@pytest.mark.parametrize("bias", [False, True])
def test_closed_form_equals_least_squares(pairs, bias):
    fit = Ridge(bias=bias, ridges=(0.0,)).fitter(pairs)
    for fold in range(3):
        query, answer = pairs.of(fold, TRAIN)
        design = lambda x: np.concatenate([x, np.ones((len(x), int(bias)))], axis=1)  # noqa: E731
        solution = np.linalg.lstsq(design(pairs.source[query]), pairs.target[answer], rcond=None)[0]
        np.testing.assert_allclose(fit(fold)[0](pairs.source), design(pairs.source) @ solution, rtol=1e-4, atol=1e-3)


def test_closed_form_of_dependent_columns_is_the_least_norm(pairs):
    pairs.source = np.concatenate([pairs.source, pairs.source], axis=1)
    g, _ = Ridge(ridges=(0.0,)).fitter(pairs)(0)
    query, answer = pairs.of(0, TRAIN)
    solution = np.linalg.lstsq(pairs.source[query], pairs.target[answer], rcond=1e-5)[0]
    np.testing.assert_allclose(g(np.eye(12, dtype="float32")), solution, atol=1e-4)


@pytest.mark.parametrize("bias", [False, True])
def test_ridge_is_the_best_of_the_grid_on_validation(rng, bias):
    # 30 tokens for 20 columns: least squares overfits, so that the best ridge is neither end of the grid.
    source = rng.normal(size=(60, 20)).astype("float32") + 1
    target = (source @ rng.normal(size=(20, 3)) + 9 * rng.normal(size=(60, 3)) + 2).astype("float32")
    data = Pairs(source, target, np.arange(60), np.arange(60), split_folds(np.arange(60), 1, (0.5, 0.4, 0.1)))
    ridges = (0.0, 1e-2, 1e-1, 1.0, 10.0, 1000.0)
    (train, _), (held_out, _) = data.of(0, TRAIN), data.of(0, VALIDATION)
    center = source[train].mean(0) if bias else np.zeros(20)
    goal = target[train].mean(0) if bias else np.zeros(3)
    x, losses, answers = source - center, [], []
    gram = x[train].T @ x[train]
    for ridge in ridges:
        penalty = ridge * np.trace(gram) / 20 * np.eye(20)
        weight = np.linalg.solve(gram + penalty, x[train].T @ (target[train] - goal))
        answers.append(x @ weight + goal)
        losses.append(np.square(answers[-1] - target)[held_out].sum())
    best = int(np.argmin(losses))
    assert 0 < best < len(ridges) - 1
    g, note = Ridge(bias=bias, ridges=ridges).fitter(data)(0)
    assert note == f"ridge {ridges[best]:.1e}"
    np.testing.assert_allclose(g(source), answers[best], rtol=1e-3, atol=1e-3)


@pytest.mark.integration
def test_no_trained_perceptron_has_a_smaller_loss_than_the_closed_form(pairs):
    solved, _ = Ridge(ridges=(0.0,)).fitter(pairs)(0)
    trained, note = dataclasses.replace(MAPS["linear_l2"], learning_rate=0.1, batch_size=280, max_epochs=300).fitter(
        pairs, (1,)
    )(0)
    best, near = train_loss(pairs, 0, solved), train_loss(pairs, 0, trained)
    assert best <= near < 1.2 * best, note


@pytest.mark.integration
def test_training_is_decided_by_the_seed_and_leaves_the_global_one_alone(pairs):
    spec = dataclasses.replace(MAPS["mlp_cosine"], hidden=7, learning_rate=0.01, max_epochs=3)
    states, outputs = [], []
    for seed in (1, 1, 2):
        np.random.seed(3)
        outputs.append(spec.fitter(pairs, (seed,))(0)[0](pairs.source))
        states.append(np.random.random())
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert np.abs(outputs[0] - outputs[2]).max() > 1e-3
    assert len(set(states)) == 1


@pytest.mark.integration
def test_training_stops_and_keeps_the_best_weights(pairs):
    rng = np.random.default_rng(0)
    pairs.target = rng.normal(size=pairs.target.shape).astype("float32")  # nothing to learn but the training set
    spec = Trained("t", "l2", hidden=32, bias=True, learning_rate=0.02, batch_size=32, patience=3, max_epochs=100)
    g, note = spec.fitter(pairs, (0,))(0)
    best, ran = int(note.split()[1]), int(note.split()[3].strip(","))
    assert ran == best + 3 < 100
    query, answer = pairs.of(0, VALIDATION)
    loss = np.square(g(pairs.source[query]) - pairs.target[answer]).mean()
    assert loss == pytest.approx(float(note.split()[-1]), rel=1e-3)


@pytest.mark.integration
def test_network_undoes_what_no_linear_map_can(rng):
    # h = (x^3 of half the columns, and the absolute value and sign of the rest apart): invertible, not linear.
    sentences = np.repeat(np.arange(200), 10)
    x = rng.normal(size=(2000, 6)).astype("float32")
    hidden = np.concatenate([x[:, :2] ** 3, np.where(x[:, 2:] > 0, 3, 0) - np.abs(x[:, 2:])], axis=1)
    mlp = Trained("mlp", "l2", hidden=64, bias=True, learning_rate=0.01, batch_size=128, patience=5, max_epochs=40)
    probe = Identifiability(x, hidden[None], sentences)
    result = probe.identify(("naive", Ridge(bias=True), mlp), run_folds=[0])
    rate = {row["map"]: row["rate"] for row in result.rows() if row["metric"] == "cosine"}
    assert rate["mlp"] > rate["linear"] + 0.1


def test_protocol_is_the_papers():
    assert {(m.learning_rate, m.batch_size, m.patience) for m in MAPS.values() if isinstance(m, Trained)} == {
        (1e-4, 256, 20)
    }
    assert MAPS["mlp_l2"].network(768, 768).count_params() == 768 * 1000 + 1000 + 1000 * 768 + 768
    assert MAPS["linear_cosine"].network(768, 768).count_params() == 768 * 768  # no bias


@pytest.mark.slow
def test_linear_maps_identify_more_than_naive_at_the_last_layer_of_a_real_model():
    folder = os.environ.get("KERAS_POSENC_DATA")
    file = os.path.join(folder or "", "glue", "MRPC", "dev.tsv")
    if installed.find("minilm") is None or not os.path.isfile(file):
        pytest.skip("needs MiniLM and MRPC (KERAS_POSENC_DATA)")
    with open(file, encoding="utf-8-sig") as lines:
        examples = [tuple(line.rstrip("\n").split("\t")[3:5]) for line in lines][1:121]
    loaded = installed.load("minilm")
    encoded = loaded.tokenizer.encode(examples, 128)
    states = loaded.model(encoded, return_intermediates=True)["hidden_states"]
    (x, sentences), (h, _) = (pack_tokens(states[layer], encoded["padding_mask"]) for layer in (0, -1))
    rows = Identifiability(x, [h], sentences).identify().rows()
    rate = {(row["map"], row["metric"]): row["rate"] for row in rows}
    # The paper: a linear map identifies more than none, and angles tell more than distances.
    assert rate["linear", "cosine"] > rate["naive", "cosine"] > 10 * rows[0]["chance"]
    assert rate["linear", "l2"] > rate["naive", "l2"]
    assert rate["linear", "cosine"] > rate["linear", "l2"]
