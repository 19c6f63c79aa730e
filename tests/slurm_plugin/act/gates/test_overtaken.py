"""To Slurm a gated job is not to start yet, so it starts its own jobs before it; never for ever."""

from dataclasses import replace

import pytest
from jobs_in_tests import waits
from slots_in_tests import (
    NOW,
    TERMS,
    Remembering,
    gated,
    look,
    planned,
    reconciler,
    running,
)

from slurm_plugin.act.gates.capacity_cache import CapacityCache
from slurm_plugin.act.gates.planning import OVERTAKEN
from slurm_plugin.queue.snapshot import Settings
from slurm_plugin.slurm.interface import QueuedJob, SlurmPartition

FIRST = gated(1, 8)


EARLIER = running(50, (0, 1), end=NOW + 100)
LATER = running(60, (2,), start=NOW - 10, end=NOW + 5000)


def left_to_slurm(*jobs: QueuedJob, since: float = NOW - 60, **node: object):
    """Which of these jobs on dgx1 get Slurm's own choice."""
    used = sum(1 << gpu for job in jobs for gpu in job.gpus.get("dgx1", ()))
    free_cpus = 40 - sum(job.cpus for job in jobs if job.state == "RUNNING")
    room = {"free": 0xFF & ~used, "cpus": free_cpus, **node}
    made = planned(*jobs, context=replace(TERMS, waits_since={1: since}), **room)
    return [name for name, one in made.updates if OVERTAKEN in (one.admin_comment or "")]


def test_the_first_waiting_job_is_slurms_own_once_a_later_one_that_is_delays_it():
    assert left_to_slurm(FIRST, gated(2, 8), EARLIER, LATER) == ["1"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"start": NOW - 61}, "it started before the other was the first"),
        ({"priority": 100}, "it comes before it by priority"),
        ({"end": NOW + 90}, "it ends before the other could start"),
        ({"tres_per_node": "gres/gpu:v100.s2"}, "it is on slots that the engine gave"),
        ({"nodes": ("other",), "gpus": {"other": (2,)}}, "it is on a node that serves it not"),
    ],
)
def test_it_stays_where_no_such_job_delays_it(change, why):
    assert left_to_slurm(FIRST, EARLIER, replace(LATER, **change)) == [], why


def test_jobs_without_gpus_delay_it_too():
    greedy = replace(LATER, gpus={}, cpus=40, tres_per_node="")
    assert left_to_slurm(FIRST, EARLIER, greedy) == ["1"]


def test_where_limits_tell_no_end_any_that_passes_it_counts():
    endless = replace(EARLIER, end=0)
    assert left_to_slurm(FIRST, endless, replace(LATER, end=0)) == ["1"]


def test_who_waits_for_better_gpus_is_not_overtaken():
    """It has room, and does not take it."""
    assert left_to_slurm(gated(1, 2), EARLIER, LATER) == []


def test_it_counts_from_when_the_engine_saw_it_first(tmp_path):
    """A job is the first that waits from one round to the next."""
    slurm = Remembering()
    rounds = reconciler(tmp_path, slurm, CapacityCache())
    later = replace(LATER, start=NOW + 2)
    for at, jobs, used in ((NOW, [EARLIER], (0, 1)), (NOW + 5, [EARLIER, later], (0, 1, 2))):
        rounds.clock = lambda at=at: float(at)
        slurm.jobs_there = [FIRST, *jobs]
        slurm.used = {f"v100.s{gpu}": 1 for gpu in used}
        look(rounds, slurm, at)
        comments = [one.admin_comment or "" for _, one in slurm.updates]
        assert any(OVERTAKEN in text for text in comments) == (at > NOW)


OWN = waits(40, 8, priority=500)


def test_behind_a_waiting_job_that_is_slurms_own_only_what_does_not_delay_it_is_released():
    """Slurm keeps its room: a longer one would be released in vain, and hold its slots."""
    four = replace(EARLIER, gpus={"dgx1": (0, 1, 2, 3)}, tres_per_node="gres/gpu:4")
    long, short = gated(2, 4, time_limit_s=500), gated(3, 4, time_limit_s=90)
    made = planned(OWN, four, long, short, free=0xF0)
    assert made.released == ["3"]
    before = replace(OWN, priority=1)
    assert planned(before, four, long, short, free=0xF0).released == ["2"]
    for other in (
        {"reason": "QOSMaxGRESPerUser"},
        {"dependency": "afterok:9(unfulfilled)"},
        {"priority": 0},
    ):
        assert planned(replace(OWN, **other), four, long, short, free=0xF0).released == ["2"]


def test_one_that_was_passed_before_it_was_first_seen_counts():
    """It started between the submit and the first look after it."""
    first = replace(FIRST, submit=NOW - 30)
    for last_look, is_left in ((NOW - 20, True), (NOW - 5, False)):
        context = replace(TERMS, last_look=last_look)
        made = planned(first, EARLIER, replace(LATER, submit=NOW - 12), context=context, free=0xF8)
        assert (OVERTAKEN in str(made.updates)) == is_left


def test_a_job_that_was_moved_to_a_partition_that_preempts_is_slurms_own():
    """Behind its gate it would push nobody aside."""
    tiers = (SlurmPartition("batch", (), True, 2), SlurmPartition("low", (), False))
    settings = Settings(tiers, {"PreemptType": "preempt/partition_prio"})
    made = planned(gated(1), context=replace(TERMS, settings=settings))
    assert made.released == []
    assert "the partition may preempt others" in str(made.updates)


def test_one_that_ended_while_slurm_was_read_and_whose_gpus_were_given_away_is_no_problem():
    """The queue is read before the nodes: it runs there, and its GPUs are free here."""
    ended = running(60, (0, 1), start=NOW - 10, end=NOW + 5000)
    holder = running(50, (4, 5, 6, 7), end=NOW + 5000)
    context = replace(TERMS, waits_since={2: NOW - 60.0})
    made = planned(gated(1, 2), gated(2, 8), holder, ended, context=context, free=0x0F)
    assert made.released == ["1"]
