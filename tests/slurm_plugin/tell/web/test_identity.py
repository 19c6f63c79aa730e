"""Who is believed to be whom."""

import asyncio
import os
import pwd
import socket
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from web_in_tests import Site
from web_in_tests import asked as asked_of

from slurm_plugin.errors import PluginError, RemoteError
from slurm_plugin.node.remote import sockets
from slurm_plugin.tell.web import identity
from slurm_plugin.tell.web.identity import (
    Identities,
    OwnerTable,
    PageConnection,
    UnknownViewer,
    checked_proxies,
    owner_of,
    owners,
    uids_of,
)
from slurm_plugin.tell.web.run import address_in, checked

NOBODY = pwd.getpwnam("nobody")
HERE, PROXY, ELSEWHERE, UNIX = (
    PageConnection(socket.AF_INET, ("127.0.0.1", 40000), ("127.0.0.1", 8080)),
    PageConnection(socket.AF_INET6, ("::ffff:10.0.0.5", 40000), ("::ffff:10.0.0.1", 8080)),
    PageConnection(socket.AF_INET, ("10.0.0.6", 40000), ("10.0.0.1", 8080)),
    PageConnection(socket.AF_UNIX),
)


def who(header="X-Remote-User", owner=1234):
    proxies = checked_proxies(["10.0.0.5"])
    return Identities(frozenset((0,)), header, proxies, lambda peer, own: owner)


@pytest.mark.parametrize(
    ("sentence", "connection", "names", "uid"),
    [
        ("a proxy names the user", PROXY, ["nobody"], NOBODY.pw_uid),
        ("so does the one on the Unix socket", UNIX, ["nobody"], NOBODY.pw_uid),
        ("a header of this host's own users says nothing", HERE, ["root"], 1234),
        ("nor where it is missing", HERE, [], 1234),
    ],
)
def test_who_looks(sentence, connection, names, uid):
    assert who().viewer(connection, names).uid == uid


@pytest.mark.parametrize(
    ("sentence", "connection", "names"),
    [
        ("another host, with a header", ELSEWHERE, ["nobody"]),
        ("another host, without", ELSEWHERE, []),
        ("a proxy that names nobody", PROXY, []),
        ("a header that the user sent, too", PROXY, ["root", "nobody"]),
        ("two names in one header", PROXY, ["root,nobody"]),
        ("an unknown user", PROXY, ["nosuchuser"]),
        ("a uid in place of a name", PROXY, ["0"]),
        ("a name with a line break", PROXY, ["nobody\n"]),
        ("an empty name", UNIX, [""]),
        ("a name like a path", UNIX, ["../root"]),
    ],
)
def test_nobody_else_is_told_anything(sentence, connection, names):
    with pytest.raises(UnknownViewer):
        who().viewer(connection, names)


def test_a_unix_socket_without_a_believed_header_tells_nobody():
    with pytest.raises(UnknownViewer, match="user-header"):
        who(header="").viewer(UNIX, ["root"])


def test_a_connection_of_which_the_kernel_says_nothing_is_refused():
    with pytest.raises(UnknownViewer):
        who(owner=None).viewer(HERE, [])


def test_operators_are_one_kind_and_other_users_one_each():
    root, nobody = (who().viewer(UNIX, [name]) for name in ("root", "nobody"))
    assert (root.kind, nobody.kind) == (None, NOBODY.pw_uid)
    named = Identities(uids_of(["nobody"]), "X-Remote-User")
    assert named.viewer(UNIX, ["nobody"]).is_operator


@contextmanager
def connection(family=socket.AF_INET):
    """The client's end of a connection on this host, ours, and the client."""
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.socket(family) as listener:
        try:
            listener.bind((host, 0))
        except OSError:
            pytest.skip(f"this host has no {host}")
        listener.listen()
        with socket.create_connection(listener.getsockname()[:2]) as client:
            server, peer = listener.accept()
            with server:
                yield peer[:2], server.getsockname()[:2], client


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_kernel_tells_whose_connection_it_is_until_it_is_closed(family):
    with connection(family) as (peer, own, client):
        assert owner_of(peer, own) == os.getuid()
        assert owner_of(own, peer) == os.getuid()
        client.close()
        # Of a socket that nobody has open the kernel says: root's.
        assert owner_of(peer, own) is None


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
MAPPED = "0000000000000000FFFF0000"


def table_line(state="01", uid=1000, inode=77, before=""):
    ends = f"{before}0100007F:9C40 {before}0100007F:1F90"
    more = f"{state} 00000000:00000000 00:00000000 00000000"
    return f"   0: {ends} {more} {uid:5d}        0 {inode} 1 0 20 4 30 10 -1\n"


def told(folder, peer=("127.0.0.1", 40000), own=("127.0.0.1", 8080)):
    async def ask():
        return await OwnerTable(folder).owner(peer, own)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("sentence", "state", "uid", "inode", "found"),
    [
        ("a connection in use", "01", 1000, 77, 1000),
        ("a client that is gone", "05", 0, 0, None),
        ("one whose socket nobody has open", "01", 0, 0, None),
        ("one that only listens", "0A", 1000, 77, None),
    ],
)
def test_a_line_of_the_kernels_table(tmp_path, sentence, state, uid, inode, found):
    (tmp_path / "tcp").write_text(HEAD + table_line(state, uid, inode))
    assert told(tmp_path) == found
    assert told(tmp_path, own=("127.0.0.1", 8081)) is None


def test_a_client_that_came_over_ipv6_is_found_by_its_ipv4_address(tmp_path):
    (tmp_path / "tcp6").write_text(HEAD + table_line(before=MAPPED))
    assert told(tmp_path) == 1000


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_table_says_the_same_as_the_kernel(family):
    with connection(family) as (peer, own, _):
        assert told(Path("/proc/net"), peer, own) == owner_of(peer, own) == os.getuid()
        assert told(Path("/proc/net"), own, peer) == os.getuid()


async def test_one_reading_of_the_table_serves_all_who_asked_before_it_began(tmp_path, monkeypatch):
    (tmp_path / "tcp").write_text(HEAD + table_line())
    readings = []

    def counted(folder):
        readings.append(threading.current_thread())
        return owners(folder)

    monkeypatch.setattr(identity, "owners", counted)

    table = OwnerTable(tmp_path)
    asked = (table.owner(("127.0.0.1", 40000), ("127.0.0.1", 8080)) for _ in range(300))
    assert await asyncio.gather(*asked) == [1000] * 300
    assert len(readings) == 1
    assert threading.main_thread() not in readings, (
        "it takes a while, so the loop goes on meanwhile"
    )


@pytest.mark.parametrize("refusal", ["refused", "without its module for TCP"])
def test_where_the_kernel_answers_no_questions_the_table_is_read(tmp_path, monkeypatch, refusal):
    """It says the same of a connection that it does not know and of a kind that it does not."""

    def asked(near, far):
        if refusal == "refused":
            raise RemoteError("the kernel's sock_diag: Operation not permitted")

    monkeypatch.setattr(sockets, "_ask", asked)
    identity._tells.cache_clear()
    site = Site(tmp_path, who=Identities(frozenset()))
    read = []
    monkeypatch.setattr(identity, "owners", lambda folder: read.append(folder) or owners(folder))
    try:
        [(status, _, _)] = asked_of(site, "/api/state")
    finally:
        identity._tells.cache_clear()
    assert (status, read) == (200, [Path("/proc/net")])


def test_the_kernel_is_asked_about_one_connection_and_no_table_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "owners", None)
    [(status, _, _)] = asked_of(Site(tmp_path, who=Identities(frozenset())), "/api/state")
    assert status == 200


def test_by_whom_a_new_connection_counts():
    """Before anything is read of it; who comes by a proxy is known by the request alone."""
    said = [one.whose(HERE) for one in (who(), who(owner=0))]
    assert said == [1234, 0]
    assert [who().whose(one) for one in (UNIX, PROXY, ELSEWHERE)] == [None, None, "10.0.0.6"]
    with pytest.raises(UnknownViewer):
        who(owner=None).whose(HERE)


@pytest.mark.parametrize("text", ["127.0.0.1", "::1", "10.0.0.0/8", "proxy.example", ""])
def test_a_proxy_is_one_address_of_another_host(text):
    with pytest.raises(PluginError, match="--proxy"):
        checked_proxies([text])


@pytest.mark.parametrize(
    ("listen", "header", "proxies", "problem"),
    [
        ("127.0.0.1:8080", "", [], ""),
        ("[::1]:8080", "", [], ""),
        ("unix:/run/web.sock", "X-Remote-User", [], ""),
        ("0.0.0.0:8080", "X-Remote-User", ["10.0.0.5"], ""),
        ("0.0.0.0:8080", "", ["10.0.0.5"], "other hosts"),
        ("10.0.0.1:8080", "X-Remote-User", [], "other hosts"),
        ("localhost:8080", "", [], "other hosts"),
        ("unix:/run/web.sock", "", [], "user-header"),
        ("8080", "X-Remote-User", ["10.0.0.5"], "expected"),
        ("unix:web.sock", "X-Remote-User", [], "expected"),
    ],
)
def test_where_it_may_listen(listen, header, proxies, problem):
    rules = Identities(frozenset((0,)), header, checked_proxies(proxies))
    if not problem:
        return checked([address_in(listen)], rules)
    with pytest.raises(PluginError, match=problem):
        checked([address_in(listen)], rules)
    return None
