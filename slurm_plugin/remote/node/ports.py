"""Ports that nobody else has: taken by binding them, one after the other."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

from slurm_plugin.remote.errors import RemoteError


def in_order(low: int, high: int, start: int) -> Iterator[int]:
    """Every port of the range, from a place that differs from job to job."""
    count = high - low + 1
    for i in range(count):
        yield low + (start + i) % count


def take(bind: str, low: int, high: int, start: int) -> socket.socket:
    """A socket bound to a free port of the range, which nobody else can take from then on.

    Raises RemoteError where every port is taken.
    """
    for port in in_order(low, high, start):
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
            return listener
    raise RemoteError(f"no free port in {low}-{high}")


def free(bind: str, low: int, high: int, start: int) -> Iterator[int]:
    """Ports that nobody has now, for a server that binds its own.

    Another may take one in between, so what listens there must be looked at afterwards.
    """
    for port in in_order(low, high, start):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((bind, port))
                probe.listen(1)
                probe.close()
                yield port
