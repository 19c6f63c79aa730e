"""Who looks at the page: by a reverse proxy's header, or by the owner of the connection.

A header is believed from a Unix socket or from an address that the administrator named. Every other
client must be on this host, and is the user to whom the kernel says its end of the connection
belongs. Nobody else is told anything.
"""

from __future__ import annotations

import ipaddress
import pwd
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurm_plugin.errors import PluginError

#: A login name as useradd(8) and directories have it.
_USER = re.compile(r"[a-zA-Z_][\w.@-]{0,63}\Z", re.ASCII)
#: The state of a connection in /proc/net/tcp that both sides still use.
_ESTABLISHED = "01"


class Refused(PluginError):
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
class Connection:
    """Where a request came from."""

    #: AF_UNIX, AF_INET or AF_INET6.
    family: int
    #: The client's address and port, and ours; empty on a Unix socket.
    peer: tuple[str, int] = ("", 0)
    own: tuple[str, int] = ("", 0)


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
    owner: Callable[[tuple[str, int], tuple[str, int]], int | None] = field(
        default_factory=lambda: owner_of
    )

    def viewer(self, connection: Connection, names: Sequence[str]) -> Viewer:
        """Who asks; `names` are all values of the user's header. Raises Refused."""
        is_unix = connection.family == socket.AF_UNIX
        host = plain_address(connection.peer[0])
        if self.header and (is_unix or host in self.proxies):
            return self._named(names)
        if is_unix:
            raise Refused("no header is believed: gputopo web needs --user-header on a Unix socket")
        if not is_loopback(host):
            raise Refused(f"{host} is neither this host nor a proxy that --proxy names")
        own = plain_address(connection.own[0]), connection.own[1]
        uid = self.owner((host, connection.peer[1]), own)
        if uid is None:
            raise Refused("whose connection this is could not be told; try again")
        return self._of(uid, name_of(uid))

    def _named(self, names: Sequence[str]) -> Viewer:
        if len(names) != 1:
            said = f"{len(names)} times" if names else "without"
            raise Refused(f"the proxy has to send {self.header} once; it came {said}")
        if not _USER.match(names[0]):
            raise Refused(f"{self.header}: no login name")
        try:
            user = pwd.getpwnam(names[0])
        except KeyError:
            raise Refused(f"{self.header}: no user of this host") from None
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


def owner_of(
    peer: tuple[str, int], own: tuple[str, int], folder: Path = Path("/proc/net")
) -> int | None:
    """The uid that owns the client's end of a connection on this host; None where none is found.

    The kernel tells root's uid of a socket that nobody has open any more: such a one has inode 0,
    and counts for nothing.
    """
    for name in ("tcp", "tcp6"):
        try:
            lines = (folder / name).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if len(words) < 10 or words[3] != _ESTABLISHED or words[9] == "0":
                continue
            if _endpoint(words[1]) == peer and _endpoint(words[2]) == own:
                return int(words[7])
    return None


def _endpoint(text: str) -> tuple[str, int]:
    """`0100007F:1F90` of /proc/net/tcp: 32-bit words in this host's order."""
    address, _, port = text.partition(":")
    words = [bytes.fromhex(address[i : i + 8])[::-1] for i in range(0, len(address), 8)]
    return plain_address(str(ipaddress.ip_address(b"".join(words)))), int(port, 16)


def name_of(uid: int) -> str:
    """The user's login name; the uid's digits where this host knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
