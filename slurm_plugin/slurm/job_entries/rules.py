"""Which of our entries stand in a job's AdminComment, and which the engine keeps to itself. Pure.

Entries are given by kind, as `job_notes.brackets.split` has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_plugin.base.job_notes.brackets import DONOR, LOAN, SHAPE, SLOTS, TOPO
from slurm_plugin.base.job_notes.records import GATED, PLACED, GateRecord, LoanRecord
from slurm_plugin.slurm.gres_text import counts
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.slurm.slot_types import index_of

#: The kinds that the engine alone writes after a job's submit. (The hint can be changed by an
#: administrator, and the select plugin writes notes beside it.)
RECORDS = (SHAPE, LOAN, SLOTS, DONOR)
#: So long after its start a job's TaskProlog may read the job's record of a loan, in seconds.
JOIN_S = 60


@dataclass(frozen=True, slots=True)
class Repair:
    """An AdminComment that is to be written: the job's name, and the whole text."""

    name: str
    text: str
    #: Its place among the components of a heterogeneous job; the first one is written first.
    order: int = 0
    #: What our log says, '' for nothing.
    log: str = ""


def records(ours: Mapping[str, str]) -> dict[str, str]:
    """The entries that the engine alone writes."""
    return {kind: text for kind, text in ours.items() if kind in RECORDS}


def needed_at_slurm(
    ours: Mapping[str, str], state: str, ran_s: float, notes_at_slurm: bool
) -> dict[str, str]:
    """The entries that stand in AdminComment while the job is in this state.

    With `notes_at_slurm` all of them. Without, the records of a job that waits, because the bridge
    goes by them, with its hint; and a loan's until the job has met its donors. `ran_s`: seconds
    since the job's start.
    """
    if notes_at_slurm:
        return dict(ours)
    is_waiting = state == "PENDING"
    kept = {}
    for kind in RECORDS:
        if kind in ours and _is_needed(kind, ours[kind], is_waiting, ran_s):
            kept[kind] = ours[kind]
    hint = ours.get(TOPO, "").partition("|")[0].strip()
    if hint and is_waiting and kept and DONOR not in kept:
        kept[TOPO] = hint
    return kept


def _is_needed(kind: str, text: str, is_waiting: bool, ran_s: float) -> bool:
    """Does anybody but the engine read this record now?"""
    if kind == DONOR:
        return True
    if kind == SHAPE:
        return is_waiting
    record = (LoanRecord if kind == LOAN else GateRecord).parsed(text)
    if record is None:
        return False
    if is_waiting:
        # A released job needs its gate's record no more, but the first component of a
        # heterogeneous job is pinned to its nodes by it.
        is_read = record.may_borrow or record.names_loan or bool(record.get("pin"))
        return record.state != PLACED or is_read
    return (record.may_borrow or record.names_loan) and ran_s < JOIN_S


def is_over(job: QueuedJob, record: str, now: float) -> bool:
    """Has a job that lost its record of the slots mode left the engine's care?

    It was given back to Slurm, or its gate has opened meanwhile.
    """
    kept = GateRecord.parsed(record)
    if kept is None or job.state != "PENDING":
        return False
    if kept.state == GATED:
        return not (job.held or job.depends) and 0 < job.eligible <= now
    try:
        types = {**counts(job.tres_per_node), **counts(job.tres_per_job)}
    except ValueError:
        return True
    return not any(index_of(kind) is not None for kind in types)


def is_marked(ours: str, shown: str) -> bool:
    """Did root change what a gated job asks for, as the bridge then writes into its record?"""
    was, now = GateRecord.parsed(ours), GateRecord.parsed(shown)
    if was is None or now is None or was.is_changed or not now.is_changed:
        return False
    return was.state == now.state == GATED and was.requests == now.requests


def is_undone(job: QueuedJob, asked: tuple[str | None, str | None]) -> bool:
    """Does the job ask for other GPUs than the last update said?

    A slurmctld that was killed starts with the jobs as it last saved them.
    """
    try:
        per_node, per_job = (None if text is None else counts(text) for text in asked)
        has = (counts(job.tres_per_node), counts(job.tres_per_job))
    except ValueError:
        return False
    return (per_node, per_job) != (None, None) and any(
        wanted is not None and wanted != there
        for wanted, there in zip((per_node, per_job), has, strict=True)
    )


def one_line(comment: str) -> str:
    """The comment as an update can carry it: with others' line breaks as spaces."""
    return " ".join(comment.splitlines()).replace("\0", " ")


def tasks_to_name(job: QueuedJob) -> int | None:
    """How many tasks an update has to name so that the job keeps those it has; None for no need.

    Slurm 23.02 to 24.11 counts them anew in every update, an AdminComment's too, by what the job
    asked for per node or GPU: of `-n4 --ntasks-per-gpu=2` two are left, with two CPUs, and on its
    four GPUs the job cannot start any more (job_mgr.c, _figure_out_num_tasks; later releases do
    so where an update sets the nodes). It does not where the update says the number.
    """
    return job.ntasks or None if job.tasks_per_node or job.tasks_per_gpu else None
