"""Ports that nobody else has: taken by binding them, one after the other."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

from slurm_plugin.remote.errors import RemoteError


def bound(bind: str, low: int, high: int, start: int) -> Iterator[socket.socket]:
    """A socket on every free port of the range, from a place that differs from job to job.

    Nobody else can take that port until the socket is closed. Raises RemoteError.
    """
    count = high - low + 1
    for i in range(count):
        port = low + (start + i) % count
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # Without SO_REUSEADDR a port could not be used for a minute after each job.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((bind, port))
            listener.listen(64)
        except OSError as error:
            listener.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise RemoteError(f"port {port}: {error.strerror or error}") from error
        else:
            yield listener


def take(bind: str, low: int, high: int, start: int) -> socket.socket:
    """The first of these sockets. Raises RemoteError where every port is taken."""
    for listener in bound(bind, low, high, start):
        return listener
    raise RemoteError(f"no free port in {low}-{high}")


def free(bind: str, low: int, high: int, start: int) -> Iterator[int]:
    """Ports that nobody has now, for a server that binds its own.

    Another may take one in between, so what listens there must be looked at afterwards.
    """
    for listener in bound(bind, low, high, start):
        port = listener.getsockname()[1]
        listener.close()
        yield port
