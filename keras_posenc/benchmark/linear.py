"""DIET-ABS-LIN against full attention: time and peak memory of one layer as the length grows.

Every figure is measured in a process of its own: what one has allocated another would reuse. Run as
`python -m keras_posenc.benchmark.linear QUANTITY ATTENTION LENGTH ROUNDS THREADS`, this module prints one.
"""

import ctypes
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ATTENTIONS = ("full", "diet_abs_lin")
LENGTHS = (512, 1024, 2048, 4096, 8192)
HEADS, HEAD_SIZE, NUM_KEYS = 8, 64, 32
# What is measured: its label, unit and factor.
QUANTITIES = {"seconds": ("time", "ms", 1e3), "megabytes": ("peak memory", "MiB", 1)}


def run(store, attentions, lengths, rounds, threads, progress):
    """Measures every point that `store` does not have yet, under `("linear", attention, length)`."""
    for length in lengths:
        for attention in attentions:
            if (attention, length) in pending(store, attentions, lengths):
                store.put(("linear", attention, length), measure_apart(attention, length, rounds, threads))
                store.save()
                progress.step(f"linear attention: {attention} at length {length}")


def pending(store, attentions, lengths):
    """The unfinished points; those that were skipped are tried again."""
    points = [(a, n) for n in lengths for a in attentions]
    return [point for point in points if "seconds" not in (store.get(("linear", *point)) or {})]


def measure_apart(attention, length, rounds, threads):
    """One point in a new process: `{"seconds", "megabytes"}`, or why it was skipped."""
    needed = 2 * 4 * HEADS * length**2 if attention == "full" else 0
    free = _available_bytes()
    if free is not None and needed > 0.8 * free:
        return {"skipped": f"needs {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"}
    return {quantity: _measure_apart(quantity, attention, length, rounds, threads) for quantity in QUANTITIES}


def _measure_apart(quantity, attention, length, rounds, threads):
    command = [sys.executable, "-m", __name__, quantity, attention, str(length), str(rounds), str(threads or 0)]
    environment = dict(os.environ)
    if quantity == "megabytes":
        # TensorFlow's pool for oneDNN would keep what was freed. Without it, and with a low threshold, tensors go back
        # to the system, so that the resident memory is what is in use. That is slow: time is measured without.
        environment.update(TF_ENABLE_ONEDNN_OPTS="0", MALLOC_MMAP_THRESHOLD_="65536", MALLOC_TRIM_THRESHOLD_="65536")
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"Measuring {attention} at length {length} failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.splitlines()[-1])


def measure(quantity, attention, length, rounds, threads):
    """Seconds (median of the rounds) or peak megabytes (largest) of a forward pass, batch 1, in this process."""
    import tensorflow as tf

    from keras_posenc import layers

    if threads:
        tf.config.threading.set_intra_op_parallelism_threads(threads)

    if attention == "full":
        layer = layers.PositionalAttention(HEADS, HEAD_SIZE)
    else:
        layer = layers.DietAbsLinformerAttention(HEADS, HEAD_SIZE, length, num_keys=NUM_KEYS)
    x = tf.constant(np.random.default_rng(0).normal(size=(1, length, HEADS * HEAD_SIZE)).astype("float32"))
    layer.build(x.shape)
    layer.fold_positions(length)
    function = tf.function(layer.__call__, autograph=False).get_concrete_function(x)
    function(x)  # loads kernels and optimises the graph
    one = _seconds if quantity == "seconds" else _megabytes
    found = [one(lambda: function(x).numpy()) for _ in range(rounds)]
    return float(np.median(found) if quantity == "seconds" else np.max(found))


def _seconds(function):
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def _megabytes(function):
    _reset_peak()
    before = _resident_bytes()
    function()
    return max(_peak_bytes() - before, 0) / 2**20


def _status(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def _reset_peak():
    """Linux forgets the peak of the start-up when asked to; elsewhere the peak can only be compared with itself.

    Memory that the start-up freed goes back to the system first: what is reused would not be counted.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):  # a C library other than glibc
        pass
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def _resident_bytes():
    try:
        return _status("VmRSS")
    except OSError:
        return _peak_bytes()


def _peak_bytes():
    try:
        return _status("VmHWM")
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _available_bytes():
    """Memory that can be had, with what the system only keeps in case; `None` if that is not known."""
    info = Path("/proc/meminfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def exponent(lengths, values):
    """`b` of the best `a n^b`: the slope of a line through the logarithms."""
    return float(np.polyfit(np.log(lengths), np.log(values), 1)[0])


def curves(store, attentions, lengths, quantity):
    """The measured points: `{attention: (lengths, values)}`."""
    found = {}
    for attention in attentions:
        points = [(n, r[quantity]) for n in lengths if quantity in (r := store.get(("linear", attention, n)) or {})]
        if points:
            found[attention] = tuple(zip(*points))
    return found


def table(store, attentions, lengths):
    """Time and memory by length, with the fitted exponents."""
    lines = [f"One attention layer, {HEADS} heads of {HEAD_SIZE}, batch 1: full, and DIET-ABS-LIN with {NUM_KEYS} keys"]
    lines.append(f"{'':<34}" + "".join(f"{n:>10}" for n in lengths) + f"{'exponent':>12}{'last doubling':>16}")
    for quantity, (label, unit, factor) in QUANTITIES.items():
        for attention, (at, values) in curves(store, attentions, lengths, quantity).items():
            known = dict(zip(at, values))
            row = "".join(f"{known[n] * factor:>10.1f}" if n in known else f"{'-':>10}" for n in lengths)
            if len(at) > 1:
                row += f"{exponent(at, values):>12.2f}{exponent(at[-2:], values[-2:]):>16.2f}"
            lines.append(f"{attention + ', ' + label + ' (' + unit + ')':<34}{row}")
    lines += [
        f"{attention} at {n}: skipped, {r['skipped']}"
        for n in lengths
        for attention in attentions
        if "skipped" in (r := store.get(("linear", attention, n)) or {})
    ]
    return "\n".join(lines)


def plot(store, attentions, lengths, path):
    """Time and memory against the length, both axes logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for axes, (quantity, (label, unit, factor)) in zip(figure.subplots(1, 2), QUANTITIES.items()):
        for attention, (at, values) in curves(store, attentions, lengths, quantity).items():
            name = attention if len(at) < 2 else f"{attention}: n^{exponent(at, values):.2f}"
            axes.loglog(at, np.multiply(values, factor), "o-", label=name)
        axes.set_xticks(lengths, [str(n) for n in lengths])
        axes.minorticks_off()
        axes.set_xlabel("length n")
        axes.set_ylabel(f"{label} ({unit})")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    figure.suptitle(f"One attention layer, {HEADS} heads of {HEAD_SIZE}, batch 1")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    print(measure(*sys.argv[1:3], *map(int, sys.argv[3:])))
