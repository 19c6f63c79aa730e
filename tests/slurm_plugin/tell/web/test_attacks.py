"""Clients that mean no good."""

import asyncio
import re
import socket
from contextlib import suppress
from importlib import resources

import pytest
from aiohttp import web
from web_in_tests import ALICE, BOB, WHO, Site, asked

from slurm_plugin.tell.web import server
from slurm_plugin.tell.web.clients import guard
from slurm_plugin.tell.web.clients.guard import (
    HEADERS,
    IDLE_S,
    MAX_OF_ONE,
    MAX_STREAMS_OF_ONE,
    Clients,
)
from slurm_plugin.tell.web.identity import Identities, Viewer
from slurm_plugin.tell.web.run import MAX_FIELD, MAX_LINE

PATHS = ("/", "/static/app.js", "/api/state", "/api/job/8", "/api/node/dgx1", "/api/gain",
         "/static/none.js", "/nothing")  # fmt: skip


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


@pytest.mark.parametrize("who", [ALICE, None], ids=["a user", "nobody known"])
def test_every_answer_has_the_headers_refusals_included(site, who):
    for status, _, headers in asked(site.as_user(who), *PATHS):
        assert status in (200, 403, 404)
        assert {name: headers[name] for name in HEADERS} == HEADERS


def test_a_fault_of_ours_is_one_line_and_a_line_in_the_log(site, caplog, monkeypatch):
    monkeypatch.setattr(server, "Details", None)
    [(status, text, headers)] = asked(site.as_user(ALICE), "/api/job/8")
    assert (status, len(text.splitlines())) == (500, 1)
    assert headers["Content-Security-Policy"]
    assert "TypeError" in caplog.text


def test_nothing_is_told_without_knowing_to_whom(site):
    told = asked(site.as_user(None), "/", "/api/state", "/api/events", "/api/job/8", "/api/gain")
    assert [status for status, *_ in told] == [403] * 5


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_written(site, method):
    for status, *_ in asked(site.as_user(ALICE), *PATHS[:6], method=method):
        assert status == 405


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "10.0.0.1", "[2001:db8::1]",
                                  "localhost.evil.example", ""])  # fmt: skip
def test_a_foreign_name_of_this_host_is_refused(site, host):
    """Else another page could make the user's browser read this one (DNS rebinding)."""
    for status, *_ in asked(site.as_user(ALICE), "/", "/api/state", headers={"Host": host}):
        assert status in (400, 403)


def test_nor_is_it_where_a_proxy_is_believed_besides(site):
    """Whoever is known by their connection to this host is asked for by its own name."""
    site.page.identities = Identities(WHO.operators, WHO.header, owner=lambda peer, own: ALICE)
    for name, status in (("evil.example", 403), ("localhost", 200)):
        assert [one[0] for one in asked(site, "/", headers={"Host": name})] == [status]


def test_a_header_from_this_host_makes_nobody_root(site):
    headers = {"X-Remote-User": "root", "X-Forwarded-For": "10.0.0.5", "Forwarded": "for=10.0.0.5"}
    [(status, text, _)] = asked(site.as_user(ALICE), "/", headers=headers)
    assert status == 200
    assert "sees all jobs" not in text


@pytest.mark.parametrize(
    "path",
    ["/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py",
     "/static/%2e%2e%2f%2e%2e%2fclient.py", "/static//etc/passwd", "/static/%00app.js",
     "/../../../etc/passwd", "/static/..%5cserver.py", "/api/node/..%2f..%2fetc",
     "/api/node/%2e%2e", "/api/job/8%2f..%2f7", "/api/job/-1", "/api/job/99999999999"],
)  # fmt: skip
def test_paths_lead_nowhere(site, path):
    reply = raw(site, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert reply.split()[1] in (b"400", b"404"), reply


@pytest.mark.parametrize(
    "head",
    [
        f"GET /{'a' * 2 * MAX_LINE} HTTP/1.1\r\nHost: localhost\r\n",
        f"GET / HTTP/1.1\r\nHost: localhost\r\nX-Big: {'a' * 2 * MAX_FIELD}\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n",
        "\x00\x01\x02\r\n",
    ],
    ids=["line", "header", "length", "no HTTP"],
)
async def test_heads_that_are_no_request_are_refused_and_the_page_goes_on(site, head):
    async with site.served() as page:
        first = await exchange(page.port, f"{head}\r\n".encode())
        usual = b"GET /static/app.js HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        second = await exchange(page.port, usual)
    assert first.split()[1] == b"400"
    assert second.split()[1] == b"200"


async def exchange(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    reply = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return reply


def raw(site: Site, request: str) -> bytes:
    """The reply to these very bytes, which no client library tidied up."""

    async def ask() -> bytes:
        async with site.as_user(ALICE).served() as page:
            return await exchange(page.port, request.encode())

    return asyncio.run(ask())


async def test_who_says_nothing_is_disconnected(site):
    now = [0.0]
    site.page.clients._clock = lambda: now[0]
    async with site.served() as page:
        reader, writer = await asyncio.open_connection("127.0.0.1", page.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: ")
        await asyncio.sleep(0.1)
        handler = page.runner.server
        assert isinstance(handler, web.Server)
        site.page.clients.close_idle(handler)
        now[0] = IDLE_S + 1
        site.page.clients.close_idle(handler)
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()


class Opened:
    """A connection, as far as one counts it."""

    def __init__(self) -> None:
        self.is_open = True

    def is_closing(self) -> bool:
        return not self.is_open

    def abort(self) -> None:
        self.is_open = False

    def get_protocol(self) -> "Opened":
        return self


def opened(clients: Clients, whose: object, count: int) -> list[Opened]:
    """So many of this user; those that are let in."""
    return [one for one in (Opened() for _ in range(count)) if clients.admit(one, whose)]


@pytest.mark.parametrize("whose", [ALICE, "10.0.0.9"], ids=["a user", "another host"])
def test_one_user_has_so_many_connections_idle_or_busy(whose):
    clients = Clients()
    first = opened(clients, whose, 3 * MAX_OF_ONE)
    clients._busy.update(first[:10])
    assert len(first) == MAX_OF_ONE
    assert len(opened(clients, BOB, 1)) == 1
    first[0].abort()
    assert len(opened(clients, whose, 2)) == 1


def test_beyond_the_total_who_has_most_loses_the_one_that_was_idle_longest(monkeypatch):
    monkeypatch.setattr(guard, "MAX_CONNECTIONS", 100)
    clients = Clients()
    mallory = opened(clients, 1, 60)
    opened(clients, 2, 40)
    clients._busy.update(mallory[:3])
    assert len(opened(clients, ALICE, 1)) == 1
    assert [number for number, one in enumerate(mallory) if not one.is_open] == [3]
    # Nobody takes a place from others by asking for one more.
    assert opened(clients, 1, 1) == []


def test_connections_of_nobody_known_give_way_to_each_other(monkeypatch):
    """A proxy's, until its header is read."""
    monkeypatch.setattr(guard, "MAX_CONNECTIONS", 100)
    clients = Clients()
    first = opened(clients, None, 150)
    assert (len(first), sum(one.is_open for one in first)) == (150, 100)
    assert not any(one.is_open for one in first[:50])


def test_behind_a_proxy_the_request_says_by_whom_a_connection_counts():
    clients = Clients()
    through_proxy = opened(clients, None, MAX_OF_ONE + 1)
    for one in through_proxy[:-1]:
        clients.belongs(one, ALICE)
    clients.belongs(through_proxy[0], ALICE)
    with pytest.raises(web.HTTPTooManyRequests):
        clients.belongs(through_proxy[-1], ALICE)
    clients.belongs(through_proxy[0], BOB)
    clients.belongs(through_proxy[-1], ALICE)


def test_one_user_has_so_many_live_pages_and_no_more():
    clients, viewer = Clients(), Viewer(ALICE, "alice")
    opened = [clients.stream_of(viewer) for _ in range(MAX_STREAMS_OF_ONE)]
    for one in opened:
        one.__enter__()
    with pytest.raises(web.HTTPTooManyRequests), clients.stream_of(viewer):
        pass
    with clients.stream_of(Viewer(0, "root")):
        pass
    opened[0].__exit__(None, None, None)
    with clients.stream_of(viewer):
        pass


async def test_who_takes_events_too_slowly_is_disconnected_and_the_others_are_not(
    site, monkeypatch
):
    """A client that never reads costs no more than the kernel's buffers and one event."""
    monkeypatch.setattr(server, "TAKE_S", 0.3)
    site = site.as_user(0)
    big = "x" * (1 << 20)

    async with site.served() as page:
        slow = socket.create_connection(("127.0.0.1", page.port))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", page.port, limit=1 << 24)
        writer.write(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        events = 0
        for number in range(24):
            # Each event is large, as no site's is.
            object.__setattr__(site.page.feed.sources, "notices", (f"{number} {big}",))
            while b"event: " not in await asyncio.wait_for(reader.readline(), 20):
                pass
            events += 1
        writer.close()
        for _ in range(100):
            viewers = site.page.feed._kinds[None].viewers
            if viewers <= 1:
                break
            await asyncio.sleep(0.1)
        slow.close()
    assert (events, viewers <= 1) == (24, True)


def files(folder: str) -> dict[str, str]:
    found = (resources.files("slurm_plugin.tell.web") / folder).iterdir()
    return {one.name: one.read_text(encoding="utf-8") for one in found}


def test_texts_never_become_markup_in_the_browser():
    """Everything goes in as text; pictures are parsed as XML, and the policy runs no script."""
    for name, text in files("static").items():
        assert not re.search(r"\w+HTML\b(?!Element)|document\.write|\beval\b|Function\(", text), (
            name
        )


def test_nothing_comes_from_another_host():
    for name, text in {**files("static"), **files("templates")}.items():
        outside = re.findall(
            r"(?:https?:)?//[\w.]+\.\w+[^\s\"']*", re.sub(r"(?m)^\s*//.*$", "", text)
        )
        assert set(outside) <= {"http://www.w3.org/2000/svg"}, name


def test_the_page_itself_has_no_script_and_no_style_in_it():
    page = files("templates")["page.html"]
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", page)
