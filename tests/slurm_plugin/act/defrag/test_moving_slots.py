"""Moving one job with `enforcement: slots`: its gate opens after that of the waiting one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from moves_in_tests import FIRST, WAITING, Site

from slurm_plugin.act.defrag import sight as how_read
from slurm_plugin.act.defrag.sight import Sight
from slurm_plugin.queue.snapshot import Settings
from slurm_plugin.slurm.interface import (
    JobDefaults,
    JobUpdate,
    QueuedJob,
    SlurmNode,
    SlurmPartition,
)

START_S = 20


def comment(state: str, gpus: int, hint: str = "", **keys: str) -> str:
    words = {"token": "t", "tpn": f"gres/gpu:{gpus}", "nodes": "1-1", "by": "node", **keys}
    inside = " ".join(f"{key}={value}" for key, value in words.items())
    return f"[gpu-topo: {hint} | n] [gpu-slots: {state} {inside}]"


def slots(gpus) -> str:
    return ",".join(f"gres/gpu:v100.s{gpu}:1" for gpu in gpus)


class SlotsSite(Site):
    """The same with GPUs that are slots; the job of eight GPUs is behind its gate."""

    def __init__(self, folder) -> None:
        super().__init__(folder)
        self.jobs[WAITING] = replace(
            self.jobs[WAITING],
            cpus=1,
            min_nodes=1,
            reason="BeginTime",
            eligible=10_100,
            admin_comment=comment("gated", 8),
        )

    def sight(self) -> Sight:
        return Sight(self.decider.machines)

    def running(self, number: int, where: str, hint: str, gpus=range(4), **keys) -> QueuedJob:
        # Slurm's record names the node of the release; the user named none.
        return replace(
            super().running(number, where, hint, gpus),
            tres_per_node=slots(gpus),
            min_nodes=1,
            req_nodes=where,
            admin_comment=comment("placed", len(gpus), hint, **keys),
        )

    def nodes(self) -> list[SlurmNode]:
        def with_slots(node):
            types = {f"v100.s{gpu}": 1 for gpu in range(8)}
            by_type = {f"v100.s{gpu}": 1 for gpu in node.used}
            return replace(node, gpus=types, used=(), used_by_type=by_type)

        return [with_slots(node) for node in super().nodes()]

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


@pytest.fixture
def site(tmp_path):
    return SlotsSite(tmp_path)


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
        "a dependency": {"dependency": "afterok:9(unfulfilled)"},
    }[why]
    site.jobs[WAITING] = replace(site.jobs[WAITING], **more)
    assert not site.step()
    assert site.requeued == []


def test_of_a_long_queue_the_first_job_alone_is_judged(site, monkeypatch):
    """And no node is copied for each job."""
    counts = Counter()

    def counting(name):
        does = getattr(how_read, name)

        def counted(*args):
            counts[name] += 1
            return does(*args)

        return counted

    for name in ("want_of", "emptied"):
        monkeypatch.setattr(how_read, name, counting(name))
    behind = replace(site.jobs[WAITING], priority=1)
    site.jobs |= {number: replace(behind, job_id=number) for number in range(100, 200)}
    assert site.step()
    assert site.requeued == ["1"]
    # The waiting one, and the one that may be moved.
    assert counts == {"want_of": 2, "emptied": 2}


@pytest.mark.parametrize(("used_mb", "is_moved"), [(30_000, True), (60_000, False)])
def test_a_job_needs_the_memory_that_its_partition_gives_by_default(
    site, monkeypatch, used_mb, is_moved
):
    """Slurm's record of a job that does not say has none; a node with GPUs alone is no target."""
    memory = JobDefaults(mem_node_mb=60_000)
    gives = SlurmPartition("gpu", ("dgx1", "dgx2"), is_default=True, defaults=memory)
    site.settings = Settings((gives,))
    first, target = site.nodes()
    target = replace(target, alloc_memory_mb=used_mb)
    monkeypatch.setattr(site, "nodes", lambda: [first, target])
    assert site.step() == is_moved
    assert site.requeued == ["1"] * is_moved
