"""The loop around the plan, on a Slurm that only remembers what it is told."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from engine_in_tests import an_engine
from genie_in_tests import GENIE, HINT, TwoNodes, a_shaping, queued, submit
from machines_in_tests import BASIC

from bench.request_lines import encode_request
from slurm_plugin.base.protocol import Notice
from slurm_plugin.decide.decision_log import read
from slurm_plugin.errors import SlurmError
from slurm_plugin.serve import setup
from slurm_plugin.serve.loops import shaping as loop
from slurm_plugin.serve.service import ANEW
from slurm_plugin.slurm.interface import JobUpdate


class Running:
    """An engine with its loop, and what came of one look."""

    def __init__(self, folder: Path, slurm: TwoNodes, monkeypatch: pytest.MonkeyPatch) -> None:
        a_shaping(folder)
        monkeypatch.setattr(setup.choose, "client", lambda _: slurm)
        self.engine = an_engine(folder, BASIC + GENIE)
        self.shaping = self.engine.setup.shaping
        self.loop = loop.ShapingLoop(self.engine)

    def poll(self) -> None:
        asyncio.run(self.loop.poll(time.monotonic()))

    def lines(self) -> list[dict[str, Any]]:
        self.engine.log.close()
        return list(read(self.engine.setup.config.decision_log))


@pytest.fixture
def slurm() -> TwoNodes:
    return TwoNodes()


@pytest.fixture
def running(tmp_path: Path, slurm: TwoNodes, monkeypatch: pytest.MonkeyPatch) -> Running:
    return Running(tmp_path, slurm, monkeypatch)


def test_a_waiting_job_gets_its_shape_and_the_log_its_line(running, slurm):
    slurm.jobs_there = [queued(7, "1x1")]
    running.poll()
    ((names, update),) = slurm.updates
    assert (names, update.tres_per_node) == (("7",), "gres/gpu:4")
    (line,) = running.lines()
    assert (line.job, line.decision, line.shape) == (7, "shape", "1x4")
    assert running.engine.status()["genie"]["domains"]["dl"]["waiting"] == 1


def test_a_start_is_news_for_who_opens_the_gates_once(running, slurm):
    heard: list[str] = []
    running.engine.listen(heard.append, dict)
    running.poll()
    slurm.jobs_there = [queued(7, "1x4")]
    running.poll()
    running.poll()
    assert heard == [loop.PLANNED]


def test_the_record_of_a_submit_is_written_once_its_job_is_seen(running, slurm):
    running.engine.answer(encode_request(submit()))
    (token,) = running.shaping.promises
    slurm.jobs_there = [queued(7, "1x4", words=f" t={token}")]
    running.poll()
    assert not running.shaping.promises
    (line,) = running.lines()
    assert (line.job, line.hint, line.why) == (
        7, HINT, "the highest cost-effective ratio of those in time",
    )  # fmt: skip


def test_a_job_held_without_an_engine_is_shaped_and_released(running, slurm):
    held = f"[gpu-topo: {HINT} | held until the engine chooses its shape] [gpu-shape: none nodes=2]"
    slurm.jobs_there = [
        queued(7, tres_per_node="", priority=0, reason="JobHeldAdmin", admin_comment=held)
    ]
    running.poll()
    ((_, update),) = slurm.updates
    assert (update.num_nodes, update.is_released) == ((2, 2), True)
    assert update.admin_comment == f"[gpu-topo: {HINT} | shape 2x2] [gpu-shape: 2x2 nodes=2]"


def test_a_refused_change_stops_nobody_is_told_and_is_tried_again_later(running, slurm):
    slurm.jobs_there = [queued(7, "1x1"), queued(8, "1x1")]
    slurm.refuses = True
    running.poll()
    assert running.engine.status()["genie"]["refused"].endswith("no")
    slurm.refuses = False
    running.poll()
    assert len(slurm.updates) == 2
    running.engine.setup.watcher.wall_clock = lambda: time.time() + 3
    running.poll()
    assert len(slurm.updates) == 4


def test_what_happens_after_a_look_makes_the_plan_an_old_one(running, slurm):
    running.poll()
    assert running.shaping.events_seen == running.shaping.events
    running.engine.answer(encode_request(Notice("ended", 1, 0, {})))
    assert running.shaping.events_seen != running.shaping.events


def test_of_a_long_queue_the_front_is_put_in_order_first():
    order = [(queued(job), JobUpdate(site_factor=job)) for job in range(1, 200)]
    shape = (queued(500), JobUpdate(site_factor=1, num_tasks=4))
    now, is_more = loop.in_turn([*order, shape])
    assert is_more
    assert now == [*order[: loop.MOST_MOVED], shape]
    assert loop.in_turn([*order[:5], shape]) == ([*order[:5], shape], False)


def test_with_the_kill_switch_nothing_is_planned(running, slurm):
    slurm.jobs_there = [queued(7, "1x1")]
    running.engine.setup.config.kill_switch.touch()
    running.poll()
    assert slurm.updates == []
    reply = running.engine.answer(encode_request(submit())).reply
    assert reply.startswith(b"refuse ")


def test_a_hint_that_no_longer_holds_leaves_its_job_alone(running, slurm):
    slurm.jobs_there = [queued(7, "1x1", HINT.replace("resnet50", "zzz")), queued(8, "1x1", "off")]
    running.poll()
    assert slurm.updates == []


@pytest.mark.parametrize("hint", ["policy=genie,batch=1", "profile=resnet50,iterations=5,batch=2"])
def test_where_no_jobs_are_shaped_the_user_is_told(engine, hint):
    reply = engine.answer(encode_request(submit(hint))).reply
    assert reply.startswith(b"refuse " if "policy=genie" in hint else b"pass ")


@pytest.mark.parametrize(
    ("change", "is_reset"),
    [
        ({"partition": "other"}, True),
        ({"reason": "Dependency", "dependency": "afterok:9(unfulfilled)"}, True),
        ({"priority": 0, "partition": "other"}, False),
        ({"state": "RUNNING", "partition": "other"}, False),
    ],
)
def test_a_job_that_is_planned_no_more_gets_its_own_place_again(running, slurm, change, is_reset):
    """Else a user's job would take its place in front to another partition."""
    running.poll()
    running.engine.setup.watcher.outdate()
    running.loop._factors = {7: 4000}
    slurm.jobs_there = [queued(7, "1x4", **{"priority": 5000} | change)]
    for _ in range(2):
        running.poll()
        running.engine.setup.watcher.outdate()
    given = [update for _, update in slurm.updates if update.site_factor is not None]
    assert given == [JobUpdate(site_factor=0)] * is_reset


@pytest.mark.parametrize("verb", ["", ANEW])
def test_an_engine_that_starts_anew_learns_which_priorities_are_the_jobs_own(running, slurm, verb):
    """Of job 8, whose time was to come, once Slurm tells: until then what it has is its own."""
    if verb:
        running.engine.say(verb)
    now = int(time.time())
    late = {"priority": 5000, "eligible": now + 100}
    slurm.jobs_there = [queued(7, "1x4", priority=9000), queued(8, "1x4", **late)]
    slurm.factors = {7: 4000}
    running.poll()
    assert running.loop._factors.get(7, 0) == 0, "7 goes first by its own priority, 5000"
    slurm.factors = {8: 4500}
    running.engine.setup.watcher.wall_clock = lambda: now + 101
    running.engine.setup.watcher.outdate()
    running.poll()
    assert slurm.updates[-1] == (("8",), JobUpdate(site_factor=0))


def test_a_job_of_which_slurm_does_not_tell_has_the_place_that_was_written_down(
    running, slurm, tmp_path, monkeypatch
):
    """Behind a gate of the slots mode its begin time is always to come."""
    late = {"eligible": int(time.time()) + 100, "submit": 50}
    slurm.jobs_there = [queued(7, "1x4", priority=1, **late), queued(8, "1x4", priority=1, **late)]
    running.poll()
    given = [(names, one.site_factor) for names, one in slurm.updates if one.site_factor]
    assert given == [(("7",), 2)]
    for submit_at, factor in ((60, None), (50, 0)):  # of another job of this number; of this one
        again = Running(tmp_path, slurm, monkeypatch)
        slurm.jobs_there = [queued(7, "1x4", priority=2, **late | {"submit": submit_at})]
        again.poll()
        assert slurm.updates[1:] == ([(("7",), JobUpdate(site_factor=0))] if factor == 0 else [])


def test_where_slurm_does_not_tell_priorities_are_taken_as_they_are_found(running, slurm, caplog):
    def fails() -> dict[int, int]:
        asked.append(1)
        raise SlurmError("sprio: no such command")

    asked: list[int] = []
    slurm.site_factors = fails
    slurm.jobs_there = [queued(7, "1x4", priority=9000)]
    for _ in range(2):
        running.poll()
        running.engine.setup.watcher.outdate()
    assert asked == [1]
    assert "priorities are taken as they are found: sprio: no such command" in caplog.text
