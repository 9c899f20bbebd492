"""Timing side by side: what disturbs a round disturbs all of it, so ratios within a round are compared."""

import time

import numpy as np


def interleave(functions, rounds, seed=0, clock=time.perf_counter):
    """Runs every function once per round, in a new order each round.

    Args:
        functions: dict of functions without arguments, already compiled and warm.
        rounds: how often.

    Returns: dict of arrays of seconds, an entry per round.
    """
    rng = np.random.default_rng(seed)
    names = list(functions)
    seconds = {name: np.zeros(rounds) for name in names}
    for turn in range(rounds):
        for index in rng.permutation(len(names)):
            function = functions[names[index]]
            begin = clock()
            function()
            seconds[names[index]][turn] = clock() - begin
    return seconds


def compare(seconds, baseline):
    """The ratio of two series of rounds: median, quartiles and range of the ratios per round."""
    ratios = np.asarray(seconds) / np.asarray(baseline)
    low, median, high = np.percentile(ratios, [25, 50, 75])
    return {
        "ratio": float(median),
        "quartiles": [float(low), float(high)],
        "range": [float(ratios.min()), float(ratios.max())],
        "milliseconds": float(np.median(seconds) * 1e3),
        "baseline_milliseconds": float(np.median(baseline) * 1e3),
        "rounds": len(ratios),
    }
