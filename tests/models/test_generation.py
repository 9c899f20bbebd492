"""Compiled searches against searches written out in Python, without a cache."""

import itertools

import keras
import numpy as np
import pytest

from keras_posenc.models.encoder_decoder import EncoderDecoder
from keras_posenc.models.generation import generate, length_penalty

BOS, EOS = 1, 2


def make(vocab_size=6, seed=0, scale=0.4, max_length=8, **kwargs):
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, max_length=max_length)
    model = EncoderDecoder(vocab_size, **{**sizes, **kwargs})
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape, scale=scale))
    return model


def sources(vocab_size=6, rows=6, seed=1):
    """Rows of one to five tokens."""
    rng = np.random.default_rng(seed)
    token_ids = rng.integers(3, vocab_size, (rows, 5)).astype("int32")
    return token_ids * (np.arange(5) < rng.integers(1, 6, (rows, 1)))


def reverse(token_ids):
    """The targets of the task to reverse, and the inputs of the model."""
    answers = np.zeros((len(token_ids), 6), "int32")
    for row, tokens in enumerate(token_ids):
        kept = tokens[tokens != 0][::-1]
        answers[row, : len(kept) + 1] = [*kept, EOS]
    begun = np.pad(answers, ((0, 0), (1, 0)), constant_values=BOS)[:, :-1]
    return answers, {"token_ids": token_ids, "target_ids": begun}


def teach(model, token_ids, epochs):
    answers, inputs = reverse(token_ids)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss={"logits": loss})
    model.fit(inputs, {"logits": answers}, batch_size=len(token_ids), epochs=epochs, verbose=0)


@pytest.fixture(scope="module")
def uncertain():
    """A model that has begun to learn to reverse: its targets have different lengths, and close rivals."""
    keras.utils.set_random_seed(0)
    model = EncoderDecoder(6, 1, 2, 16, 32, max_length=8, position="diet_rel", cross_position="same", sharing="layer")
    teach(model, sources(rows=48, seed=2), epochs=25)
    return model


def next_log_probs(model, source, prefixes):
    """`(prefixes, vocabulary)`, from the whole model."""
    targets = np.array([[BOS, *prefix] for prefix in prefixes], "int32")
    inputs = {"token_ids": np.repeat(source[None], len(targets), axis=0), "target_ids": targets}
    logits = keras.ops.convert_to_numpy(model(inputs)["logits"])[:, -1].astype("float64")
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def penalised(log_prob, length, alpha):
    return log_prob / ((5 + length) / 6) ** alpha


def naive_greedy(model, source, max_length):
    target, log_prob = [], 0.0
    while len(target) < max_length and EOS not in target:
        step = next_log_probs(model, source, [target])[0]
        target.append(int(step.argmax()))
        log_prob += step.max()
    return target, log_prob


def naive_beam(model, source, max_length, beam, alpha, fill):
    """Wu et al.'s search as in Tensor2Tensor, with lists. `fill`: go on until `beam` targets have ended."""
    alive, ended = [(0.0, ())], []
    for length in range(1, max_length + 1):
        step = next_log_probs(model, source, [prefix for _, prefix in alive])
        grown = [(lp + s, (*prefix, token)) for (lp, prefix), row in zip(alive, step) for token, s in enumerate(row)]
        grown = sorted(grown, reverse=True)[: 2 * beam]
        ended += [(penalised(lp, length, alpha), target) for lp, target in grown if target[-1] == EOS]
        ended = sorted(ended, reverse=True)[:beam]
        alive = [candidate for candidate in grown if candidate[1][-1] != EOS][:beam]
        enough = len(ended) == beam if fill else bool(ended)
        if enough and ended[-1][0] > penalised(alive[0][0], max_length, alpha):
            break
    return ended or [(penalised(lp, max_length, alpha), target) for lp, target in alive]


def padded(target, max_length):
    return list(target) + [0] * (max_length - len(target))


def test_greedy_equals_a_loop_without_cache(uncertain):
    found = generate(uncertain, sources(), bos_id=BOS, eos_id=EOS, max_length=3, length_penalty=0.0)
    ended = set()
    for row, source in enumerate(sources()):
        target, log_prob = naive_greedy(uncertain, source, 3)
        assert found["token_ids"][row].tolist() == padded(target, 3)
        np.testing.assert_allclose(found["scores"][row], log_prob, atol=1e-4)
        ended.add(EOS in target)
    assert ended == {True, False}  # both ways of stopping were seen


@pytest.mark.parametrize("beam, alpha, limit", [(2, 0.6, 7), (3, 0.0, 4), (4, 1.5, 5)])
def test_beam_search_equals_lists(uncertain, beam, alpha, limit):
    options = dict(bos_id=BOS, eos_id=EOS, max_length=limit, method="beam", beam_size=beam, length_penalty=alpha)
    best, every = (generate(uncertain, sources(), return_all=every, **options) for every in (False, True))
    lengths = set()
    for row, source in enumerate(sources()):
        score, target = naive_beam(uncertain, source, limit, beam, alpha, fill=False)[0]
        assert best["token_ids"][row].tolist() == padded(target, limit)
        np.testing.assert_allclose(best["scores"][row], score, atol=1e-4)
        expected = naive_beam(uncertain, source, limit, beam, alpha, fill=True)
        for place, (score, target) in enumerate(expected):
            assert every["hypotheses"][row, place].tolist() == padded(target, limit)
            np.testing.assert_allclose(every["hypothesis_scores"][row, place], score, atol=1e-4)
            lengths.add(len(target))
        assert np.all(every["hypothesis_scores"][row, len(expected) :] == -np.inf)
    np.testing.assert_array_equal(every["hypotheses"][:, 0], every["token_ids"])
    assert len(lengths) > 2


def test_nothing_finished_gives_the_unfinished(uncertain):
    # Two tokens are too few to reverse five and end.
    source = np.array([[3, 4, 5, 3, 4]], "int32")
    found = generate(uncertain, source, bos_id=BOS, eos_id=EOS, max_length=2, method="beam", beam_size=2)
    score, target = naive_beam(uncertain, source[0], 2, 2, 0.6, fill=False)[0]
    assert EOS not in target and found["token_ids"][0].tolist() == list(target)
    np.testing.assert_allclose(found["scores"][0], score, atol=1e-4)


def test_a_beam_as_wide_as_the_tree_is_exhaustive_search():
    model, source, vocab_size, length = make(4, seed=5), sources(4, rows=1), 4, 3
    found = generate(
        model, source, bos_id=BOS, eos_id=EOS, max_length=length, method="beam", beam_size=64, return_all=True
    )
    scored = []
    for ending in range(1, length + 1):
        others = [token for token in range(vocab_size) if token != EOS]
        for start in itertools.product(others, repeat=ending - 1):
            target = (*start, EOS)
            log_prob = sum(next_log_probs(model, source[0], [target[:i]])[0, token] for i, token in enumerate(target))
            scored.append((penalised(log_prob, ending, 0.6), target))
    scored.sort(reverse=True)
    assert len(scored) == 1 + 3 + 9
    for place, (score, target) in enumerate(scored):
        assert found["hypotheses"][0, place].tolist() == padded(target, length)
        np.testing.assert_allclose(found["hypothesis_scores"][0, place], score, atol=1e-4)
    assert np.all(found["hypothesis_scores"][0, len(scored) :] == -np.inf)
    assert np.all(found["hypotheses"][0, len(scored) :] == 0)


def test_a_beam_of_one_is_greedy():
    model = make(seed=1)
    greedy = generate(model, sources(), bos_id=BOS, eos_id=EOS)
    beam = generate(model, sources(), bos_id=BOS, eos_id=EOS, method="beam", beam_size=1, return_all=True)
    np.testing.assert_array_equal(beam["token_ids"], greedy["token_ids"])
    np.testing.assert_array_equal(beam["scores"], greedy["scores"])
    np.testing.assert_array_equal(beam["hypotheses"][:, 0], greedy["token_ids"])


def test_length_penalty_is_that_of_wu_et_al():
    # Equation 14: lp(Y) = (5 + |Y|)^alpha / (5 + 1)^alpha.
    for length, alpha in ((1, 0.6), (7, 0.6), (20, 1.0), (9, 0.0)):
        expected = (5 + length) ** alpha / (5 + 1) ** alpha
        np.testing.assert_allclose(length_penalty(length, alpha), expected, rtol=1e-6)
    model = make()
    plain, penalty = (generate(model, sources(), bos_id=BOS, eos_id=EOS, length_penalty=alpha) for alpha in (0.0, 0.6))
    lengths = [list(row).index(EOS) + 1 if EOS in row else 8 for row in plain["token_ids"].tolist()]
    np.testing.assert_allclose(penalty["scores"], [penalised(s, n, 0.6) for s, n in zip(plain["scores"], lengths)])


def test_a_larger_penalty_exponent_prefers_longer_targets(uncertain):
    options = dict(bos_id=BOS, eos_id=EOS, method="beam", beam_size=4)
    found = [generate(uncertain, sources(), length_penalty=alpha, **options)["token_ids"] for alpha in (0.0, 3.0)]
    short, long = ((targets != 0).sum(axis=1) for targets in found)
    assert np.all(long >= short) and long.sum() > short.sum()


def test_what_is_added_to_a_batch_changes_nothing():
    model = make(seed=2, position="rotary", cross_position="same")
    token_ids = sources(rows=5)
    options = dict(bos_id=BOS, eos_id=EOS, method="beam", beam_size=3)
    together = generate(model, token_ids, **options)  # five rows run as six
    for row in (0, 4):
        alone = generate(model, token_ids[row : row + 1], (token_ids[row : row + 1] != 0), **options)
        np.testing.assert_array_equal(alone["token_ids"][0], together["token_ids"][row])
        np.testing.assert_allclose(alone["scores"][0], together["scores"][row], atol=1e-4)


def test_searches_are_compiled_once_for_similar_shapes_and_follow_the_weights():
    model = make(max_length=12)
    traces = []
    encode = model.encode
    model.encode = lambda *args, **kwargs: traces.append(1) or encode(*args, **kwargs)
    for rows, length in ((3, 3), (3, 8), (3, 5)):
        generate(model, np.full((rows, length), 3, "int32"), bos_id=BOS, eos_id=EOS, length_penalty=0.1 * length)
    assert len(traces) == 1
    generate(model, np.full((3, 9), 3, "int32"), bos_id=BOS, eos_id=EOS)
    assert len(traces) == 2

    other, token_ids = make(seed=7, max_length=12), sources(rows=3)
    before = generate(model, token_ids, bos_id=BOS, eos_id=EOS)
    model.set_weights(other.get_weights())
    after = generate(model, token_ids, bos_id=BOS, eos_id=EOS)
    assert len(traces) == 2
    expected = generate(other, token_ids, bos_id=BOS, eos_id=EOS)
    np.testing.assert_allclose(after["scores"], expected["scores"], atol=1e-5)
    assert np.abs(before["scores"] - after["scores"]).max() > 1e-3


@pytest.mark.parametrize("position", ["diet_rel", "tisa", "sinusoidal"])
def test_a_fold_shorter_than_the_search(position):
    model = make(position=position)
    expected = generate(model, sources(), bos_id=BOS, eos_id=EOS)
    model.fold_positions(5)
    found = generate(model, sources(), bos_id=BOS, eos_id=EOS)
    np.testing.assert_array_equal(found["token_ids"], expected["token_ids"])
    np.testing.assert_allclose(found["scores"], expected["scores"], atol=1e-5)


@pytest.mark.parametrize("sharing", ["none", "layer"])
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_a_fold_as_long_as_the_source_and_shorter_than_the_search(sharing, jit_compile):
    model = make(max_length=12, position="diet_rel", cross_position="same", sharing=sharing)
    options = dict(bos_id=BOS, eos_id=EOS, jit_compile=jit_compile)
    expected = generate(model, sources(), **options)
    assert (expected["token_ids"][:, 8:] != 0).any()  # sources are padded to 8
    model.fold_positions(8)
    found = generate(model, sources(), **options)
    np.testing.assert_array_equal(found["token_ids"], expected["token_ids"])
    np.testing.assert_allclose(found["scores"], expected["scores"], atol=1e-5)


def test_folding_between_searches():
    model = make(position="diet_rel", sharing="layer")
    before = generate(model, sources(), bos_id=BOS, eos_id=EOS)
    model.fold_positions(8)
    folded = generate(model, sources(), bos_id=BOS, eos_id=EOS)
    model.unfold_positions()
    model.decoder.position.weights[0].assign(model.decoder.position.weights[0] + np.arange(15.0))
    changed = generate(model, sources(), bos_id=BOS, eos_id=EOS)
    model.fold_positions(8)
    folded_again = generate(model, sources(), bos_id=BOS, eos_id=EOS)
    np.testing.assert_allclose(folded["scores"], before["scores"], atol=1e-5)
    np.testing.assert_allclose(folded_again["scores"], changed["scores"], atol=1e-5)
    assert np.abs(changed["scores"] - before["scores"]).max() > 1e-3
    # Whatever the weights lead to, it is what the changed model says without a cache, a fold or a compiled function.
    model.unfold_positions()
    for row, source in enumerate(sources()):
        target, _ = naive_greedy(model, source, 8)
        assert changed["token_ids"][row].tolist() == padded(target, 8)


@pytest.mark.parametrize("options", [{"method": "beam", "beam_size": 3}, {"method": "sample", "seed": 4, "top_p": 0.9}])
def test_xla_equals_the_graph(uncertain, options):
    graph, xla = (
        generate(uncertain, sources(), bos_id=BOS, eos_id=EOS, jit_compile=jit, **options) for jit in (False, True)
    )
    np.testing.assert_array_equal(graph["token_ids"], xla["token_ids"])
    np.testing.assert_allclose(graph["scores"], xla["scores"], atol=1e-4)


def test_sampling_repeats_with_its_seed_and_is_greedy_with_one_choice(uncertain):
    options = dict(bos_id=BOS, eos_id=EOS, method="sample")
    first, same, other = (generate(uncertain, sources(), seed=seed, **options)["token_ids"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)
    greedy = generate(uncertain, sources(), bos_id=BOS, eos_id=EOS)
    for one_choice in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}):
        sampled = generate(uncertain, sources(), seed=3, **one_choice, **options)
        np.testing.assert_array_equal(sampled["token_ids"], greedy["token_ids"])
        np.testing.assert_allclose(sampled["scores"], greedy["scores"], atol=1e-5)


@pytest.mark.parametrize("cut", [{}, {"temperature": 2.0}, {"top_k": 3}, {"top_p": 0.7}, {"top_k": 4, "top_p": 0.6}])
def test_first_sampled_tokens_follow_the_distribution(cut):
    model, rows = make(seed=3), 3072
    source = sources(rows=1)
    found = generate(
        model, np.repeat(source, rows, axis=0), bos_id=BOS, eos_id=EOS, max_length=1, method="sample", seed=0, **cut
    )
    expected = np.exp(next_log_probs(model, source[0], [[]])[0] / cut.get("temperature", 1.0))
    expected /= expected.sum()
    ranked = np.argsort(-expected)
    allowed = ranked[: cut.get("top_k", 6)]
    mass = np.cumsum(expected[allowed] / expected[allowed].sum())
    allowed = allowed[: 1 + int((mass < cut.get("top_p", 2.0)).sum())]
    expected = np.where(np.isin(np.arange(6), allowed), expected, 0)
    expected /= expected.sum()
    observed = np.bincount(found["token_ids"][:, 0], minlength=6) / rows
    np.testing.assert_allclose(observed, expected, atol=4 * np.sqrt(0.25 / rows))
    assert np.all(observed[expected == 0] == 0)


def test_errors_say_what_is_wrong():
    model = make(position="learned")
    ids = dict(bos_id=BOS, eos_id=EOS)
    for match, options in (
        ("`method`", {"method": "best"}),
        ("max_length=8", {"max_length": 9}),
        ("vocab_size=6", {"eos_id": 6}),
        ("`bos_id` must be a token", {"bos_id": 1.5}),
        ("`beam_size`", {"method": "beam", "beam_size": 0}),
        ("`length_penalty`", {"length_penalty": -1}),
        ("`length_penalty`", {"length_penalty": float("nan")}),
        ("greedy", {"method": "sample", "temperature": 0.0}),
        ("`top_p`", {"method": "sample", "top_p": 0.0}),
        ("method='sample'", {"top_k": 3}),
        ("method='beam'", {"return_all": True}),
        ("shape of `token_ids`", {"padding_mask": np.ones((6, 4))}),
    ):
        with pytest.raises(ValueError, match=match):
            generate(model, sources(), **{**ids, **options})
    with pytest.raises(ValueError, match="integers of shape"):
        generate(model, np.zeros((2, 3)), **ids)


@pytest.mark.integration
def test_a_small_model_learns_to_reverse_and_beam_search_finds_it(tmp_path):
    token_ids = sources(10, rows=32, seed=0)
    answers, _ = reverse(token_ids)
    keras.utils.set_random_seed(0)
    model = EncoderDecoder(10, 1, 4, 32, 64, max_length=6, position="diet_rel", cross_position="same", norm_first=True)
    teach(model, token_ids, epochs=200)
    options = dict(bos_id=BOS, eos_id=EOS, method="beam", beam_size=4, return_all=True)
    found = generate(model, token_ids, **options)
    np.testing.assert_array_equal(found["token_ids"], answers)
    np.testing.assert_array_equal(generate(model, token_ids, bos_id=BOS, eos_id=EOS)["token_ids"], answers)
    # What follows the right answer is far behind it.
    assert np.all(found["hypothesis_scores"][:, 0] > found["hypothesis_scores"][:, 1] + 1)

    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(generate(loaded, token_ids, **options)["token_ids"], answers)
