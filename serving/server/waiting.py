"""Whether anybody still waits for the request that a thread works on.

The protocols know of clients that have gone and of deadlines; the queues of batches, which know no protocol, ask here.
"""

import contextlib
import threading

_thread = threading.local()


@contextlib.contextmanager
def asked(is_waiting):
    """In this block the thread works on a request that somebody waits for as long as `is_waiting()` is true."""
    _thread.is_waiting = is_waiting
    try:
        yield
    finally:
        _thread.is_waiting = _always


def current():
    """The function that tells it of this thread's request, also to other threads. Warm-up, for one, always waits."""
    return getattr(_thread, "is_waiting", _always)


def _always():
    return True
