"""What the binding does on one machine: GPUs in rank order, and CPUs and NICs by NUMA node."""

from __future__ import annotations

from gres_topology.cpulist import format_list
from gres_topology.pictures import Marks, Picture, machine_picture
from slurm_plugin.errors import PluginError
from slurm_plugin.node.launch.machine import LaunchMachine


def drawn(machine: LaunchMachine) -> Picture:
    """The ring of the whole node, by Slurm's index; PluginError where NUMA nodes are unknown."""
    name = machine.topology.name
    if None in machine.numa:
        raise PluginError(f"{name}: NUMA nodes unknown, so nothing to draw")
    order = machine.order("ring", tuple(range(machine.gpus)))
    notes = {numa: _notes(machine, numa) for numa in machine.numa if numa is not None}
    marks = Marks(
        chosen=[machine.to_topology[gpu] for gpu in order],
        names=[machine.to_topology.index(gpu) for gpu in range(machine.gpus)],
        notes=notes,
    )
    title = f"{name}: ranks of a ring of {machine.gpus}, and what each binds to"
    return machine_picture(machine.topology, marks, title=title)


def _notes(machine: LaunchMachine, numa: int) -> list[str]:
    gpus = [gpu for gpu in range(machine.gpus) if machine.numa[gpu] == numa]
    nics = dict.fromkeys(nic for gpu in gpus for nic in machine.nics[gpu])
    cpus = format_list(machine.numa_cpus.get(numa, ()))
    lines = [f"CPUs {cpus}", f"memory: preferred, node {numa}"]
    return [*lines, f"NICs {', '.join(nics)}"] if nics else lines
