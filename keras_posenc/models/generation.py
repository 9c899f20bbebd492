"""Greedy decoding, sampling and beam search, each one compiled loop."""

import dataclasses

import keras
import numpy as np
from keras import ops

from keras_posenc.folding import position_encodings
from keras_posenc.utils import checks

METHODS = ("greedy", "sample", "beam")


def generate(
    model,
    token_ids,
    padding_mask=None,
    *,
    bos_id,
    eos_id,
    max_length=None,
    method="greedy",
    beam_size=10,
    length_penalty=0.6,
    temperature=1.0,
    top_k=None,
    top_p=None,
    seed=None,
    return_all=False,
    jit_compile=False,
):
    """Generates a target for each source.

    The search is one compiled loop with the cache among its variables; nothing happens in Python for each token. It
    is compiled once for each combination of options and input shape, and kept with the model. To bound the number of
    shapes, sources are padded (and masked) to lengths 8, 12, 16, 24, 32, 48, ..., at most the model's `max_length`,
    and batches to 1, 2, 3, 4, 6, 8, 12, ... rows; what was added does not change results and is cut off again. Longer
    sources than the model's `max_length`, where its encodings allow them, are not padded.

    Scores are `log P(target) / lp`, `lp = ((5 + length) / 6)^length_penalty`, with the length counted up to and
    including `eos_id`, and `P` the model's distribution (temperature 1, nothing cut off).

    Beam search keeps `beam_size` unfinished targets, by probability, and the `beam_size` best finished ones, by score.
    Each step extends the unfinished by the `2 beam_size` best tokens, of which at most half end. A source is done when
    its best unfinished target could not overtake its worst finished one even at full length. A source of which nothing
    has finished gets its unfinished targets. A beam of one is greedy decoding.

    Args:
        model: an `EncoderDecoder`.
        token_ids: int `(batch, length)`, the sources.
        padding_mask: 0/1 or boolean `(batch, length)`, by default that of the tokens other than the model's `pad_id`.
        bos_id, eos_id: the token that a target begins with, and the one that ends it.
        max_length: number of tokens generated at most, the model's `max_length` by default.
        method: `"greedy"`, `"sample"` or `"beam"`.
        beam_size, length_penalty: of the beam search; 10 and 0.6 as for the translations of DIET. 0 is no penalty.
        temperature: logits are divided by it before sampling.
        top_k: sample among the `top_k` most probable tokens.
        top_p: sample among the fewest most probable tokens whose probabilities add up to `top_p`, after `top_k`.
        seed: integer; the same seed gives the same sample. Each token uses one number drawn in advance for its row and
            position.
        return_all: also return all targets that a beam search found.
        jit_compile: compile with XLA. (On JAX it always is.)

    Returns: a dict of NumPy arrays. `token_ids`: int32 `(batch, max_length)`, without `bos_id`, with `eos_id` if the
    target ended, then `pad_id`. `scores`: float32 `(batch,)`. With `return_all` also `hypotheses`
    `(batch, beam_size, max_length)` and `hypothesis_scores` `(batch, beam_size)`, best first; places that no target
    took hold `pad_id` and a score of minus infinity.

    Reference: Wu et al., 2016 (arXiv:1609.08144), equation 14; Vaswani et al., 2018 (Tensor2Tensor, arXiv:1803.07416);
    top-p: Holtzman et al., 2020 (arXiv:1904.09751).
    """
    checks.one_of("generate", "method", method, METHODS)
    max_length = checks.positive_int("generate", "max_length", model.max_length if max_length is None else max_length)
    for encoding in position_encodings(model.decoder):
        encoding.check_length(max_length)
    _check_options(model, method, bos_id, eos_id, beam_size, length_penalty, temperature, top_k, top_p, return_all)
    options = Options(
        method=method,
        max_length=max_length,
        bos_id=int(bos_id),
        eos_id=int(eos_id),
        beam_size=int(beam_size) if method == "beam" else 1,
        top_k=int(top_k) if method == "sample" and top_k is not None else None,
        return_all=bool(return_all),
        jit_compile=bool(jit_compile),
    )
    inputs, rows = _padded_inputs(model, token_ids, padding_mask)
    inputs["length_penalty"] = np.float32(length_penalty)
    if method == "sample":
        noise = ops.convert_to_numpy(keras.random.uniform((rows, max_length), seed=seed))
        inputs["noise"] = _fill(noise, 0, len(inputs["rows"]), 0.0)
        inputs["temperature"] = np.float32(temperature)
        inputs["top_p"] = np.float32(1.0 if top_p is None else top_p)
    outputs = _compiled(model, options, inputs)(inputs)
    return {name: np.asarray(ops.convert_to_numpy(value))[:rows] for name, value in outputs.items()}


@dataclasses.dataclass(frozen=True)
class Options:
    """What a compiled search is made for; see `generate`."""

    method: str
    max_length: int
    bos_id: int
    eos_id: int
    beam_size: int = 1
    top_k: int | None = None
    return_all: bool = False
    jit_compile: bool = False


def search(model, options, inputs):
    """The search as a function of tensors, to be compiled or exported.

    Args:
        model: an `EncoderDecoder`.
        options: `Options`.
        inputs: dict of tensors: `token_ids` and `padding_mask` `(batch, length)`, `rows` `(batch,)`, false for rows
            that need no target, `length_penalty`; for sampling also `temperature`, `top_p` and `noise`
            `(batch, max_length)`, uniform between 0 and 1.

    Returns: what `generate` does.
    """
    if options.beam_size > 1:
        return _search_beam(model, options, inputs)
    outputs = _search_one(model, options, inputs)
    if options.return_all:
        outputs.update(hypotheses=outputs["token_ids"][:, None], hypothesis_scores=outputs["scores"][:, None])
    return outputs


def length_penalty(length, alpha):
    """`((5 + length) / 6)^alpha`, by which a log-probability is divided."""
    return ((5.0 + ops.cast(length, "float32")) / 6.0) ** alpha


def _search_one(model, options, inputs):
    """Greedy decoding and sampling: one target for each source."""
    mask = ops.cast(inputs["padding_mask"], "bool")
    cache = model.make_cache(model.encode(inputs["token_ids"], mask, training=False), options.max_length)
    rows = ops.cast(inputs["rows"], "bool")
    batch_size = ops.shape(rows)[0]

    def running(step, token, targets, done, length, log_prob, self_cache):
        return ops.logical_not(ops.all(done))

    def extend(step, token, targets, done, length, log_prob, self_cache):
        now = {"self": self_cache, "cross": cache["cross"]}
        logits, now = model.decode_step(token[:, None], now, step, mask)
        logits = logits[:, 0]
        token = _sample(logits, step, options, inputs) if options.method == "sample" else _argmax(logits)
        chosen = ops.take_along_axis(ops.log_softmax(logits), token[:, None], axis=1)[:, 0]
        log_prob = log_prob + ops.where(done, 0.0, chosen)
        length = length + ops.cast(ops.logical_not(done), "int32")
        token = ops.where(done, model.pad_id, token)
        targets = ops.slice_update(targets, (0, step), token[:, None])
        done = ops.logical_or(done, token == options.eos_id)
        return step + 1, token, targets, done, length, log_prob, now["self"]

    start = (
        ops.convert_to_tensor(0, "int32"),
        ops.full((batch_size,), options.bos_id, "int32"),
        ops.full((batch_size, options.max_length), model.pad_id, "int32"),
        ops.logical_not(rows),
        ops.zeros((batch_size,), "int32"),
        ops.zeros((batch_size,), "float32"),
        cache["self"],
    )
    _, _, targets, _, length, log_prob, _ = ops.while_loop(
        running, extend, start, maximum_iterations=options.max_length
    )
    return {"token_ids": targets, "scores": log_prob / length_penalty(length, inputs["length_penalty"])}


def _argmax(logits):
    return ops.cast(ops.argmax(logits, axis=-1), "int32")


def _sample(logits, step, options, inputs):
    """The token at which the cumulated probabilities, in falling order, pass a number between 0 and 1."""
    size = logits.shape[-1] if options.top_k is None else min(options.top_k, logits.shape[-1])
    if size == 1:
        return _argmax(logits)
    best, tokens = ops.top_k(logits, size)
    probabilities = ops.softmax(best / inputs["temperature"])
    before = ops.cumsum(probabilities, axis=-1) - probabilities
    probabilities = ops.where(before < inputs["top_p"], probabilities, 0.0)  # the first one always stays
    cumulated = ops.cumsum(probabilities, axis=-1)
    noise = ops.slice(inputs["noise"], (0, step), (ops.shape(logits)[0], 1))
    passed = ops.sum(ops.cast(cumulated <= noise * cumulated[:, -1:], "int32"), axis=-1, keepdims=True)
    kept = ops.sum(ops.cast(probabilities > 0, "int32"), axis=-1, keepdims=True)
    # Rounding could let a number next to 1 pass all of them.
    return ops.cast(ops.take_along_axis(tokens, ops.minimum(passed, kept - 1), axis=1)[:, 0], "int32")


def _search_beam(model, options, inputs):
    """Beam search with the finished and the unfinished targets apart, as in Tensor2Tensor."""
    beam, alpha, limit = options.beam_size, inputs["length_penalty"], options.max_length
    mask = ops.cast(inputs["padding_mask"], "bool")
    memory = model.encode(inputs["token_ids"], mask, training=False)
    mask = ops.repeat(mask, beam, axis=0)
    cache = model.make_cache(memory, limit)
    cache = keras.tree.map_structure(lambda x: ops.repeat(x, beam, axis=0), cache)
    rows = ops.cast(inputs["rows"], "bool")
    batch_size = ops.shape(rows)[0]

    def gather(x, index):
        """Rows of `(batch, n, ...)` by `(batch, m)`."""
        n = ops.shape(x)[1]
        flat = index + n * ops.arange(batch_size, dtype="int32")[:, None]
        return ops.take(ops.reshape(x, (-1,) + tuple(ops.shape(x)[2:])), flat, axis=0)

    def best(scores, count):
        scores, index = ops.top_k(scores, count)
        return scores, ops.cast(index, "int32")

    def running(step, targets, log_probs, ended, scores, self_cache):
        # log P can only fall and the penalty only grow, so this bounds the score of what is not finished.
        possible = log_probs[:, 0] / length_penalty(limit, alpha)
        worst = ops.min(scores, axis=1)
        if not options.return_all:
            # Empty places need not be filled if only the best is wanted.
            some = scores[:, 0] > -np.inf
            worst = ops.where(some, ops.min(ops.where(scores > -np.inf, scores, np.inf), axis=1), worst)
        return ops.any(ops.logical_and(rows, worst <= possible))

    def extend(step, targets, log_probs, ended, scores, self_cache):
        last = ops.slice(targets, (0, 0, ops.maximum(step - 1, 0)), (batch_size, beam, 1))
        token = ops.where(step == 0, options.bos_id, ops.reshape(last, (-1, 1)))
        now = {"self": self_cache, "cross": cache["cross"]}
        logits, now = model.decode_step(token, now, step, mask)
        vocab_size = logits.shape[-1]
        totals = ops.reshape(ops.log_softmax(logits[:, 0]), (batch_size, beam, vocab_size)) + log_probs[:, :, None]
        totals, index = best(ops.reshape(totals, (batch_size, beam * vocab_size)), 2 * beam)
        parent, token = index // vocab_size, index % vocab_size
        extended = ops.slice_update(gather(targets, parent), (0, 0, step), token[:, :, None])
        ends = token == options.eos_id

        candidates = ops.where(ends, totals / length_penalty(step + 1, alpha), -np.inf)
        scores, index = best(ops.concatenate([scores, candidates], axis=1), beam)
        ended = gather(ops.concatenate([ended, extended], axis=1), index)

        log_probs, index = best(ops.where(ends, -np.inf, totals), beam)
        targets, parent = gather(extended, index), gather(parent, index)
        flat = ops.reshape(parent + beam * ops.arange(batch_size, dtype="int32")[:, None], (-1,))
        self_cache = keras.tree.map_structure(lambda x: ops.take(x, flat, axis=0), now["self"])
        return step + 1, targets, log_probs, ended, scores, self_cache

    first = np.where(np.arange(beam) == 0, 0.0, -np.inf).astype("float32")  # all beams begin alike: one of them counts
    empty = ops.full((batch_size, beam, limit), model.pad_id, "int32")
    start = (
        ops.convert_to_tensor(0, "int32"),
        empty,
        ops.broadcast_to(ops.convert_to_tensor(first), (batch_size, beam)),
        empty,
        ops.full((batch_size, beam), -np.inf, "float32"),
        cache["self"],
    )
    _, targets, log_probs, ended, scores, _ = ops.while_loop(running, extend, start, maximum_iterations=limit)
    unfinished = scores[:, :1] == -np.inf
    scores = ops.where(unfinished, log_probs / length_penalty(limit, alpha), scores)
    ended = ops.where(unfinished[:, :, None], targets, ended)
    ended = ops.where(scores[:, :, None] == -np.inf, model.pad_id, ended)
    outputs = {"token_ids": ended[:, 0], "scores": scores[:, 0]}
    if options.return_all:
        outputs.update(hypotheses=ended, hypothesis_scores=scores)
    return outputs


class _Compiled:
    """The compiled searches of a model, and the folds that they read."""

    def __init__(self):
        self.folds, self.functions = None, {}


def _compiled(model, options, inputs):
    """The search with these `options` for inputs of these shapes, compiled when it is first used."""
    kept = vars(model).setdefault("_searches", _Compiled())
    folds = [encoding._fold for encoding in position_encodings(model)]
    if kept.folds is None or any(old is not new for old, new in zip(kept.folds, folds)):
        kept.folds, kept.functions = folds, {}
    key = options, inputs["token_ids"].shape
    if key not in kept.functions:
        kept.functions[key] = _compile(model, options, inputs)
    return kept.functions[key]


def _compile(model, options, inputs):
    def run(inputs):
        return search(model, options, inputs)

    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        function = tf.function(run, autograph=False, jit_compile=options.jit_compile or None)
        traced = function.get_concrete_function({name: tf.TensorSpec(x.shape, x.dtype) for name, x in inputs.items()})
        return lambda inputs: traced({name: tf.convert_to_tensor(x) for name, x in inputs.items()})
    if backend == "jax":
        import jax

        @jax.jit
        def stateless(values, inputs):
            # Weights are arguments: as constants of the compiled function they would not follow the training.
            with keras.StatelessScope(state_mapping=list(zip(model.variables, values))):
                return run(inputs)

        return lambda inputs: stateless([variable.value for variable in model.variables], inputs)
    return run


def _padded_inputs(model, token_ids, padding_mask):
    token_ids = np.asarray(ops.convert_to_numpy(token_ids))
    if token_ids.ndim != 2 or token_ids.dtype.kind not in "iu" or not token_ids.size:
        raise ValueError(
            "generate: `token_ids` must be integers of shape (batch, length), not empty. Received: "
            f"shape={token_ids.shape}, dtype={token_ids.dtype}"
        )
    mask = token_ids != model.pad_id if padding_mask is None else np.asarray(ops.convert_to_numpy(padding_mask)) != 0
    if mask.shape != token_ids.shape:
        raise ValueError(
            f"generate: `padding_mask` must have the shape of `token_ids`. Received: {mask.shape} and {token_ids.shape}"
        )
    rows, length = token_ids.shape
    if length < model.max_length:
        length = min(_bucket(max(length, 8)), model.max_length)
    batch_size = _bucket(rows)
    grown = [_fill(_fill(x, 1, length, x.dtype.type(0)), 0, batch_size, x.dtype.type(0)) for x in (token_ids, mask)]
    return {
        "token_ids": grown[0].astype("int32"),
        "padding_mask": grown[1],
        "rows": np.arange(batch_size) < rows,
    }, rows


def _bucket(size):
    """The least of 1, 2, 3, 4, 6, 8, 12, 16, 24, ... that is not below `size`: a third is wasted at most."""
    power = 1 << (size - 1).bit_length()
    return power * 3 // 4 if power >= 4 and size <= power * 3 // 4 else power


def _fill(x, axis, size, value):
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, size - x.shape[axis])
    return np.pad(x, widths, constant_values=value)


def _check_options(model, method, bos_id, eos_id, beam_size, length_penalty, temperature, top_k, top_p, return_all):
    for name, token in (("bos_id", bos_id), ("eos_id", eos_id)):
        if not isinstance(token, (int, np.integer)) or not 0 <= token < model.vocab_size:
            raise ValueError(
                f"generate: `{name}` must be a token, an integer below vocab_size={model.vocab_size}. Received: "
                f"{name}={token!r}"
            )
    checks.positive_int("generate", "beam_size", beam_size)
    if not length_penalty >= 0:
        raise ValueError(f"generate: `length_penalty` must be 0 or more. Received: length_penalty={length_penalty!r}")
    if not temperature > 0:
        raise ValueError(
            f"generate: `temperature` must be above 0; for its limit 0 use method='greedy'. Received: {temperature!r}"
        )
    if top_k is not None:
        checks.positive_int("generate", "top_k", top_k)
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"generate: `top_p` must be above 0 and at most 1. Received: top_p={top_p!r}")
    if method != "sample" and (top_k is not None or top_p is not None or temperature != 1):
        raise ValueError(f"generate: `temperature`, `top_k` and `top_p` are for method='sample'. Received: {method!r}")
    if return_all and method != "beam":
        raise ValueError(f"generate: `return_all` is for method='beam'. Received: method={method!r}")
