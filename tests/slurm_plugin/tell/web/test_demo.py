"""The recorded day is one that a Slurm could have had, at whatever time one looks."""

import asyncio
import gzip
import json
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from slurm_plugin.queue.snapshot import read_snapshot
from slurm_plugin.tell.web import demo
from slurm_plugin.tell.web.feed import Feed
from slurm_plugin.tell.web.identity import Identities
from slurm_plugin.tell.web.server import Page, application
from tests.slurm_plugin.tell.web import record_demo

HOURS = range(0, 24, 2)


def at(hour: float) -> demo.Day:
    """The day, standing still at that hour."""
    return demo.Day(speed=1.0, clock=iter_clock(hour * 3600.0 - demo.BEGIN_S))


def iter_clock(seconds: float):
    """A clock that says 0 first, and then always this."""
    said = [0.0]
    return lambda: said.pop() if said else seconds


@pytest.mark.parametrize("hour", HOURS)
def test_no_gpu_is_held_twice_and_nodes_show_what_jobs_hold(hour):
    snapshot = read_snapshot(demo.DemoSlurm(at(hour)))
    held = [(name, gpu) for job in snapshot.jobs for name, gpus in job.gpus.items() for gpu in gpus]
    assert len(held) == len(set(held)) > 0
    assert sorted(held) == sorted((node.name, gpu) for node in snapshot.nodes for gpu in node.used)


async def test_every_job_that_waits_has_a_sentence_and_every_view_an_answer():
    sources = demo.sources(speed=1.0, clock=iter_clock(9 * 3600.0))
    page = Page(Feed(sources), Identities(owner=lambda peer, own: 0))
    reader = asyncio.create_task(page.feed.run())
    async with TestServer(application(page)) as server, ClientSession() as client:
        await page.feed.whole(None)
        jobs: dict[str, Any] = {}
        while not jobs or any("sentence" not in job for job in waiting_in(jobs).values()):
            await asyncio.sleep(0.05)
            jobs = json.loads(await page.feed.whole(None))["jobs"]
        running = next(number for number, job in jobs.items() if len(job.get("gpus", ())) == 1)
        waiting = next(iter(waiting_in(jobs)))
        for path in (f"job/{running}", f"job/{waiting}", "node/dgx1", "gain"):
            async with client.get(server.make_url(f"/api/{path}")) as reply:
                assert reply.status == 200, path
                found = await reply.json()
                assert found.get("pictures") or found.get("why") or found["all"]["compared"]
    reader.cancel()


def waiting_in(jobs: dict[str, Any]) -> dict[str, Any]:
    return {number: job for number, job in jobs.items() if job["state"] == "PENDING"}


def test_decisions_come_as_the_day_goes_on_and_begin_anew_with_it():
    now = [0.0]
    tail = demo.DemoDecisions(demo.Day(60.0, lambda: now[0]))
    seen = []
    for seconds in (0.0, 300.0, 900.0, 901.0):
        now[0] = seconds
        tail.read()
        seen.append(len(tail.of_job))
    nine, two, midnight, after = seen
    assert 0 < nine < two
    # 15 hours after 9 o'clock the day begins anew.
    assert 0 < midnight <= after < nine


def test_the_recording_is_small():
    assert record_demo.TARGET.stat().st_size < 100 << 10


def test_the_recording_is_what_its_script_makes():
    """Else the page shows decisions that nobody gets any more: make it anew by the script."""
    made = json.loads(msgspec.json.encode(record_demo.recorded()))
    shown = json.loads(gzip.decompress(record_demo.TARGET.read_bytes()))
    assert {part: len(rows) for part, rows in shown.items()} == {
        part: len(rows) for part, rows in made.items()
    }
    pairs = ((a, b) for part in made for a, b in zip(shown[part], made[part], strict=True))
    assert next(((a, b) for a, b in pairs if a != b), None) is None
