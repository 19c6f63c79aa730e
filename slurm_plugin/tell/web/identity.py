"""Who looks at the page: by a reverse proxy's header, or by the owner of the connection.

A header is believed from a Unix socket or from an address that the administrator named. Every other
client must be on this host, and is the user to whom the kernel says its end of the connection
belongs. Nobody else is told anything.
"""

from __future__ import annotations

import asyncio
import ipaddress
import pwd
import re
import socket
import struct
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from slurm_plugin.errors import PluginError, RemoteError
from slurm_plugin.node.remote import sockets

#: A login name as useradd(8) and directories have it.
_USER = re.compile(r"[a-zA-Z_][\w.@-]{0,63}\Z", re.ASCII)
#: The state of a connection in /proc/net/tcp that both sides still use.
_ESTABLISHED = "01"
End = tuple[str, int]
_NOT_TOLD = "whose connection this is could not be told; try again"


class Untold(Exception):
    """The kernel does not answer questions about connections here (sock_diag)."""


class UnknownViewer(PluginError):
    """It is not known who asks; the text says why."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """A user who looks."""

    uid: int
    name: str
    #: May see every job.
    is_operator: bool = False

    @property
    def kind(self) -> int | None:
        """Viewers of one kind see the same: the uid, or None for all operators together."""
        return None if self.is_operator else self.uid


@dataclass(frozen=True, slots=True)
class PageConnection:
    """Where a request came from."""

    #: AF_UNIX, AF_INET or AF_INET6.
    family: int
    #: The client's address and port, and ours; empty on a Unix socket.
    peer: End = ("", 0)
    own: End = ("", 0)

    @property
    def ends(self) -> tuple[End, End]:
        """The client's and ours, with IPv4 addresses as such."""
        (host, port), (own, own_port) = self.peer, self.own
        return (plain_address(host), port), (plain_address(own), own_port)


@dataclass(frozen=True, slots=True)
class Identities:
    """The rules by which a connection and its headers become a Viewer."""

    #: Uids that may see every job: root, SlurmUser and those whom the administrator named.
    operators: frozenset[int] = frozenset((0,))
    #: The header in which a proxy names the user; '' where none is believed.
    header: str = ""
    #: Addresses of proxies whose header is believed; a Unix socket's always is.
    proxies: frozenset[str] = frozenset()
    #: (client, ours) -> the uid that owns the client's end of a TCP connection; None if unknown.
    #: It may raise Untold.
    owner: Callable[[End, End], int | None] = field(default_factory=lambda: owner_of)

    def whose(self, connection: PageConnection) -> Hashable:
        """By whom a new connection counts: a uid, or another host. Raises UnknownViewer.

        None where only its requests will tell.
        """
        peer, own = connection.ends
        if connection.family == socket.AF_UNIX or (self.header and peer[0] in self.proxies):
            return None
        if not is_loopback(peer[0]):
            return peer[0]
        try:
            uid = self.owner(peer, own)
        except Untold:
            return None
        if uid is None:
            raise UnknownViewer(_NOT_TOLD)
        return uid

    def viewer(self, connection: PageConnection, names: Sequence[str]) -> Viewer:
        """Who asks; `names` are all values of the user's header. Raises UnknownViewer, Untold."""
        is_unix = connection.family == socket.AF_UNIX
        peer, own = connection.ends
        host = peer[0]
        if self.header and (is_unix or host in self.proxies):
            return self._named(names)
        if is_unix:
            raise UnknownViewer(
                "no header is believed: gputopo web needs --user-header on a Unix socket"
            )
        if not is_loopback(host):
            raise UnknownViewer(f"{host} is neither this host nor a proxy that --proxy names")
        uid = self.owner(peer, own)
        if uid is None:
            raise UnknownViewer(_NOT_TOLD)
        return self._of(uid, name_of(uid))

    def _named(self, names: Sequence[str]) -> Viewer:
        if len(names) != 1:
            said = f"{len(names)} times" if names else "without"
            raise UnknownViewer(f"the proxy has to send {self.header} once; it came {said}")
        if not _USER.match(names[0]):
            raise UnknownViewer(f"{self.header}: no login name")
        try:
            user = pwd.getpwnam(names[0])
        except KeyError:
            raise UnknownViewer(f"{self.header}: no user of this host") from None
        return self._of(user.pw_uid, user.pw_name)

    def _of(self, uid: int, name: str) -> Viewer:
        return Viewer(uid, name, uid in self.operators)


def checked_proxies(texts: Sequence[str]) -> frozenset[str]:
    """The addresses of proxies. Raises PluginError for one that cannot be believed."""
    addresses = set()
    for text in texts:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            raise PluginError(f"--proxy {text!r}: expected one IP address") from None
        if address.is_loopback:
            raise PluginError(
                f"--proxy {text}: every user of this host could send the header from there;"
                " let the proxy on this host use --listen unix:PATH"
            )
        addresses.add(str(address))
    return frozenset(addresses)


def uids_of(names: Sequence[str]) -> frozenset[int]:
    """The uids of login names. Raises PluginError for one that this host does not know."""
    try:
        return frozenset(pwd.getpwnam(name).pw_uid for name in names)
    except KeyError as error:
        raise PluginError(f"--operator: {error.args[0]}") from None


def is_loopback(host: str) -> bool:
    """Is it an address of this host alone?"""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def plain_address(host: str) -> str:
    """An IPv4 address that came over IPv6 (`::ffff:10.0.0.5`) as IPv4."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def owner_of(peer: End, own: End) -> int | None:
    """The uid that owns the client's end of a connection on this host; None where there is none.

    The kernel is asked about this connection alone, which takes it some microseconds. Raises Untold
    where it answers no such questions.
    """
    try:
        uid = sockets.owner_of(peer, own)
    except RemoteError as error:
        raise Untold from error
    # Without its module for TCP it says, too, that there is no such connection.
    if uid is None and not _tells():
        raise Untold
    return uid


@cache
def _tells() -> bool:
    """Does the kernel know whose a socket is that is surely ours?"""
    with socket.create_server((sockets.LOOPBACK, 0)) as own:
        try:
            sockets.check(own)
        except RemoteError:
            return False
    return True


class OwnerTable:
    """The same by the table of all connections, read once for all who ask meanwhile."""

    def __init__(self, folder: Path = Path("/proc/net")) -> None:
        self._folder = folder
        self._reading = asyncio.Lock()
        self._next: asyncio.Task[Mapping[tuple[str, str], int]] | None = None

    async def owner(self, peer: End, own: End) -> int | None:
        """As `owner_of`; a reading that has begun already is too old an answer."""
        if self._next is None:
            self._next = asyncio.create_task(self._read())
        table = await asyncio.shield(self._next)
        pairs = [(_words(peer, form), _words(own, form)) for form in _FORMS]
        return next((table[pair] for pair in pairs if pair in table), None)

    async def _read(self) -> Mapping[tuple[str, str], int]:
        async with self._reading:
            self._next = None
            return await asyncio.to_thread(owners, self._folder)


def owners(folder: Path) -> Mapping[tuple[str, str], int]:
    """(its end, the other end) -> uid, of all connections of this host, as /proc/net has them.

    The kernel tells root's uid of a socket that nobody has open any more: such a one has inode 0,
    and counts for nothing.
    """
    found = {}
    for name in ("tcp", "tcp6"):
        try:
            lines = (folder / name).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split(None, 10)
            if len(words) > 9 and words[3] == _ESTABLISHED and words[9] != "0":
                found[words[1], words[2]] = int(words[7])
    return found


#: What stands before an IPv4 address that an IPv6 socket has.
_FORMS = (b"", bytes(10) + b"\xff\xff")


def _words(end: End, before: bytes) -> str:
    """`0100007F:1F90` of /proc/net/tcp: 32-bit words in this host's order."""
    packed = ipaddress.ip_address(end[0]).packed
    address = before + packed if len(packed) == 4 else packed
    words = struct.unpack(f"={len(address) // 4}I", address)
    return "".join(f"{word:08X}" for word in words) + f":{end[1]:04X}"


def name_of(uid: int) -> str:
    """The user's login name; the uid's digits where this host knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
