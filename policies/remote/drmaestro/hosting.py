"""DRMaestro's first flow (thesis section 5.3.3, Figure 22): the machine that hosts each task.

A unit of flow is one task. The thesis adds up a task's resources as one number (eq. 10), by which
a machine without memory may look free; here every resource is checked by itself when the flow is
read, and tasks that a machine cannot take after all are solved again with what is left. Tasks
that need the same share one aggregator (the thesis's X).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from policies.remote.capacity import Capacities
from policies.remote.drmaestro.costs import Costs, TaskId, TaskKind, holds, tasks_of
from policies.remote.drmaestro.flow import FlowNetwork, Flows, FlowSolver
from policies.remote.jobs import RemoteJob


def host_tasks(
    jobs: Mapping[int, RemoteJob], nodes: Capacities, costs: Costs, solve: FlowSolver
) -> dict[TaskId, str]:
    """Phase 1: the machine of each task, by CPUs and memory. Takes them from `nodes`.

    Jobs are in order of seniority. Tasks of jobs that may not use remote GPUs find them on
    their machine, or none. Tasks that are left unscheduled are not in the answer.
    """
    hosted: dict[TaskId, str] = {}
    near = {name: node.free.bit_count() for name, node in nodes.items()}
    waiting = tasks_of(jobs)
    while waiting:
        network = hosting_network(waiting, jobs, nodes, near, costs)
        flows = solve(network)
        again: dict[TaskKind, list[TaskId]] = {}
        for need, task, name, beside in _read(waiting, flows):
            node, job = nodes[name], jobs[task[0]]
            if not node.can_host(job) or (beside and near[name] < need[2]):
                again.setdefault(need, []).append(task)
                continue
            node.host(job)
            near[name] -= min(near[name], need[2])
            hosted[task] = name
        waiting = again
    return hosted


def hosting_network(
    waiting: Mapping[TaskKind, Sequence[TaskId]],
    jobs: Mapping[int, RemoteJob],
    nodes: Capacities,
    near: Mapping[str, int],
    costs: Costs,
) -> FlowNetwork:
    """Phase 1's network: job -> kind -> machine (its GPUs near, or far) -> sink."""
    network = FlowNetwork()
    total = sum(len(tasks) for tasks in waiting.values())
    for need, tasks in waiting.items():
        for index, units in Counter(task[0] for task in tasks).items():
            network.supply(("job", index, need), units)
            network.arc(("job", index, need), ("kind", need), units)
            network.arc(("job", index, need), "sink", units, costs.leave(jobs[index]))
    network.supply("sink", -total)
    fewest = min((need[2] for need in waiting if need[2]), default=0)
    for name, node in nodes.items():
        is_host = False
        for need, tasks in waiting.items():
            if held := holds(node, need, len(tasks)):
                is_host = True
                _arcs_to_host(network, need, held, name, near[name], costs)
        if is_host:
            most = max(holds(node, need, total) for need in waiting)
            network.arc(("machine", name), "sink", most)
            beside = near[name] // fewest if fewest else total
            network.arc(("near", name), ("machine", name), min(beside, total))
    return network


def _arcs_to_host(
    network: FlowNetwork, need: TaskKind, held: int, name: str, near: int, costs: Costs
) -> None:
    """From a kind of task to a machine that holds `held` of it and has `near` GPUs left."""
    gpus, network_of, remote = need[2:]
    beside = min(held, near // gpus) if gpus else 0
    network.arc(("kind", need), ("near", name), beside)
    if not gpus:
        network.arc(("kind", need), ("machine", name), held)
    elif remote:
        # What is left beside the whole tasks is near, donors give the rest of the GPUs. Only what
        # they cost more counts here: the others cost the same on every machine.
        missing = gpus - min(gpus - 1, near % gpus)
        more = costs.remote_gpu(network_of, name) - costs.local_gpu(network_of)
        network.arc(("kind", need), ("machine", name), held, max(0, missing * more))


def _read(
    waiting: Mapping[TaskKind, Sequence[TaskId]], flows: Flows
) -> list[tuple[TaskKind, TaskId, str, bool]]:
    """(kind, task, machine, GPUs near) of every unit, seniors first and near machines first."""
    places: dict[TaskKind, list[tuple[bool, str]]] = {}
    started: dict[tuple[TaskKind, int], int] = {}
    for (tail, head), units in flows.items():
        if not isinstance(tail, tuple) or not isinstance(head, tuple):
            continue
        if tail[0] == "kind":
            places.setdefault(tail[1], []).extend([(head[0] != "near", head[1])] * units)
        elif tail[0] == "job":
            started[tail[2], tail[1]] = units
    read = []
    for need, tasks in waiting.items():
        left = sorted(places.get(need, ()), reverse=True)
        for task in tasks:
            if started.get((need, task[0]), 0):
                started[need, task[0]] -= 1
                far, name = left.pop()
                read.append((need, task, name, not far))
    return sorted(read, key=lambda unit: unit[1])
