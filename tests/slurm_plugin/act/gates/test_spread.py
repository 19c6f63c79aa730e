"""Jobs that Slurm would spread over several nodes: it does, where no one node has room for them."""

from dataclasses import replace
from typing import Any

import pytest
import slots_in_tests
from slots_in_tests import DGX1, GPUS, NOW, TERMS, placed, planned, running

from slurm_plugin.act.gates.admission import SPREAD
from slurm_plugin.act.gates.plan import GatePlan
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.records import GateRecord
from slurm_plugin.queue.capacity import Node, gpus_by_slot, nodes_of
from slurm_plugin.slurm.interface import NOW as AT_ONCE
from slurm_plugin.slurm.interface import QueuedJob, SlurmNode, SlurmPartition


def gated(job_id: int = 1, words: str = "", *, nodes: str = "1-", **more: Any) -> QueuedJob:
    """A job behind its gate that asked for this, by default of four GPUs wherever they are."""
    kept = f"token=t{job_id} {words or 'tpj=gres/gpu:4'} nodes={nodes} by=job"
    values = {"time_limit_s": 60, "min_nodes": 1, "tres_per_node": "", **more}
    return slots_in_tests.gated(job_id, admin_comment=f"[gpu-slots: gated {kept}]", **values)


def site(*free: int, **more: Any) -> list[Node]:
    """Nodes with so many free GPUs, the next one's behind those of the one before."""
    masks, at = [], 0
    for count in free:
        masks.append(sum(1 << (at + i) % 8 for i in range(count)))
        at += count
    return [replace(DGX1, name=f"dgx{i}", free=m, **more) for i, m in enumerate(masks, 1)]


def look(*jobs: QueuedJob, on: list[Node], **more: Any) -> GatePlan:
    first, *others = on
    fields = {name: getattr(first, name) for name in Node.__slots__}
    return planned(*jobs, others=others, **fields, **more)


def left(made: GatePlan) -> list[str]:
    """The jobs that are left to Slurm, which spreads them."""
    notes = [(name, update.admin_comment or "") for name, update in made.updates]
    of_slurm = [name for name, note in notes if SPREAD in hints.note_in(note)]
    assert not [n for n, note in notes if n in of_slurm and GateRecord.read_from(note)]
    return of_slurm


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(gated(), id="--gpus=4"),
        pytest.param(gated(ntasks=4, cpus=4), id="--gpus=4 -n4"),
        pytest.param(gated(words="tpt=gres/gpu:2", ntasks=2, cpus=2), id="--gpus-per-task=2 -n2"),
        pytest.param(
            gated(words="tpj=gres/gpu:4 tpt=gres/gpu:2", ntasks=2), id="--gpus=4 --gpus-per-task=2"
        ),
        pytest.param(gated(ntasks=8, cpus=8), id="--gpus=4 --ntasks-per-gpu=2, tasks counted"),
        pytest.param(gated(words="tpj=gres/gpu:4 cpg=10"), id="--gpus=4 --cpus-per-gpu=10"),
        pytest.param(gated(memory_per_tres="gres/gpu:500"), id="--gpus=4 --mem-per-gpu=500"),
        pytest.param(
            gated(words="tpj=gres/gpu:4 tps=gres/gpu:1"), id="--gpus=4 --gpus-per-socket=1"
        ),
        pytest.param(gated(features="v100"), id="--gpus=v100:4"),
        pytest.param(gated(nodes="1-2"), id="-N1-2 --gpus=4"),
        pytest.param(gated(req_nodes="dgx1", words="tpj=gres/gpu:4 req=dgx1"), id="-w dgx1"),
        pytest.param(
            gated(words="tpn=gres/gpu:2", ntasks=50, cpus=50), id="--gres=gpu:2 -n50, by its CPUs"
        ),
        pytest.param(gated(words="tpj=gres/gpu:5"), id="five, which are even on no two nodes"),
    ],
)
def test_a_job_is_slurms_that_has_room_on_several_nodes_alone(job):
    on = site(2, 3, features=frozenset({"v100"}))
    made = look(job, on=on)
    assert (left(made), made.released) == (["1"], [])
    # It starts now: its gate is open, and it asks for what its user wrote.
    [(_, update)] = made.updates
    assert update.begin_time == AT_ONCE
    assert (update.req_nodes, update.num_nodes) == (None, None)


@pytest.mark.parametrize(
    ("job", "free"),
    [
        pytest.param(gated(nodes="1-1"), (2, 3), id="-N1"),
        pytest.param(gated(max_nodes=1), (2, 3), id="-N1, told by Slurm alone"),
        pytest.param(gated(), (2, 1), id="too few GPUs in all"),
        pytest.param(
            gated(words="tpt=gres/gpu:2", ntasks=2), (1, 1, 1, 1), id="no room for a task"
        ),
        pytest.param(gated(words="tpj=gres/gpu:4 cpg=30"), (2, 3), id="too few CPUs for the GPUs"),
        pytest.param(gated(ntasks=90, cpus=79, nodes="3-"), (2, 3), id="too few nodes"),
        pytest.param(gated(memory_per_tres="gres/gpu:600"), (2, 3), id="too little memory"),
        pytest.param(gated(nodes="1-2"), (2, 1, 1), id="more nodes than it may have"),
        pytest.param(gated(words="tpn=gres/gpu:4"), (2, 3), id="so many on each node"),
        pytest.param(gated(words="tpj=gres/gpu:4 req=dgx3", req_nodes="dgx3"), (2, 3, 0), id="-w"),
        pytest.param(gated(priority=0), (2, 3), id="held"),
        pytest.param(gated(eligible=2000, words="tpj=gres/gpu:4 begin=2000"), (2, 3), id="--begin"),
    ],
)
def test_a_job_stays_behind_its_gate_that_slurm_would_not_spread(job, free):
    made = look(job, on=site(*free))
    assert (left(made), made.released) == ([], [])


def test_gpus_on_two_nodes_need_not_be_as_many_on_each():
    assert left(look(gated(nodes="2-2", words="tpj=gres/gpu:8"), on=site(2, 6))) == ["1"]


def test_what_has_room_on_one_node_gets_its_slots_there():
    assert look(gated(), on=site(2, 4)).released == ["1"]


def test_a_partition_of_one_node_per_job_spreads_nothing():
    one = SlurmPartition("batch", ("dgx1", "dgx2"), True, max_nodes=1)
    used = {f"v100.s{i}": 1 for i in range(2, 8)}
    slurm = [
        SlurmNode(name, ("IDLE",), ("batch",), 1, 40, 1000, GPUS, (), used)
        for name in ("dgx1", "dgx2")
    ]
    for partitions, is_left in (((one,), False), ((replace(one, max_nodes=2),), True)):
        found = nodes_of(slurm, [], gpus_by_slot, partitions=partitions)
        assert bool(left(look(gated(), on=list(found.values())))) is is_left


def test_what_slurm_is_to_spread_nobody_else_gets():
    """Nor is another one left to Slurm for the same GPUs."""
    others = gated(2), slots_in_tests.gated(3, 2), slots_in_tests.gated(4, 1)
    made = look(gated(1), *others, on=site(2, 3))
    assert (left(made), made.released) == (["1"], ["4"])


def test_a_task_of_an_array_is_left_to_slurm_by_itself():
    array = gated(1, name="1_[0-3]", array_id=1, task="0-3", tasks=4)
    made = look(array, on=site(4, 2, 3))
    assert (made.released, left(made)) == (["1_0"], ["1_1"])
    assert made.again


def test_a_heterogeneous_job_is_left_to_slurm_as_a_whole():
    parts = [gated(9 + i, het_id=9, het_offset=i, name=f"9+{i}") for i in range(2)]
    made = look(*parts, on=site(4, 2, 3))
    assert (made.released, left(made)) == ([], ["9+0", "9+1"])


def test_nobody_is_spread_over_the_nodes_of_one_who_waits_before():
    first = slots_in_tests.gated(1, 8, time_limit_s=60)
    runs = running(9, range(2, 8), end=1100, cpus=0)
    short, long = gated(2), gated(3, time_limit_s=600)
    on = site(2, 3)
    assert left(look(runs, first, long, on=on)) == []
    assert left(look(runs, first, short, on=on)) == ["2"]


def test_nobody_delays_one_whom_slurm_would_soon_spread():
    """Two GPUs come free at 1100, and with the four that are free now these are six."""
    runs = running(9, (6, 7), end=1100, cpus=0)
    first = gated(1, "tpj=gres/gpu:6")
    for time_limit_s, released in ((200, []), (90, ["2"])):
        other = slots_in_tests.gated(2, 2, time_limit_s=time_limit_s)
        made = look(runs, first, other, on=site(2, 2))
        assert (made.released, made.line.waits[0].start) == (released, 1100)


@pytest.mark.parametrize(("opened", "released"), [(NOW - 1, []), (NOW - 60, ["2"])])
def test_what_was_just_left_to_slurm_has_a_moment_to_start(opened, released):
    spread = gated(1, eligible=opened, reason="None", tres_per_job="gres/gpu:4")
    spread = replace(spread, admin_comment="[gpu-topo: | Slurm's own choice]")
    made = look(spread, slots_in_tests.gated(2, 2, time_limit_s=600), on=site(2, 2))
    assert made.released == released


def test_nothing_is_spread_while_a_limit_pauses_it():
    paused = replace(TERMS, is_paused=lambda name, now: True)
    assert left(look(gated(), on=site(2, 3), context=paused)) == []


def limited(**more: Any) -> Node:
    batch = SlurmPartition("batch", ("dgx1",), True, **more)
    return replace(DGX1, limits={"batch": batch}, socket_count=2)


def test_tasks_whose_cpus_are_more_than_a_socket_may_give_are_slurms_at_once():
    tasks = {"name": "1_[0-3]", "array_id": 1, "task": "0-3", "tasks": 4}
    made = look(slots_in_tests.gated(1, 1, cpus=5, **tasks), on=[limited(max_cpus_per_socket=4)])
    [(name, update)] = made.updates
    assert (name, made.released) == ("1_[0-3]", [])
    assert "it needs 5 CPUs of a node, and its partition allows 4 of a socket" in (
        hints.note_in(update.admin_comment or "")
    )


@pytest.mark.parametrize(("most", "released"), [(4, []), (5, ["2"])])
def test_the_cpus_of_what_is_about_to_start_count_in_its_partition(most, released):
    other = slots_in_tests.gated(2, 1, cpus=2)
    on = [limited(max_cpus_per_node=most)]
    assert look(placed(1, NOW, (0,), cpus=3), other, on=on).released == released
