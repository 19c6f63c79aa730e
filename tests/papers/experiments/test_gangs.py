"""Gangs in DRMaestro: as the thesis prints it, and as it is planned here."""

from __future__ import annotations

import pytest

from papers.experiments.drmaestro import workload
from papers.experiments.drmaestro.gangs import SHARES, PrintedGangs, asked
from policies import Request
from policies.remote import NodeCapacity, RemoteJob, RemotePlacement
from policies.remote.drmaestro import DRMaestro, by_networkx


def starting(kind, *jobs):
    """Which of the jobs start on two machines of two GPUs."""
    machines = {name: NodeCapacity(name, 0b11, 8, 1000) for name in ("m0", "m1")}
    answers = kind(solve=by_networkx).decide(jobs, machines)
    return [isinstance(answer, RemotePlacement) for answer in answers]


def gang(*gpus, **more):
    return RemoteJob(Request(gpus), remote_allowed=False, **more)


def test_as_printed_a_job_with_a_part_waits_and_its_other_part_is_idle():
    """A pair on each machine is asked for by one job, three single GPUs by another."""
    jobs = [gang(1, 1, 1), gang(2, 2)]
    assert sum(starting(PrintedGangs, *jobs)) <= 1
    assert starting(DRMaestro, *jobs) != [False, False]


@pytest.mark.parametrize("kind", [PrintedGangs, DRMaestro])
def test_jobs_that_fit_together_start_together(kind):
    assert starting(kind, gang(1, 1), gang(1), gang(1)) == [True, True, True]


@pytest.mark.parametrize("kind", [PrintedGangs, DRMaestro])
def test_nothing_starts_in_part(kind):
    assert starting(kind, gang(2, 2, 2)) == [False]


def test_so_many_of_a_hundred_jobs_may_use_remote_gpus():
    for hundredths in SHARES.values():
        log = asked(1, "gangs", hundredths)[:100]
        assert sum(one.job.remote_allowed for one in log) == hundredths


def test_other_sizes_ask_for_as_much_work():
    work = {
        sizes: sum(
            job.alone_s * sum(job.job.request.gpus_per_node)
            for job in workload.jobs(1, 5000, 60.0, True, sizes=sizes)
        )
        for sizes in workload.SIZES
    }
    assert work["several"] == pytest.approx(work["one"], rel=0.03)
    assert work["gangs"] == pytest.approx(work["one"], rel=0.03)
