"""TCP sockets of this host: ports that are free, and which user owns a socket.

The owner is asked of the kernel (sock_diag) by both addresses and both ports of the socket. The
answer must be about that very one: where there is no such connection the kernel answers with
whoever listens there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from slurm_plugin.errors import RemoteError

Address = tuple[str, int]
#: The same in numbers.
Place = tuple[IPv4Address | IPv6Address, int]

LOOPBACK = "127.0.0.1"
ANSWER_S = 1.0
_TRIES = 64
#: linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h and the kernel's numbers of TCP's states.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _NLMSG_ERROR = 4, 20, 1, 2
_ESTABLISHED, _LISTENS = 1, 10
#: The kernel's errors have numbers below.
_ERRORS = 4096
_ANY_COOKIE = (1 << 64) - 1
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBxxI")
_REPLY = struct.Struct("=BBxx")
#: Ports and addresses in the network's byte order, then interface and cookie in the host's.
_PLACE = struct.Struct("!HH16s16s")
_REST = struct.Struct("=IQ")
#: Timer, queues, uid and inode, behind the place.
_OWNER = struct.Struct("=IIIII")


@dataclass(frozen=True)
class _Socket:
    """One socket as the kernel knows it; with `inode` 0 no process holds it any more."""

    near: Place
    far: Place
    state: int
    uid: int
    inode: int


def owner_of(near: Address, far: Address) -> int | None:
    """The uid whose socket `near` is connected to `far`; None without. Raises RemoteError."""
    asked = plain(near), plain(far)
    end = _ask(*asked)
    if end is None or (end.near, end.far) != asked:
        return None
    return end.uid if end.state == _ESTABLISHED and end.inode else None


def listener(port: int) -> int | None:
    """The uid that listens at a port of loopback; None where nobody does. Raises RemoteError."""
    end = _ask(plain((LOOPBACK, port)), plain(("0.0.0.0", 0)))
    if end is None or end.near[1] != port or end.state != _LISTENS:
        return None
    return end.uid


def peer_of(sock: socket.socket) -> int | None:
    """The uid at the other end of a connection, where that is on this host; None elsewhere.

    Raises RemoteError, and OSError where the connection is over.
    """
    uid = owner_of(sock.getpeername(), sock.getsockname())
    # In this order: if the connection stands after the question, the question was about it.
    if not stands(sock):
        raise ConnectionAbortedError("the connection is over")
    return uid


def stands(sock: socket.socket) -> bool:
    """Is this end of a connection still established? If not, another may have its addresses."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED


def check(listening: socket.socket) -> None:
    """Raises RemoteError where the kernel does not recognise a socket of our own as ours."""
    if listener(listening.getsockname()[1]) != os.getuid():
        raise RemoteError("the kernel does not tell whose a socket is; load its module tcp_diag")


def plain(address: Address) -> Place:
    """An address, an IPv4 one in IPv6's form as itself. Raises ValueError."""
    return _unmapped(ip_address(address[0].partition("%")[0])), address[1]


def _unmapped(host: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """An IPv4 address that an IPv6 socket has (::ffff:127.0.0.1) as itself."""
    return (host.ipv4_mapped or host) if isinstance(host, IPv6Address) else host


def _ask(near: Place, far: Place) -> _Socket | None:
    """The kernel's answer for these addresses; it may be about another socket."""
    if near[0].version != far[0].version:
        return None
    family = socket.AF_INET if near[0].version == 4 else socket.AF_INET6
    places = (host.packed.ljust(16, b"\0") for host in (near[0], far[0]))
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0xFFFFFFFF)
    request += _PLACE.pack(near[1], far[1], *places) + _REST.pack(0, _ANY_COOKIE)
    size = _HEADER.size + len(request)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(ANSWER_S)
            head = _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
            kernel.sendto(head + request, (0, 0))
            answer, (sender, _) = kernel.recvfrom(4096)
    except OSError as error:
        raise RemoteError(f"the kernel's sock_diag: {error.strerror or error}") from error
    return _read(answer) if sender == 0 else None


def _read(answer: bytes) -> _Socket | None:
    """The socket in an answer; None without one. Raises RemoteError for any other error."""
    with contextlib.suppress(struct.error):
        kind = _HEADER.unpack_from(answer)[1]
        at = _HEADER.size
        if kind == _NLMSG_ERROR:
            number = -struct.unpack_from("=i", answer, at)[0]
            if number == errno.ENOENT:
                return None
            raise RemoteError(f"the kernel's sock_diag: {os.strerror(number % _ERRORS)}")
        family, state = _REPLY.unpack_from(answer, at)
        at += _REPLY.size
        near, far, *hosts = _PLACE.unpack_from(answer, at)
        *_, uid, inode = _OWNER.unpack_from(answer, at + _PLACE.size + _REST.size)
        size = 4 if family == socket.AF_INET else 16
        ends = [_unmapped(ip_address(host[:size])) for host in hosts]
        return _Socket((ends[0], near), (ends[1], far), state, uid, inode)
    return None


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


def free(bind: str, low: int, high: int, start: int, count: int = 1) -> Iterator[int]:
    """The first of `count` consecutive ports that nobody has now, again and again.

    Another process may take one before the caller's server does.
    """
    for listener in bound(bind, low, high, start):
        port = listener.getsockname()[1]
        behind = beside(listener, count) if port + count - 1 <= high else None
        for one in (listener, *(behind or ())):
            one.close()
        if behind is not None:
            yield port


def beside(first: socket.socket, count: int) -> list[socket.socket] | None:
    """Sockets that listen at the ports behind this one's, `count` with it; None if one is taken."""
    host, port = first.getsockname()[:2]
    made: list[socket.socket] = []
    try:
        for i in range(1, count):
            made.append(socket.create_server((host, port + i)))
    except (OSError, OverflowError):
        for one in made:
            one.close()
        return None
    return made


def from_here(listener: socket.socket) -> socket.socket | None:
    """A socket that gets in the place of `listener` what comes to its port from this very host.

    So neither fills the other's queue. None where the kernel gives it to root alone (before 5.7).
    """
    own = socket.socket(listener.family, socket.SOCK_STREAM)
    try:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
        # Two sockets at one port: both must allow it, for as long as the second takes.
        for one in (listener, own):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        own.bind(listener.getsockname())
        own.listen(1)
    except OSError:
        own.close()
        return None
    finally:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)
    return own


def consecutive(host: str, count: int) -> list[socket.socket]:
    """Sockets that listen at `count` consecutive ports of this address. Raises RemoteError."""
    for _ in range(_TRIES):
        first = socket.create_server((host, 0))
        behind = beside(first, count)
        if behind is not None:
            return [first, *behind]
        first.close()
    raise RemoteError(f"no {count} consecutive ports are free")
