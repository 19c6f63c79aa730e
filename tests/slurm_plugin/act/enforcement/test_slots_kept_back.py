"""Submits that Slurm itself would not start, whatever is free."""

from dataclasses import replace

import pytest
from slot_submits_in_tests import LEASE_S, NOW, cache, left, mode, site, state_of, submit, told
from slots_in_tests import Remembering, gated, look, reconciler

from slurm_plugin.act.gates.limits import KnownLimits, Pause
from slurm_plugin.act.gates.plan import NEAR
from slurm_plugin.base.job_notes import hints
from slurm_plugin.queue.backfill import MOST_OF_ONE, WaitingLine
from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.capacity import Hold, with_hold
from slurm_plugin.queue.demand import Asked, Whose
from slurm_plugin.queue.snapshot import Settings
from slurm_plugin.slurm.interface import SlurmPartition

LIMITED = Whose(1000, "", "", "batch", "")


@pytest.mark.parametrize(
    ("more", "is_placed"),
    [
        ({}, False),
        ({"time_s": 0}, False),
        ({"gpus": 1}, True),
        ({"uid": 8}, True),
        ({"account": "other"}, True),
        ({"partition": "plain"}, True),
    ],
    ids=["the same", "no limit", "fewer GPUs", "another user", "another account", "elsewhere"],
)
def test_a_job_like_one_that_met_a_limit_waits_behind_a_gate(tmp_path, more, is_placed):
    state = cache()
    state.limits = KnownLimits({LIMITED: {Asked(1, 2, 1, 0, 60, 2, 1): Pause(int(NOW) + 1, 1)}})
    asked = {"uid": LIMITED.uid, "account": "", **more}
    values = told(mode(tmp_path, state).on_submit(submit(**asked)))
    assert state_of(values) == ("placed" if is_placed else "gated")
    assert not state.line.waits


@pytest.mark.parametrize(
    ("partition", "more", "is_left"),
    [
        ({"max_time_s": 59}, {}, True),
        ({"max_time_s": 60}, {}, False),
        ({"max_time_s": 59}, {"time_s": 0}, False),
        ({"max_nodes": 1}, {"nodes": 2}, True),
        ({"max_nodes": 2}, {"nodes": 2}, False),
        ({"max_time_s": 59}, {"partition": "batch,plain"}, False),
    ],
    ids=str,
)
def test_what_its_partition_would_not_start_is_slurms_own(tmp_path, partition, more, is_left):
    state = cache("dgx1", "dgx2")
    state.settings = site(SlurmPartition("plain", (), False), **partition)
    answer = mode(tmp_path, state).on_submit(submit(**more))
    if is_left:
        assert left(answer) == "its partition would not start it"
    else:
        assert state_of(told(answer)) == "placed"


def test_a_job_of_a_partition_that_is_down_waits_until_it_is_up(tmp_path):
    state = cache(free=0)
    state.settings = site(state="DOWN")
    values = told(mode(tmp_path, state).on_submit(submit()))
    assert state_of(values) == "gated"
    assert hints.note_in(values["admin_comment"]) == "waits until its partition is up"
    assert not state.line.waits, "nobody waits for it"


AT_ONCE, DEADLINE = {"immediate": True, "batch": False}, {"deadline": True}
WHY = {
    "immediate": "it is to start at once or not at all",
    "deadline": "a begin time may be too late for its deadline",
}


@pytest.mark.parametrize("keys", [AT_ONCE, DEADLINE], ids=["--immediate", "--deadline"])
@pytest.mark.parametrize(
    ("free", "more"),
    [
        (0x01, {}),
        (0xFF, {"het": True}),
        (0xFF, {"begin": int(NOW) + 60}),
        (0b100001, {"hint": "min-utility=0.9"}),
    ],
    ids=["no room", "components", "later", "a policy lets it wait"],
)
def test_a_job_that_slurm_would_refuse_with_a_begin_time_is_its_own(tmp_path, keys, free, more):
    state = cache(free=free)
    answer = mode(tmp_path, state).on_submit(submit(**keys, **more))
    assert left(answer) == WHY[next(iter(keys))]
    assert (state.line.waits, state.gated) == ((), {}), "nobody waits for it"


@pytest.mark.parametrize("keys", [AT_ONCE, DEADLINE], ids=["--immediate", "--deadline"])
def test_where_there_is_room_it_has_its_slots(tmp_path, keys):
    assert state_of(told(mode(tmp_path, cache()).on_submit(submit(**keys)))) == "placed"


def test_at_submit_no_gate_holds_for_longer_than_a_lease(tmp_path):
    """Slurm refuses a job whose begin time is too late for its deadline, and renewals never."""
    jobs = [gated(i, 8) for i in range(1, NEAR + 2)]
    state = cache(free=0)
    slurm = Remembering(*jobs, used=range(8))
    look(reconciler(tmp_path, slurm, state, clock=lambda: NOW), slurm, NOW)
    values = told(mode(tmp_path, state).on_submit(submit()))
    assert values["begin_time"] == str(int(NOW) + LEASE_S)


def test_one_users_submits_take_nobody_else_the_place_in_line_away(tmp_path):
    names = [f"n{i}" for i in range(9)]
    state = cache(*names, free=0)
    state.holds = tuple(Hold({name: 0xFF}, 1, 0, NOW + 100) for name in names)
    slots = mode(tmp_path, state)
    for name in names:
        slots.on_submit(submit(8, req_nodes=name, uid=1))
    slots.on_submit(submit(8, req_nodes=names[-1], uid=2))
    assert [one.uid for one in state.line.waits] == [1] * MOST_OF_ONE + [2]
    # Nor where a look has not seen these jobs yet.
    state.update(state.nodes, state.holds, WaitingLine(), NOW)
    assert [one.uid for one in state.line.waits] == [1] * MOST_OF_ONE + [2]


@pytest.mark.parametrize("partition", ["batch", "plain,batch"])
def test_a_submit_to_several_partitions_passes_nobody_who_waits_in_one_of_them(tmp_path, partition):
    """Whatever tier the other one has: it is answered as if it came last in each."""
    state = cache("dgx1", "q1")
    nodes = {"dgx1": replace(state.nodes["dgx1"], partitions=frozenset({"batch"}))}
    nodes["q1"] = replace(state.nodes["q1"], free=0, partitions=frozenset({"plain"}))
    half = Hold({"dgx1": 0x0F}, 1, 0, NOW + 100)
    nodes = with_hold(nodes, half)
    line = WaitingLine().with_job(Need(8, partitions=frozenset({"batch"})), nodes, [half], NOW)
    state.update(nodes, (half,), line, NOW)
    slots = mode(tmp_path, state)
    for time_s, expected in ((101, "gated"), (100, "placed")):
        asked = submit(4, partition=partition, time_s=time_s)
        assert state_of(told(slots.on_submit(asked))) == expected


@pytest.mark.parametrize(
    ("partition", "tiers", "batch_is_up", "node"),
    [
        ("batch,plain", (1, 1), True, "dgx2"),
        ("plain,batch", (1, 1), True, "dgx1"),
        ("plain,batch", (2, 1), True, "dgx2"),
        ("batch,plain", (1, 1), False, "dgx1"),
    ],
)
def test_of_several_partitions_that_in_which_slurm_looks_first_goes_first(
    tmp_path, partition, tiers, batch_is_up, node
):
    """With nodes of another one alone the job would wait for Slurm's next backfill."""
    state = cache("dgx1", "dgx2")
    nodes = {"dgx1": replace(state.nodes["dgx1"], partitions=frozenset({"plain"}))}
    nodes["dgx2"] = replace(state.nodes["dgx2"], partitions=frozenset({"batch"}))
    state.update(nodes, (), WaitingLine(), NOW)
    state.settings = Settings(
        (
            SlurmPartition(
                "batch", ("dgx2",), True, tiers[0], state="UP" if batch_is_up else "DOWN"
            ),
            SlurmPartition("plain", ("dgx1",), False, tiers[1]),
        )
    )
    answer = told(mode(tmp_path, state).on_submit(submit(2, partition=partition)))
    assert answer["req_nodes"] == node
    # Rather on another one's than not at all.
    nodes[node] = replace(nodes[node], free=0)
    state.update(nodes, (), WaitingLine(), NOW)
    answer = told(mode(tmp_path, state).on_submit(submit(2, partition=partition)))
    assert answer["req_nodes"] == ({"dgx1", "dgx2"} - {node}).pop()


@pytest.mark.parametrize("tiers", [(1, 1), (2, 1)])
def test_no_nodes_are_named_of_a_partition_that_would_not_start_the_job(tmp_path, tiers):
    """Slurm would refuse it there, or leave it waiting."""
    state = cache("dgx1", "dgx2")
    nodes = {"dgx1": replace(state.nodes["dgx1"], partitions=frozenset({"long"}), weight=9)}
    nodes["dgx2"] = replace(state.nodes["dgx2"], partitions=frozenset({"short"}))
    state.update(nodes, (), WaitingLine(), NOW)
    state.settings = Settings(
        (
            SlurmPartition("short", ("dgx2",), True, tiers[0], max_time_s=59),
            SlurmPartition("long", ("dgx1",), False, tiers[1]),
        )
    )
    answer = told(mode(tmp_path, state).on_submit(submit(2, partition="short,long", time_s=60)))
    assert answer["req_nodes"] == "dgx1"


@pytest.mark.parametrize(
    ("gpus", "per_gpu", "tasks", "is_left"),
    [(3, 2, 4, True), (3, 2, 3, False), (3, 2, 1, False), (1, 1, 4, False), (3, 0, 4, False)],
)
def test_cpus_of_gpus_that_tasks_share_unevenly_are_slurms_to_count(
    tmp_path, gpus, per_gpu, tasks, is_left
):
    """Beside several GPU types Slurm takes them by task, and refuses a job with a remainder."""
    asked = submit(gpus, cpus_per_gpu=per_gpu, tasks=tasks)
    reply = mode(tmp_path, cache()).on_submit(asked)
    if is_left:
        words = f"its {tasks} tasks share the {gpus * per_gpu} CPUs of its GPUs unevenly"
        assert left(reply) == words
    else:
        assert state_of(told(reply)) == "placed"


PER_SOCKET = SlurmPartition("batch", ("dgx1",), True, max_cpus_per_socket=4)


@pytest.mark.parametrize(
    ("asked", "is_left"),
    [({"cpus": 4}, False), ({"cpus": 5}, True), ({"cpus": 5, "partition": "batch,plain"}, False)],
    ids=["as many as of a socket", "more", "more, and a partition without that limit"],
)
@pytest.mark.parametrize("array", [False, True])
def test_cpus_of_several_sockets_are_slurms_to_find_where_a_partition_limits_them(
    tmp_path, asked, is_left, array
):
    state = cache()
    limited = replace(
        state.nodes["dgx1"], limits={"batch": PER_SOCKET}, taken={"batch": 0}, socket_count=2
    )
    state.update({"dgx1": limited}, (), WaitingLine(), NOW)
    answer = mode(tmp_path, state).on_submit(submit(array=array, **asked))
    if is_left:
        assert "allows 4 of a socket (MaxCPUsPerSocket)" in left(answer)
    else:
        assert state_of(told(answer)) == ("gated" if array else "placed")


@pytest.mark.parametrize(
    ("taken", "is_left"), [(0, False), (3, False), (4, True), (7, True), (8, False)]
)
@pytest.mark.parametrize("array", [False, True])
def test_on_which_socket_a_partition_has_cores_left_is_slurms_to_know(
    tmp_path, taken, is_left, array
):
    """Slurm starts no job on GPUs of sockets alone where the partition has all that it may."""
    state = cache()
    busy = {"batch": taken}
    limits = {"limits": {"batch": PER_SOCKET}, "socket_count": 2, "taken": busy}
    state.update({"dgx1": replace(state.nodes["dgx1"], **limits)}, (), WaitingLine(), NOW)
    answer = mode(tmp_path, state).on_submit(submit(array=array, partition="batch", cpus=1))
    if is_left:
        assert "which cores other jobs leave it" in left(answer)
    else:
        # With 8 no socket has any.
        assert state_of(told(answer)) == ("gated" if array or taken == 8 else "placed")


SPREADABLE = {
    "--gpus=4": {"form": "job", "tpj": "gres/gpu:4"},
    "--gpus=4 -n2": {"form": "job", "tpj": "gres/gpu:4", "tasks": 2, "cpus": 2},
    "--gpus-per-task=2 -n2": {"form": "task", "tpt": "gres/gpu:2", "tasks": 2, "cpus": 2},
    "--gpus=4 --gpus-per-task=2": {"form": "job", "tpj": "gres/gpu:4", "tpt": "gres/gpu:2"},
    "--gpus=4 --cpus-per-gpu=2": {"form": "job", "tpj": "gres/gpu:4", "cpus_per_gpu": 2},
}


@pytest.mark.parametrize("form", SPREADABLE)
@pytest.mark.parametrize(
    ("more", "soon"),
    [({}, True), ({"max_nodes": 1}, False), ({"begin": int(NOW) + 60}, False)],
    ids=["as written", "-N1", "--begin"],
)
def test_a_job_that_slurm_would_spread_is_looked_at_soon(tmp_path, form, more, soon):
    """Its gate is shut until then: others may come before it."""
    state = cache("dgx1", "dgx2", free=0b0111)
    asked = submit(4, tpn="", **SPREADABLE[form], **more)
    values = told(mode(tmp_path, state).on_submit(asked))
    where = " on one node" if "max_nodes" in more else ""
    assert state_of(values) == "gated"
    assert hints.note_in(values["admin_comment"]) == f"waits for 4 free GPUs{where}"
    assert state.is_awaited == soon
