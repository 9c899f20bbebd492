"""Attempts with growing, random pauses, all within one deadline."""

import random
import time
from dataclasses import dataclass

from serving.client.errors import ClientError, Failure

RETRIED = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
MIXED = "different shapes and padding is turned off"  # of inputs that came together and were put into one batch


@dataclass(frozen=True)
class Retry:
    """How often to try again. Before attempt `n + 1` the pause is uniform in `[0, min(largest, first * factor ** n)]`.

    Pauses are drawn from the whole interval, so that clients that failed together do not come back together.

    Args:
        attempts: in all; 1 never tries again.
        first, factor, largest: of the pauses, in seconds.
    """

    attempts: int = 5
    first: float = 0.1
    factor: float = 2.0
    largest: float = 5.0

    def __post_init__(self):
        if self.attempts < 1 or min(self.first, self.largest) < 0 or self.factor < 1:
            raise ValueError(f"attempts and factor must be at least 1, and pauses not negative. Received: {self}")

    def pause(self, failures, uniform=random.uniform):
        """Seconds to wait after that many failures."""
        return uniform(0.0, min(self.largest, self.first * self.factor ** (failures - 1)))

    def call(self, attempt, timeout, address, clock=time.monotonic, sleep=time.sleep):
        """Calls `attempt(seconds left)` until it succeeds.

        Only what a server does when it is absent, loading or overloaded is tried again (`UNAVAILABLE`,
        `RESOURCE_EXHAUSTED`), and what it refused because others asked at the same time with inputs of another length;
        predictions change nothing, so a second one does no harm.

        Args:
            attempt: function that raises `Failure`.
            timeout: seconds for all attempts and pauses.
            address: for the error.
        """
        end = clock() + timeout
        for number in range(1, self.attempts + 1):
            try:
                return attempt(max(end - clock(), 0.001))
            except Failure as failure:
                pause = max(self.pause(number), failure.wait or 0.0)
                again = failure.code in RETRIED or MIXED in failure.message
                if number == self.attempts or not again or clock() + pause >= end:
                    raise ClientError(failure.code, failure.message, address, number) from failure
            sleep(pause)
