"""How the throughput of a server is counted, and that it takes no longer than it may."""

import numpy as np
import pytest

from serving.measuring import run
from serving.measuring.loads import steady_rate


def bursts(seconds, sizes):
    """Times of answers that come in batches, one after the other."""
    ends = np.cumsum(np.full(len(sizes), seconds))
    return np.repeat(ends, sizes) + np.random.default_rng(0).uniform(0, 1e-4, sum(sizes))


@pytest.mark.parametrize("duration", [2.0, 2.1, 2.3])
@pytest.mark.parametrize("sizes", [[16] * 6, [8] * 12], ids=["one batch", "two in turn"])
def test_the_rate_does_not_depend_on_where_the_last_batch_ends(duration, sizes):
    """Answers of 40 rows a second, of which some come after the end."""
    times = bursts(sizes[0] / 40.0, sizes)
    assert times[-1] > 2.3
    np.testing.assert_allclose(steady_rate(times, 16, duration), 40.0, rtol=1e-3)


def test_rates_of_very_few_answers():
    assert steady_rate(np.array([]), 4, 2.0) == 0.0
    assert steady_rate(np.array([3.0, 4.0]), 4, 2.0) == 0.5  # until the last one
    assert steady_rate(np.array([0.5]), 1, 2.0) == 0.5


class Clock:
    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


@pytest.mark.parametrize(("limit", "expected"), [(1000.0, 7), (50.0, 5), (49.0, 4), (5.0, run.LEAST_ROUNDS)])
def test_rounds_end_within_their_limit(monkeypatch, limit, expected):
    """Rounds of ten seconds; the one that warms up is not counted."""
    clock, seen = Clock(), []
    monkeypatch.setattr(run, "time", clock)
    for turn in run.rounds(7, limit):
        clock.now += 10.0
        seen.append(turn)
    assert seen == list(range(-1, expected))
