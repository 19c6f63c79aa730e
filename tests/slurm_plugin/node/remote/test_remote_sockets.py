"""Whose a socket is, by the kernel's word."""

import os
import socket

import pytest

from slurm_plugin.errors import RemoteError
from slurm_plugin.node.remote import sockets


def bound() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


@pytest.mark.parametrize("words", [b"", b"x"], ids=["closed", "reset"])
def test_a_connection_that_is_over_is_nobodys(words):
    with bound() as server, socket.create_connection(server.getsockname()) as client:
        near, far = client.getsockname(), client.getpeername()
        accepted, _ = server.accept()
        assert sockets.owner_of(near, far) == sockets.owner_of(far, near) == os.getuid()
        assert sockets.stands(accepted)
        accepted.send(words)  # Words that nobody reads make the end of it a reset.
        client.close()
        assert sockets.owner_of(near, far) is None
        assert not sockets.stands(accepted)
        accepted.close()


def test_the_same_ports_at_another_address_are_another_connection():
    with bound() as server, socket.create_connection(server.getsockname()) as client:
        (_, port), far = client.getsockname(), client.getpeername()
        assert sockets.owner_of(("127.0.0.2", port), far) is None
        assert sockets.owner_of(("127.0.0.1", port), ("127.0.0.2", far[1])) is None
        with socket.socket() as other:
            other.bind(("127.0.0.2", port))
            other.connect(far)
            assert sockets.owner_of(("127.0.0.2", port), far) == os.getuid()


def test_who_listens_at_an_address_is_not_taken_for_who_connects_from_there():
    """Where the kernel knows no such connection it names the one that listens."""
    with bound() as server, socket.create_server(("0.0.0.0", 0)) as listens:
        port = listens.getsockname()[1]
        assert sockets.listener(port) == os.getuid()
        assert sockets.owner_of(("127.0.0.3", port), server.getsockname()) is None


def test_an_ipv4_address_in_ipv6s_clothes_is_itself():
    with bound() as server, socket.socket(socket.AF_INET6) as client:
        far = server.getsockname()
        client.connect(("::ffff:127.0.0.1", far[1]))
        near = client.getsockname()[:2]
        assert near[0] == "::ffff:127.0.0.1"
        assert sockets.owner_of(near, far) == os.getuid()
        assert sockets.owner_of(("127.0.0.1", near[1]), far) == os.getuid()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this host has no IPv6")
def test_ipv6_connections_have_owners_too():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        far = server.getsockname()[:2]
        with socket.create_connection(far) as client:
            near = client.getsockname()[:2]
            assert sockets.owner_of(near, far) == os.getuid()
            assert sockets.owner_of(("::2", near[1]), far) is None
            assert sockets.owner_of(("127.0.0.1", near[1]), far) is None


def test_a_port_that_nobody_listens_at_is_nobodys():
    with bound() as server:
        port = server.getsockname()[1]
        sockets.check(server)
        assert sockets.listener(port) == os.getuid()
    assert sockets.listener(port) is None


def test_a_kernel_that_does_not_tell_is_named(monkeypatch):
    monkeypatch.setattr(sockets, "_ask", lambda near, far: None)
    with bound() as server, pytest.raises(RemoteError, match="load its module tcp_diag"):
        sockets.check(server)
