"""What generating a translation costs: with and without the cache, by beam search, and with every encoding."""

import dataclasses
import gc

import keras
import numpy as np

from keras_posenc import fold_positions
from keras_posenc.benchmark import timing

BASELINE = "sinusoidal"
# How the baseline's encoding is decoded, beside greedily with the cache.
WAYS = {"uncached": "greedy, everything computed again for each token", "beam": "beam of 10, with the cache"}
CANNOT = {"diet_abs_lin": "compressed keys mix positions, which no causal mask can undo"}


@dataclasses.dataclass(frozen=True)
class Size:
    """An encoder-decoder and its work; the defaults are the base model of Vaswani et al."""

    num_layers: int = 6
    num_heads: int = 8
    hidden_dim: int = 512
    intermediate_dim: int = 2048
    vocabulary: int = 32000
    batch: int = 8
    length: int = 32
    max_length: int = 128
    group: int = 4


def run(store, size, positions, rounds, progress):
    """Measures what `store` does not have yet, under `("decoding", encoding or way)`."""
    for group in pending(store, size, positions):
        measure(store, size, group, rounds)
        store.save()
        progress.step(f"decoding: {', '.join(group)}", len(group))


def pending(store, size, positions):
    """Groups of unfinished ways and encodings: those that are alive at once beside the baseline."""
    ways = [way for way in WAYS if ("decoding", way) not in store]
    left = [p for p in positions if p not in CANNOT and ("decoding", p) not in store]
    return ([ways] if ways else []) + [left[i : i + size.group] for i in range(0, len(left), size.group)]


def measure(store, size, group, rounds):
    """Times one group, interleaved with the baseline, into `store`."""
    sources = np.random.default_rng(0).integers(3, size.vocabulary, (size.batch, size.length)).astype("int32")
    model = build(size, BASELINE)
    functions = {"baseline": translate(model, size, sources)}
    for name in group:
        if name == "uncached":
            functions[name] = uncached(model, size, sources)
        elif name == "beam":
            functions[name] = translate(model, size, sources, method="beam", beam_size=10)
        else:
            functions[name] = translate(build(size, name), size, sources)
    for function in functions.values():
        function()
    seconds = timing.interleave(functions, rounds)
    for name in group:
        found = timing.compare(seconds[name], seconds["baseline"])
        store.put(("decoding", name), {**found, "tokens_per_second": tokens(size) / found["milliseconds"] * 1e3})
    del functions, model
    keras.backend.clear_session()
    gc.collect()


def tokens(size):
    """Number of tokens that are generated."""
    return size.batch * size.length


def build(size, position):
    """A model with folded positions and random weights, which will hardly ever say that it has finished."""
    from keras_posenc.models import EncoderDecoder

    sizes = (size.num_layers, size.num_heads, size.hidden_dim, size.intermediate_dim)
    keras.utils.set_random_seed(0)
    model = EncoderDecoder(size.vocabulary, *sizes, size.max_length, position)
    fold_positions(model, size.max_length)
    return model


def translate(model, size, sources, **options):
    """A function without arguments that generates `size.length` tokens for each source."""
    from keras_posenc.models import generate

    def once():
        found = generate(model, sources, bos_id=1, eos_id=2, max_length=size.length, **options)["token_ids"]
        if (found == 2).any():
            raise RuntimeError("A target ended early, so that fewer tokens were timed than counted. Use another seed.")
        return found

    return once


def uncached(model, size, sources):
    """The same tokens by a loop that runs the model over source and target for each token."""
    import tensorflow as tf

    @tf.function(autograph=False)
    def search(sources):
        def extend(step, targets):
            logits = model({"token_ids": sources, "target_ids": targets}, training=False)["logits"]
            token = tf.argmax(tf.gather(logits, step, axis=1), axis=-1, output_type=tf.int32)
            columns = tf.range(size.length + 1)[None] == step + 1
            return step + 1, tf.where(columns, token[:, None], targets)

        first = tf.concat([tf.ones((size.batch, 1), tf.int32), tf.zeros((size.batch, size.length), tf.int32)], 1)
        return tf.while_loop(lambda step, _: step < size.length, extend, (0, first))[1][:, 1:]

    given = tf.constant(sources)
    return lambda: search(given).numpy()


def table(store, size, positions):
    """The text: a row per way and encoding."""
    lines = [
        f"Decoding: encoder-decoder of {size.num_layers} layers, width {size.hidden_dim}, {size.vocabulary} tokens; "
        f"batch {size.batch},\n{size.length} tokens for sources of {size.length}, graph mode. Time divided by that of "
        f"`{BASELINE}`, greedy, with the cache, in the same\nround (median, quartiles), and tokens per second."
    ]
    for name in [*WAYS, *positions]:
        found = store.get(("decoding", name))
        label = f"{BASELINE}: {WAYS[name]}" if name in WAYS else name
        if name in CANNOT:
            lines.append(f"{label:<64}cannot: {CANNOT[name]}")
        elif found is not None:
            low, high = found["quartiles"]
            lines.append(f"{label:<64}{found['ratio']:6.2f} [{low:.2f}, {high:.2f}]{found['tokens_per_second']:8.0f}/s")
    return "\n".join(lines)
