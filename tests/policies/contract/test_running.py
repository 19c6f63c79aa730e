"""Running jobs as a collection that is never changed."""

from __future__ import annotations

from random import Random

import pytest

from policies import RunningJob
from policies.contract.running import PARTS, RunningJobs


def job(job_id: int) -> RunningJob:
    return RunningJob(job_id, {"n1": 1})


@pytest.mark.parametrize("remembered", [4096, 25])
@pytest.mark.parametrize("seed", range(3))
def test_what_comes_and_goes_is_told_and_nothing_else_changes(seed, remembered, monkeypatch):
    monkeypatch.setattr("policies.contract.running.REMEMBERED", remembered)
    draw, known = Random(seed), {number: job(number) for number in range(0, 3000, 3)}
    jobs = RunningJobs(known.values())
    for _ in range(30):
        gone = draw.sample(sorted(known), 5)
        came = [job(draw.randrange(4000)) for _ in range(5)]
        before, old = dict(known), jobs
        for job_id in gone:
            del known[job_id]
        known |= {one.job_id: one for one in came}
        jobs = jobs.changed(gone, came)
        assert {one.job_id: one for one in jobs} == known
        assert len(jobs) == len(known)
        assert {one.job_id: one for one in old} == before, "an older collection stays as it was"
        went, new = jobs.since(old)
        other = old.changed((), [job(99_999)])
        assert {one.job_id for one in jobs.since(other)[0]} - {99_999} == {
            one.job_id for one in went
        }
        differ = {i for i in before.keys() | known.keys() if before.get(i) is not known.get(i)}
        assert {one.job_id for one in went} == differ & before.keys()
        assert {one.job_id for one in new} == differ & known.keys()


def test_a_job_is_found_by_its_id_and_is_in_it_once():
    jobs = RunningJobs([job(7), job(7 + PARTS)]).changed((), [job(7)])
    assert len(jobs) == 2
    assert jobs.get(7 + PARTS) in jobs
    assert jobs.get(8) is None
    assert job(8) not in jobs
    assert jobs.changed([8], ()).since(jobs) == ([], [])
