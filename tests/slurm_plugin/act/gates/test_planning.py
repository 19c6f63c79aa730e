"""One look at the queue: whose gate opens, whose is renewed, what is repaired."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
import slots_in_tests
from slots_in_tests import DGX1, TERMS, answers, first_choice, planned, record_in, running

from slurm_plugin.act.gates import change
from slurm_plugin.act.gates.plan import FAR_LEASES, NEAR, Choice, Want
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.records import GateRecord
from slurm_plugin.base.protocol import Pass, WaitFor
from slurm_plugin.queue.candidates import Group, Need
from slurm_plugin.slurm.interface import NOW, JobUpdate, QueuedJob

NEXT_MONTH = 1000 + 31 * 86400
gated = partial(slots_in_tests.gated, eligible=1100, time_limit_s=60)
#: Job 1, released on two slots.
placed = partial(slots_in_tests.placed, 1, slots=(0, 3), time_limit_s=60)


def test_gates_open_in_slurms_order_while_there_is_room():
    made = planned(gated(3, 4), gated(2, 4), gated(1, 4))
    assert made.released == ["1", "2"]
    assert [one.need for one in made.line.waits] == [Need(4, 1, 1, partitions=frozenset({"batch"}))]


def test_a_release_names_exact_slots_and_opens_the_gate():
    [release] = planned(gated(1), free=0b11000).releases
    [(_, update)] = release.steps
    assert update.tres_per_node == "gres/gpu:v100.s3:1,gres/gpu:v100.s4:1"
    assert (update.begin_time, update.req_nodes, update.num_nodes) == (NOW, "dgx1", (1, 1))
    kept = record_in(update.admin_comment)
    assert (kept.state, kept.get("tpn"), kept.get("at")) == ("placed", "gres/gpu:2", "1000")


def test_a_lower_job_passes_the_first_only_if_it_ends_before_that_one_could_start():
    runs = running(9, (0, 1), end=1100)
    short, long = gated(2, time_limit_s=100), gated(3, time_limit_s=101)
    made = planned(runs, gated(1, 8), short, long, free=0xFC)
    assert made.released == ["2"]


def test_a_job_that_ended_after_the_queue_was_read_lets_nobody_delay_the_first():
    """Its GPUs are free on the node: they come free once, not again at the end of its limit."""
    runs, over = running(9, (0, 1), end=1300), running(8, (2, 3), end=1100)
    long, short = gated(2, time_limit_s=301), gated(3, time_limit_s=300)
    made = planned(runs, over, gated(1, 8), long, short, free=0xFC)
    assert made.released == ["3"]


def test_held_dependent_and_later_jobs_stay_behind_their_gates_and_block_nobody():
    made = planned(
        gated(1, 8, priority=0),
        gated(2, 8, dependency="afterok:9(unfulfilled)"),
        gated(3, 8, keys="begin=2000", eligible=2000),
        gated(4, 8),
    )
    assert made.released == ["4"]


def test_a_gate_is_renewed_at_half_its_lease():
    made = planned(gated(1, eligible=1059), gated(2, eligible=1061), free=0)
    assert [one.name for one in made.renewals] == ["1"]


def test_behind_the_first_five_hundred_gates_hold_for_ten_leases():
    """Or ten thousand of them would cost slurmctld a sixth of a core."""
    lease_s = TERMS.lease_s
    near = [gated(i, 8, eligible=1000 + lease_s // 2) for i in range(1, NEAR + 1)]
    far = [
        gated(NEAR + i, 8, eligible=1000 + lease_s * leases)
        for i, leases in enumerate((1, FAR_LEASES / 2 - 1, FAR_LEASES / 2, FAR_LEASES), 1)
    ]
    renewals = planned(*near, *far, free=0).renewals
    assert [(one.job_id, one.leases) for one in renewals] == [
        (NEAR + 1, FAR_LEASES),
        (NEAR + 2, FAR_LEASES),
    ]
    # One that has come to the front is to open in a lease again.
    assert [(one.job_id, one.leases) for one in planned(far[2], free=0).renewals] == [(NEAR + 3, 1)]


def test_a_policy_is_not_asked_again_for_jobs_like_one_that_would_delay_the_first():
    asked = []

    def choose(name: str, job: QueuedJob, want: Want, found: Sequence[Group]) -> Choice:
        asked.append(job.job_id)
        return first_choice(name, job, want, found)

    runs = running(9, range(2, 8), end=1100)
    first, long, like = gated(1, 8), gated(2, time_limit_s=200), gated(3, time_limit_s=300)
    shorter, another = gated(4, time_limit_s=150), gated(5, time_limit_s=200, uid=7)
    jobs = runs, first, long, like, shorter, another, gated(6)
    made = planned(*jobs, free=0x03, choose=choose)
    assert asked == [2, 5, 6]
    assert made.released == ["6"]


def test_a_released_job_keeps_its_slots_until_it_starts():
    made = planned(placed(990), gated(2, 2))
    [(_, update)] = made.releases[0].steps
    assert update.tres_per_node == "gres/gpu:v100.s1:1,gres/gpu:v100.s2:1"
    assert not made.updates


@pytest.mark.parametrize(("own", "begin"), [(0, 1120), (900, 1120), (5000, 5000)])
def test_a_release_that_did_not_start_in_time_is_gated_again_with_its_own_request(own, begin):
    """It begins no sooner than its user wants."""
    [(name, update)] = planned(placed(960, keys=f"begin={own}")).updates
    assert (name, update.begin_time, update.tres_per_node) == ("1", begin, "gres/gpu:2")
    assert (update.req_nodes, update.num_nodes) == ("", None)
    assert record_in(update.admin_comment).state == "gated"


@pytest.mark.parametrize(
    ("tries", "reason", "is_left"),
    [
        *((4, "Resources", False), (5, "Resources", True), (9, "QOS", False)),
        *((5, "BadConstraints", True), (5, "No suitable topology unit found", True)),
        (9, "Job's QOS not permitted to use this partition (gpu allows a not b)", False),
    ],
)
def test_a_job_that_many_releases_did_not_start_is_left_to_slurm(tries, reason, is_left):
    [(_, update)] = planned(placed(960, keys=f"tries={tries}", reason=reason)).updates
    comment = update.admin_comment or ""
    assert (GateRecord.read_from(comment) is None) == is_left
    assert update.tres_per_node == "gres/gpu:2"
    assert ("Slurm's own choice: 6 releases" in comment) == is_left


@pytest.mark.parametrize(
    ("sentence", "changes", "begin"),
    [
        ("put back", {}, 1120),
        ("put back after a begin time of its user's", {"keys": "tries=5 begin=900"}, 1120),
        ("held, so that its node has said all", {"priority": 0}, 0),
        ("never put back: its gate did not open", {"submit": 900}, 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_requeued_job_gives_its_slots_to_others_until_its_time(sentence, changes, begin):
    """Its tries are counted anew, and it starts no sooner than Slurm itself would start it."""
    job = placed(990, **{"keys": "tries=5", "eligible": 1120, "submit": 999, **changes})
    made = planned(job, gated(2, 8))
    [(name, update)] = made.updates
    kept = record_in(update.admin_comment)
    assert (name, kept.tries, kept.retry_at, made.released) == ("1", 1, 1001, ["2"])
    assert (kept.begin, update.begin_time) == (begin, 1120)


def test_a_release_that_did_not_take_is_gated_again_at_once():
    assert [name for name, _ in planned(placed(999, tres_per_node="gres/gpu:2")).updates] == ["1"]


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED"])
def test_one_whose_gpus_another_job_got_is_placed_anew_at_once(state):
    """Slurm's own choice for a job that it started just before the submit was answered."""
    other = running(9, (3, 4), state=state, end=9000)
    made = planned(other, placed(999), free=0b11100111)
    [(_, update)] = made.updates
    kept = record_in(update.admin_comment)
    assert (kept.state, kept.retry_at, made.again) == ("gated", 1000, True)
    assert "its GPUs were another job's by then" in hints.note_in(update.admin_comment)
    # Nobody doubts its user for it.
    assert not made.tries.failed
    regated = placed(999, tres_per_node="gres/gpu:2")
    ours = replace(regated, admin_comment=update.admin_comment, eligible=1100)
    assert planned(other, ours, free=0b11100111).released == ["1"]


@pytest.mark.parametrize("other", [{"state": "COMPLETING"}, {"gpus": {"dgx1": (1, 2)}}, {}])
def test_one_whose_gpus_are_free_keeps_them(other):
    made = planned(running(9, {"dgx2": (0, 3)}, end=9000, **other), placed(999))
    assert made.updates == []


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (gated(1, 9), "no node can ever serve it"),
        (gated(1, features="ib*2"), "the constraint ib*2 cannot be judged"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_job_that_cannot_be_placed_here_is_slurms_own(job, why):
    [(_, update)] = planned(job).updates
    told = f"[gpu-topo: | Slurm's own choice: {why}]"
    assert (update.begin_time, update.admin_comment) == (NOW, told)


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_whose_request_root_changed_is_slurms_own_as_it_is_now(nodes):
    job = gated(1, 2, keys="changed=1", tres_per_node="gres/gpu:4", max_nodes=nodes)
    [(_, update)] = planned(job).updates
    told = "[gpu-topo: | Slurm's own choice: its request was changed while it waited]"
    assert update == JobUpdate(begin_time=NOW, admin_comment=told)


def test_where_slurm_counts_no_tasks_one_task_has_the_cpus_of_all_gpus():
    [release] = planned(gated(1, keys="cpg=3", ntasks=0)).releases
    [(_, update)] = release.steps
    assert (update.min_cpus, update.cpus_per_task) == (6, 6)


def test_a_node_that_is_down_now_may_serve_later():
    made = planned(gated(1, 8), is_open=False)
    assert not made.releases
    assert not made.updates


def test_a_job_the_policy_lets_wait_is_told_why_and_passed_by_later_ones():
    def choose(name: str, job: QueuedJob, want: Want, found: Sequence[Group]) -> Choice:
        return WaitFor(60, "mapa: 0.4") if name == "1" else first_choice(name, job, want, found)

    made = planned(gated(1, 8), gated(2), choose=choose)
    assert made.released == ["2"]
    [(name, update)] = made.updates
    kept = GateRecord.read_from(update.admin_comment or "")
    assert name == "1"
    assert update.begin_time is None
    assert (kept.state, kept.get("since")) == ("gated", "1000")
    assert hints.note_in(update.admin_comment or "") == "mapa: 0.4"


@pytest.mark.parametrize(("reason", "is_written"), [("mapa: 0.5", False), ("mapa: no", True)])
def test_the_same_reason_is_not_written_twice(reason, is_written):
    """Reasons that differ in figures alone are the same."""
    comment = "[gpu-topo: | mapa: 0.4] [gpu-slots: gated tpn=gres/gpu:2 nodes=1-1 since=990]"
    made = planned(gated(1, admin_comment=comment), choose=answers(WaitFor(60, reason)))
    assert bool(made.updates) is is_written


def test_a_job_that_the_policy_leaves_is_slurms_own():
    [(_, update)] = planned(gated(1), choose=answers(Pass("opted out by hint"))).updates
    assert (update.begin_time, update.tres_per_node) == (NOW, None)
    assert update.admin_comment == "[gpu-topo: | Slurm's own choice: opted out by hint]"


def test_a_release_that_slurm_keeps_back_gives_its_slots_back_for_longer_and_longer():
    made = planned(placed(990, keys="tries=3", reason="ReqNodeNotAvail"), gated(2, 8, uid=7))
    assert made.released == ["2"]
    kept = record_in(made.updates[0][1].admin_comment)
    assert (kept.get("tries"), kept.get("retry")) == ("4", "1008")


def test_the_next_try_waits_for_its_time():
    assert not planned(gated(1, keys="retry=1001")).releases
    assert planned(gated(1, keys="retry=1000")).releases


def array(tasks: str, number: int, gpus: int = 2, **more: object) -> QueuedJob:
    values = {"array_id": 7, "task": tasks, "tasks": number, "name": f"7_[{tasks}]", **more}
    return gated(7, gpus, **values)


def begun(task: int) -> QueuedJob:
    """A task of it that runs, without GPUs."""
    return running(8 + task, (), name=f"7_{task}", array_id=7, task=f"{task}")


def test_the_tasks_of_an_array_are_released_one_by_one_and_the_rest_is_not_touched():
    made = planned(array("1-9", 9, eligible=1001))
    assert made.released == ["7_1", "7_2", "7_3", "7_4"]
    assert made.again
    assert not made.renewals


def test_an_arrays_throttle_counts_its_running_and_released_tasks():
    assert planned(begun(0), array("1-9", 9, throttle=3)).released == ["7_1", "7_2"]


def test_the_last_task_of_an_array_waits_for_its_turn_too():
    last = gated(7, name="7_2", array_id=7, task="2", throttle=2)
    assert not planned(begun(0), begun(1), last).released
    assert planned(begun(0), last).released == ["7_2"]


def test_an_array_behind_its_throttle_blocks_nobody():
    made = planned(begun(0), array("1-9", 9, gpus=8, throttle=1), gated(9))
    assert made.released == ["9"]
    assert made.first is None
    assert not made.line.waits


def test_an_array_with_tasks_beyond_9999_is_released_like_any_other():
    assert planned(array("9999-10001", 3)).released == ["7_9999", "7_10000", "7_10001"]


def test_a_job_with_more_cpus_than_any_node_has_is_left_to_slurm():
    full = {"free": 0, "cpus": 0, "memory_mb": 0, "all_cpus": 40}
    [(name, update)] = planned(gated(1, cpus=40), gated(2, cpus=41), **full).updates
    assert name == "2"
    assert "no node can ever serve it" in (update.admin_comment or "")


def test_a_job_with_cores_near_its_gpus_alone_waits_for_room_on_one_socket():
    job = gated(1, keys="bind=1")
    for free, names in ((0b11000, []), (0b11001000, ["1"])):
        assert planned(job, free=free, sockets=(0x0F, 0xF0)).released == names


def test_on_slurm_22_05_what_the_job_asked_goes_before_its_slots_come():
    comment = "[gpu-slots: gated tpn=gres:gpu:2 nodes=1-1 by=node]"
    [release] = planned(gated(1, admin_comment=comment)).releases
    (_, first), (_, last) = release.steps
    assert first.tres_per_node == ""
    assert (first.begin_time or 0) > NEXT_MONTH, "an engine that ends here leaves it waiting"
    assert (last.tres_per_node, last.begin_time) == ("gres:gpu:v100.s0:1,gres:gpu:v100.s1:1", NOW)


def test_on_slurm_22_05_a_job_that_had_slots_can_only_have_them_again():
    comment = "[gpu-slots: gated tpn=gres:gpu:2 nodes=1-1 by=node tries=1]"
    had = "gres:gpu:v100.s2:1,gres:gpu:v100.s5:1"
    job = gated(1, admin_comment=comment, tres_per_node=had)
    [release] = planned(job).releases
    assert release.steps[-1][1].tres_per_node == had
    assert not planned(job, free=0b11011111).released
    # elsewhere an update takes the former slots away
    newer = replace(job, admin_comment=comment.replace("gres:gpu", "gres/gpu"))
    assert planned(newer, free=0b11011111).released == ["1"]


def test_on_slurm_22_05_a_job_that_did_not_start_is_told_what_it_is_tied_to():
    comment = "[gpu-slots: placed tpn=gres:gpu:2 nodes=1-1 by=node at=900]"
    had = "gres:gpu:v100.s2:1,gres:gpu:v100.s5:1"
    job = gated(1, admin_comment=comment, tres_per_node=had, req_nodes="dgx1", reason="")
    [(_, update)] = planned(job).updates
    told = hints.note_in(update.admin_comment or "")
    assert told.endswith("Slurm 22.05 gives it nothing but v100.s2, v100.s5 again")


def test_on_slurm_22_05_a_job_that_had_slots_waits_for_a_node_that_has_such():
    comment = "[gpu-slots: gated tpn=gres:gpu:1 nodes=1-1 by=node tries=1]"
    job = gated(1, admin_comment=comment, tres_per_node="gres:gpu:p100.s0:1")
    p100 = replace(DGX1, name="minsky1", gpu_types=("p100.s0", "p100.s1"), free=3)
    made = planned(job, free=3, others=[replace(p100, is_open=False)])
    assert not made.released
    assert not made.updates
    made = planned(job, free=3, others=[p100])
    assert made.releases[0].steps[-1][1].req_nodes == "minsky1"


def test_on_slurm_22_05_a_job_that_lost_its_request_gets_it_back():
    """The engine ended between the two updates of a release."""
    comment = "[gpu-slots: gated tpj=gres:gpu:9 nodes=1-1 by=job]"
    bare = {"tres_per_node": "", "tres_per_job": "", "eligible": NEXT_MONTH}
    [(name, update)] = planned(gated(1, admin_comment=comment, **bare)).updates[:1]
    assert (name, update.tres_per_job, update.tres_per_node) == ("1", "gres:gpu:9", "")
    job = gated(1, admin_comment=comment, **bare)
    kept = record_in(comment)
    assert change.give_back(job, kept, "").tres_per_job == "gres:gpu:9"
    assert change.give_back(replace(job, tres_per_job="gres:gpu:9"), kept, "").tres_per_job is None


# -- a clock that was set back by an hour: times in Slurm's records are of the future ----------

SET_BACK = 1000 + 3600


def test_a_gate_that_would_hold_for_an_hour_is_shut_for_a_lease_again():
    """Without an engine it would not open for so long."""
    [one] = planned(gated(1, 8, eligible=SET_BACK), free=0).renewals
    assert (one.name, one.leases) == ("1", 1)
    assert not planned(gated(1, 8, eligible=1000 + 2 * TERMS.lease_s), free=0).renewals
    own = gated(1, 8, keys=f"begin={SET_BACK}", eligible=SET_BACK)
    assert not planned(own, free=0).renewals


def test_a_job_released_before_is_gated_again_and_not_waited_for():
    assert planned(placed(SET_BACK, eligible=1000)).seen["regated"] == 1


def test_a_pause_of_before_is_over():
    assert planned(gated(1, keys="tries=1 retry=1002")).released == []
    assert planned(gated(1, keys=f"tries=1 retry={SET_BACK}")).released == ["1"]


@pytest.mark.parametrize("since", [f"since={SET_BACK}", ""], ids=["later", "not known"])
def test_a_wait_for_something_better_begins_anew(since):
    """A wait that never began would never end."""
    waits = answers(WaitFor(60, "for better GPUs"))
    [(_, first)] = planned(gated(1), choose=waits).updates
    told = replace(gated(1), admin_comment=first.admin_comment or "")
    assert planned(told, choose=waits).updates == []
    later = (first.admin_comment or "").replace("since=1000", since)
    assert later != first.admin_comment
    [(_, again)] = planned(replace(told, admin_comment=later), choose=waits).updates
    assert "since=1000" in (again.admin_comment or "")


def test_slurms_word_on_when_a_gate_opens_counts_and_not_what_it_was_told():
    """A slurmctld that was killed may have forgotten the last renewal."""
    told = replace(TERMS, holds_until={1: 1119})
    assert planned(gated(1, 8, eligible=1020), free=0, context=told).renewals
    unknown = gated(1, 8, eligible=0, reason="Dependency", dependency="afterok:9(unfulfilled)")
    assert not planned(unknown, free=0, context=told).renewals
