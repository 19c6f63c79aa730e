"""The two flow networks of DRMaestro (thesis section 5.3.3, Figure 22): hosts, then GPUs.

A unit of flow is one task in the first phase and one GPU in the second. The thesis adds up all
resources of a task as one number (eq. 10), by which a machine without memory may still look
roomy; here the flow counts tasks, and every resource is checked by itself when the flow is
read. Tasks a machine cannot take after all are solved again with what is left.

Tasks that need the same share one aggregator (the thesis's X), so the arcs grow with kinds of
tasks times machines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from policies.remote.capacity import Capacities, NodeCapacity
from policies.remote.drmaestro.flow import FlowNetwork, Flows, FlowSolver
from policies.remote.jobs import RemoteJob

#: Costs are integers: thousandths of the cost of one remote GPU on an idle network.
SCALE = 1000

#: (job's index, task's index).
Task = tuple[int, int]
#: What a task needs: CPUs, memory, GPUs, sensitivity, whether GPUs may be remote.
Kind = tuple[int, int, int, float, bool]


@dataclass(frozen=True, slots=True)
class Costs:
    """Eqs. 11-13 as used here: a local GPU costs nothing, a remote one `remote`.

    With `network_aware` a remote GPU costs, on top, the job's sensitivity times the load of
    the donor's network in [0, 1] times `network`. A GPU left unscheduled costs `unscheduled`
    and `waiting` more for every round waited (W of eq. 13).
    """

    remote: float = 1.0
    network: float = 10.0
    unscheduled: float = 20.0
    waiting: float = 1.0
    network_aware: bool = False
    loads: Mapping[str, float] = field(default_factory=dict)

    def remote_gpu(self, sensitivity: float, donor: str) -> int:
        """The cost of one GPU of that donor."""
        load = self.loads.get(donor, 0.0) if self.network_aware else 0.0
        return round(SCALE * (self.remote + self.network * sensitivity * load))

    def leave(self, job: RemoteJob) -> int:
        """The cost of one GPU, or one task, that stays unscheduled."""
        return round(SCALE * (self.unscheduled + self.waiting * job.rounds_waited))


def kind(job: RemoteJob, task: int) -> Kind:
    """What one task of a job needs."""
    gpus = job.request.gpus_per_node[task]
    return (job.cpus, job.memory_mb, gpus, job.sensitivity, job.remote_allowed)


def tasks_of(jobs: Mapping[int, RemoteJob]) -> dict[Kind, list[Task]]:
    """All tasks by what they need, jobs in the order given."""
    tasks: dict[Kind, list[Task]] = {}
    for index, job in jobs.items():
        for task in range(len(job.request.gpus_per_node)):
            tasks.setdefault(kind(job, task), []).append((index, task))
    return tasks


def host_tasks(
    jobs: Mapping[int, RemoteJob], nodes: Capacities, costs: Costs, solve: FlowSolver
) -> dict[Task, str]:
    """Phase 1: the machine of each task, by CPUs and memory. Takes them from `nodes`.

    Jobs are in order of seniority. Tasks of jobs that may not use remote GPUs find them on
    their machine, or none. Tasks that are left unscheduled are not in the answer.
    """
    hosted: dict[Task, str] = {}
    near = {name: node.free.bit_count() for name, node in nodes.items()}
    waiting = tasks_of(jobs)
    while waiting:
        network = hosting_network(waiting, jobs, nodes, near, costs)
        flows = solve(network)
        again: dict[Kind, list[Task]] = {}
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
    waiting: Mapping[Kind, Sequence[Task]],
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
    network: FlowNetwork, need: Kind, held: int, name: str, near: int, costs: Costs
) -> None:
    """From a kind of task to a machine that holds `held` of it and has `near` GPUs left."""
    gpus, sensitivity, remote = need[2:]
    beside = min(held, near // gpus) if gpus else 0
    network.arc(("kind", need), ("near", name), beside)
    if not gpus:
        network.arc(("kind", need), ("machine", name), held)
    elif remote:
        # What is left beside the whole tasks is near, donors give the rest of the GPUs.
        missing = gpus - min(gpus - 1, near % gpus)
        far = round(missing * costs.remote_gpu(sensitivity, name))
        network.arc(("kind", need), ("machine", name), held, far)


def holds(node: NodeCapacity, need: Kind, most: int) -> int:
    """How many tasks of that kind have their CPUs and memory there, at most `most`."""
    cpus, memory_mb = need[:2]
    if node.cpus < cpus or node.memory_mb < memory_mb:
        return 0
    if cpus and node.cpus // cpus < most:
        most = int(node.cpus // cpus)
    if memory_mb and node.memory_mb // memory_mb < most:
        most = int(node.memory_mb // memory_mb)
    return max(0, most)


def _read(
    waiting: Mapping[Kind, Sequence[Task]], flows: Flows
) -> list[tuple[Kind, Task, str, bool]]:
    """(kind, task, machine, GPUs near) of every unit, seniors first and near machines first."""
    places: dict[Kind, list[tuple[bool, str]]] = {}
    started: dict[tuple[Kind, int], int] = {}
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


def lend_gpus(
    jobs: Mapping[int, RemoteJob],
    hosted: Mapping[Task, str],
    nodes: Capacities,
    costs: Costs,
    solve: FlowSolver,
) -> dict[Task, dict[str, int]]:
    """Phase 2: how many GPUs each hosted task gets from which machine (its own included).

    Takes nothing from `nodes`. A task may come out with fewer than it asked for.
    """
    network = lending_network(jobs, hosted, nodes, costs)
    flows = solve(network)
    donors_of: dict[float, list[str]] = {}
    for (tail, head), units in flows.items():
        if isinstance(tail, tuple) and isinstance(head, tuple) and tail[0] == "any":
            donors_of.setdefault(tail[1], []).extend([head[1]] * units)
    for donors in donors_of.values():
        donors.sort(reverse=True)
    given: dict[Task, dict[str, int]] = {}
    for task, host in hosted.items():
        got = given.setdefault(task, {})
        local = flows.get((("task", task), ("gpus", host)), 0)
        if local:
            got[host] = local
        kept = donors_of.get(jobs[task[0]].sensitivity, [])
        for _ in range(flows.get((("task", task), ("any", jobs[task[0]].sensitivity)), 0)):
            donor = kept.pop()
            got[donor] = got.get(donor, 0) + 1
    return given


def lending_network(
    jobs: Mapping[int, RemoteJob],
    hosted: Mapping[Task, str],
    nodes: Capacities,
    costs: Costs,
) -> FlowNetwork:
    """Phase 2's network: task -> its machine's GPUs, or any donor's by sensitivity -> sink."""
    network = FlowNetwork()
    total, classes = 0, set()
    for task, host in hosted.items():
        job, (index, number) = jobs[task[0]], task
        gpus = job.request.gpus_per_node[number]
        total += gpus
        network.supply(("task", task), gpus)
        network.arc(("task", task), ("gpus", host), gpus)
        network.arc(("task", task), "sink", gpus, costs.leave(jobs[index]))
        if job.remote_allowed and gpus:
            classes.add(job.sensitivity)
            network.arc(("task", task), ("any", job.sensitivity), gpus)
    network.supply("sink", -total)
    for name, node in nodes.items():
        network.arc(("gpus", name), "sink", node.free.bit_count())
        lendable = node.lendable()
        network.arc(("donor", name), ("gpus", name), lendable)
        if lendable:
            for sensitivity in sorted(classes):
                price = costs.remote_gpu(sensitivity, name)
                network.arc(("any", sensitivity), ("donor", name), lendable, price)
    return network
