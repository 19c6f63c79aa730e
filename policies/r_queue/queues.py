"""G queue (Figure 5) and R queue (Figure 6): where the job at the head of the queue runs.

Both take jobs first come, first served; the caller stops at the first that waits. As printed,
the indentation of Figure 6 is broken: its test for too few GPUs belongs after the loop over
donors, and is there here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from policies.contract.nouns import Cluster, Wait
from policies.remote import RemoteJob, RemotePlacement, RemoteTask, Room, processes, rooms

#: Donor order of the paper: the node with the fewest processes first, wherever its GPUs are.
LEAST_OCCUPIED = "least-occupied"
#: Ours: the process goes where most of its GPUs are, and uses those before any remote one.
LOCAL_FIRST = "local-first"
#: By the model (eqs. 1 and 4): all GPUs local, else the nodes whose network the fewest jobs share.
NETWORK_AWARE = "network-aware"

Answer = RemotePlacement | Wait


@dataclass(frozen=True, slots=True)
class GQueue:
    """A node serves one job: whole nodes for each task, in the order of their names."""

    name: str = "g-queue"

    def place(self, job: RemoteJob, cluster: Cluster) -> Answer:
        """Nodes without any job for every task, or wait."""
        return self.decide(job, rooms(cluster), processes(cluster))

    def decide(
        self, job: RemoteJob, left: Mapping[str, Room], running: Mapping[str, int]
    ) -> Answer:
        """The same on what is left; nothing is changed. `running`: node -> jobs on it."""
        wanted = job.request.gpus_per_node
        found = empty_nodes(job, left, running)
        if len(found) < len(wanted):
            return Wait(f"{len(found)} of {len(wanted)} whole nodes are free", float("inf"))
        pairs = zip(found, wanted, strict=True)
        tasks = tuple(RemoteTask(room.name, lowest(room.free, gpus)) for room, gpus in pairs)
        return RemotePlacement(tasks, self.name, "a whole node for every task")


@dataclass(frozen=True, slots=True)
class RQueue:
    """Whole nodes as far as there are, then nodes in use, with remote GPUs if allowed.

    `remote=False` shares nodes but lends nothing: what sharing alone would bring. Whether a
    node that only lends runs the job, too, the paper does not say: here it does, unless
    `lending_counts` is False.
    """

    donors: str = LOCAL_FIRST
    remote: bool = True
    donor_cpus: int = 0
    donor_memory_mb: int = 0
    lending_counts: bool = True
    name: str = "r-queue"

    def place(self, job: RemoteJob, cluster: Cluster) -> Answer:
        """A place for every task, or wait."""
        left = rooms(cluster, self.donor_cpus, self.donor_memory_mb)
        return self.decide(job, left, processes(cluster))

    def decide(
        self, job: RemoteJob, left: Mapping[str, Room], running: Mapping[str, int]
    ) -> Answer:
        """The same on what is left; nothing is changed. `running`: node -> jobs on it."""
        wanted = job.request.gpus_per_node
        if sum(room.free.bit_count() for room in left.values()) < sum(wanted):
            return Wait("too few GPUs are free in all", float("inf"))
        found = empty_nodes(job, left, running)
        pairs = zip(found, wanted, strict=False)
        tasks = [RemoteTask(room.name, lowest(room.free, gpus)) for room, gpus in pairs]
        if len(tasks) < len(wanted):
            trial = _Trial(self, job, left, running)
            for task in tasks:
                trial.commit(task)
            for gpus in wanted[len(tasks) :]:
                task_found = trial.task(gpus)
                if task_found is None:
                    return Wait("not every task finds a node and its GPUs", float("inf"))
                tasks.append(task_found)
        borrowed = sum(len(task.remote) for task in tasks)
        return RemotePlacement(
            tuple(tasks), self.name, f"{len(found)} whole nodes, {borrowed} remote GPUs"
        )


class _Trial:
    """One job's search among nodes in use: changed rooms are copies."""

    def __init__(
        self, queue: RQueue, job: RemoteJob, left: Mapping[str, Room], running: Mapping[str, int]
    ) -> None:
        self.queue, self.job = queue, job
        self.left, self.running = dict(left), dict(running)
        self.touched: set[str] = set()

    def task(self, gpus: int) -> RemoteTask | None:
        """The two steps of the paper for one process; None where it has no place."""
        local_first = self.queue.donors != LEAST_OCCUPIED
        is_remote = self.queue.remote and self.job.remote_allowed
        hosts = [
            room
            for room in self.left.values()
            if room.hosts(self.job) and (is_remote or room.free.bit_count() >= gpus)
        ]
        if not hosts:
            return None
        host = min(hosts, key=lambda room: self._host_order(room, gpus))
        near = local_first or not is_remote
        local = lowest(host.free, min(gpus, host.free.bit_count())) if near else ()
        if len(local) == gpus:
            task = RemoteTask(host.name, local)
        elif (lent := self._lent(gpus - len(local), host, near)) is not None:
            own = tuple(gpu for name, gpu in lent if name == host.name)
            task = RemoteTask(
                host.name, local + own, tuple(pair for pair in lent if pair[0] != host.name)
            )
        else:
            return None
        self.commit(task)
        return task

    def _host_order(self, room: Room, gpus: int) -> tuple[int, int, int, str]:
        local, crowd = min(gpus, room.free.bit_count()), self.running[room.name]
        if self.queue.donors == LEAST_OCCUPIED:
            return (0, crowd, 0, room.name)
        if self.queue.donors == NETWORK_AWARE:
            return (local < gpus, crowd, -local, room.name)
        return (-local, crowd, 0, room.name)

    def _lent(self, missing: int, host: Room, near: bool) -> list[tuple[str, int]] | None:
        """GPUs of other nodes in the queue's order of donors; None if there are too few."""
        lent: list[tuple[str, int]] = []
        own = None if near else host.name
        offers = {
            room.name: room.free.bit_count() if room.name == own else room.lends()
            for room in self.left.values()
            if room.free and not (near and room is host)
        }

        def order(name: str) -> tuple[int, int, str]:
            is_part, crowd = near and offers[name] < missing, self.running[name]
            if self.queue.donors == NETWORK_AWARE:
                return (crowd, is_part, name)
            return (is_part, crowd, name)

        for name in sorted(offers, key=order):
            taken = lowest(self.left[name].free, min(offers[name], missing - len(lent)))
            lent += [(name, gpu) for gpu in taken]
            if len(lent) == missing:
                return lent
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
        lenders = {name for name, _ in task.remote} if self.queue.lending_counts else set()
        for name in {task.node, *lenders}:
            self.running[name] += 1

    def _own(self, name: str) -> Room:
        if name not in self.touched:
            self.touched.add(name)
            room = self.left[name]
            self.left[name] = Room(
                name, room.free, room.cpus, room.memory_mb, room.donor_cpus, room.donor_memory_mb
            )
        return self.left[name]


def empty_nodes(job: RemoteJob, left: Mapping[str, Room], running: Mapping[str, int]) -> list[Room]:
    """Nodes without a job, one per task as far as they go (find_GQ_suitable_servers)."""
    found: list[Room] = []
    wanted = job.request.gpus_per_node
    for name, room in left.items():
        if len(found) == len(wanted):
            break
        is_whole = not running[name] and room.hosts(job)
        if is_whole and room.free.bit_count() >= wanted[len(found)]:
            found.append(room)
    return found


def lowest(mask: int, count: int) -> tuple[int, ...]:
    """The first GPUs of a mask."""
    taken: list[int] = []
    while len(taken) < count:
        low = mask & -mask
        taken.append(low.bit_length() - 1)
        mask ^= low
    return tuple(taken)
