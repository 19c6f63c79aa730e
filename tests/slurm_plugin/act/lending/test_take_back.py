"""Lent GPUs that are taken back: for whom, from whom, once."""

from dataclasses import replace
from pathlib import Path

import pytest
from at_start_in_tests import AT, LOCAL, STARTS, Slurm, donor, job, lender_of
from jobs_in_tests import node

from slurm_plugin.act.lending.at_start.reconciler import LoanReconciler
from slurm_plugin.base.job_notes.records import LoanRecord
from slurm_plugin.queue.snapshot import read_snapshot
from slurm_plugin.slurm.interface import QueuedJob

ALLOWS = "[gpu-topo: remote=allow,movable]"
FULL = (node("dgx1", range(8)), node("dgx2", range(8)))


def borrower(comment: str = ALLOWS, record: str = STARTS, **fields: object) -> QueuedJob:
    """Job 7 runs on two GPUs of dgx1 and borrows two of dgx2, by job 71."""
    runs = {"state": "RUNNING", "nodes": ("dgx1",), "gpus": {"dgx1": (0, 1)}, "start": AT - 60}
    text = f"{comment} [gpu-loan: {record}]"
    return job(**{**LOCAL, **runs, "admin_comment": text, **fields})


def local(gpus: int = 2, **fields: object) -> QueuedJob:
    """A job that waits for GPUs of one node, for ten minutes by now."""
    values = {"name": "9", "submit": AT - 600, "tres_per_node": f"gres/gpu:{gpus}", "cpus": 1}
    return job("", 9, **{**values, **fields})


class Site(Slurm):
    """Two nodes without a free GPU."""

    def nodes(self):
        return list(FULL)


def site_of(tmp_path: Path, slurm: Slurm, take_back: str = "requeue") -> LoanReconciler:
    ours = lender_of(tmp_path, slurm, lambda: float(AT))
    lending = ours.matcher.lending
    lending.settings = replace(lending.settings, take_back=take_back, take_back_s=300)
    return ours


def taken(tmp_path: Path, *jobs: QueuedJob, take_back: str = "requeue", **how: str) -> list[str]:
    slurm = Site(*jobs, **how)
    site_of(tmp_path, slurm, take_back).reconcile(read_snapshot(slurm), True)
    return slurm.words


def test_a_borrower_that_allows_it_is_marked_and_requeued_for_the_first_job(tmp_path):
    slurm = Site(local(), borrower(), donor())
    ours = site_of(tmp_path, slurm)
    ours.reconcile(read_snapshot(slurm), True)
    assert slurm.words == ["update 7", "scontrol requeue 7"]
    told = slurm.told[0][1].admin_comment
    assert LoanRecord.read_from(told).taken_back_at == AT
    assert "its lent GPUs are taken back for job 9; it is requeued" in told
    # The next look may still see it run: it is not asked again, and no other is, for this job.
    slurm.jobs[1] = replace(slurm.jobs[1], admin_comment=told)
    ours.reconcile(read_snapshot(slurm), True)
    assert slurm.words == ["update 7", "scontrol requeue 7"]


def test_the_mark_outlives_the_loan(tmp_path):
    kept = LoanRecord.read_from(f"[gpu-loan: {STARTS} loan_taken=990]")
    assert kept.over().taken_back_at == 990


@pytest.mark.parametrize(
    ("sentence", "jobs"),
    [
        ("one that does not allow it", [local(), borrower("[gpu-topo: remote=allow]"), donor()]),
        ("one that was before", [local(), borrower(record=f"{STARTS} loan_taken=9"), donor()]),
        ("for one that just came", [local(submit=AT - 299), borrower(), donor()]),
        ("where that is not enough", [local(5), borrower(), donor()]),
        ("for one that is held", [local(priority=0), borrower(), donor()]),
        ("for nobody", [borrower(), donor()]),
        ("a job without a loan", [local(), borrower(record="may remote=1")]),
        (
            "where a job that ends makes room",
            [
                local(), borrower(), donor(),
                QueuedJob(5, state="COMPLETING", nodes=("dgx2",), gpus={"dgx2": (6, 7)}, cpus=1),
            ],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_nobody_is_requeued(sentence, jobs, tmp_path):
    assert not any("requeue" in words for words in taken(tmp_path, *jobs))


def test_where_the_site_does_not_want_it_nothing_happens(tmp_path):
    assert taken(tmp_path, local(), borrower(), donor(), take_back="no") == []


def test_a_mark_that_slurm_refuses_requeues_nobody(tmp_path):
    """Without the mark it could happen twice."""
    assert taken(tmp_path, local(), borrower(), donor(), refuses="update 7") == ["update 7"]


def test_an_engine_that_ends_between_mark_and_requeue_leaves_the_job_alone(tmp_path):
    slurm = Site(local(), borrower(), donor(), refuses="scontrol requeue")
    site_of(tmp_path, slurm).reconcile(read_snapshot(slurm), True)
    marked = slurm.told[0][1].admin_comment
    after = taken(tmp_path, local(), borrower("", admin_comment=marked), donor())
    assert after == []


def test_the_one_that_ran_least_is_taken(tmp_path):
    other = borrower(
        **{"job_id": 8, "name": "8", "start": AT - 6, "gpus": {"dgx1": (2, 3)}},
        record=STARTS.replace("71", "72"),
    )
    lends = donor("gpu-donor ready of=8 port=50002", admin_comment="[gpu-donor: of=8]")
    lends = replace(lends, job_id=72, name="72", gpus={"dgx2": (4, 5)})
    words = taken(tmp_path, local(), borrower(), donor(), other, lends)
    assert words == ["update 8", "scontrol requeue 8"]
