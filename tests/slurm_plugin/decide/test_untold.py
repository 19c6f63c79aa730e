"""From jobs that end the engine learns what those communicate that do not say."""

import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from machines_in_tests import basic_config, mask, node, question

from policies.horizon.usual import UsualCommunication
from slurm_plugin.base.protocol import Notice
from slurm_plugin.decide.learning import Teacher
from slurm_plugin.decide.load_machines import load_machines
from slurm_plugin.decide.neighbours import Neighbours
from slurm_plugin.learn.job_profiles import Learned
from slurm_plugin.queue.coming import Coming
from slurm_plugin.slurm.interface import QueuedJob

ALICE = 1000


class Ends(UsualCommunication):
    """Writes down which jobs it is told of."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[object, ...]] = []

    def ended(self, topology, mask, pattern, ran_s, limit_s, user=None) -> None:
        self.told.append((topology.name, mask, pattern, round(ran_s, -1), limit_s, user))


@pytest.fixture
def cache(tmp_path: Path) -> Neighbours:
    machines = load_machines(basic_config(tmp_path))
    teacher = Teacher(Learned(tmp_path / "learned.json"), machines)
    clock = count(100.0, 0.01)
    return Neighbours(
        machines, 30.0, teacher, Coming(), lambda: next(clock), usual=Ends(), is_wanted=True
    )


def read(cache: Neighbours, *jobs: QueuedJob) -> None:
    """A snapshot of these jobs."""
    cache.take(cache.running_in(jobs), cache.clock(), Coming(jobs, time.time()))


def runs(job_id: int, gpus: dict[str, tuple[int, ...]], hint: str = "") -> QueuedJob:
    """For 100 of 600 s."""
    start = int(time.time()) - 100
    times = {"start": start, "end": start + 600, "time_limit_s": 600}
    comment = f"[gpu-topo: {hint} | dgx1:0 by mapa: because]"
    fields = {"state": "RUNNING", "gpus": gpus, "admin_comment": comment, "uid": ALICE}
    return QueuedJob(job_id, **fields, **times)


@pytest.mark.parametrize("is_noticed", [True, False], ids=["by a notice", "by the next reading"])
def test_the_ends_of_jobs_of_one_node_that_do_not_say_what_they_communicate(cache, is_noticed):
    """In the topology's indices, by the owner."""
    read(
        cache,
        runs(6, {"mirrored": (7, 6)}),
        runs(7, {"dgx1": (0, 3)}, "communication=0.4"),
        runs(8, {"dgx1": (1, 2), "dgx2": (1, 2)}),
        runs(9, {"dgx2": (0, 3)}, "pattern=tree"),
    )
    assert cache.usual.told == []
    for job in (6, 7, 8, 9) if is_noticed else ():
        cache.notice(Notice("ended", job, 0, {}))
    read(cache)
    assert sorted(cache.usual.told) == [
        ("dgx1v", mask(0, 1), "ring", 100, 600, ALICE),
        ("dgx1v", mask(0, 3), "tree", 100, 600, ALICE),
    ]


def test_what_is_learned_is_part_of_a_question_and_of_the_status(cache):
    read(cache)
    assert cache.ahead(question(node("dgx1", 0xFF, 1))).usual is None
    cache.usual.share = 0.15
    assert cache.ahead(question(node("dgx1", 0xFF, 1))).usual == 0.15
    assert cache.status()["communication"] == 0.15


def test_nothing_is_learned_of_jobs_whose_hint_or_owner_is_not_known(cache):
    """A task that was asked about by its array's number has the hint and the owner of that."""
    read(cache, pending := replace(runs(50, {}), state="PENDING", start=0, end=0, tasks=9))
    cache.asked(question(node("dgx1", 0xFF, 1), job=50, hint="sensitive=no"))
    for task, array in ((51, 50), (52, 50), (61, 60)):
        cache.notice(Notice("started", task, array, {"dgx1": mask(0, 5)}))
        cache.notice(Notice("ended", task, array, {}))
    assert cache.usual.told == []
    cache.asked(question(node("dgx1", 0xFF, 1), job=50, hint=""))
    cache.notice(Notice("started", 53, 50, {"dgx1": mask(0, 5)}))
    cache.notice(Notice("ended", 53, 50, {}))
    [(*_, limit_s, user)] = cache.usual.told
    assert (limit_s, user) == (pending.time_limit_s, 1000)


def test_gpus_that_the_topology_does_not_have_are_no_error(cache):
    cache.usual = UsualCommunication()
    read(cache, runs(5, {"dgx1": (8, 9)}), runs(6, {"dgx1": (8, 9)}))
    cache.notice(Notice("ended", 5, 0, {}))
    read(cache)
    assert not cache.jobs()


def test_a_job_of_shares_teaches_nothing_of_time_limits(cache):
    """Slurm's queue shows no GPUs of its own while it runs."""
    read(cache, replace(runs(5, {}), state="PENDING", start=0, end=0))
    before = cache.ahead(question(node("dgx1", 0xFF, 1))).used
    cache.notice(Notice("started", 5, 0, {"dgx1": 1}, shared=True))
    read(cache, replace(runs(5, {}), shared_gpus={"dgx1": (0,)}))
    assert cache.ahead(question(node("dgx1", 0xFF, 1))).used == before


def test_after_a_gap_in_the_readings_nobody_knows_when_jobs_ended(cache):
    read(cache, runs(6, {"dgx1": (0, 3)}))
    cache.clock = lambda: 100_000.0
    read(cache)
    assert cache.usual.told == []
