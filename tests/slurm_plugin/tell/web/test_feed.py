"""One reading for all who look, none for nobody, and events that add up to the whole."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import ClientSession
from web_in_tests import ALICE, BOB, NOW, Site, job, running

from slurm_plugin.tell.web.feed import FAULT, Busy, Feed
from slurm_plugin.tell.web.sources import EngineState
from slurm_plugin.tell.web.view import TABLES


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


@asynccontextmanager
async def reading(site: Site, period_s: float = 0.02) -> AsyncIterator[Feed]:
    feed = Feed(site.sources, period_s)
    task = asyncio.create_task(feed.run())
    try:
        yield feed
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class Browser:
    """Takes events as the page does."""

    def __init__(self, feed: Feed, kind: int | None) -> None:
        self.view, self.kinds = {}, []
        self._stream = feed.events(kind)

    async def take(self):
        # Where the machine is slow the feed says in between that it is alive.
        kind = "alive"
        while kind == "alive":
            kind, text = await asyncio.wait_for(anext(self._stream), 10)
        self.kinds.append(kind)
        if kind == "whole":
            self.view = json.loads(text)
            return
        for key, change in json.loads(text).items():
            if key not in TABLES:
                self.view[key] = change
                continue
            self.view[key] |= change["set"]
            for name in change["gone"]:
                del self.view[key][name]

    async def until(self, is_so):
        while not is_so(self.view):
            await self.take()

    async def close(self):
        await self._stream.aclose()


def test_a_hundred_viewers_cost_slurm_what_one_costs(site):
    async def readings(viewers: int) -> int:
        async with reading(site, 0.1) as feed:
            browsers = [
                Browser(feed, kind)
                for kind in [None, ALICE, BOB, ALICE][:viewers]
                for _ in range(max(1, viewers // 4))
            ]
            await asyncio.gather(*(one.take() for one in browsers))
            before = site.slurm.asked
            await asyncio.sleep(1.0)
            in_a_second = site.slurm.asked - before
            # It goes on, on a slow machine later.
            while site.slurm.asked < before + 2:
                await asyncio.sleep(0.02)
            for one in browsers:
                await one.close()
            return in_a_second

    assert asyncio.run(readings(1)) <= 11
    assert asyncio.run(readings(100)) <= 11


async def test_nothing_is_read_while_nobody_looks(site):
    async with reading(site) as feed:
        await asyncio.sleep(0.1)
        before = site.slurm.asked
        await feed.whole(None)
        feed._kinds[None].asked_at -= 100.0
        await asyncio.sleep(0.2)
        after = site.slurm.asked
        await asyncio.sleep(0.2)
        later = site.slurm.asked
    assert before == 0
    assert later == after <= 3


async def test_what_changed_adds_up_to_the_whole(site):
    async with reading(site) as feed:
        browser = Browser(feed, ALICE)
        await browser.until(lambda view: "sentence" in view.get("jobs", {}).get("9", {}))
        site.slurm.jobs.append(job(11, ALICE, tres_per_node="gres/gpu:1"))
        await browser.until(lambda view: "11" in view["jobs"])
        site.slurm.jobs[2] = running(9, ALICE, {"dgx1": (1, 2)})
        del site.slurm.jobs[1]
        await browser.until(lambda view: view["jobs"]["9"]["state"] == "RUNNING")
        assert set(browser.view["jobs"]) == {"9", "11"}
        while feed._kinds[ALICE].number > browser.view["number"]:
            await browser.take()
        assert browser.view == json.loads(await feed.whole(ALICE))
        assert browser.kinds.count("whole") == 1


async def test_of_when_a_view_is_goes_by_the_last_reading_that_slurm_answered(site):
    async with reading(site) as feed:
        assert feed.as_of == ""
        await feed.whole(ALICE)
        at, ago_s = map(float, feed.as_of.split())
        assert (at, ago_s < 5.0) == (NOW, True)
        site.slurm.problem = "no answer"
        while not feed._slurm_problem:
            await asyncio.sleep(0.01)
        before = feed.sources.watcher.clock()
        await asyncio.sleep(0.3)
        later = float(feed.as_of.split()[1])
        assert later >= feed.sources.watcher.clock() - before - 0.1


async def test_an_event_says_of_when_it_is_beside_what_all_are_sent(site):
    async with site.as_user(ALICE).served() as server, ClientSession() as client:
        reply = await client.get(server.make_url("/api/events"))
        kind, of_when, text = [await reply.content.readuntil(b"\n") for _ in range(3)]
        reply.close()
    assert kind == b"event: whole\n"
    assert of_when.startswith(f"id: {NOW:.1f} ".encode())
    assert b'"jobs"' in text


async def test_who_misses_an_event_gets_the_whole(site):
    async with reading(site) as feed:
        browser = Browser(feed, None)
        await browser.take()
        number = feed._kinds[None].number
        for new in range(20, 24):
            site.slurm.jobs.append(job(new, BOB))
            while str(new) not in feed._kinds[None].view["jobs"]:
                await asyncio.sleep(0.01)
        assert feed._kinds[None].number > number + 1
        await browser.take()
        assert browser.kinds == ["whole", "whole"]
        assert {"20", "21", "22", "23"} <= set(browser.view["jobs"])


async def test_a_slurm_that_does_not_answer_is_told_and_so_is_its_return(site):
    async with reading(site) as feed:
        browser = Browser(feed, None)
        await browser.take()
        site.slurm.problem = "squeue: no answer"
        await browser.until(lambda view: view["slurm"]["problem"])
        said = "Slurm does not answer: squeue: no answer"
        assert browser.view["slurm"]["problem"] == said
        # What was known stays.
        assert set(browser.view["jobs"]) == {"7", "8", "9", "10"}
        site.slurm.problem = ""
        await browser.until(lambda view: not view["slurm"]["problem"])


async def test_what_nobody_thought_of_is_told_and_does_not_end_the_page(site, monkeypatch):
    def fail(*args):
        raise ZeroDivisionError

    async with reading(site) as feed:
        browser = Browser(feed, None)
        await browser.take()
        with monkeypatch.context() as patch:
            patch.setattr("slurm_plugin.tell.web.feed.cluster_of", fail)
            await browser.until(lambda view: view["slurm"]["problem"] == FAULT)
        await browser.until(lambda view: not view["slurm"]["problem"])
        assert set(browser.view["jobs"]) == {"7", "8", "9", "10"}


async def test_without_any_answer_there_is_no_view(site):
    site.slurm.problem = "slurmctld is away"
    async with reading(site) as feed:
        with pytest.raises(Busy, match="away"):
            await feed.whole(None, wait_s=0.2)


async def test_an_engine_that_dies_is_told_and_so_is_its_return(site):
    async with reading(site) as feed:
        browser = Browser(feed, ALICE)
        await browser.take()
        up, site.engine = site.engine, EngineState(False, "no such socket")
        await browser.until(lambda view: not view["engine"]["is_up"])
        site.engine = up
        await browser.until(lambda view: view["engine"]["is_up"])


async def test_a_loan_shows_and_garbage_in_the_log_is_counted_while_somebody_looks(site):
    loan = b'{"job":10,"uid":2002,"decision":"lent","host":"dgx1","gpus":[0],"donors":[%s]}\n'
    donor = b'{"node":"dgx2","gpus":[5,6],"job":71}'

    async with reading(site) as feed:
        browser = Browser(feed, None)
        await browser.take()
        with site.log.path.open("ab") as log:
            log.write(b'{"decision":"use","job":[]}\n\xff\xfe\n' + b"[" * 9999 + b"\n")
            log.write(loan % donor)
        await browser.until(lambda view: len(view["decisions"]) == 2)
        assert browser.view["decisions"]["2"]["gpus"] == {"dgx1": [0], "dgx2": [5, 6]}
        assert browser.view["slurm"]["problem"] == ""
        assert browser.view["log_problem"] == "3 lines of it cannot be read, and left out"


async def test_a_decision_shows_when_it_is_written(site):
    async with reading(site) as feed:
        browser = Browser(feed, BOB)
        await browser.take()
        with site.log.path.open("a") as log:
            log.write('{"job": 10, "uid": 2002, "decision": "wait", "note": "better"}\n')
        await browser.until(lambda view: len(view["decisions"]) == 2)
        assert browser.view["decisions"]["2"]["why"] == "better"
