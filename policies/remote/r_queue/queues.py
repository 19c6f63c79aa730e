"""The R queue (Figure 6): where the job at the head of the queue runs.

The caller takes jobs first come, first served, and stops at the first that waits. Figure 6 is
printed with a wrong indentation: its test for too few GPUs belongs after the loop over donors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from policies.contract.bits import gpus_of
from policies.contract.nouns import Wait
from policies.remote.capacity import Capacities, NodeCapacity
from policies.remote.jobs import Answer, RemoteJob, RemotePlacement, RemoteTask

#: Donor order of the paper: the node with the fewest processes first, wherever its GPUs are.
LEAST_OCCUPIED = "least-occupied"
#: Ours: the process goes where most of its GPUs are, and uses those before any remote one.
LOCAL_FIRST = "local-first"
#: By the model (eqs. 1 and 4): all GPUs local, else the nodes whose network the fewest jobs share.
NETWORK_AWARE = "network-aware"


@dataclass(frozen=True, slots=True)
class RQueue:
    """Whole nodes as far as there are, then nodes in use, with remote GPUs if allowed.

    `remote=False` shares nodes without remote GPUs. Whether a donor counts as running the job,
    the paper does not say: here it does, unless `lending_counts` is False.
    """

    donors: str = LOCAL_FIRST
    remote: bool = True
    lending_counts: bool = True
    name: str = "r-queue"

    def decide(self, job: RemoteJob, left: Capacities, running: Mapping[str, int]) -> Answer:
        """A place for every task, or wait; nothing is changed. `running`: jobs on each node."""
        wanted = job.request.gpus_per_node
        empty = empty_nodes(job, left, running)
        pairs = zip(empty, wanted, strict=False)
        tasks = [RemoteTask(node.name, gpus_of(node.free)[:gpus]) for node, gpus in pairs]
        if len(tasks) < len(wanted):
            if sum(node.free.bit_count() for node in left.values()) < sum(wanted):
                return Wait("too few GPUs are free in all")
            trial = _Trial(self, job, left, running)
            for whole in tasks:
                trial.commit(whole)
            for gpus in wanted[len(tasks) :]:
                task = trial.task(gpus)
                if task is None:
                    return Wait("not every task finds a node and its GPUs")
                tasks.append(task)
        borrowed = sum(len(task.remote) for task in tasks)
        return RemotePlacement(
            tuple(tasks), self.name, f"{len(empty)} whole nodes, {borrowed} remote GPUs"
        )


class _Trial:
    """One job's search among nodes in use: nodes that change are copies."""

    def __init__(
        self, queue: RQueue, job: RemoteJob, left: Capacities, running: Mapping[str, int]
    ) -> None:
        self.queue, self.job = queue, job
        self.left, self.running = dict(left), dict(running)
        self.touched: set[str] = set()

    def task(self, gpus: int) -> RemoteTask | None:
        """The two steps of the paper for one process; None where it has no place."""
        local_first = self.queue.donors != LEAST_OCCUPIED
        is_remote = self.queue.remote and self.job.remote_allowed
        hosts = [
            node
            for node in self.left.values()
            if node.can_host(self.job) and (is_remote or node.free.bit_count() >= gpus)
        ]
        if not hosts:
            return None
        host = min(hosts, key=lambda node: self._host_order(node, gpus))
        near = local_first or not is_remote
        local = gpus_of(host.free)[:gpus] if near else ()
        if len(local) == gpus:
            task = RemoteTask(host.name, local)
        elif (others := self._remote(gpus - len(local), host, near)) is not None:
            own = tuple(gpu for name, gpu in others if name == host.name)
            task = RemoteTask(
                host.name, local + own, tuple(pair for pair in others if pair[0] != host.name)
            )
        else:
            return None
        self.commit(task)
        return task

    def _host_order(self, node: NodeCapacity, gpus: int) -> tuple[int, int, int, str]:
        local, crowd = min(gpus, node.free.bit_count()), self.running[node.name]
        if self.queue.donors == LEAST_OCCUPIED:
            return (0, crowd, 0, node.name)
        if self.queue.donors == NETWORK_AWARE:
            return (local < gpus, crowd, -local, node.name)
        return (-local, crowd, 0, node.name)

    def _remote(self, missing: int, host: NodeCapacity, near: bool) -> list[tuple[str, int]] | None:
        """GPUs of other nodes in the queue's order of donors; None if there are too few."""
        remote: list[tuple[str, int]] = []
        own = None if near else host.name
        offers = {
            node.name: node.free.bit_count() if node.name == own else node.lendable()
            for node in self.left.values()
            if node.free and not (near and node is host)
        }

        def order(name: str) -> tuple[int, int, str]:
            is_part, crowd = near and offers[name] < missing, self.running[name]
            if self.queue.donors == NETWORK_AWARE:
                return (crowd, is_part, name)
            return (is_part, crowd, name)

        for name in sorted(offers, key=order):
            taken = gpus_of(self.left[name].free)[: min(offers[name], missing - len(remote))]
            remote += [(name, gpu) for gpu in taken]
            if len(remote) == missing:
                return remote
        return None

    def commit(self, task: RemoteTask) -> None:
        """Take what a task got, for the tasks after it."""
        host = self._own(task.node)
        host.host(self.job)
        for gpu in task.local:
            host.free &= ~(1 << gpu)
        for name, gpu in task.remote:
            donor = self._own(name)
            donor.free &= ~(1 << gpu)
            donor.cpus -= donor.donor_cpus
            donor.memory_mb -= donor.donor_memory_mb
        donors = {name for name, _ in task.remote} if self.queue.lending_counts else set()
        for name in {task.node, *donors}:
            self.running[name] += 1

    def _own(self, name: str) -> NodeCapacity:
        if name not in self.touched:
            self.touched.add(name)
            self.left[name] = self.left[name].copy()
        return self.left[name]


def empty_nodes(job: RemoteJob, left: Capacities, running: Mapping[str, int]) -> list[NodeCapacity]:
    """Nodes without a job, one per task as far as they go (find_GQ_suitable_servers)."""
    empty: list[NodeCapacity] = []
    wanted = iter(job.request.gpus_per_node)
    gpus = next(wanted)
    for name, node in left.items():
        if not running[name] and node.free.bit_count() >= gpus and node.can_host(job):
            empty.append(node)
            gpus = next(wanted, 0)
            if not gpus:
                break
    return empty
