"""Two nodes, a job of four GPUs and a Slurm that remembers what it is told, for tests of loans."""

from collections.abc import Callable, Sequence
from pathlib import Path

from jobs_in_tests import node, waits
from loans_in_tests import ALICES, AT, SETTINGS, LendingSlurm, a_donor
from machines_in_tests import BASIC, basic_decider

from slurm_plugin.act.lending.at_start import planning
from slurm_plugin.act.lending.at_start.planning import StartPlan
from slurm_plugin.act.lending.at_start.reconciler import LoanReconciler
from slurm_plugin.act.lending.at_start.reservations import LoanReservations
from slurm_plugin.act.lending.at_start.start_loans import StartLoans
from slurm_plugin.act.lending.choice.offer import Offer
from slurm_plugin.act.lending.donors import SlurmLoans
from slurm_plugin.act.lending.matcher import LoanMatcher
from slurm_plugin.act.lending.plan import LoanCandidate, LoanContext
from slurm_plugin.queue.capacity import Hold, nodes_of
from slurm_plugin.queue.snapshot import read_snapshot
from slurm_plugin.slurm.interface import (
    NOW,
    JobUpdate,
    QueuedJob,
    SlurmNode,
    SlurmPartition,
)

TEXT = "dgx1/3,dgx2/c/71"
MEETS = f"meets remote=1 tpn=gres/gpu:4 prio=5 loan={TEXT} loan_at=990"
STARTS = f"starts remote=1 tpn=gres/gpu:4 prio=5 loan={TEXT}/50001 loan_at=980 at=995"
LOCAL = {"tres_per_node": "gres/gpu:2", "req_nodes": "dgx1"}


def job(kept: str = "may remote=1", job_id: int = 7, **fields: object) -> QueuedJob:
    """A waiting job of four GPUs; `kept` is what its bracket says, '' for none."""
    comment = f"[gpu-topo: remote=allow] [gpu-loan: {kept}]" if kept else ""
    values = {"priority": 5, "time_limit_s": 90, "cpus": 4, "admin_comment": comment, **ALICES}
    return waits(job_id, 4, **{**values, **fields})


def donor(comment: str = "gpu-donor ready of=7 port=50001", **fields: object) -> QueuedJob:
    return a_donor(71, comment, **{"gpus": {"dgx2": (2, 3)}, **fields})


NODES = (node("dgx1", range(2, 8)), node("dgx2", (0, 1, 4, 5, 6, 7)))
OFFER = Offer(
    "dgx1",
    3,
    {"dgx2": 12},
    holds=(Hold({"dgx1": 3}, 4, 0), Hold({"dgx2": 12}, 2, 1024)),
)


class Generous:
    """Lends the same to everybody who asks."""

    at_once = False

    def borrow(self, jobs: Sequence[LoanCandidate], made: object) -> list[Offer]:
        return [OFFER for _ in jobs]


def planned(
    *jobs: QueuedJob,
    nodes: Sequence[SlurmNode] = NODES,
    context: LoanContext | None = None,
    updates: StartLoans | None = None,
) -> StartPlan:
    room = nodes_of(nodes, [one for one in jobs if one.state != "PENDING"])
    updates = updates or StartLoans(60, highest=9, now=AT)
    return planning.plan(jobs, room, context or LoanContext(AT), updates, Generous())


class Slurm(LendingSlurm):
    """Two nodes and a queue; notes which GPUs are kept when a donor starts."""

    def __init__(self, *jobs: QueuedJob, refuses: str = "") -> None:
        super().__init__(*jobs, refuses=refuses)
        self.reserved = LoanReservations(lambda: float(AT))
        self.kept_at_start: list[int] = []
        self.lines: list[object] = []

    def nodes(self) -> list[SlurmNode]:
        return list(NODES)

    def partitions(self) -> list[SlurmPartition]:
        return [SlurmPartition("batch", ("dgx1", "dgx2"), True)]

    def config(self) -> dict[str, str]:
        return {"TaskProlog": "/x/task-prolog", "PriorityType": "priority/multifactor"}

    def update(self, jobs: Sequence[str], change: JobUpdate) -> None:
        if change.begin_time == NOW:
            for kept in self.reserved.by_borrower.values():
                self.kept_at_start += sorted(kept.shares)
        super().update(jobs, change)


def lender_of(tmp_path: Path, slurm: Slurm, clock: Callable[[], float]) -> LoanReconciler:
    how = StartLoans(60)
    decider = basic_decider(tmp_path, BASIC + "remote: {{allow: yes}}\n")
    lending = SlurmLoans(SETTINGS, slurm, slurm, slurm, how, clock)
    matcher = LoanMatcher(lending, decider.rule, decider.waiting, slurm.lines.append, clock, {})
    return LoanReconciler(slurm, matcher, how, slurm.reserved, 30, clock)


def polled(tmp_path: Path, slurm: Slurm, may_lend: bool = True) -> StartPlan:
    return lender_of(tmp_path, slurm, lambda: float(AT)).reconcile(read_snapshot(slurm), may_lend)
