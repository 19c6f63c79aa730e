"""A gated job's submit, read again from its bracket and from Slurm's own figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from slots_in_tests import gated

from slurm_plugin import admin_comment
from slurm_plugin.protocol import Submit
from slurm_plugin.queue import demand
from slurm_plugin.queue.submitted import submit_of


def submit(keys: str, **more: object) -> Submit:
    job = replace(gated(1), admin_comment=f"[gpu-slots: gated {keys}]", **more)  # type: ignore[arg-type]
    kept = admin_comment.read(job.admin_comment)
    assert kept is not None
    return submit_of(job, kept)


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
def test_gpus_and_nodes_are_those_of_the_form_it_was_asked_in(
    keys: str, gpus: int, per_node: int, nodes: tuple[int, int]
) -> None:
    found = submit(keys, ntasks=4)
    assert (found.gpus, found.per_node, found.tasks) == (gpus, per_node, 4)
    assert (found.nodes, found.max_nodes) == nodes


def test_a_bracket_without_gpus_is_no_submit() -> None:
    with pytest.raises(demand.Unplaceable, match="names no GPUs"):
        submit("nodes=1-1")


def test_what_the_bracket_and_slurm_say_of_cpus_and_memory_stands_in_the_submit() -> None:
    keys = submit(
        "tpn=gres/gpu:2 by=job cpt=3 cpg=5 bind=1 req=dgx1 begin=77",
        cpus=9,
        memory_per_cpu_mb=11,
        memory_per_tres="gres/gpu:13",
        exclusive=True,
        exc_nodes="dgx3",
        features="ib",
    ).slots
    assert keys is not None
    assert (keys.form, keys.batch, keys.begin, keys.enforce_binding) == ("node", False, 77, True)
    assert (keys.cpus, keys.cpus_per_task, keys.cpus_per_gpu) == (9, 3, 5)
    assert (keys.mem_node_mb, keys.mem_cpu_mb, keys.mem_gpu_mb) == (0, 11, 13)
    assert (keys.req_nodes, keys.exc_nodes, keys.features) == ("dgx1", "dgx3", "ib")
    assert keys.exclusive
