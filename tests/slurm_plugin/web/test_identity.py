"""Who is believed to be whom."""

import os
import pwd
import socket

import pytest

from slurm_plugin.errors import PluginError
from slurm_plugin.web.identity import (
    Connection,
    Identities,
    Refused,
    checked_proxies,
    owner_of,
    uids_of,
)
from slurm_plugin.web.run import address_in, checked

NOBODY = pwd.getpwnam("nobody")
HERE, PROXY, ELSEWHERE, UNIX = (
    Connection(socket.AF_INET, ("127.0.0.1", 40000), ("127.0.0.1", 8080)),
    Connection(socket.AF_INET6, ("::ffff:10.0.0.5", 40000), ("::ffff:10.0.0.1", 8080)),
    Connection(socket.AF_INET, ("10.0.0.6", 40000), ("10.0.0.1", 8080)),
    Connection(socket.AF_UNIX),
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
    with pytest.raises(Refused):
        who().viewer(connection, names)


def test_a_unix_socket_without_a_believed_header_tells_nobody():
    with pytest.raises(Refused, match="user-header"):
        who(header="").viewer(UNIX, ["root"])


def test_a_connection_of_which_the_kernel_says_nothing_is_refused():
    with pytest.raises(Refused):
        who(owner=None).viewer(HERE, [])


def test_operators_are_one_kind_and_other_users_one_each():
    root, nobody = (who().viewer(UNIX, [name]) for name in ("root", "nobody"))
    assert (root.kind, nobody.kind) == (None, NOBODY.pw_uid)
    named = Identities(uids_of(["nobody"]), "X-Remote-User")
    assert named.viewer(UNIX, ["nobody"]).is_operator


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_kernel_tells_whose_connection_it_is_until_it_is_closed(family):
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.socket(family) as listener:
        try:
            listener.bind((host, 0))
        except OSError:
            pytest.skip(f"this host has no {host}")
        listener.listen()
        client = socket.create_connection(listener.getsockname()[:2])
        server, peer = listener.accept()
        with server:
            own = server.getsockname()[:2]
            assert owner_of(peer[:2], own) == os.getuid()
            assert owner_of(own, peer[:2]) == os.getuid()
            client.close()
            # Of a socket that nobody has open the kernel says: root's.
            assert owner_of(peer[:2], own) is None


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
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
    line = f"   0: 0100007F:9C40 0100007F:1F90 {state} 00000000:00000000 00:00000000 00000000"
    (tmp_path / "tcp").write_text(f"{head}{line} {uid:5d}        0 {inode} 1 0 20 4 30 10 -1\n")
    assert owner_of(("127.0.0.1", 40000), ("127.0.0.1", 8080), tmp_path) == found


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
