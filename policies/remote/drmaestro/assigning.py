"""DRMaestro's second flow (thesis section 5.3.3): GPUs for tasks that have a machine.

A unit of flow is one GPU.
"""

from __future__ import annotations

from collections.abc import Mapping

from policies.remote.capacity import Capacities
from policies.remote.drmaestro.costs import Costs, NetworkNeed, TaskId, network_need
from policies.remote.drmaestro.flow import FlowNetwork, FlowSolver
from policies.remote.jobs import RemoteJob


def assign_gpus(
    jobs: Mapping[int, RemoteJob],
    hosted: Mapping[TaskId, str],
    nodes: Capacities,
    costs: Costs,
    solve: FlowSolver,
) -> dict[TaskId, dict[str, int]]:
    """Phase 2: how many GPUs each hosted task gets from which machine (its own included).

    Takes nothing from `nodes`. A task may come out with fewer than it asked for.
    """
    network = gpu_network(jobs, hosted, nodes, costs)
    flows = solve(network)
    donors_of: dict[NetworkNeed, list[str]] = {}
    for (tail, head), units in flows.items():
        if isinstance(tail, tuple) and isinstance(head, tuple) and tail[0] == "any":
            donors_of.setdefault(tail[1], []).extend([head[1]] * units)
    for donors in donors_of.values():
        donors.sort(reverse=True)
    given: dict[TaskId, dict[str, int]] = {}
    for task, host in hosted.items():
        got = given.setdefault(task, {})
        local = flows.get((("task", task), ("gpus", host)), 0)
        if local:
            got[host] = local
        network_of = network_need(jobs[task[0]])
        kept = donors_of.get(network_of, [])
        for _ in range(flows.get((("task", task), ("any", network_of)), 0)):
            donor = kept.pop()
            got[donor] = got.get(donor, 0) + 1
    return given


def gpu_network(
    jobs: Mapping[int, RemoteJob], hosted: Mapping[TaskId, str], nodes: Capacities, costs: Costs
) -> FlowNetwork:
    """Phase 2's network: task -> its machine's GPUs, or any donor's by network need -> sink."""
    network = FlowNetwork()
    total, needs = 0, set()
    for task, host in hosted.items():
        job, need = jobs[task[0]], network_need(jobs[task[0]])
        gpus = job.request.gpus_per_node[task[1]]
        total += gpus
        network.supply(("task", task), gpus)
        network.arc(("task", task), ("gpus", host), gpus, costs.local_gpu(need))
        network.arc(("task", task), "sink", gpus, costs.leave(job))
        if job.remote_allowed and gpus:
            needs.add(need)
            network.arc(("task", task), ("any", need), gpus)
    network.supply("sink", -total)
    for name, node in nodes.items():
        network.arc(("gpus", name), "sink", node.free.bit_count())
        lendable = node.lendable()
        network.arc(("donor", name), ("gpus", name), lendable)
        if lendable:
            for need in sorted(needs):
                price = costs.remote_gpu(need, name)
                network.arc(("any", need), ("donor", name), lendable, price)
    return network
