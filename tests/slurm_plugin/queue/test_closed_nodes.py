"""Closed nodes that Slurm itself may open for a job: such a job is not kept behind a gate."""

import pytest

from slurm_plugin.queue.candidates import Need, why_slurms
from slurm_plugin.queue.capacity import nodes_of, with_shared
from slurm_plugin.slurm.interface import QueuedJob, Reservation, SlurmNode


def kept(cpus: int, *flags: str) -> Reservation:
    return Reservation("r", 100, 900, ("n1", "n2"), flags, cpus=cpus)


@pytest.mark.parametrize(
    ("reserved", "state", "is_slurms"),
    [
        ([kept(32)], "RESERVED", False),
        ([kept(4)], "RESERVED", True),
        ([kept(0)], "RESERVED", True),
        ([kept(32, "MAGNETIC")], "RESERVED", True),
        ([kept(4), kept(32)], "RESERVED", False),
        ([], "RESERVED", True),
        ([kept(4)], "DRAIN", False),
        ([], "POWERED_DOWN", True),
        ([], "POWERING_DOWN", True),
        ([], "POWERING_UP", True),
        ([], "DOWN", False),
        ([], "IDLE", False),
    ],
)
def test_closed_nodes_that_slurm_opens_for_a_job(reserved, state, is_slurms):
    """A reservation of a few cores closes no node, though Slurm shows its state."""
    states = ("IDLE", state) if state in ("RESERVED", "POWERED_DOWN") else (state,)
    seen = [SlurmNode(name, states, (), 1, 16, 9, {"a": 2}) for name in ("n1", "n2")]
    nodes = with_shared(nodes_of(seen, ()), seen, reserved, 500.0)
    assert [node.is_slurms for node in nodes.values()] == [is_slurms] * 2
    assert not is_slurms or not nodes["n1"].is_open
    assert bool(why_slurms(Need(1), nodes)) == is_slurms


def test_a_node_that_one_user_has_alone_is_slurms_to_open():
    seen = [SlurmNode("n1", ("MIXED",), (), 1, 16, 9, {"a": 2}, is_owned=True)]
    nodes = with_shared(nodes_of(seen, ()), seen, [], 500.0)
    assert (nodes["n1"].is_open, nodes["n1"].is_slurms) == (False, True)
    assert why_slurms(Need(1), nodes)


def test_a_node_with_a_suspended_job_is_slurms_to_open():
    """Its cores are free until it goes on, and then two jobs would have them."""
    seen = [SlurmNode(name, ("MIXED",), (), 1, 16, 9, {"a": 2}) for name in ("n1", "n2")]
    stands = QueuedJob(7, state="SUSPENDED", nodes=("n1",))
    nodes = with_shared(nodes_of(seen, [stands]), seen, [], 500.0, [stands])
    assert [(node.is_open, node.is_slurms) for node in nodes.values()] == [
        (False, True),
        (True, False),
    ]
