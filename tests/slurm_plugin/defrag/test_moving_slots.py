"""Moving one job with `enforcement: slots`: its gate opens after that of the waiting one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from machines_in_tests import basic_decider

from slurm_plugin.config.sections import DefragConfig
from slurm_plugin.defrag import record
from slurm_plugin.defrag.mover import Mover
from slurm_plugin.defrag.sight import Sight
from slurm_plugin.lending.at_start.reservations import LoanReservations
from slurm_plugin.queue.snapshot import Detail, Snapshot
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob, SlurmNode

FIRST, OTHER, WAITING = 1, 2, 3
START_S = 20


def comment(state: str, gpus: int, hint: str = "", **keys: str) -> str:
    words = {"token": "t", "tpn": f"gres/gpu:{gpus}", "nodes": "1-1", "by": "node", **keys}
    inside = " ".join(f"{key}={value}" for key, value in words.items())
    return f"[gpu-topo: {hint} | n] [gpu-slots: {state} {inside}]"


def slots(gpus) -> str:
    return ",".join(f"gres/gpu:v100.s{gpu}:1" for gpu in gpus)


class Site:
    """Two half-full DGX-1V whose GPUs are slots; a job of eight GPUs is behind its gate."""

    def __init__(self, folder) -> None:
        self.now, self.path = 10_000.0, folder / "moves.json"
        decider = basic_decider(folder)
        self.requeued: list[str] = []
        self.updates: list[JobUpdate] = []
        self.jobs = {
            FIRST: self.running(FIRST, "dgx1", "movable=30"),
            OTHER: self.running(OTHER, "dgx2", ""),
            WAITING: QueuedJob(
                WAITING, name="3", user="bob", uid=1001, partition="gpu", state="PENDING", cpus=1,
                reason="BeginTime", priority=5, submit=9000, eligible=10_100, min_nodes=1,
                tres_per_node="gres/gpu:8", admin_comment=comment("gated", 8),
            ),
        }  # fmt: skip
        self.mover = Mover(
            self.path, self, decider, LoanReservations(clock=lambda: self.now),
            DefragConfig(move=True, every_s=0, start_s=START_S), lambda: set(self.jobs),
            self.requeue_held, Sight(decider.machines), clock=lambda: self.now,
        )  # fmt: skip

    def running(self, number: int, where: str, hint: str, gpus=range(4), **keys) -> QueuedJob:
        return QueuedJob(
            number, name=str(number), user="alice", uid=1000, partition="gpu", state="RUNNING",
            start=5000, nodes=(where,), gpus={where: tuple(gpus)}, tres_per_node=slots(gpus),
            cpus=1, priority=1, min_nodes=1,
            # Slurm's record names the node of the release; the user named none.
            req_nodes=where, admin_comment=comment("placed", len(gpus), hint, **keys),
        )  # fmt: skip

    def nodes(self) -> list[SlurmNode]:
        def node(name):
            used = [gpu for one in self.jobs.values() for gpu in one.gpus.get(name, ())]
            types = {f"v100.s{gpu}": 1 for gpu in range(8)}
            by_type = {f"v100.s{gpu}": 1 for gpu in used}
            return SlurmNode(name, ("IDLE",), ("gpu",), 1, 64, 99_999, types, (), by_type)

        return [node("dgx1"), node("dgx2")]

    def requeue_held(self, name: str) -> None:
        self.requeued.append(name)
        self.jobs[FIRST] = replace(
            self.jobs[FIRST], state="PENDING", priority=0, start=0, nodes=(), gpus={}
        )

    def update(self, names, change: JobUpdate) -> None:
        assert names == ["1"]
        self.updates.append(change)

    def gated_again(self) -> None:
        """As the gates' next round does with a job that does not start on its slots."""
        self.jobs[FIRST] = replace(
            self.jobs[FIRST], tres_per_node="gres/gpu:4", admin_comment=comment("gated", 4)
        )

    def starts(self, number: int, where: str, gpus) -> None:
        hint = "movable=30" if number == FIRST else ""
        self.jobs[number] = replace(
            self.running(number, where, hint, gpus), user=self.jobs[number].user
        )

    def step(self) -> bool:
        self.now += 1
        jobs = tuple(self.jobs.values())
        nodes = tuple(self.nodes())
        return self.mover.step(Snapshot(0.0, self.now, jobs, Detail.SETTINGS, nodes), True)

    def ended(self) -> list[tuple[int, str, str]]:
        return [(one.job, one.state, one.why) for one in record.read(self.path).past]


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_it_is_let_through_once_the_waiting_job_has_its_slots(site):
    """Until then it is held: in Slurm's order it may come first, and would take its old place."""
    assert site.step()
    assert site.requeued == ["1"]
    assert site.step()
    assert site.updates == [], "it has its slots still"
    site.gated_again()
    assert site.step()
    assert site.updates == [], "the other one waits still"
    site.starts(WAITING, "dgx1", range(8))
    assert site.step()
    assert site.updates == [JobUpdate(is_released=True)], "its gate is not opened"
    site.starts(FIRST, "dgx2", range(4, 8))
    assert not site.step()
    assert site.ended() == [(1, "done", "it runs on dgx2")]
    # It was moved once.
    site.jobs[WAITING] = replace(site.jobs[WAITING], state="COMPLETING")
    assert not site.step()
    assert site.requeued == ["1"]


def test_it_is_let_through_where_the_waiting_job_never_gets_its_slots(site):
    site.step()
    site.gated_again()
    site.now += START_S
    assert site.step()
    assert site.updates == [JobUpdate(is_released=True)]
    site.now += START_S
    assert not site.step()
    ((job, state, why),) = site.ended()
    assert (job, state) == (FIRST, "undone")
    assert why == "it did not start on dgx2 within 20 s; it starts where there is room"


def test_nodes_that_its_user_named_bind_it_and_those_of_its_release_do_not(site):
    bound = site.running(FIRST, "dgx1", "movable=30", req="dgx1")
    site.jobs[FIRST] = bound
    assert not site.step()
    assert site.requeued == []


@pytest.mark.parametrize("why", ["no gate", "a later begin", "a dependency"])
def test_nothing_is_moved_for_jobs_that_wait_for_something_else(site, why):
    more = {
        "no gate": {"admin_comment": ""},
        "a later begin": {"admin_comment": comment("gated", 8, begin="99999")},
        "a dependency": {"depends": True},
    }[why]
    site.jobs[WAITING] = replace(site.jobs[WAITING], **more)
    assert not site.step()
    assert site.requeued == []
