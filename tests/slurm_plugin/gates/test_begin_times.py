"""Begin times of jobs that Slurm put back, and those that an administrator gives them."""

from slots_in_tests import gated, planned

from slurm_plugin.job_notes.records import GateRecord


def test_a_job_that_was_put_back_waits_for_the_begin_time_that_slurm_gave_it():
    """A node that did not answer its start may refuse it until then, and would end it."""
    waits = [
        gated(1, keys=f"tries=1 retry=990 begin={begin}", eligible=eligible)
        for begin, eligible in ((1001, 1001), (1000, 1000), (1120, 1000))
    ]
    # Of the last an administrator said: StartTime=now.
    assert [planned(job).released for job in waits] == [[], ["1"], ["1"]]


def test_a_sooner_begin_that_an_administrator_gave_is_kept_when_the_gate_is_shut_again():
    """StartTime=now+3 for one that Slurm put back for two minutes; shutting it writes over that."""
    made = planned(gated(1, keys="tries=1 retry=990 begin=1120", eligible=1003))
    assert made.released == []
    [(name, update)] = made.updates
    kept = GateRecord.read_from(update.admin_comment)
    assert (name, kept.begin, update.begin_time) == ("1", 1003, None)
    assert [one.name for one in made.renewals] == ["1"]
    made = planned(gated(1, keys="tries=1 retry=990 begin=1003", eligible=1120))
    assert made.updates == []


def test_of_a_heterogeneous_job_no_comment_is_written_over():
    """Slurm copies that of its first component to all of them."""
    keys = "tries=1 retry=990 begin=1120"
    parts = [gated(5 + at, 2, keys=keys, eligible=1003, het_id=5, het_offset=at) for at in (0, 1)]
    assert planned(*parts).updates == []
