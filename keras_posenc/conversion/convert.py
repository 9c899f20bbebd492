"""From one encoding to another: TISA, DIET-REL, T5 and DIET-ABS that score positions as a trained model does.

In all conversions a bias inside attention takes over from position embeddings. The scores of every layer get it, but
the embeddings also reached the values and, through the residual stream, everything behind: that part is lost, and only
the comparison of outputs shows how much it was.
"""

import contextlib

import numpy as np

from keras_posenc.conversion import fit_tisa, toeplitz
from keras_posenc.conversion.calibrate import Calibration
from keras_posenc.conversion.profile import attention_biases, get_backbone, positional_profiles, to_numpy
from keras_posenc.conversion.rebuild import copy_weights, named_encodings, rebuild, without_positions
from keras_posenc.conversion.report import Yardstick, make_report
from keras_posenc.encodings.registry import parse
from keras_posenc.encodings.t5 import bucket_table
from keras_posenc.folding import position_encodings
from keras_posenc.utils import checks

MODES = ("replace", "supplement")


def to_tisa(model, kernels=5, mode="replace", amplitude=0.0, steps=15, verbose=True, seed=0, **common):
    """The model with TISA kernels fitted to the positional score of every head of every layer.

    Args:
        model: a `Bert` or a model with a head around one, with positions at the input or as a bias.
        kernels: `S`, per head.
        mode: `"replace"` (the paper's case b): positions at the input become their mean, see `without_positions`.
            `"supplement"` (case a): all positions stay, and the kernels are added with their amplitudes multiplied by
            `amplitude`.
        amplitude: for `"supplement"`. At 0 the function of the model is unchanged, and training starts from widths and
            centres that fit it. At 1 the positional score counts about twice.
        steps: of the fit, per kernel.
        verbose: show progress.
        length: number of positions to fit and compare, and for tables to have; `max_length` of the model by default.
        words: as in `positional_profile`.
        profiles: what `positional_profiles` gave for this model, to save computing it again.
        calibration: tokens to fit on, in place of the profile: a dict as the model takes, or a `Calibration`. Nearer to
            the original, but texts are needed, and positions beyond theirs are not looked at.
        inputs: tokens to compare outputs on, others than those of the calibration: a dict or a `Yardstick`.
        mask_id: as in `Yardstick`.
        seed: of the starts of the fit, and of the tokens that are masked.

    Returns: `(model, ConversionReport)`. In a supplement `r2` is that of the kernels with amplitude 1.
    """
    checks.positive_int("to_tisa", "kernels", kernels)
    checks.one_of("to_tisa", "mode", mode, MODES)

    def fit(profiles, encodings):
        matrix = np.concatenate([profile.matrix for profile in profiles])
        name = f"TISA, {kernels} kernels" + (f", layer {profiles[0].layer}" if len(profiles) == 1 else "")
        with _shown(name, kernels * steps if verbose else 0) as on_step:
            fitted = fit_tisa.fit(matrix, kernels, steps, seed=seed, on_step=on_step)
        for encoding, *values in zip(encodings, *(np.split(part, len(profiles)) for part in fitted)):
            for weight, value in zip((encoding.amplitudes, encoding.sharpness, encoding.centers), values):
                weight.assign(value.T)

    if mode == "replace":
        return _convert(model, f"tisa, {kernels} kernels", fit, "tisa", {"kernels": kernels}, seed=seed, **common)
    return _supplement(model, kernels, amplitude, fit, seed=seed, **common)


def to_diet_rel(model, **common):
    """The model with DIET-REL: the Toeplitz matrix nearest to the positional score of every head, row constants aside.

    No relative encoding can explain more of the score than this one. Arguments: see `to_tisa`.
    """

    def fit(profiles, encodings):
        for profile, encoding in zip(profiles, encodings):
            encoding.table.assign(profile.best_line[:, ::-1])  # DIET counts i - j, lines j - i

    return _convert(model, "diet_rel", fit, "diet_rel", {}, **common)


def to_t5(model, num_buckets=32, max_distance=128, **common):
    """The model with T5's buckets of distances: the best value for each, by least squares, row constants aside.

    Args:
        num_buckets, max_distance: as in `T5Bias`.
        Others: see `to_tisa`.
    """
    table = bucket_table(num_buckets, max_distance, True)

    def fit(profiles, encodings):
        columns = np.clip(toeplitz.offsets(profiles[0].length), -max_distance, max_distance) + max_distance
        basis = (table[columns] == np.arange(num_buckets)[:, None]).astype("float64")
        for profile, encoding in zip(profiles, encodings):
            encoding.table.assign(toeplitz.best_coefficients(profile.matrix, basis))

    options = {"num_buckets": num_buckets, "max_distance": max_distance}
    return _convert(model, f"t5, {num_buckets} buckets", fit, "t5", options, **common)


def to_diet_abs(model, rank, **common):
    """The model with DIET-ABS of rank `rank`: the truncated SVD of the positional score of every head, rows centred.

    No matrix of that rank is nearer: the squared error is the sum of the squared singular values left out. The profile
    of input positions is a product of queries and keys, so that its rank is at most the head size, and a DIET-ABS of
    that rank has all of it.

    Args:
        rank: `d_p`.
        Others: see `to_tisa`.
    """
    checks.positive_int("to_diet_abs", "rank", rank)

    def fit(profiles, encodings):
        for profile, encoding in zip(profiles, encodings):
            u, s, vt = profile.singular
            root = np.sqrt(s)[:, None]
            for weight, vectors in ((encoding.query_table, u), (encoding.key_table, vt.swapaxes(-1, -2))):
                values = (vectors * root)[..., :rank]
                weight.assign(np.pad(values, [(0, 0), (0, 0), (0, rank - values.shape[-1])]))

    return _convert(model, f"diet_abs, rank {rank}", fit, "diet_abs", {"rank": rank}, **common)


def _convert(model, target, fit, position, options, calibration=None, inputs=None, mask_id=None, seed=0, **source):
    """Replaces the positions of `model`; `fit(profiles, encodings)` gives the new encodings their weights."""
    profiles = None
    if calibration is None:
        profiles = _profiles(model, **source)
        length = profiles[0].length
    else:
        if source:
            raise ValueError(f"With `calibration`, there is no use for: {', '.join(sorted(source))}")
        calibration = Calibration.of(model, calibration)
        length = calibration.length
    new = without_positions(model, position, length, position_options=options, max_length=length)
    encodings = named_encodings(new, position)
    if calibration is None:
        fit(profiles, encodings)
    else:
        profiles = calibration.run(new, lambda profile: fit([profile], [encodings[profile.layer]]))
        target += ", calibrated"
    # What the new model really adds to its scores, against what it should.
    biases = attention_biases(get_backbone(new).encoder, length)
    r2 = [toeplitz.explained(profile.matrix, bias) for profile, bias in zip(profiles, biases)]
    return new, make_report(target, profiles, r2, model, new, _yardstick(model, inputs, mask_id, seed))


def _profiles(model, length=None, words="expected", profiles=None):
    return positional_profiles(model, length, words) if profiles is None else profiles


def _yardstick(model, inputs, mask_id, seed):
    return inputs if inputs is None or isinstance(inputs, Yardstick) else Yardstick(model, inputs, mask_id, seed)


def _supplement(model, kernels, amplitude, fit, calibration=None, inputs=None, mask_id=None, seed=0, **source):
    encoder = get_backbone(model).encoder
    names = [name for name in parse(encoder.position_spec) if name != "none"]
    if calibration is not None:
        raise ValueError("With its positions kept, a model lacks nothing to calibrate. Use mode='replace'.")
    if "tisa" in names:
        raise ValueError("The model has TISA already. Use mode='replace' to fit other kernels.")
    if encoder.sharing != "none":
        raise ValueError(f"Only a model with sharing='none' can be supplemented. Received: {encoder.sharing!r}")
    profiles = _profiles(model, **source)
    options = {**encoder.position_options, "kernels": kernels}
    new = rebuild(model, position="+".join([*names, "tisa"]), position_options=options)
    kept = [encoding for encoding in _single_encodings(new) if encoding.registry_name != "tisa"]
    copy_weights(*([w for encoding in group for w in encoding.weights] for group in (_single_encodings(model), kept)))
    encodings = named_encodings(new, "tisa")
    fit(profiles, encodings)
    r2 = []
    for profile, encoding in zip(profiles, encodings):
        r2.append(toeplitz.explained(profile.matrix, to_numpy(encoding.at(profile.length).bias)[0]))
        encoding.amplitudes.assign(encoding.amplitudes * amplitude)
    target = f"supplement of tisa, {kernels} kernels"
    return new, make_report(target, profiles, r2, model, new, _yardstick(model, inputs, mask_id, seed))


def _single_encodings(model):
    """Those that are no sum of others."""
    return [encoding for encoding in position_encodings(model) if hasattr(encoding, "registry_name") and encoding.doors]


@contextlib.contextmanager
def _shown(what, steps):
    """Progress of a fit, about ten times in all; `steps` is 0 for none."""
    if not steps:
        yield None
        return
    from keras_posenc.utils.progress import Progress

    stride = max(1, steps // 10)
    with Progress(steps) as progress:

        def on_step(step, explained):
            if step % stride == 0:
                progress.step(f"{what}: R^2 {explained:.3f}", stride)

        yield on_step
