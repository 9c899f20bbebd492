"""Memory in use, of this process: what was handed out and not given back.

The resident memory of a process that runs tests goes up and down by tens of mebibytes, with what allocators keep and
with the holes between pieces in use. The counters of the allocators do not.
"""

import contextlib
import ctypes
import gc
import sys
import types

import pytest

FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
needs_counters = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs the counters of GNU's C library"
)


class Counters(ctypes.Structure):
    """`struct mallinfo2`."""

    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


def in_use():
    """Bytes that the C library has handed out, and blocks that Python has."""
    gc.collect()
    read = ctypes.CDLL(None).mallinfo2
    read.restype = Counters
    counters = read()
    return counters.uordblks + counters.hblkhd, sys.getallocatedblocks()


@contextlib.contextmanager
def growth():
    """What is in use after the block and was not before: `bytes` and `blocks`, known when the block has ended."""
    grown, before = types.SimpleNamespace(), in_use()
    yield grown
    grown.bytes, grown.blocks = (new - old for new, old in zip(in_use(), before))
