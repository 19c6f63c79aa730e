"""What one user's jobs, and clients that read slowly, may take of the page's process."""

import asyncio
import json
import logging
import socket
import threading
from unittest.mock import Mock

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import make_mocked_request
from web_in_tests import ALICE, BOB, Site, job, running, seen

from slurm_plugin.tell.web import identity, reasons, server
from slurm_plugin.tell.web.clients import waiting
from slurm_plugin.tell.web.clients.guard import is_own_host, with_headers
from slurm_plugin.tell.web.clients.waiting import PIECE, Waiting
from slurm_plugin.tell.web.feed import Feed
from slurm_plugin.tell.web.run import _Seldom
from slurm_plugin.tell.why import reading
from slurm_plugin.tell.why import site as why_site

#: Four bytes a character.
WIDE = "\U0001f4a9"


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_of_too_many_jobs_the_first_are_listed_and_the_others_counted(site, monkeypatch):
    monkeypatch.setattr(reasons, "MAX_OF_ONE", 5)
    site.slurm.jobs += [job(100 + i, BOB, priority=i) for i in range(20)]
    view = seen(site, BOB)
    # The one that runs, and the four that come first.
    assert set(view["jobs"]) == {"7", "10", "119", "118", "117"}
    assert (view["unlisted"], view["unlisted_waiting"]) == (17, 17)
    assert view["figures"]["waiting"] == 22
    mine = seen(site, ALICE)
    assert (set(mine["jobs"]), mine["unlisted"]) == ({"8", "9"}, 0)


def test_ones_many_jobs_leave_room_for_the_others_where_all_are_seen(site, monkeypatch):
    monkeypatch.setattr(reasons, "MAX_OF_ONE", 50)
    monkeypatch.setattr(reasons, "MAX_LISTED", 8)
    site.slurm.jobs += [job(100 + i, BOB, priority=99) for i in range(80)]
    site.slurm.jobs += [running(300, ALICE, {"dgx2": (6,)})]
    view = seen(site, 0)
    assert len(view["jobs"]) == 8
    assert {"7", "8", "9", "300"} <= set(view["jobs"])
    assert view["unlisted"] == 77


def test_texts_of_a_job_are_cut_by_their_bytes(site):
    long = WIDE * 5000
    site.slurm.jobs.append(
        job(
            11,
            ALICE,
            comment=long,
            name=long,
            job_name=long,
            account=long,
            partition=long,
            reason=long,
            tres_per_node="gres/gpu:" + "8" * 5000,
        )
    )
    row = seen(site, ALICE)["jobs"]["11"]
    assert row["comment"] == WIDE * 50
    assert len(json.dumps(row, ensure_ascii=False).encode()) < 3000


class Opened:
    """A connection, as far as it is cut off."""

    def __init__(self):
        self.is_open = True

    def abort(self):
        self.is_open = False


def test_who_keeps_too_many_versions_waiting_loses_the_oldest_reader(monkeypatch):
    monkeypatch.setattr(waiting, "MAX_OF_ONE", 100)
    books, readers = Waiting(), [Opened() for _ in range(5)]
    texts = [bytes(40) + b"%d" % i for i in range(3)]
    [first, same, second, third, other] = readers
    sending = [
        books.sent(ALICE, texts[0], first),
        books.sent(ALICE, texts[0], same),
        books.sent(ALICE, texts[1], second),
        books.sent(BOB, texts[0], other),
    ]
    for one in sending:
        one.__enter__()
    # What two are sent counts once.
    assert books.bytes == 3 * 41
    with books.sent(ALICE, texts[2], third):
        assert [one.is_open for one in readers] == [False, False, True, True, True]
        assert books.bytes == 3 * 41
    for one in sending:
        one.__exit__(None, None, None)
    assert books.bytes == 0
    assert [*books._readers, *books._of_text, *books._bytes] == []


def test_beyond_the_total_who_has_most_loses_the_oldest_reader(monkeypatch):
    monkeypatch.setattr(waiting, "MAX_IN_ALL", 100)
    books, many, few = Waiting(), [Opened(), Opened()], Opened()
    sending = [books.sent(ALICE, bytes(45), many[0]), books.sent(ALICE, bytes(46), many[1])]
    for one in sending:
        one.__enter__()
    with books.sent(BOB, bytes(20), few):
        assert [one.is_open for one in (*many, few)] == [False, True, True]


def test_one_text_larger_than_a_share_is_sent(monkeypatch):
    monkeypatch.setattr(waiting, "MAX_OF_ONE", 100)
    books, one = Waiting(), Opened()
    with books.sent(ALICE, bytes(1000), one):
        assert one.is_open


@pytest.mark.parametrize("path", ["/api/state", "/api/events"])
async def test_a_slow_reader_has_no_copy_of_the_whole(site, path):
    """Of 8 MB a connection has a piece or two, and all are sent the same."""
    site = site.as_user(0)
    object.__setattr__(site.page.feed.sources, "notices", ("x" * (8 << 20),))
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    async with site.served() as page:
        slow = [socket.socket() for _ in range(5)]
        for one in slow:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(("127.0.0.1", page.port))
            one.sendall(request)
        for _ in range(100):
            await asyncio.sleep(0.05)
            kept = [one.get_write_buffer_size() for one in site.page.clients._whose]
            if len(kept) == 5 and all(kept):
                break
        total = getattr(site.page, "waiting", Waiting()).bytes
        for one in slow:
            one.close()
    assert len(kept) == 5
    assert 0 < max(kept) < 4 * PIECE
    assert 8 << 20 <= total < 3 * (8 << 20)


async def test_who_comes_new_need_not_wait_for_the_next_reading(site):
    """Else a slow one, of one user's many jobs, would keep others waiting."""
    feed = Feed(site.sources, 3600.0)
    feed._asked(BOB)
    await feed.read()
    assert json.loads(await feed.whole(ALICE, wait_s=0.0))["jobs"].keys() == {"8", "9"}


async def test_a_reading_looks_at_so_many_jobs_of_one_user_and_once_for_all(site, monkeypatch):
    looked = {"needs": 0, "hidden": 0}
    need_of_job, hidden = why_site.need_of_job, reading.hidden

    def needs(*args):
        looked["needs"] += 1
        return need_of_job(*args)

    def hides(*args):
        looked["hidden"] += 1
        return hidden(*args)

    monkeypatch.setattr(why_site, "need_of_job", needs)
    monkeypatch.setattr(why_site, "MOST_COUNTED_OF_ONE", 3)
    monkeypatch.setattr(reading, "hidden", hides)
    site.slurm.jobs += [job(100 + i, BOB, tres_per_node="gres/gpu:8") for i in range(50)]

    feed = site.page.feed
    for uid in (ALICE, BOB, None):
        feed._asked(uid)
    await feed.read()
    # Three of bob's and alice's one.
    assert looked == {"needs": 4, "hidden": 1}


@pytest.mark.parametrize("is_there", [True, False])
async def test_of_a_client_that_has_left_the_log_has_no_traceback(caplog, is_there):
    """It leaves between the answer that was worked out and its first byte."""
    transport = Mock(is_closing=lambda: not is_there)
    request = make_mocked_request("GET", "/api/state", transport=transport)

    async def handler(_request: object) -> web.StreamResponse:
        raise ConnectionResetError("Cannot write to closing transport")

    assert (await with_headers(request, handler)).status == 500
    assert ("/api/state could not be answered" in caplog.text) == is_there


async def test_without_a_host_nobody_is_looked_up_and_nothing_answered(monkeypatch):
    monkeypatch.setattr(socket, "getfqdn", lambda *_: pytest.fail("the resolver is asked"))
    assert not is_own_host(make_mocked_request("GET", "/"))
    assert is_own_host(make_mocked_request("GET", "/", headers={"Host": "localhost:8080"}))


def test_requests_that_cannot_be_read_cost_the_log_a_line_a_minute(caplog):
    log = logging.getLogger("aiohttp.server.test")
    log.addFilter(_Seldom())
    for _ in range(100):
        try:
            raise ValueError("bad\nline " + "x" * 5000)
        except ValueError as error:
            log.error("Error handling request", exc_info=error)
    (line,) = caplog.text.splitlines()
    assert "a request could not be read: bad" in line
    assert len(line) < 400


def test_many_kinds_of_viewers_share_the_time_for_reasons(site, monkeypatch):
    """Each has its turn, and the reading of Slurm is no rarer for it."""
    feed, looked = site.page.feed, []
    now = [0.0]
    monkeypatch.setattr(feed, "_clock", lambda: now[0])

    def look(uid: int) -> bool:
        looked.append(uid)
        now[0] += 0.3
        return False

    kinds = {uid: Mock(reasons=Mock(look=lambda _, uid=uid: look(uid))) for uid in range(5)}
    monkeypatch.setattr(feed, "_kinds", kinds)
    for _ in range(5):
        asyncio.run(feed._go_on_with_reasons(Mock(), site.engine))
    assert looked == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]


async def test_a_directory_of_users_that_hangs_stops_nobody_who_needs_it_not(site, monkeypatch):
    """As getpwuid does where LDAP is away; who is asked about waits, and is told so."""
    is_back = threading.Event()

    def hangs(uid):
        is_back.wait(60)
        raise KeyError(uid)

    monkeypatch.setattr(server, "NAMED_S", 0.2)
    monkeypatch.setattr(identity.pwd, "getpwuid", hangs)
    async with site.as_user(ALICE).served() as page, ClientSession() as client:
        try:
            in_vain = [
                asyncio.ensure_future(client.get(page.make_url("/api/state"))) for _ in range(3)
            ]
            async with client.get(page.make_url("/static/store.js")) as reply:
                assert reply.status == 200
            for reply in await asyncio.gather(*in_vain):
                assert reply.status == 503
                assert "does not say which user you are" in await reply.text()
        finally:
            is_back.set()
        async with client.get(page.make_url("/api/state")) as reply:
            assert reply.status == 200
