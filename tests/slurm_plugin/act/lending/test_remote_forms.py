"""Which forms of jobs borrow, what becomes of what they ask for, and what the others are told."""

from dataclasses import replace

import pytest
from at_start_in_tests import MEETS, TEXT, Slurm, donor, job, planned, polled
from loans_in_tests import AT

from slurm_plugin.act.lending import forms, plan
from slurm_plugin.act.lending.at_start import start_loans
from slurm_plugin.act.lending.at_start.start_loans import StartLoans
from slurm_plugin.base.job_notes.loan import Loan
from slurm_plugin.base.job_notes.records import LoanRecord
from slurm_plugin.queue.demand import Demand
from slurm_plugin.slurm.interface import JobUpdate


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"form": "job", "max_nodes": 1}, {"req_nodes": "dgx1"},
        {"cpus_per_gpu": 2}, {"mem_gpu_mb": 5}, {"form": "task", "tasks": 1},
    ],
    ids=str,
)  # fmt: skip
def test_jobs_of_one_node_borrow_that_ask_for(fields):
    assert not forms.obstacle(replace(Demand("node", gpus=4, per_node=4), **fields))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"exclusive": True}, "an exclusive job gets all GPUs"),
        ({"form": "task", "tasks": 2}, "each of its tasks"),
        ({"form": "socket"}, "--gpus-per-socket"),
        ({"is_by_gpu": True}, "--ntasks-per-gpu"),
        ({"is_22_05": True}, "Slurm 22.05"),
        ({"req_nodes": "dgx[1-2]"}, "--nodelist"),
        ({"req_nodes": "dgx1,dgx2"}, "--nodelist"),
        ({"nodes": 2}, "may run on several (-N1)"),
        ({"max_nodes": 3}, "may run on several (-N1)"),
        ({"per_node": 1}, "it has to ask for two"),
        ({"is_het": True}, "heterogeneous"),
        ({"is_batch": False}, "srun and salloc"),
        ({"form": "job"}, "without -N1"),
    ],
    ids=str,
)
def test_all_others_are_told_why_not(fields, why):
    asked_for = dict(fields)
    about = {key: asked_for.pop(key) for key in ("is_het", "is_batch") if key in fields}
    asked = replace(Demand("node", gpus=4, per_node=4), **asked_for)
    assert why in forms.line(forms.obstacle(asked, **about))


@pytest.mark.parametrize(
    ("why", "waits"),
    [
        ("without -N1", job(tres_per_node="", tres_per_job="gres/gpu:5")),
        ("each of its tasks", job(tres_per_node="", tres_per_task="gres/gpu=2", ntasks=3)),
        ("several (-N1)", job(min_nodes=2, max_nodes=2, tres_per_node="gres/gpu:6")),
        ("an exclusive job", job(exclusive=True)),
    ],
)
def test_a_form_that_borrows_nothing_is_told_once(why, waits, tmp_path):
    slurm = Slurm(waits)
    polled(tmp_path, slurm)
    [(_, told)] = slurm.told
    assert why in told.admin_comment
    assert told == JobUpdate(admin_comment=told.admin_comment)
    again = Slurm(replace(waits, admin_comment=told.admin_comment))
    polled(tmp_path, again)
    assert again.told == []


def test_a_thousand_jobs_that_ask_in_vain_are_told_some_in_each_round(tmp_path):
    """None is told twice: a job that has its line changes nothing any more."""
    asking = [job(job_id=n, name=str(n), exclusive=True) for n in range(100, 1100)]
    rounds = 0
    while (slurm := Slurm(*asking)) and polled(tmp_path, slurm).changes_slurm:
        told = {int(words.split()[1]): update for words, update in slurm.told}
        assert list(told) == [one.job_id for one in asking if one.job_id in told]
        assert len(told) <= plan.MOST_TOLD
        asking = [
            replace(one, admin_comment=told[one.job_id].admin_comment)
            if one.job_id in told
            else one
            for one in asking
        ]
        rounds += 1
    assert rounds == 1000 / plan.MOST_TOLD
    assert all("an exclusive job" in one.admin_comment for one in asking)


def test_of_an_array_one_task_after_the_other_becomes_a_job_of_its_own(tmp_path):
    together = job(array_id=7, name="7_[2-4]", task="2-4", tasks=3)
    slurm = Slurm(together)
    polled(tmp_path, slurm)
    assert slurm.told == [("update 7_2", JobUpdate(admin_comment=together.admin_comment))]
    alone = job(job_id=9, array_id=7, name="7_2", task="2")
    assert [one.name for one, *_ in planned(together, alone).offers] == ["7_2"]
    assert planned(together, alone).splits == []
    paused = replace(alone, reason="BeginTime")
    assert planned(together, paused).splits == []
    has_loan = job(MEETS, job_id=9, array_id=7, name="7_2", task="2", reason="BeginTime")
    assert planned(together, has_loan, donor()).offers == []


def test_what_a_job_asked_for_with_each_gpu_it_has_for_lent_ones_too(tmp_path):
    """Its update says so in numbers; a loan that fails gives the job its own words back."""
    asks = {"cpus_per_tres": "gres/gpu:2", "memory_per_tres": "gres/gpu:100", "req_nodes": "dgx1"}
    waits = job(**asks, tres_per_node="", tres_per_task="gres/gpu=4", cpus_per_task=8)
    updates = StartLoans(60, highest=9, now=AT)
    record = LoanRecord.read_from(waits.admin_comment).with_loan(Loan.parsed(TEXT), AT, "")
    named = LoanRecord.read_from(updates.meets(waits, record, "").admin_comment)
    assert start_loans.is_whole(waits, named)
    starts = updates.starts(waits, named, Loan.parsed(TEXT))
    assert (starts.tres_per_node, starts.tres_per_task, starts.tres_bind) == ("gpu:2", "", "")
    assert (starts.min_cpus, starts.cpus_per_task, starts.cpus_per_tres) == (8, 8, "")
    assert (starts.memory_per_node_mb, starts.memory_per_tres) == (400, "")
    local = replace(waits, tres_per_node="gres/gpu:2", tres_per_task="", cpus_per_tres="", cpus=8)
    given, _ = updates.given_up(local, named.starts(Loan.parsed(TEXT), AT), "")
    assert (given.tres_per_task, given.tres_bind) == ("gres/gpu=4", "gres/gpu:per_task:4")
    assert (given.cpus_per_tres, given.memory_per_tres) == ("gres/gpu:2", "gres/gpu:100")
    assert (given.req_nodes, given.cpus_per_task) == ("dgx1", 8)
