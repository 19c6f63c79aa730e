"""When a donor ends: with the job that it lends to."""

import asyncio

import pytest
from paper_donor import COMMENT

from slurm_plugin.node.remote import donor


@pytest.mark.parametrize(
    ("states", "looks"),
    [
        (["RUNNING", "RUNNING", ""], 3),
        (["PENDING", "RUNNING", "COMPLETING"], 3),
        (["RUNNING", None, None, ""], 4),
        (["PENDING", "RUNNING", "PENDING"], 3),
    ],
    ids=["gone", "ends", "slurmctld is down", "put back"],
)
def test_a_donor_ends_with_the_job_it_lends_to(states, looks):
    told = iter(states)
    asked = []

    def ask(job_id: int) -> tuple[str, str] | None:
        asked.append(job_id)
        state = next(told)
        return None if state is None else (state, COMMENT)

    asyncio.run(donor.until_over(7, 71, ask, poll_s=0))
    assert asked == [7] * looks


@pytest.mark.parametrize("job_id", [72, 7, 711, 1, 6, 50000])
def test_a_donor_ends_when_its_job_names_it_no_more(job_id):
    """Another one, 71, is named; 6 are its GPUs, 50000 is its port."""
    comment = COMMENT.format(port=50000)
    ask = lambda job_id: ("RUNNING", comment)  # noqa: E731
    over = donor.until_over(5, job_id, ask, poll_s=60, again_s=0.01)
    asyncio.run(asyncio.wait_for(over, 10))


def test_a_donor_goes_on_while_somebody_overwrites_its_jobs_comment():
    """Without a record nothing is known; one that names others must do so twice in a row."""
    named = COMMENT.format(port=50000)
    others = named.replace("/71", "/99")
    seen = [named, "", "JS1:x", others, named, others, "mine", others, others, "never read"]
    left = list(seen)
    ask = lambda job_id: ("RUNNING", left.pop(0))  # noqa: E731
    asyncio.run(donor.until_over(7, 71, ask, poll_s=0, again_s=0))
    assert left == ["never read"]


def test_a_donor_does_not_wait_for_ever_for_a_job_that_does_not_start():
    patience = {"poll_s": 0.01, "patience_s": 0.03}
    asyncio.run(donor.until_over(7, 71, lambda job_id: ("PENDING", COMMENT), **patience))
    asyncio.run(donor.until_over(7, 71, lambda job_id: None, **patience))
