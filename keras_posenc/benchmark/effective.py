"""What effective attention costs: a BERT with the attention of all layers returned, and with the effective one.

Table 3 of Sun and Marasovic (2021) has the time of evaluation with both, the latter by a full SVD of every head.
"""

import gc

import keras

from keras_posenc.benchmark import models, timing

BASELINE = "raw"
WAYS = ("twin", "effective", "inside", "svd")
LABELS = {
    "twin": "raw, a second copy",
    "effective": "effective",
    "inside": "effective, inside XLA",
    "svd": "effective by full SVD",
}
BATCH = 8
TARGET = 1.15
LEGEND = (
    "Median over the rounds of the time divided by that with raw attention returned in the same round, and the\n"
    f"quartiles of it. Maps of all layers are returned. Target of `effective`: {TARGET}.\n"
    "In the column of XLA the model is compiled by it and the decomposition follows in graph mode; `inside XLA` has\n"
    "both in one compiled function. paper: Sun and Marasovic (2021), Table 3."
)


def run(store, sizes, modes, settings, progress):
    """Measures every model and mode that `store` does not have yet, under `("effective", size name, mode, way)`."""
    for name, mode in pending(store, sizes, modes):
        measure(store, name, sizes[name], mode, settings)
        store.save()
        progress.step(f"{sizes[name].label} {mode} effective attention")


def pending(store, sizes, modes):
    """The unfinished `(size name, mode)`."""
    return [(n, m) for n in sizes for m in modes if any(("effective", n, m, way) not in store for way in ways(m))]


def ways(mode):
    """What is measured in a mode."""
    return [way for way in WAYS if way != "inside" or mode == "xla"]


def measure(store, name, size, mode, settings):
    """Times the ways, interleaved, into `store`."""
    model = build(size)
    tokens = models.token_ids(size, BATCH, settings.length)
    functions = {way: forward(model, tokens, mode, way) for way in (BASELINE, *ways(mode))}
    for _ in range(2):  # XLA compiles at the first call
        for function in functions.values():
            function()
    seconds = timing.interleave(functions, settings.rounds)
    for way in ways(mode):
        store.put(("effective", name, mode, way), timing.compare(seconds[way], seconds[BASELINE]))
    del functions, model
    keras.backend.clear_session()
    gc.collect()


def build(size):
    """A BERT of this size without dropout."""
    from keras_posenc.models import Bert

    sizes = (size.num_layers, size.num_heads, size.hidden_dim, size.intermediate_dim)
    model = Bert(size.vocabulary, *sizes, max_length=size.max_length, dropout=0.0)
    model.build()
    return model


def forward(model, tokens, mode, way):
    """A function of no arguments that returns the attention maps `(batch, layers, heads, length, length)`.

    Both ways of effective attention return it in place of the raw one, as the paper's evaluation does.
    """
    import tensorflow as tf

    from keras_posenc.analysis.effective import effective_attention

    change = {"effective": effective_attention, "inside": effective_attention, "svd": by_svd}.get(way)

    def outputs(ids):
        found = model({"token_ids": ids}, return_intermediates=True, training=False)
        return found["pooled_output"], found["attention"], found["values"]

    if way in ("effective", "svd") and mode == "xla":
        outputs, mode = tf.function(outputs, jit_compile=True, autograph=False), "graph"

    def evaluate(ids):
        pooled, attention, values = outputs(ids)
        if change is not None:  # layer by layer: what a layer needs stays in the caches
            attention = [change(*layer) for layer in zip(attention, values)]
        return pooled, tf.stack(attention, axis=1)

    ids = tf.constant(tokens)
    compiled = tf.function(evaluate, jit_compile=mode == "xla", autograph=False).get_concrete_function(ids)

    def once():
        pooled, attention = compiled(ids)
        pooled.numpy()  # waits
        return attention

    return once


def by_svd(attention, values):
    """The papers' way: subtract the projection on the left singular vectors beyond the head size."""
    import tensorflow as tf

    _, left, _ = tf.linalg.svd(values, full_matrices=True)
    null = left[..., values.shape[-1] :]
    return attention - tf.matmul(tf.matmul(attention, null), null, transpose_b=True)


def table(store, sizes, modes, settings):
    """The text: a row per way, a column per model and mode."""
    lines = [f"Effective attention of all layers, batch {BATCH}, length {settings.length}", LEGEND]
    cells = [(n, m) for n in sizes for m in modes if store.get(("effective", n, m, WAYS[0]))]
    lines.append(f"{'':<24}" + "".join(f"{f'{sizes[n].label}, {m}':<23}" for n, m in cells) + "paper")
    for way in WAYS:
        row = ""
        for name, mode in cells:
            result = store.get(("effective", name, mode, way))
            if result is None:
                row += " " * 23
                continue
            low, high = result["quartiles"]
            mark = ("+" if result["ratio"] <= TARGET else "-") if way == "effective" else ""
            text = f"{result['ratio']:.2f} [{low:.2f}, {high:.2f}] {mark}"
            row += f"{text:<23}"
        lines.append(f"{LABELS[way]:<24}{row}{'1.9 to 2.0' if way == 'svd' else ''}".rstrip())
    times = {cell: store.get(("effective", *cell, WAYS[0]))["baseline_milliseconds"] for cell in cells}
    lines.append("raw: " + ", ".join(f"{sizes[n].label} {m} {times[n, m]:.0f} ms" for n, m in cells))
    return "\n".join(lines)
