"""DRMaestro: all waiting jobs placed at once (thesis section 5.3, Algorithms 4 and 5).

Jobs start whole or not at all. The thesis leaves out every job of which a part finds no place;
that wastes what those jobs held. Here the younger half of them is left out and the rest solved
again, and jobs that still fit into what remains are added at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from policies.contract.nouns import Wait
from policies.remote.capacity import NodeCapacity, copies
from policies.remote.drmaestro.admission import admitted
from policies.remote.drmaestro.assigning import assign_gpus
from policies.remote.drmaestro.costs import Costs, NetworkNeed, TaskId, network_need
from policies.remote.drmaestro.flow import FlowSolver, best_solver
from policies.remote.drmaestro.hosting import host_tasks
from policies.remote.jobs import Answer, RemoteJob, RemotePlacement, RemoteTask

Nodes = dict[str, NodeCapacity]
_Need = tuple[tuple[int, ...], int, int, NetworkNeed, bool]


@dataclass(frozen=True, slots=True)
class DRMaestro:
    """Places a queue's jobs in one batch, with remote GPUs, by min-cost flow."""

    costs: Costs = field(default_factory=Costs)
    #: How often the network may hold a job back (thesis: 10).
    max_postponed: int = 10
    solve: FlowSolver = field(default_factory=best_solver)
    name: str = "drmaestro"

    def decide(self, jobs: Sequence[RemoteJob], left: Nodes) -> list[Answer]:
        """An answer for every job, in the order given (that of arrival); `left` stays as it is."""
        seniors = sorted(range(len(jobs)), key=lambda index: (-jobs[index].rounds_waited, index))
        postponed: set[int] = set()
        answers: dict[int, RemotePlacement] = {}
        active = admitted({index: jobs[index] for index in seniors}, left)
        while active:
            trial = copies(left.values())
            answers, leave = self._solved(active, trial)
            slow = {i for i, answer in answers.items() if self._too_slow(jobs[i], answer)}
            postponed |= slow
            if not slow | leave:
                left = trial
                break
            active = {i: job for i, job in active.items() if i not in slow | leave}
            answers = {}
        left = copies(left.values())
        hopeless: set[_Need] = set()
        for index in seniors:
            if index not in answers and index not in postponed:
                job, need = jobs[index], _need(jobs[index])
                if need not in hopeless and not self._add(index, job, left, answers, postponed):
                    hopeless.add(need)  # what is left only shrinks
        return [
            answers.get(index) or (HELD_BACK if index in postponed else _NOT_ALL_FIT)
            for index in range(len(jobs))
        ]

    def _solved(
        self, jobs: Mapping[int, RemoteJob], left: Nodes
    ) -> tuple[dict[int, RemotePlacement], set[int]]:
        """Both phases. Returns placements, or which jobs to leave out before solving again."""
        hosted = host_tasks(jobs, left, self.costs, self.solve)
        if leave := _leave({i: _hosted_tasks(i, job, hosted) for i, job in jobs.items()}):
            return {}, leave
        given = assign_gpus(jobs, hosted, left, self.costs, self.solve)
        if leave := _leave({i: _whole_tasks(i, job, given) for i, job in jobs.items()}):
            return {}, leave
        # Seniors first, so that the same GPUs go to the same job whatever the solver's order.
        return {
            index: self.placement(
                [
                    (hosted[index, task], given[index, task])
                    for task in range(len(job.request.gpus_per_node))
                ],
                left,
            )
            for index, job in jobs.items()
        }, set()

    def placement(
        self, tasks: Sequence[tuple[str, Mapping[str, int]]], left: Nodes
    ) -> RemotePlacement:
        """Turn (host, GPUs by machine) of each task into a placement, and take those GPUs."""
        placed = []
        for host, counts in tasks:
            local = left[host].take(counts.get(host, 0))
            donors = sorted(name for name in counts if name != host)
            remote = tuple(pair for name in donors for pair in left[name].lend(counts[name]))
            placed.append(RemoteTask(host, local, remote))
        borrowed = sum(len(task.remote) for task in placed)
        reason = f"{borrowed} remote GPUs" if borrowed else "every GPU beside its task"
        return RemotePlacement(tuple(placed), self.name, reason)

    def _too_slow(self, job: RemoteJob, placement: RemotePlacement) -> bool:
        if not self.costs.network_aware or job.postponed >= self.max_postponed:
            return False
        return slowdown(job, placement, self.costs.loads) > job.max_slowdown

    def _add(
        self,
        index: int,
        job: RemoteJob,
        left: Nodes,
        answers: dict[int, RemotePlacement],
        postponed: set[int],
    ) -> bool:
        """Place one more job in what is left, if it fits: no flow, the cheapest for each task.

        Returns whether it fits, placed or left for its costs or the network.
        """
        free = sum(node.free.bit_count() for node in left.values())
        if sum(job.request.gpus_per_node) > free:
            return False
        trial = copies(left.values())
        placement = self._alone(job, trial)
        if placement is None:
            return False
        if self._left_by_choice(job, placement):
            return True
        if self._too_slow(job, placement):
            postponed.add(index)
            return True
        left.update(trial)
        answers[index] = placement
        return True

    def _alone(self, job: RemoteJob, left: Nodes) -> RemotePlacement | None:
        tasks: list[RemoteTask] = []
        for gpus in job.request.gpus_per_node:
            hosts = [node for node in left.values() if node.can_host(job)]
            host = min(
                hosts, key=lambda node: (-min(gpus, node.free.bit_count()), node.name), default=None
            )
            if host is None:
                return None
            host.host(job)
            local = min(gpus, host.free.bit_count())
            counts = {host.name: local}
            missing = gpus - local if job.remote_allowed else 0
            others = [node for node in left.values() if node is not host]
            for node in sorted(others, key=lambda node: self._price(job, node)) if missing else ():
                counts[node.name] = min(missing, node.lendable())
                missing -= counts[node.name]
            if sum(counts.values()) < gpus:
                return None
            used = {name: count for name, count in counts.items() if count}
            tasks.extend(self.placement([(host.name, used)], left).tasks)
        borrowed = sum(len(task.remote) for task in tasks)
        reason = f"fits beside the others, {borrowed} remote GPUs"
        return RemotePlacement(tuple(tasks), self.name, reason)

    def _price(self, job: RemoteJob, node: NodeCapacity) -> tuple[int, str]:
        return (self.costs.remote_gpu(network_need(job), node.name), node.name)

    def _left_by_choice(self, job: RemoteJob, placement: RemotePlacement) -> bool:
        """The flow would rather leave it: some remote GPU costs more than waiting."""
        need = network_need(job)
        dearest = max((self.costs.remote_gpu(need, name) for name in placement.donors), default=0)
        return dearest > self.costs.leave(job)


def slowdown(job: RemoteJob, placement: RemotePlacement, loads: Mapping[str, float]) -> float:
    """The job's execution time over that alone: 1 + sensitivity x the highest load it meets."""
    if not placement.remote_gpus:
        return 1.0
    nodes = set(placement.donors) | {task.node for task in placement.tasks if task.remote}
    return 1.0 + job.sensitivity * max(loads.get(name, 0.0) for name in nodes)


def _need(job: RemoteJob) -> _Need:
    """All by which a job fits what is left or not."""
    shape = job.request.gpus_per_node
    return (shape, job.cpus, job.memory_mb, network_need(job), job.remote_allowed)


def _hosted_tasks(index: int, job: RemoteJob, hosted: Mapping[TaskId, str]) -> tuple[int, int]:
    wanted = len(job.request.gpus_per_node)
    return sum(1 for task in range(wanted) if (index, task) in hosted), wanted


def _whole_tasks(
    index: int, job: RemoteJob, given: Mapping[TaskId, Mapping[str, int]]
) -> tuple[int, int]:
    wanted = job.request.gpus_per_node
    return sum(sum(given[index, task].values()) for task in range(len(wanted))), sum(wanted)


def _leave(got: Mapping[int, tuple[int, int]]) -> set[int]:
    """Whom to leave out: all that got nothing, and of those that got a part the younger half.

    `got` has (got, wanted) by job, seniors first.
    """
    partial = [index for index, (some, wanted) in got.items() if 0 < some < wanted]
    nothing = {index for index, (some, wanted) in got.items() if not some and wanted}
    return nothing | set(partial[len(partial) // 2 :])


#: The answer about a job that the network alone holds back.
HELD_BACK = Wait("the network is too loaded for its remote GPUs")
_NOT_ALL_FIT = Wait("not all of its tasks fit now")
