"""Ports of this machine."""

import errno
import socket


def in_use(port):
    """Whether somebody listens on a port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise OSError(error.errno, f"Port {port}: {error.strerror}") from error
            return True
    return False
