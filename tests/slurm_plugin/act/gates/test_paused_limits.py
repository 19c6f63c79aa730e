"""A limit of Slurm's shows once a job was released: it holds for its user's other jobs, too."""

from dataclasses import replace

import pytest
from limits_in_tests import AT_LIMIT, NEIGHBOUR, USER, LimitingSlurm, Rounds
from slots_in_tests import (
    DGX1,
    NOW,
    TERMS,
    gated,
    placed,
    planned,
    record_in,
)

from slurm_plugin.act.gates.limits import (
    LONGEST_S,
    MOST_OF_EACH,
    NOT_STARTED,
    NOTHING,
    KnownLimits,
    Limits,
    Pause,
    Tries,
)
from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.demand import Asked, Whose, lacks_only_room
from slurm_plugin.queue.snapshot import Settings
from slurm_plugin.slurm.interface import QueuedJob, SlurmPartition

WHOSE = Whose(USER, "", "", "batch", "")


def ones(count: int, **more: object) -> list[QueuedJob]:
    """Jobs of one GPU of the user with the limit."""
    return [gated(i, 1, uid=USER, priority=1000 - i, **more) for i in range(1, count + 1)]


@pytest.mark.parametrize("count", [40, 200])
def test_a_neighbour_waits_for_one_try_however_many_jobs_meet_a_limit(tmp_path, count):
    rounds = Rounds(tmp_path, LimitingSlurm(*ones(count), NEIGHBOUR))
    assert rounds.look() == [*range(1, 9)]
    assert rounds.running() == []
    assert rounds.look(2) == []
    assert rounds.running() == [999]


def test_after_a_pause_one_is_tried_and_each_pause_is_longer(tmp_path):
    rounds = Rounds(tmp_path, LimitingSlurm(*ones(20)))
    rounds.look()
    rounds.look(2)
    tried = {at: rounds.look(1) for at in range(1, 40)}
    # For two seconds after a release its reason may be outdated.
    assert [at for at, jobs in tried.items() if jobs] == [2, 8, 18, 36]
    assert all(len(jobs) <= 1 for jobs in tried.values())


def test_no_pause_outlasts_the_end_of_a_job_of_that_user(tmp_path):
    slurm = LimitingSlurm(*ones(20), most=1)
    rounds = Rounds(tmp_path, slurm)
    rounds.look()
    assert rounds.running() == [1]
    for _ in range(80):
        rounds.look(5)
    slurm.ends(1)
    assert rounds.look(1) == [2]
    assert rounds.running() == [2]


def test_once_one_has_started_they_are_free_again(tmp_path):
    slurm = LimitingSlurm(*ones(20))
    rounds = Rounds(tmp_path, slurm)
    rounds.look()
    rounds.look(2)
    slurm.most = 3
    assert len(rounds.look(2)) == 1
    assert len(rounds.look(1)) == 7


TWO_GPUS = Asked(1, 2, 1, 0, 60, 2, 1)
LIMITED = {WHOSE: {TWO_GPUS: Pause(NOW + 1, 1)}}
CONTEXT = replace(TERMS, limits=KnownLimits(LIMITED))
TWO = gated(1, 2, uid=USER, time_limit_s=60)


@pytest.mark.parametrize(
    ("job", "is_tried"),
    [
        (TWO, False),
        (replace(TWO, time_limit_s=0), False),
        (gated(1, 3, uid=USER, time_limit_s=60), False),
        (gated(1, 1, uid=USER, time_limit_s=60), True),
        (replace(TWO, time_limit_s=59), True),
        (replace(TWO, uid=8), True),
        (replace(TWO, account="other"), True),
        (replace(TWO, qos="debug"), True),
        (replace(TWO, licenses="matlab:1"), True),
    ],
    ids=[
        "the same", "no time limit", "more GPUs", "fewer GPUs", "a shorter limit", "another user",
        "another account", "another QOS", "other licences",
    ],
)  # fmt: skip
def test_a_limit_holds_for_jobs_that_ask_for_as_much(job, is_tried):
    assert bool(planned(job, context=CONTEXT).released) is is_tried


def test_a_paused_job_is_not_the_first_in_line():
    made = planned(gated(1, 8, uid=USER), gated(2, 2), context=CONTEXT, free=0x0F)
    assert (made.released, made.first) == (["2"], None)
    assert not made.line.waits
    assert planned(gated(1, 8), gated(2, 2), free=0x0F).first is not None


def over(at: int) -> KnownLimits:
    return KnownLimits({WHOSE: {asked: Pause(at, 1) for asked in LIMITED[WHOSE]}})


def test_of_an_array_one_task_is_tried_at_a_time():
    tasks = gated(7, 2, uid=USER, array_id=7, task="1-9", tasks=9, name="7_[1-9]")
    assert planned(tasks, context=CONTEXT).released == []
    context = replace(TERMS, limits=over(NOW))
    assert planned(tasks, context=context).released == ["7_1"]
    first = {"name": "7_1", "array_id": 7, "task": "1", "uid": USER, "time_limit_s": 60}
    waiting = placed(8, NOW - 1, (0, 1), reason="", **first)
    assert planned(waiting, tasks, context=context).released == []
    limited = placed(8, NOW - 2, (0, 1), reason=AT_LIMIT, **first)
    made = planned(limited, tasks)
    assert (made.released, made.tries.met) == ([], [(WHOSE, TWO_GPUS)])
    # Its own record names no pause, which would outlast the end of another job.
    assert record_in(made.updates[0][1].admin_comment).retry_at == NOW


def test_a_heterogeneous_job_waits_where_one_component_is_paused():
    parts = [
        gated(5 + i, gpus, uid=USER, het_id=5, het_offset=i, time_limit_s=60)
        for i, gpus in enumerate((1, 2))
    ]
    two = {"others": [replace(DGX1, name="dgx2")]}
    assert planned(*parts, context=CONTEXT, **two).released == []
    assert planned(*parts, **two).released == ["5", "6"]


@pytest.mark.parametrize("until", [NOW, 0, NOW + LONGEST_S + 1])
def test_a_pause_is_over_in_time_and_where_the_clock_was_set_back(until):
    assert planned(TWO, context=replace(TERMS, limits=over(until))).released == ["1"]


@pytest.mark.parametrize(
    ("reason", "is_shared"),
    [
        ("QOSMaxGRESPerUser", True), ("AssocGrpGRES", True), ("MaxGRESPerAccount", True),
        ("Licenses", True), ("PartitionTimeLimit", True), ("InvalidAccount", True),
        ("Job's QOS not permitted to use this partition (gpu allows a not b)", True),
        ("QOSMinGRES", False), ("ReqNodeNotAvail", False), ("MaxPoweredUpNodes", False),
    ],
)  # fmt: skip
def test_what_is_the_jobs_own_pauses_others_for_a_moment(reason, is_shared):
    job = placed(1, NOW - 5, (0, 1), "tries=3", uid=USER, time_limit_s=60, reason=reason)
    assert not lacks_only_room(job)
    like, others = replace(TWO, job_id=2, name="2"), replace(TWO, job_id=3, name="3", uid=8)
    made = planned(job, like, others)
    assert made.released == ["3"]
    limits = Limits()
    limits.learn(made.tries)
    later = replace(TERMS, now=NOW + 2, limits=limits.known)
    # Of one that met a limit the pause goes on: Slurm's reason may be older than the release.
    assert planned(like, context=replace(later, now=NOW)).released == []
    assert planned(like, context=later).released == ["2"]
    assert (WHOSE in limits.known.pauses) is is_shared
    kept = record_in(made.updates[0][1].admin_comment)
    assert kept.retry_at == NOW + (0 if is_shared else 8)


def test_little_is_kept_and_nothing_of_a_user_without_waiting_jobs():
    limits = Limits()
    asked = [Asked(1, count, 1, 0, 60) for count in range(1, MOST_OF_EACH + 3)]
    for one in asked:
        limits.learn(Tries(NOW, met=[(WHOSE, one)], failed={USER}, limited={USER}))
    assert list(limits.known.pauses[WHOSE]) == asked[2:]
    limits.follow([TWO], {})
    assert WHOSE in limits.known.pauses
    assert USER in limits.known.doubts
    limits.follow([replace(TWO, state="RUNNING")], {})
    assert limits.known == NOTHING


@pytest.mark.parametrize("several", [{"partition": "batch,long"}, {"qos": "normal,high"}], ids=str)
def test_a_job_of_several_partitions_or_qos_starts_in_one_and_frees_all(several):
    own = {name: text.partition(",")[0] for name, text in several.items()}
    limits, both = Limits(), WHOSE._replace(**several)
    limits.learn(Tries(NOW, met=[(both, asked) for asked in LIMITED[WHOSE]]))
    waiting = replace(TWO, **several)
    started = replace(TWO, job_id=2, state="RUNNING", **own)
    limits.follow([waiting, started], {2: Need(1)})
    assert limits.known.pauses, "it asked for less"
    again = replace(started, job_id=3)
    limits.follow([waiting, started, again], {2: Need(1), 3: Need(2)})
    assert not limits.known.pauses


def within(job: QueuedJob, **partition: object):
    """A plan for the job and one of another partition, where `batch` is like this."""
    batch = SlurmPartition("batch", ("dgx1",), True, **partition)
    quiet = SlurmPartition("quiet", ("dgx1",), False)
    context = replace(TERMS, settings=Settings((batch, quiet)))
    both = frozenset({"batch", "quiet"})
    return planned(job, gated(2, partition="quiet"), context=context, partitions=both)


@pytest.mark.parametrize(
    ("job", "partition", "is_left"),
    [
        (TWO, {"max_time_s": 59}, True),
        (TWO, {"max_time_s": 60}, False),
        (replace(TWO, partition="batch,quiet"), {"max_time_s": 59}, False),
        (TWO, {"max_nodes": 1}, False),
    ],
    ids=["a longer limit", "within its limit", "the other one starts it", "few nodes"],
)
def test_a_job_that_its_partition_would_not_start_is_slurms_own(job, partition, is_left):
    made = within(job, **partition)
    assert made.released == (["2"] if is_left else ["1", "2"])
    notes = [update.admin_comment or "" for _, update in made.updates]
    assert [NOT_STARTED in note for note in notes] == ([True] if is_left else [])


def test_of_more_nodes_than_its_partition_allows_it_is_slurms_own_too():
    words = "token=t tpn=gres/gpu:2 nodes=2-2 by=node"
    wide = replace(TWO, admin_comment=f"[gpu-slots: gated {words}]")
    nodes = [replace(DGX1, name="dgx2")]
    for most, names in ((1, ["1"]), (2, [])):
        settings = Settings((SlurmPartition("batch", (), True, max_nodes=most),))
        made = planned(wide, context=replace(TERMS, settings=settings), others=nodes)
        assert [name for name, _ in made.updates] == names
        assert made.released == ([] if names else ["1"])


@pytest.mark.parametrize("state", ["DOWN", "INACTIVE"])
def test_a_job_of_a_partition_that_is_down_waits_and_is_not_the_first(state):
    made = within(gated(1, 8), state=state)
    assert (made.released, made.updates, made.first) == (["2"], [], None)
    assert not made.line.waits
    # Its gate is kept shut: that opens when the partition is up again.
    assert [one.name for one in made.renewals] == ["1"]
    assert within(gated(1, 8), state="DRAIN").released == ["1"]
