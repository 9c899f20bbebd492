"""What each encoding does, in NumPy, position by position, from its paper.

A reference takes the encoding's weights by name and its configuration, and fills in for one head `h`, one query at
absolute position `i` and one key at `j` what the equation says. Slow and plain on purpose.
"""

import math
from types import SimpleNamespace

import numpy as np


def weights_of(encoding):
    return SimpleNamespace(**{w.name: np.asarray(w, dtype="float64") for w in encoding.weights})


def _head(table, h):
    """The parameters of head `h`, where one head's may serve all."""
    return table[0 if len(table) == 1 else h]


# At the input: position -> vector


def learned(e, w, i, total):
    return w.embeddings[i]


def sinusoidal(e, w, i, total):
    d = e.width
    vector = np.zeros(d)
    for t in range(d // 2):
        angle = i / e.max_wavelength ** (2 * t / d)
        at = (2 * t, 2 * t + 1) if e.layout == "interleaved" else (t, d // 2 + t)
        vector[at[0]], vector[at[1]] = math.sin(angle), math.cos(angle)
    return vector


def floater(e, w, i, total):
    def h(t, p):
        return np.tanh(np.append(p, t) @ w.kernel_1 + w.bias_1) @ w.kernel_2 + w.bias_2

    p, step = w.initial, e.step / e.substeps
    for n in range(i * e.substeps):
        t = n * step
        k1 = h(t, p)
        k2 = h(t + step / 2, p + step / 2 * k1)
        k3 = h(t + step / 2, p + step / 2 * k2)
        k4 = h(t + step, p + step * k3)
        p = p + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return p


INPUT = {"learned": learned, "sinusoidal": sinusoidal, "floater": floater}

# In attention: the score of query vector q at i and key vector k at j, in head h. `keys` is the number of keys.


def none(e, w, h, q, k, i, j, keys):
    return q @ k / math.sqrt(len(q))


def diet_abs(e, w, h, q, k, i, j, keys):
    return q @ k / math.sqrt(len(q)) + _head(w.query_positions, h)[i] @ _head(w.key_positions, h)[j]


diet_abs_lin = diet_abs


def diet_rel(e, w, h, q, k, i, j, keys):
    distances = dict(zip(range(-(e.max_length - 1), e.max_length), _head(w.distances, h)))
    return q @ k / math.sqrt(len(q)) + distances[i - j]


def t5_bucket(offset, num_buckets, max_distance, bidirectional):
    bucket = 0
    if bidirectional:
        num_buckets //= 2
        bucket = num_buckets if offset > 0 else 0
        distance = abs(offset)
    else:
        distance = max(0, -offset)
    exact = num_buckets // 2
    if distance < exact:
        return bucket + distance
    log = math.log(distance / exact) / math.log(max_distance / exact)
    return bucket + min(num_buckets - 1, exact + math.floor(log * (num_buckets - exact)))


def t5(e, w, h, q, k, i, j, keys):
    bucket = t5_bucket(j - i, e.num_buckets, e.max_distance, e.bidirectional)
    return q @ k / math.sqrt(len(q)) + _head(w.buckets, h)[bucket]


def tisa(e, w, h, q, k, i, j, keys):
    score = q @ k / math.sqrt(len(q))
    for s in range(e.kernels):
        a, b, c = w.amplitudes[s, h], w.sharpness[s, h], w.centers[s, h]
        score += a * math.exp(-abs(b) * (j - i - c) ** 2)
    return score


def _tupe_position(e, w, h, p, r):
    kernel_q, kernel_k = (kernel[:, 0 if kernel.shape[1] == 1 else h] for kernel in (w.query_kernel, w.key_kernel))
    return (p @ kernel_q) @ (r @ kernel_k) / math.sqrt(2 * e.key_dim)


def tupe(e, w, h, q, k, i, j, keys, relative=0.0):
    content = q @ k / math.sqrt(2 * len(q))
    if e.untie_cls and i == 0:
        return content + _tupe_position(e, w, h, w.cls_positions[0], w.cls_positions[0])
    if e.untie_cls and j == 0:
        return content + _tupe_position(e, w, h, w.cls_positions[1], w.cls_positions[1])
    return content + _tupe_position(e, w, h, w.positions[i], w.positions[j]) + relative


def tupe_rel(e, w, h, q, k, i, j, keys):
    bucket = t5_bucket(j - i, e.num_buckets, e.max_distance, e.bidirectional)
    return tupe(e, w, h, q, k, i, j, keys, relative=_head(w.buckets, h)[bucket])


def alibi(e, w, h, q, k, i, j, keys):
    slopes = {3: [2**-4, 2**-8, 2**-2], 6: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]}[e.num_heads]
    return q @ k / math.sqrt(len(q)) - slopes[h] * abs(i - j)


def kerple(e, w, h, q, k, i, j, keys):
    r1, r2 = max(_head(w.r1, h)[0], 0.01), max(_head(w.r2, h)[0], 0.01)
    if e.kind == "log":
        return q @ k / math.sqrt(len(q)) - r1 * math.log(1 + r2 * abs(i - j))
    return q @ k / math.sqrt(len(q)) - r1 * abs(i - j) ** min(r2, 2)


def fire(e, w, h, q, k, i, j, keys):
    def psi(x):
        return math.log(abs(w.c) * x + 1)

    threshold = abs(w.threshold * e.initial_threshold)
    x = psi(abs(i - j)) / psi(max(threshold, i))
    hidden = np.maximum(x * w.kernel_1[0] + w.bias_1, 0)
    return q @ k / math.sqrt(len(q)) + hidden @ w.kernel_2[:, h]


def shaw(e, w, h, q, k, i, j, keys):
    m = e.max_distance
    return q @ (k + _head(w.keys, h)[max(-m, min(m, j - i)) + m]) / math.sqrt(len(q))


def shaw_value(e, w, h, i, j):
    m = e.max_distance
    return _head(w.values, h)[max(-m, min(m, j - i)) + m] if e.use_values else 0.0


def transformer_xl(e, w, h, q, k, i, j, keys):
    half = e.position_dim // 2
    angles = (i - j) / 10000 ** (2 * np.arange(half) / e.position_dim)
    r = np.concatenate([np.sin(angles), np.cos(angles)]) @ w.kernel[:, h]
    return ((q + w.content_bias[h]) @ k + (q + w.position_bias[h]) @ r) / math.sqrt(len(q))


def synthesizer(e, w, h, q, k, i, j, keys):
    if e.kind == "random":
        synthetic = w.random[h, i, j]
    elif e.kind == "factorized":
        synthetic = w.query_factor[h, i] @ w.key_factor[h, j]
    else:
        synthetic = np.maximum(q, 0) @ w.kernel[h, :, j]
    if not e.mixed:
        return synthetic
    gate = 1 / (1 + math.exp(-w.gate[h].item()))
    return (1 - gate) * (q @ k) / math.sqrt(len(q)) + gate * synthetic


def rotary(e, w, h, q, k, i, j, keys):
    d = len(q)
    base, stretch = e.base, 1.0
    if e.scaling == "linear":
        stretch = e.factor
    elif e.scaling == "ntk":
        base = base * e.factor ** (d / (d - 2))
    elif e.scaling == "dynamic" and keys > e.max_length:
        base = base * (e.factor * keys / e.max_length - (e.factor - 1)) ** (d / (d - 2))

    def rotate(x, position):
        # As complex numbers: a pair (a, b) is a + ib, and turning it is multiplying with exp(i angle).
        pairs = x[0::2] + 1j * x[1::2] if e.layout == "interleaved" else x[: d // 2] + 1j * x[d // 2 :]
        return pairs * np.exp(1j * position / stretch * base ** (-2 * np.arange(d // 2) / d))

    return np.real(np.sum(rotate(q, i) * np.conj(rotate(k, j)))) / math.sqrt(d)


SCORES = {
    "none": none,
    "diet_abs": diet_abs,
    "diet_abs_lin": diet_abs_lin,
    "diet_rel": diet_rel,
    "t5": t5,
    "tisa": tisa,
    "tupe": tupe,
    "tupe_rel": tupe_rel,
    "alibi": alibi,
    "kerple": kerple,
    "fire": fire,
    "shaw": shaw,
    "transformer_xl": transformer_xl,
    "synthesizer": synthesizer,
    "rotary": rotary,
}
VALUES = {"shaw": shaw_value}


def _project(dense, x):
    if dense is None:
        return np.zeros((len(x), 1, 1))
    kernel, bias = (np.asarray(w, "float64") for w in dense.weights)
    return np.einsum("nc,chd->hnd", x, kernel) + bias[:, None]


def attention(subject, query, value=None, mask=None, start_index=0, segments=None):
    """Output and weights of the subject for ONE example: `query (q, width)`, boolean `mask (q, k)`."""
    encoding, layer = subject.encoding, subject.attention
    name, w = encoding.registry_name, weights_of(encoding)
    value = query if value is None else value
    q_len, k_len = len(query), len(value)
    mask = np.ones((q_len, k_len), bool) if mask is None else mask
    if subject.at_input:
        same = value is query
        total = max(start_index + q_len, k_len)
        query = query + np.stack([INPUT[name](encoding, w, start_index + i, total) for i in range(q_len)])
        value = query if same else value + np.stack([INPUT[name](encoding, w, j, k_len) for j in range(k_len)])
        name = "none"
    if hasattr(layer, "num_keys"):  # Linformer: real positions of X are compressed, then all keys are seen
        real = mask.any(axis=0)
        e, f = (np.asarray(p, "float64")[:, :k_len] for p in (layer.key_projection, layer.value_projection))
        kept = value * real[:, None]
        key, value = e @ kept, f @ kept
        mask = np.broadcast_to(mask.any(axis=1, keepdims=True), (q_len, layer.num_keys))
        k_len = layer.num_keys
    else:
        key = value
    q, k, v = _project(layer.query_dense, query), _project(layer.key_dense, key), _project(layer.value_dense, value)
    out = np.zeros((q_len, layer.num_heads, layer.value_dim))
    weights = np.zeros((layer.num_heads, q_len, k_len))
    for h in range(layer.num_heads):
        for i in range(q_len):
            if not mask[i].any():
                continue
            scores = np.full(k_len, -np.inf)
            for j in range(k_len):
                if mask[i, j]:
                    qi = q[h, i] if layer.query_dense is not None else None
                    kj = k[h, j] if layer.key_dense is not None else None
                    scores[j] = SCORES[name](encoding, w, h, qi, kj, start_index + i, j, k_len)
                    if segments is not None:
                        table = np.asarray(layer.segment_bias.table, "float64")
                        scores[j] += _head(table, h)[segments[0][i], segments[1][j]]
            weights[h, i] = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
            for j in range(k_len):
                extra = VALUES[name](encoding, w, h, start_index + i, j) if name in VALUES else 0.0
                out[i, h] += weights[h, i, j] * (v[h, j] + extra)
    kernel, bias = (np.asarray(x, "float64") for x in layer.output_dense.weights)
    return np.einsum("qhd,hde->qe", out, kernel) + bias, weights
