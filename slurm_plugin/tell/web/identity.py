"""Who looks at the page: by a reverse proxy's header, or by the owner of the connection.

A header is believed from a Unix socket or from an address that the administrator named, where a
secret is set beside that secret alone. Every other client must be on this host, and is the user to
whom the kernel says its end of the connection belongs. Nobody else is told anything.
"""

from __future__ import annotations

import hmac
import ipaddress
import pwd
import re
import socket
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from slurm_plugin.errors import PluginError, RemoteError
from slurm_plugin.node.remote import sockets

#: A login name as useradd(8) and directories have it.
_USER = re.compile(r"[a-zA-Z_][\w.@-]{0,63}\Z", re.ASCII)
End = tuple[str, int]
#: The header in which a proxy sends the secret that only it and the page know.
SECRET_HEADER = "X-Gputopo-Secret"
_SECRET = re.compile(r"[!-~]{16,128}\Z")
_NOT_TOLD = "whose connection this is could not be told"


class UnknownViewer(PluginError):
    """It is not known who asks; the text says why."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """A user whose browser shows the page, and what that user may see."""

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
    #: It may raise RemoteError.
    owner: Callable[[End, End], int | None] = sockets.owner_of
    #: What has to come in SECRET_HEADER for the user's header to be believed; '' where nothing has.
    secret: str = field(default="", repr=False)

    def whose(self, connection: PageConnection) -> Hashable:
        """By whom a new connection counts: a uid, or another host. Raises UnknownViewer.

        None where only its requests will tell.
        """
        peer, own = connection.ends
        if connection.family == socket.AF_UNIX or (self.header and peer[0] in self.proxies):
            return None
        if not is_loopback(peer[0]):
            return peer[0]
        return self._owner_of(peer, own)

    def viewer(
        self, connection: PageConnection, names: Sequence[str], secrets: Sequence[str] = ()
    ) -> Viewer:
        """Who asks, by all values of the user's and the secret's header. Raises UnknownViewer."""
        is_unix = connection.family == socket.AF_UNIX
        peer, own = connection.ends
        host = peer[0]
        if self.header and (is_unix or host in self.proxies):
            self._check_secret(secrets)
            return self._named(names)
        if is_unix:
            raise UnknownViewer(
                "no header is believed: gputopo web needs --user-header on a Unix socket"
            )
        if not is_loopback(host):
            raise UnknownViewer(f"{host} is neither this host nor a proxy that --proxy names")
        uid = self._owner_of(peer, own)
        return self._of(uid, name_of(uid))

    def _owner_of(self, peer: End, own: End) -> int:
        """The user at the client's end of a connection on this host. Raises UnknownViewer."""
        try:
            uid = self.owner(peer, own)
        except RemoteError as error:
            raise UnknownViewer(f"{_NOT_TOLD}: {error}") from error
        if uid is None:
            raise UnknownViewer(f"{_NOT_TOLD}; try again")
        return uid

    def _check_secret(self, said: Sequence[str]) -> None:
        """Who runs on a proxy's host connects from its address, too. Raises UnknownViewer."""
        if not self.secret:
            return
        one = said[0].encode(errors="surrogateescape") if len(said) == 1 else b""
        if not hmac.compare_digest(one, self.secret.encode()):
            raise UnknownViewer(f"the proxy has to send {SECRET_HEADER} as the page's host has it")

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


def checked_secret(text: str) -> str:
    """The secret, '' included. Raises PluginError for one that can be guessed or not be sent."""
    if text and not _SECRET.match(text):
        raise PluginError(
            "GPUTOPO_WEB_SECRET: expected 16 to 128 printable characters without spaces"
        )
    return text


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


def name_of(uid: int) -> str:
    """The user's login name; the uid's digits where this host knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
