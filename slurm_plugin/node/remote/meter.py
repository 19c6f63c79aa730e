"""What passes over a donor's connections, as its node's kernel counts it (sock_diag, TCP_INFO).

Nothing stands in the way of the bytes: the kernel tells of each connection when it ends, and of
those that are open when it is asked. What a middleware calls a call is not known here; each takes
at least one packet with data to the donor, so there are no more calls than such packets.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from slurm_plugin.base.job_notes.donor import Passed

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_NLM_F_REQUEST_DUMP, _NLMSG_DONE, _NLMSG_ERROR = 0x301, 3, 2
#: The groups for connections over IPv4 and IPv6 that end: SKNLGRP_INET_TCP_DESTROY and _INET6_.
_ENDED = 0b101
_INET_DIAG_INFO = 2
#: A mask of states: established (1), and those on the way to an end (4, 5, 8, 9, 11).
_ESTABLISHED_OR_CLOSING = 0b1011_0011_0010
_HEADER = struct.Struct("=IHHII")
#: inet_diag_req_v2: family, protocol, extensions, states; then ports and the rest, left open.
_REQUEST = struct.Struct("=BBBxIH")
_REST_OF_REQUEST = bytes(46)
#: inet_diag_msg: ports come after four bytes, attributes after all 72.
_PORTS, _MESSAGE_BYTES = struct.Struct(">4xHH"), 72
_ATTRIBUTE = struct.Struct("=HH")
#: tcp_info: milliseconds since data was last sent and last received, a word between them.
_LAST = struct.Struct("=I4xI")
_LAST_AT = 44
#: tcp_info: bytes_acked and bytes_received (u64), four words, data_segs_in.
_COUNTS = struct.Struct("=QQ16xI")
_COUNTS_AT = 120
_BUFFER_BYTES = 1 << 20
#: So many ended connections are heard of before all else has its turn, and so many at a look.
AT_ONCE, MOST = 64, 8192


class _Counts(NamedTuple):
    """Of one connection: what passed, and for how many seconds nothing has."""

    passed: Passed = Passed()
    idle_s: float = 0.0


class Meter:
    """Counts what passes over connections to these ports of the node, from now on."""

    def __init__(self, *ports: int) -> None:
        self._ports = frozenset(filter(None, ports))
        self._ended = Passed()
        self._events: socket.socket | None = None

    def start(self) -> None:
        """Hear of connections that end; on a kernel that does not tell, open ones alone count."""
        with contextlib.suppress(OSError):
            events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
            events.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            events.bind((0, _ENDED))
            events.setblocking(False)
            asyncio.get_running_loop().add_reader(events.fileno(), self._heard)
            self._events = events

    def close(self) -> None:
        """Count no more: the kernel's events are not read any longer."""
        if self._events is not None:
            asyncio.get_running_loop().remove_reader(self._events.fileno())
            self._events.close()
            self._events = None

    def passed(self) -> Passed:
        """What passed since the start."""
        self._heard(MOST)
        total = self._ended
        for port in self._ports:
            for one in self._open(port):
                total += one.passed
        return total

    def idle_s(self) -> float:
        """For how long nothing passed either way over the open connections; 0 where none is.

        Who had the last word is not known: a quick answer comes in the same tick of the kernel.
        """
        each = [one for port in self._ports for one in self._open(port) if one.passed.received]
        return min((one.idle_s for one in each), default=0.0)

    def _heard(self, most: int = AT_ONCE) -> None:
        for _ in range(most):
            if self._events is None:
                return
            try:
                data = self._events.recv(1 << 16)
            except OSError:
                # Nothing more is there; or too much was, and what was lost is not counted.
                return
            for _, port, one in _connections(data):
                if port in self._ports:
                    self._ended += one.passed

    def _open(self, port: int) -> Iterator[_Counts]:
        for family in (socket.AF_INET, socket.AF_INET6):
            asked = _REQUEST.pack(
                family,
                socket.IPPROTO_TCP,
                1 << (_INET_DIAG_INFO - 1),
                _ESTABLISHED_OR_CLOSING,
                socket.htons(port),
            )
            size = _HEADER.size + len(asked) + len(_REST_OF_REQUEST)
            head = _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, 1, 0)
            with (
                contextlib.suppress(OSError),
                socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel,
            ):
                kernel.settimeout(1.0)
                kernel.sendto(head + asked + _REST_OF_REQUEST, (0, 0))
                while True:
                    kinds = []
                    for kind, at, one in _connections(kernel.recv(1 << 16)):
                        kinds.append(kind)
                        if kind == _SOCK_DIAG_BY_FAMILY and at == port:
                            yield one
                    if not kinds or kinds[-1] != _SOCK_DIAG_BY_FAMILY:
                        break


def _connections(data: bytes) -> Iterator[tuple[int, int, _Counts]]:
    """Kind of message, near port and counts of each message in what the kernel sent."""
    at = 0
    while at + _HEADER.size <= len(data):
        size, kind, *_ = _HEADER.unpack_from(data, at)
        if size < _HEADER.size or kind in (_NLMSG_DONE, _NLMSG_ERROR):
            yield kind, 0, _Counts()
            return
        body = data[at + _HEADER.size : at + size]
        if len(body) >= _MESSAGE_BYTES:
            yield kind, _PORTS.unpack_from(body)[0], _counts(body[_MESSAGE_BYTES:])
        at += (size + 3) & ~3


def _counts(attributes: bytes) -> _Counts:
    at = 0
    while at + _ATTRIBUTE.size <= len(attributes):
        size, kind = _ATTRIBUTE.unpack_from(attributes, at)
        if size < _ATTRIBUTE.size:
            break
        info = attributes[at + _ATTRIBUTE.size : at + size]
        if kind == _INET_DIAG_INFO and len(info) >= _COUNTS_AT + _COUNTS.size:
            sent, received, packets = _COUNTS.unpack_from(info, _COUNTS_AT)
            if not received:
                break
            idle_ms = min(_LAST.unpack_from(info, _LAST_AT))
            return _Counts(Passed(received, sent, packets), idle_ms / 1000)
        at += (size + 3) & ~3
    return _Counts()
