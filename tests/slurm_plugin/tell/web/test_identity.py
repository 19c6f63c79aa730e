"""Who is believed to be whom."""

import os
import pwd
import socket
from contextlib import contextmanager
from dataclasses import replace

import pytest
from web_in_tests import Site
from web_in_tests import asked as asked_of

from slurm_plugin.errors import PluginError, RemoteError
from slurm_plugin.node.remote import sockets
from slurm_plugin.tell.web.identity import (
    Identities,
    PageConnection,
    UnknownViewer,
    checked_proxies,
    checked_secret,
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


@pytest.mark.parametrize("connection", [PROXY, UNIX])
def test_where_a_secret_is_set_no_name_is_believed_without_it(connection):
    rules = replace(who(), secret="0123456789abcdef")
    assert rules.viewer(connection, ["nobody"], ["0123456789abcdef"]).uid == NOBODY.pw_uid
    for said in ([], [""], ["0123456789abcdeg"], ["0123456789abcdef"] * 2, ["\udcff"]):
        with pytest.raises(UnknownViewer, match="X-Gputopo-Secret") as error:
            rules.viewer(connection, ["nobody"], said)
        assert rules.secret not in str(error.value) + repr(rules)
    assert rules.viewer(HERE, []).uid == 1234


@pytest.mark.parametrize(
    "text", ["0123456789abcde", "0123456789abcdef 0", "0123456789abcdéf", "a" * 129]
)
def test_a_secret_is_long_and_can_be_sent(text):
    with pytest.raises(PluginError, match="GPUTOPO_WEB_SECRET"):
        checked_secret(text)
    assert [checked_secret(one) for one in ("", "a" * 16)] == ["", "a" * 16]


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
        here = PageConnection(family, peer, own)
        assert Identities().viewer(here, []).uid == Identities().whose(here) == os.getuid()
        client.close()
        # Of a socket that nobody has open the kernel says: root's.
        with pytest.raises(UnknownViewer):
            Identities().viewer(here, [])


def refused(near, far):
    raise RemoteError("the kernel's sock_diag: Operation not permitted")


def unknown(near, far):
    """As without the kernel's module for TCP: no word of a connection that there is."""


@pytest.mark.parametrize(
    ("answer", "says"),
    [(refused, "could not be told: the kernel's sock_diag"), (unknown, "could not be told; try")],
)
def test_nobody_is_told_anything_where_the_kernel_does_not_say_who_asks(
    tmp_path, monkeypatch, answer, says
):
    monkeypatch.setattr(sockets, "_ask", answer)
    [(status, text, _)] = asked_of(Site(tmp_path, who=Identities(frozenset())), "/api/state")
    assert status == 403
    assert says in text
    with pytest.raises(UnknownViewer):
        Identities().whose(HERE)


def test_a_user_of_this_host_is_known_by_their_connection(tmp_path):
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
