"""Percentiles and ratios with bootstrap intervals.

Rounds are resampled as a whole: what two kinds of calls share in a round (a busy machine) stays shared.
"""

import numpy as np

DRAWS, LEVEL = 2000, 0.95


def interval(statistic, *series, draws=DRAWS, seed=0):
    """`[low, high]`, between which 95 % of the bootstrap draws of a statistic lie.

    Args:
        statistic: function of arrays `(draws, rounds)` that returns `(draws,)`.
        *series: arrays `(rounds,)`, resampled with the same rounds.
    """
    series = [np.asarray(each, float) for each in series]
    rounds = len(series[0])
    chosen = np.random.default_rng(seed).integers(0, rounds, (draws, rounds))
    drawn = statistic(*(each[chosen] for each in series))
    return [float(value) for value in np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])]


def median(values):
    return np.median(values, axis=-1)


def summary(seconds):
    """p50 with its interval, p95, p99 and mean in milliseconds, and the samples."""
    milliseconds = np.asarray(seconds, float) * 1e3
    p50, p95, p99 = np.percentile(milliseconds, [50, 95, 99])
    return {
        "p50": float(p50),
        "p50_interval": interval(median, milliseconds),
        "p95": float(p95),
        "p99": float(p99),
        "mean": float(milliseconds.mean()),
        "samples": [round(float(value), 4) for value in milliseconds],
    }


def overhead(served, in_process):
    """Difference of the medians in milliseconds, of seconds."""
    pair = np.asarray(served, float) * 1e3, np.asarray(in_process, float) * 1e3
    return _with_interval(lambda a, b: median(a) - median(b), *pair)


def ratio(values, baseline):
    """Median over the rounds of the ratio within a round."""
    return _with_interval(lambda a, b: median(a / b), np.asarray(values, float), np.asarray(baseline, float))


def mean(values):
    return _with_interval(lambda a: a.mean(axis=-1), np.asarray(values, float))


def _with_interval(statistic, *series):
    return {"value": float(statistic(*series)), "interval": interval(statistic, *series)}
