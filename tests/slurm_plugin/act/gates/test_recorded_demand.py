"""A gated job's demand, read again from its record and from Slurm's own figures."""

from dataclasses import replace

import pytest
from slots_in_tests import gated

from slurm_plugin.act.gates.slot_request import recorded_demand
from slurm_plugin.base.job_notes.records import GateRecord
from slurm_plugin.queue import demand
from slurm_plugin.queue.demand import Demand


def submit(keys: str, **more: object) -> Demand:
    job = replace(gated(1), admin_comment=f"[gpu-slots: gated {keys}]", **more)
    kept = GateRecord.read_from(job.admin_comment)
    assert kept is not None
    return recorded_demand(job, kept)


@pytest.mark.parametrize(
    ("keys", "gpus", "per_node", "nodes"),
    [
        ("tpn=gres/gpu:2 nodes=1-1", 2, 2, (1, 1)),
        ("tpn=gres/gpu:2 nodes=3-3", 6, 2, (3, 3)),
        ("tpn=gres/gpu:2 nodes=2-", 4, 2, (2, 0)),
        ("tpn=gres/gpu:2", 2, 2, (1, 0)),
        ("tpj=gres/gpu:5 nodes=2-4", 5, 0, (2, 4)),
        ("tpt=gres/gpu:2 nodes=1-", 8, 0, (1, 0)),
        ("tps=gres/gpu:2 spn=2 nodes=3-3", 0, 4, (3, 3)),
    ],
)
def test_gpus_and_nodes_are_those_of_the_form_it_was_asked_in(keys, gpus, per_node, nodes):
    found = submit(keys, ntasks=4)
    assert (found.gpus, found.per_node, found.tasks) == (gpus, per_node, 4)
    assert (found.nodes, found.max_nodes) == nodes


@pytest.mark.parametrize(
    ("asks", "has", "by_core"),
    [
        ("tps=gres/gpu:2 spn=1", {"sockets_per_node": 1, "tres_per_socket": "gres/gpu:2"}, False),
        ("tps=gres/gpu:2 spn=1", {"sockets_per_node": 1}, False),  # it has its slots
        ("tps=gres/gpu:2 spn=1", {"sockets_per_node": 1, "by_core": True}, True),
        ("tpn=gres/gpu:2", {"sockets_per_node": 1}, True),
        ("tpn=gres/gpu:2", {}, False),
    ],
)
def test_sockets_bind_a_job_to_cores_where_its_gpus_are_not_counted_by_them(asks, has, by_core):
    slots = {"tres_per_node": "gres/gpu:v100.s2:1,gres/gpu:v100.s3:1"}
    assert submit(asks, **{**slots, **has}).by_core == by_core


def test_a_record_without_gpus_is_no_demand():
    with pytest.raises(demand.Unplaceable, match="asks for no GPUs"):
        submit("nodes=1-1")


def test_what_the_bracket_and_slurm_say_of_cpus_and_memory_stands_in_the_demand():
    asked = submit(
        "tpn=gres/gpu:2 by=job cpt=3 cpg=5 bind=1 req=dgx1 begin=77",
        cpus=9,
        memory_per_cpu_mb=11,
        memory_per_tres="gres/gpu:13",
        exclusive=True,
        exc_nodes="dgx3",
        features="ib",
    )
    assert (asked.form, asked.enforce_binding) == ("node", True)
    assert (asked.cpus, asked.cpus_per_task, asked.cpus_per_gpu) == (9, 3, 5)
    assert (asked.mem_node_mb, asked.mem_cpu_mb, asked.mem_gpu_mb) == (0, 11, 13)
    assert (asked.req_nodes, asked.exc_nodes, asked.features) == ("dgx1", "dgx3", "ib")
    assert asked.exclusive
