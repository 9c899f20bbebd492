"""A console without the messages of libraries."""

import contextlib
import os
import sys


@contextlib.contextmanager
def native_messages_to(path):
    """Sends what native code writes to standard error to the end of a file.

    TensorFlow and XLA log to descriptor 2 whatever Python thinks of it. Here the descriptor is the file's, and
    `sys.stderr`, where Python's own messages go, is where the descriptor was.
    """
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    console, before = os.dup(2), sys.stderr
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 2)
    os.close(log)
    sys.stderr = os.fdopen(os.dup(console), "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    try:
        yield
    finally:
        sys.stderr.close()
        sys.stderr = before
        os.dup2(console, 2)
        os.close(console)
