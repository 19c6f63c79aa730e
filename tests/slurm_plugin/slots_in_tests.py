"""A Slurm that only remembers what it is told, and jobs behind gates, for the planner's tests."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jobs_in_tests
from machines_in_tests import basic_decider

from policies.contract.bits import lowest_bits
from slurm_plugin.act.gates.capacity_cache import CapacityCache
from slurm_plugin.act.gates.plan import Choice, Choose, ChosenSlots, GateContext, GatePlan, Want
from slurm_plugin.act.gates.planning import plan
from slurm_plugin.act.gates.reconciler import GateReconciler
from slurm_plugin.act.gates.slot_loans import SlotLoans
from slurm_plugin.act.gates.want import Wants
from slurm_plugin.act.lending.choice.offer import Offer
from slurm_plugin.act.lending.donors import SlurmLoans
from slurm_plugin.act.lending.matcher import LoanMatcher
from slurm_plugin.base.job_notes.loan import Loan, LoanDonor
from slurm_plugin.base.job_notes.records import GateRecord
from slurm_plugin.config import presets
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.errors import SlurmError
from slurm_plugin.queue.candidates import Group
from slurm_plugin.queue.capacity import Node, Nodes, emptied
from slurm_plugin.queue.snapshot import read_snapshot
from slurm_plugin.slurm.interface import (
    JobUpdate,
    QueuedJob,
    Reservation,
    SlurmNode,
    SlurmPartition,
)


def look(planner: GateReconciler, slurm: object, at: float | None = None) -> GatePlan:
    """One look at Slurm as it is now."""
    seen = read_snapshot(slurm, at=NOW if at is None else at)
    return asyncio.run(planner.reconcile(seen, known=0))


GPUS = {f"v100.s{i}": 1 for i in range(8)}
NOW = 1000


class Remembering:
    """A Slurm client with a fixed queue on one DGX-1V; refuses what it is told to."""

    def __init__(
        self,
        *jobs: QueuedJob,
        used: Sequence[int] = (),
        refuses: bool = False,
        refuses_slots: bool = False,
    ) -> None:
        self.jobs_there = list(jobs)
        self.used = {f"v100.s{i}": 1 for i in used}
        self.reserved: list[Reservation] = []
        self.factors: dict[int, int] = {}
        self.refuses, self.refuses_slots = refuses, refuses_slots
        self.updates: list[tuple[tuple[str, ...], JobUpdate]] = []

    def queue(self) -> list[QueuedJob]:
        return self.jobs_there

    def admin_comments(self) -> dict[int, str]:
        # Read where the queue was read too long ago, as on a machine that is busy.
        return {job.job_id: job.admin_comment for job in self.jobs_there}

    def nodes(self) -> list[SlurmNode]:
        return [SlurmNode("dgx1", ("IDLE",), ("batch",), 1, 40, 1000, GPUS, (), self.used)]

    def partitions(self) -> list[SlurmPartition]:
        return [SlurmPartition("batch", ("dgx1",), True)]

    def reservations(self) -> list[Reservation]:
        return self.reserved

    def config(self) -> dict[str, str]:
        return {"PreemptType": "preempt/none"}

    def site_factors(self) -> dict[int, int]:
        return dict(self.factors)

    def update(self, jobs: Sequence[str], change: JobUpdate) -> None:
        self.updates.append((tuple(jobs), change))
        if self.refuses or (self.refuses_slots and ".s" in (change.tres_per_node or "")):
            raise SlurmError("no")


def gated(job_id: int, gpus: int = 2, *, keys: str = "", **more: object) -> QueuedJob:
    words = f"token=t{job_id} tpn=gres/gpu:{gpus} nodes=1-1 by=node {keys}".strip()
    values: dict[str, object] = {
        "name": str(job_id), "partition": "batch", "state": "PENDING", "reason": "BeginTime",
        "priority": 100 - job_id, "eligible": NOW + 1, "cpus": 1,
        "tres_per_node": f"gres/gpu:{gpus}", "admin_comment": f"[gpu-slots: gated {words}]",
    }  # fmt: skip
    return QueuedJob(job_id, **{**values, **more})


def placed(job_id: int, at: int, slots: Sequence[int], keys: str = "", **more: object) -> QueuedJob:
    """A job that was released at this time, on these slots of dgx1."""
    kept = f"placed token=t{job_id} tpn=gres/gpu:{len(slots)} nodes=1-1 by=node at={at} {keys}"
    values: dict[str, object] = {
        "tres_per_node": ",".join(f"gres/gpu:v100.s{i}:1" for i in slots), "req_nodes": "dgx1",
        "eligible": at, "admin_comment": f"[gpu-slots: {kept.strip()}]",
    }  # fmt: skip
    return gated(job_id, len(slots), **{**values, **more})


def running(
    job_id: int, gpus: Sequence[int] | Mapping[str, Sequence[int]], /, **more: object
) -> QueuedJob:
    """A job that has had these GPUs, of dgx1 or of each node, for a quarter of an hour."""
    return jobs_in_tests.runs(job_id, gpus, **{"start": NOW - 900, "end": NOW + 600, **more})


V100 = tuple(GPUS)
TERMS = GateContext(now=1000, lease_s=120, grace_s=30)


def first_choice(name: str, job: QueuedJob, want: Want, found: Sequence[Group]) -> Choice:
    return ChosenSlots(found[0], lowest_bits(found[0].free, want.need.gpus), "dgx1:0 by test: why")


def answers(choice: Choice) -> Choose:
    """A policy that says the same of every job."""

    def choose(name: str, job: QueuedJob, want: Want, found: Sequence[Group]) -> Choice:
        return choice

    return choose


DGX1 = Node("dgx1", V100, 0xFF, 40, 1000, partitions=frozenset({"batch"}))


def planned(
    *jobs: QueuedJob,
    choose: Choose = first_choice,
    context: GateContext = TERMS,
    others: Sequence[Node] = (),
    **node: object,
) -> GatePlan:
    """On dgx1 with these fields of its own, and others."""
    nodes = (replace(DGX1, **node), *others)
    room = {one.name: one for one in nodes}
    return plan(jobs, Wants().read(jobs, emptied(room)), room, context, choose)


def reconciler(
    folder: Path,
    slurm: Remembering,
    cache: CapacityCache | None = None,
    lines: list[dict[str, Any]] | None = None,
    lending: SlurmLoans | None = None,
    **more: Any,
) -> GateReconciler:
    """The reconciler of the basic configuration at `NOW`; `lines` take the decision log."""
    written = [] if lines is None else lines
    decider = more.pop("decider", None) or basic_decider(folder)
    lending = lending or Remembers(RemoteConfig(presets.load("echo")), slurm)
    values = {
        "cache": cache or CapacityCache(),
        "lease_s": 120,
        "grace_s": 30,
        "write": lambda build: written.append(build()),
        "clock": lambda: float(NOW),
    }
    profiles = more.pop("profiles", {})
    values |= more
    rule, waiting, write = decider.rule, decider.waiting, values["write"]
    matcher = LoanMatcher(lending, rule, waiting, write, values["clock"], profiles)
    return GateReconciler(client=slurm, decider=decider, matcher=matcher, **values)


def record_in(text: str | None) -> GateRecord:
    """What a comment keeps of a gate or slots."""
    found = GateRecord.read_from(text or "")
    assert found is not None
    return found


class Nobody:
    """Would submit donors."""

    def obstacle(self) -> str:
        return ""


class Remembers(SlurmLoans):
    """Remembers the loans it is asked for."""

    def __init__(self, settings: RemoteConfig, slurm: Remembering) -> None:
        run = {"run": lambda *_, **__: "", "submitter": Nobody(), "clock": lambda: float(NOW)}
        super().__init__(settings, slurm, updates=SlotLoans(), **run)
        self.asked: list[tuple[str, Offer]] = []

    def lend(self, job: QueuedJob, kept: GateRecord, offer: Offer, room: Nodes) -> Loan:
        self.asked.append((job.name, offer))
        lenders = [LoanDonor(node, mask, 70) for node, mask in offer.donors.items()]
        return Loan(offer.host, offer.mask, tuple(lenders))


class Counting(Remembering):
    """Counts the readings of a Slurm that may be down."""

    def __init__(self, *jobs: QueuedJob) -> None:
        super().__init__(*jobs)
        self.asked: Counter[str] = Counter()
        self.is_down = False

    def version(self) -> str:
        return "24.11.5"

    def queue(self) -> list[QueuedJob]:
        self.asked["queue"] += 1
        if self.is_down:
            raise SlurmError("squeue: no answer")
        return self.jobs_there

    def nodes(self) -> list[SlurmNode]:
        self.asked["nodes"] += 1
        return super().nodes()

    def partitions(self) -> list[SlurmPartition]:
        self.asked["partitions"] += 1
        return [SlurmPartition("batch", ("dgx1",), True, priority_tier=3)]


class TwoNodes(Remembering):
    """The same, with a second DGX-1V; two GPUs of each are free, and the site's TaskProlog."""

    def nodes(self) -> list[SlurmNode]:
        used = {f"v100.s{i}": 1 for i in range(2, 8)}
        values = (("IDLE",), ("batch",), 1, 40, 5000, GPUS, (), used)
        return [SlurmNode(name, *values) for name in ("dgx1", "dgx2")]

    def config(self) -> dict[str, str]:
        return {"TaskProlog": "/x/task-prolog"}
