"""The rule that the C plugin is held to, by hand on a DGX-1V."""

from __future__ import annotations

from dataclasses import replace

import pytest
from launch_rule import Launch, Task, launch

from gres_topology import NumaNode, catalog
from slurm_plugin.launch import LaunchMachine, machine_of

DGX1V = machine_of(catalog.load("dgx1v"))
ALL = tuple(range(8))
CPUS = tuple(range(80))


def with_memory(machine: LaunchMachine, memory_mb: int) -> LaunchMachine:
    nodes = machine.topology.numa_nodes
    known = tuple(NumaNode(node.number, node.cpus, memory_mb) for node in nodes)
    return replace(machine, topology=replace(machine.topology, numa_nodes=known))


def test_neighbours_of_a_ring_have_neighbouring_ranks() -> None:
    """Every hop of four GPUs around a DGX-1V is an NVLink."""
    order = launch(DGX1V, Task((0, 1, 4, 5), (0, 1, 4, 5))).visible
    hops = zip(order, (*order[1:], order[0]), strict=True)
    assert all(DGX1V.topology.kinds[a][b].startswith("NV") for a, b in hops)


def test_one_gpu_per_task_is_its_own_and_alone() -> None:
    """The eight tasks get the eight GPUs, in the order of the ring."""
    parts = [
        launch(DGX1V, Task(ALL, (rank,), tasks=8, local_rank=rank, gpus_per_task=1)).visible
        for rank in range(8)
    ]
    assert sum(parts, ()) == DGX1V.order("ring", ALL)


def test_where_slurm_placed_the_tasks_its_own_gpus_stay() -> None:
    """Their CPUs are near those GPUs."""
    task = Task((0, 3), (3,), tasks=2, local_rank=0, gpus_per_task=1, is_cpu_bound=True)
    assert launch(DGX1V, task).visible == (3,)


def test_a_task_is_bound_to_the_node_of_its_gpus() -> None:
    """CPUs, memory and NIC of NUMA node 1."""
    found = launch(DGX1V, Task((4, 5), (4, 5), cpus=CPUS))
    expected = (*range(20, 40), *range(60, 80))
    assert found == Launch((4, 5), (4, 5), expected, (1,), "preferred", ("mlx5_2",))


def test_gpus_of_two_nodes_bind_nothing_but_may_interleave() -> None:
    """GPUs 0 and 4 sit on different sockets."""
    task = Task((0, 4), (0, 4), cpus=CPUS)
    assert launch(DGX1V, task).cpus is None
    assert launch(DGX1V, task).memory == "none"
    found = launch(DGX1V, task, memory="interleave")
    assert (found.numa, found.memory) == ((0, 1), "interleave")


@pytest.mark.parametrize(
    ("memory_mb", "expected"), [(1000, "bind"), (1001, "preferred"), (0, "preferred")]
)
def test_strict_memory_only_where_the_job_fits(memory_mb: int, expected: str) -> None:
    """0 is a job of unknown memory."""
    task = Task((0,), (0,), memory_mb=memory_mb)
    assert launch(with_memory(DGX1V, 1000), task, memory="bind").memory == expected


def test_cpus_are_never_widened_or_taken_away() -> None:
    """No CPU the task lacks, none below --cpus-per-task, none against a binding."""
    assert launch(DGX1V, Task((0,), (0,), cpus=(5, 25))).cpus == (5,)
    assert launch(DGX1V, Task((0,), (0,), cpus=(25, 26))).cpus is None
    assert launch(DGX1V, Task((0,), (0,), cpus=(5, 25), cpus_per_task=2)).cpus is None
    assert launch(DGX1V, Task((0,), (0,), cpus=(5, 25), is_cpu_bound=True)).cpus is None
    assert launch(DGX1V, Task((0,), (0,), cpus=(5, 25)), bind="none").cpus is None


def test_devices_are_named_by_pci_address() -> None:
    """Slurm counts from the last PCI address: its GPU 0 is the driver's 7."""
    pci = tuple(f"00000000:{0x10 + gpu:02X}:00.0" for gpu in ALL)
    machine = machine_of(replace(DGX1V.topology, pci=pci), ALL[::-1])
    assert launch(machine, Task((0,), (0,))).visible == (7,)
    relative = Task((0, 2), (0,), is_relative=True, is_chosen=True)
    assert launch(machine, relative).visible == (1,)
