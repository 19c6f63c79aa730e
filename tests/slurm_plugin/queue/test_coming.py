"""What a question finds ahead: who waits, in Slurm's order, and which GPUs come free when."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from random import Random

import jobs_in_tests
import pytest
from jobs_in_tests import waits

from policies import RunningJob
from policies.contract.running import RunningJobs
from policies.horizon.run_times import LimitsUsed
from slurm_plugin.base.job_notes.records import GATED, GateRecord
from slurm_plugin.base.placement import PlacementQuestion
from slurm_plugin.queue.coming import MOST_AHEAD, UNKNOWN_S, Coming
from slurm_plugin.queue.demand import lacks_only_room
from slurm_plugin.queue.snapshot import Settings
from slurm_plugin.slurm.interface import QueuedJob

NOW = 10_000


def waiting(job_id: int, gpus: int, **more: object) -> QueuedJob:
    fields = {"priority": 100, "submit": job_id, "time_limit_s": 600, "uid": job_id}
    return waits(job_id, gpus, **(fields | more))


def runs(job_id: int, end: int) -> QueuedJob:
    """Each is another user's."""
    start = NOW - 100
    fields = {"start": start, "time_limit_s": max(1, end - start), "end": end}
    return jobs_in_tests.runs(job_id, (job_id,), uid=job_id, **fields)


def asked(job: int, array: int = 0, partition: str = "batch") -> PlacementQuestion:
    return PlacementQuestion(job, array, 1000, 0, 0, (), partition=partition)


def running(*jobs: int) -> RunningJobs:
    return RunningJobs(RunningJob(job, {"dgx1": 1 << job}) for job in jobs)


def sizes(coming: Coming, question: PlacementQuestion, *ids: int) -> list[int]:
    """GPUs of those that wait, while jobs of these ids run."""
    return [job.gpus_per_node[0] for job in coming.ahead(question, running(*ids), NOW).queue]


def test_others_wait_in_slurms_order():
    jobs = [waiting(1, 1), waiting(2, 2, priority=300), waiting(3, 3, priority=200)]
    coming = Coming(jobs, NOW)
    assert sizes(coming, asked(9)) == [2, 3, 1]
    assert sizes(coming, asked(3)) == [2, 1]
    assert coming.ahead(asked(3), running(), NOW).lasts_s == 600
    assert coming.ahead(asked(9), running(), NOW).lasts_s == UNKNOWN_S


@pytest.mark.parametrize(
    "other",
    [
        waiting(2, 2, priority=0),
        waiting(2, 2, dependency="afterok:9(unfulfilled)"),
        waiting(2, 2, eligible=NOW + 60),
        waiting(2, 2, state="SUSPENDED"),
        waiting(2, 2, tres_per_node=""),
        waiting(2, 2, partition="other"),
        waiting(2, 2, reason="QOSMaxJobsPerUserLimit"),
        waiting(2, 2, reason="Licenses"),
    ],
    ids=["held", "depends", "begins later", "no longer waits", "no GPUs", "another partition",
         "its user's limit", "a licence"],
)  # fmt: skip
def test_who_could_not_start_here_is_left_out(other):
    assert sizes(Coming([waiting(1, 1), other], NOW), asked(9)) == [1]


OF_OTHERS = "ReqNodeNotAvail,_May_be_reserved_for_other_job"


@pytest.mark.parametrize(
    "reason", ["Resources", "BeginTime", OF_OTHERS, "No_suitable_topology_unit_found"]
)
def test_whom_nothing_but_room_is_known_to_keep_is_seen(reason):
    """Also one that Slurm has not looked at since its begin time, or says a sentence of."""
    assert sizes(Coming([waiting(2, 2, reason=reason)], NOW), asked(9)) == [2]


@pytest.mark.parametrize("reason", ["launch failed requeued held", "held, as a later release says"])
def test_slurms_words_for_a_hold_are_no_lack_of_room(reason):
    assert not lacks_only_room(waiting(2, 2, reason=reason, priority=0))


def test_a_gated_job_waits_whatever_its_begin_time():
    gated = GateRecord(GATED).written_into("")
    job = waiting(2, 2, eligible=NOW + 60, admin_comment=gated)
    assert sizes(Coming([job], NOW), asked(9)) == [2]


def test_what_kind_of_job_waits_is_told_for_what_was_measured_of_it():
    job = waiting(1, 2, comment="gpu-topo: profile=bert,batch=4", uid=7)
    [found] = Coming([job], NOW).ahead(asked(9), running(), NOW).queue
    assert (found.profile, found.batch, found.user) == ("bert", 4, 7)


def test_hints_partitions_and_nodes_are_those_of_the_job():
    comment = "gpu-topo: pattern=tree,sensitive=no,communication=0.4"
    job = waiting(1, 2, min_nodes=3, partition="x,batch", comment=comment, time_limit_s=0)
    [found] = Coming([job], NOW).ahead(asked(9), running(), NOW).queue
    assert found.gpus_per_node == (2, 2, 2)
    assert (found.pattern, found.sensitive, found.lasts_s) == ("tree", False, UNKNOWN_S)
    assert found.communication == 0.4
    wrong = waiting(1, 2, comment="gpu-topo: pattern=nonsense")
    [found] = Coming([wrong], NOW).ahead(asked(9), running(), NOW).queue
    assert (found.pattern, found.sensitive, found.communication) == ("ring", True, None)


def test_an_arrays_other_tasks_wait_too_and_no_more_than_can_be_seen():
    array = waiting(5, 2, array_id=5, tasks=3)
    coming = Coming([array], NOW)
    assert sizes(coming, asked(5)) == [2, 2]
    assert sizes(coming, asked(7, array=5)) == [2, 2]
    many = Coming([waiting(5, 2, tasks=5000), waiting(6, 1)], NOW)
    assert sizes(many, asked(9)) == [2] * MOST_AHEAD


def test_gpus_come_free_by_the_limits_of_those_that_run():
    coming = Coming([runs(1, NOW + 500), runs(2, NOW + 5), runs(3, NOW - 7), runs(4, 0)], NOW)
    free = coming.ahead(asked(9), running(1, 2, 3, 4), NOW).releases
    assert [(one.end_s - NOW, one.mask) for one in free] == [
        (-7, 1 << 3),
        (5, 1 << 2),
        (500, 1 << 1),
    ]


def test_notices_since_the_snapshot_count():
    coming = Coming([waiting(1, 1), waiting(2, 2), runs(3, NOW + 50)], NOW)
    coming.started(1, NOW + 10)
    ahead = coming.ahead(asked(2), running(1), NOW + 20)
    assert list(ahead.queue) == [], "one runs, the other is asked about"
    assert [(one.end_s, one.mask) for one in ahead.releases] == [(NOW + 610, 1 << 1)], (
        "three has ended"
    )


def used(coming: Coming) -> list[float]:
    """What was learned beside what is taken for granted at first."""
    known = list(coming.ahead(asked(9), running(), NOW).used)
    for part in LimitsUsed().parts():
        known.remove(part)
    return known


def test_what_jobs_use_of_their_limits_is_learned():
    first = Coming([waiting(1, 1), runs(2, NOW + 100), runs(3, NOW + 100), runs(4, NOW + 100)], NOW)
    first.started(1, NOW + 10)
    first.started(77, NOW + 10)
    first.ended(1, NOW + 70)
    first.ended(77, NOW + 70)
    first.ended(2, NOW - 50)
    assert used(first) == [0.1, 0.25], "of job 77 no limit was known"
    # Of job 3 nobody told; 2 had ended when the snapshot, which is older, still had it.
    second = Coming([runs(2, NOW + 100), runs(4, NOW + 100)], NOW + 20)
    second.follow(first, {1, 2, 77}, running(4), NOW + 80)
    assert used(second) == [0.1, 0.25, 0.6]
    second.outdate()
    assert [one.job for one in second.ahead(asked(9), running(4), NOW).releases] == [4]


def test_a_task_that_no_snapshot_has_seen_has_the_limit_of_its_array():
    """And keeps it where the next snapshot began before its start; others are not guessed by it."""
    first = Coming([waiting(5, 1, tasks=100, reason="JobArrayTaskLimit")], NOW)
    first.started(6, NOW + 10, array=5)
    second = Coming([waiting(5, 1, tasks=99, reason="JobArrayTaskLimit")], NOW + 5)
    second.follow(first, {6}, running(6), NOW + 20)
    assert second.ended(6, NOW + 160) == (150, 600)
    assert used(second) == []


@pytest.mark.parametrize("seed", range(20))
def test_what_a_question_found_is_found_again_only_where_nothing_changed_it(seed):
    draw = Random(seed)
    jobs = [waiting(job, 1 + job % 8, partition=draw.choice("ab")) for job in range(1, 80)]
    jobs += [runs(job, NOW + draw.randint(1, 900)) for job in range(100, 170)]
    coming, now, last = Coming(jobs, NOW), float(NOW), 200
    alive = {job: RunningJob(job, {"dgx1": 1 << job}) for job in range(100, 170)}
    for _ in range(150):
        now += draw.random()
        if draw.random() < 0.4:
            last += 1
            job = draw.choice((last, draw.randint(1, 79)))
            coming.started(job, now)
            alive[job] = RunningJob(job, {"dgx1": 1 << job})
        elif alive and draw.random() < 0.7:
            job = draw.choice(list(alive))
            coming.ended(job, now)
            del alive[job]
        question = asked(draw.randint(1, 90), partition=draw.choice("ab"))
        found = coming.ahead(question, RunningJobs(alive.values()), now)
        anew = deepcopy(coming)
        anew.outdate()
        assert found == anew.ahead(question, RunningJobs(alive.values()), now)


def test_users_own_run_times_are_told_once_they_are_nearer_than_limits():
    """Jobs 10 to 15 take 100 s, as others of their user did, whatever their limits."""
    jobs = [waiting(1, 1, uid=7), *(runs(job, NOW + job**3) for job in range(2, 16))]
    jobs = [replace(job, uid=7) for job in jobs]
    first = Coming(jobs, NOW, took_s=lambda job: (100.0,) if job != 3 else ())
    assert first.ahead(asked(1), running(2), NOW).took_s == ()
    for job in range(10, 16):
        first.ended(job, NOW)
    second = Coming(jobs[:3], NOW + 5, took_s=lambda job: (100.0,) if job != 3 else ())
    second.follow(first, (), running(1, 2, 3), NOW + 5)
    ahead = second.ahead(asked(9), running(2, 3), NOW + 5)
    assert [one.took_s for one in ahead.releases] == [(100.0,), ()]
    assert [one.took_s for one in ahead.queue] == [(100.0,)]
    assert second.ahead(asked(1), running(2), NOW + 5).took_s == (100.0,)
    anothers = Coming([replace(jobs[0], uid=8)], NOW + 5, took_s=lambda job: (100.0,))
    anothers.follow(first, (), running(), NOW + 5)
    assert anothers.ahead(asked(1), running(), NOW + 5).took_s == ()


def test_a_job_without_a_limit_may_run_as_long_as_others_of_its_user_did():
    own = {1: (60.0, 9 * UNKNOWN_S), 2: (60.0, 9 * UNKNOWN_S), 3: (60.0,)}
    endless = [replace(runs(job, NOW + 10), time_limit_s=0) for job in (2, 3)]
    jobs = [waiting(1, 1, time_limit_s=0), *endless]
    coming = Coming(jobs, NOW, took_s=lambda job: own.get(job, ()))
    ahead = coming.ahead(asked(1), running(2, 3), NOW)
    assert ahead.lasts_s == 9 * UNKNOWN_S
    assert {one.job: one.end_s - NOW for one in ahead.releases} == {
        2: 9 * UNKNOWN_S - 100,
        3: UNKNOWN_S - 100,
    }


def test_a_start_that_was_told_is_better_known_than_by_the_snapshot():
    first = Coming([waiting(1, 1)], NOW)
    first.started(1, NOW + 10.75)
    job = QueuedJob(
        1, state="RUNNING", start=NOW + 10, end=NOW + 40, time_limit_s=30, gpus={"dgx1": (1,)}
    )
    second = Coming([job], NOW + 11)
    second.follow(first, {1}, running(1), NOW + 12)
    second.ended(1, NOW + 13.75)
    assert used(second) == [0.1]


def test_a_job_that_started_after_the_snapshot_is_not_lost_by_it():
    first = Coming([waiting(1, 1)], NOW)
    first.started(1, NOW + 10)
    second = Coming([waiting(1, 1)], NOW + 5)
    second.follow(first, {1}, running(1), NOW + 12)
    [release] = second.ahead(asked(9), running(1), NOW + 20).releases
    assert (release.end_s, release.start_s, release.job) == (NOW + 610, NOW + 10, 1)


def test_what_a_job_asks_for_is_read_once_as_long_as_it_stays_as_it_is():
    """So policies know it again."""
    same, other = waiting(1, 1), waiting(2, 2)
    first = Coming([same, other], NOW)
    second = Coming([same, replace(other, tres_per_node="gres/gpu:3")], NOW + 5, former=first)
    [was, _], [now, changed] = (
        one.ahead(asked(9), running(), NOW).queue for one in (first, second)
    )
    assert now is was
    assert changed.gpus_per_node == (3,)


def test_a_request_that_cannot_be_read_is_left_out():
    hostile = waiting(2, 2, priority=200, tres_per_node="gres/gpu:1(")
    assert sizes(Coming([waiting(1, 1), hostile], NOW), asked(9)) == [1]


def test_without_backfill_nobody_passes():
    jobs = [waiting(1, 1)]
    assert Coming(jobs, NOW).ahead(asked(9), running(), NOW).backfill
    builtin = Settings(config={"SchedulerType": "sched/builtin"})
    assert not Coming(jobs, NOW, builtin).ahead(asked(9), running(), NOW).backfill


@pytest.mark.parametrize(
    ("config", "hidden"),
    [
        ({"PrivateData": "none"}, False),
        ({"PrivateData": "accounts,jobs"}, True),
        pytest.param({}, True, id="not read yet"),
    ],
)
def test_where_slurm_hides_jobs_policies_know_it(config, hidden):
    coming = Coming([waiting(1, 1)], NOW, Settings(config=config))
    assert coming.ahead(asked(9), running(), NOW).is_private == hidden
