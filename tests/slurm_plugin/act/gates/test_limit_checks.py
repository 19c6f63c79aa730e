"""Others wait for a job that fits nowhere: first Slurm checks whether a limit keeps that job."""

from dataclasses import replace

import pytest
from slots_in_tests import NOW, TERMS, Remembering, gated, look, planned, reconciler, running

from slurm_plugin.act.gates.capacity_cache import CapacityCache
from slurm_plugin.act.gates.limits import CHECKED_S, LOOK_S, Check, KnownLimits, Limits
from slurm_plugin.queue.snapshot import NO_SETTINGS, Settings
from slurm_plugin.slurm.interface import NOW as AT_ONCE
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob, SlurmPartition

USER, FIRST, LATER = 7, 1, 2
AT_LIMIT = "QOSMaxGRESPerUser"
#: Half of the node is somebody's for long, so that the first job fits nowhere and the later one,
#: which is longer still, would delay it.
HALF = running(50, range(4), start=NOW - 10, end=NOW + 5000)
WAITING = (gated(FIRST, 8, uid=USER), gated(LATER, 4, uid=8, time_limit_s=9000))


class CheckingSlurm(Remembering):
    """Looks at a job whose gate is open, in `look_s`; holds the user to a limit or not."""

    def __init__(self, *, is_limited: bool, enforces: str = "associations,limits") -> None:
        super().__init__(HALF, *WAITING, used=(0, 1, 2, 3))
        self.is_limited, self.enforces, self.at, self.look_s = is_limited, enforces, NOW, 30
        #: When the gate of the first job was open, and the later one was released.
        self.opened: list[int] = []
        self.released: list[int] = []

    def config(self) -> dict[str, str]:
        return super().config() | {"AccountingStorageEnforce": self.enforces}

    def update(self, jobs, change: JobUpdate) -> None:
        super().update(jobs, change)
        if str(LATER) in jobs and "placed" in (change.admin_comment or ""):
            self.released.append(self.at)
        if str(FIRST) in jobs and change.begin_time is not None:
            is_open = change.begin_time == AT_ONCE
            assert not (is_open and change.tres_per_node), "without slots"
            self.opened += [self.at] if is_open else []
            first = {
                "eligible": self.at if is_open else change.begin_time,
                "start": 0,
                "reason": "" if is_open else "BeginTime",
            }
            self.jobs_there[1] = replace(self.jobs_there[1], **first)

    def passes(self, seconds: int) -> None:
        self.at += seconds
        first = self.jobs_there[1]
        if first.reason == "BeginTime":
            return
        first = replace(first, reason="Resources")
        if self.at - self.opened[-1] >= self.look_s:
            told = {"reason": AT_LIMIT} if self.is_limited else {"start": HALF.end}
            first = replace(first, **told)
        self.jobs_there[1] = first


def run(folder, slurm: CheckingSlurm, for_s: int, step_s: int = 5) -> None:
    rounds = reconciler(folder, slurm, CapacityCache(), clock=lambda: float(slurm.at))
    for _ in range(0, for_s, step_s):
        look(rounds, slurm, slurm.at)
        if slurm.released:
            return
        slurm.passes(step_s)


def begins(slurm: CheckingSlurm) -> list[int]:
    """The begin times that the first job was given."""
    mine = (one for jobs, one in slurm.updates if str(FIRST) in jobs)
    return [one.begin_time for one in mine if one.begin_time is not None]


def test_nobody_waits_for_a_job_that_a_limit_keeps(tmp_path):
    slurm = CheckingSlurm(is_limited=True)
    run(tmp_path, slurm, 600)
    assert (slurm.opened, slurm.released) == ([NOW], [NOW + 30])
    assert slurm.jobs_there[1].eligible > slurm.at, "its gate is shut again"


def test_one_that_no_limit_keeps_is_not_delayed_and_seldom_checked(tmp_path):
    slurm = CheckingSlurm(is_limited=False)
    run(tmp_path, slurm, 2 * CHECKED_S)
    assert (slurm.opened, slurm.released) == ([NOW, NOW + CHECKED_S], [])
    assert begins(slurm)[:2] == [AT_ONCE, NOW + 30 + 120], "until Slurm has planned its start"


def test_without_an_answer_the_gate_is_shut_in_time(tmp_path):
    slurm = CheckingSlurm(is_limited=True)
    slurm.look_s = 10_000
    run(tmp_path, slurm, CHECKED_S)
    # Slurm itself would keep no room for it.
    assert (slurm.opened, slurm.released) == ([NOW], [NOW + LOOK_S])
    assert begins(slurm)[1] == NOW + LOOK_S + 120


@pytest.mark.parametrize("enforces", ["", "associations", "associations,qos"])
def test_where_a_site_has_no_limits_nothing_is_checked(tmp_path, enforces):
    slurm = CheckingSlurm(is_limited=False, enforces=enforces)
    run(tmp_path, slurm, 400)
    assert slurm.opened == []


ENFORCED = {"AccountingStorageEnforce": "limits"}
LIMITS = replace(TERMS, settings=Settings((), ENFORCED))


def checked(*jobs: QueuedJob, **more: object) -> list[str]:
    made = planned(HALF, *jobs, context=replace(LIMITS, **more), free=0xF0)
    return [name for name, one in made.updates if one.begin_time == AT_ONCE]


def test_only_a_job_that_others_wait_for_is_checked():
    first, later = WAITING
    assert checked(first, later) == [str(FIRST)]
    assert checked(first) == []
    assert checked(first, replace(later, time_limit_s=60)) == [], "it passes the first one"
    assert checked(first, gated(LATER, 8)) == [], "it has no room either"


def test_licences_are_limits_too():
    first, later = WAITING
    with_licence = replace(first, licenses="matlab:1")
    assert checked(with_licence, later, settings=NO_SETTINGS) == [str(FIRST)]
    assert checked(first, later, settings=NO_SETTINGS) == []


def test_the_gate_of_a_heterogeneous_job_is_that_of_its_first_component():
    parts = [gated(5 + i, 8 - i, uid=USER, het_id=5, het_offset=i, priority=999) for i in (0, 1)]
    assert checked(*parts, WAITING[1]) == ["5"]


@pytest.mark.parametrize("since", [NOW - CHECKED_S, NOW + 1])
def test_a_check_is_repeated_after_a_while_and_where_the_clock_was_set_back(since):
    first, later = WAITING
    [key] = planned(HALF, first, later, context=LIMITS, free=0xF0).tries.checks
    for at, is_checked in ((since, True), (since + 1 - 2 * (since > NOW), False)):
        known = KnownLimits(checks={key: Check(at, is_passed=True)})
        assert checked(first, later, limits=known) == [str(FIRST)] * is_checked


def test_a_gate_that_is_opened_is_not_renewed_in_the_same_round():
    due = replace(WAITING[0], eligible=NOW + 10)
    made = planned(HALF, due, WAITING[1], context=LIMITS, free=0xF0)
    assert [name for name, one in made.updates if one.begin_time == AT_ONCE] == [str(FIRST)]
    assert str(FIRST) not in [one.name for one in made.renewals]


def plan(*jobs: QueuedJob, **known: object):
    return planned(HALF, *jobs, context=replace(LIMITS, limits=KnownLimits(**known)), free=0xF0)


def test_after_a_check_that_showed_a_limit_no_job_of_the_user_holds_others_back():
    """However unlike the user's jobs are: others would wait for one check after the other."""
    first, later = WAITING
    [key] = plan(first, later).tries.checks
    shown = replace(first, eligible=NOW - 9, reason=AT_LIMIT)
    made = plan(shown, later, checks={key: Check(NOW - 9)})
    assert (made.tries.met, made.released) == ([key], [str(LATER)])
    limits = Limits()
    limits.learn(made.tries)
    assert limits.known.no_place == {USER: NOW + CHECKED_S}
    assert not limits.known.checks, "after its pause it is checked again"
    like = replace(first, time_limit_s=1000)
    known = {"no_place": limits.known.no_place}
    assert plan(like, later, **known).released == [str(LATER)]
    assert plan(replace(like, uid=9), later, **known).released == []
    [passed] = plan(like, later).tries.checks
    # One that was checked itself has its place, though another one with the same need has none.
    both = replace(like, job_id=9, name="9", priority=1000, time_limit_s=1), like
    assert plan(*both, later, checks={passed: Check(NOW - 9, True)}, **known).released == []
    assert plan(like, later, checks={passed: Check(NOW - 9, True)}, **known).released == []


@pytest.mark.parametrize(
    ("age", "start", "is_held_back"),
    [
        (LOOK_S - 1, 0, True), (LOOK_S, 0, False), (LOOK_S - 1, NOW + 86400, True),
        (LOOK_S, NOW + 86400, False), (LOOK_S, NOW + 60, True),
    ],
    ids=["not yet", "no answer", "beyond its plan", "still beyond", "planned"],
)  # fmt: skip
def test_what_slurm_itself_does_not_come_to_holds_nobody_back(age, start, is_held_back):
    first, later = WAITING
    [key] = plan(first, later).tries.checks
    is_open = replace(first, eligible=NOW - age, reason="Resources", start=start)
    made = plan(is_open, later, checks={key: Check(NOW - age)})
    again = replace(LIMITS, limits=KnownLimits(checks=made.tries.checks))
    assert (planned(HALF, first, later, context=again, free=0xF0).released == []) is is_held_back
    # Without backfill Slurm plans no start, and lets nobody pass either.
    strict = replace(again, settings=Settings((), {**ENFORCED, "SchedulerType": "sched/builtin"}))
    assert planned(HALF, first, later, context=strict, free=0xF0).released == []


def test_a_partition_that_does_not_take_all_is_a_limit_too():
    first, later = WAITING
    rules = Settings((SlurmPartition("batch", (), True, allow_accounts=("physics",)),))
    assert checked(first, later, settings=rules) == [str(FIRST)]
