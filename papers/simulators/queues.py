"""Queues beside the R queue: its baseline, and the one that borrows only where that gains.

The G queue is Figure 5 of Markthub et al., PDCAT 2014; the other one is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from policies.contract.bits import gpus_of
from policies.contract.nouns import Wait
from policies.remote.capacity import Capacities
from policies.remote.jobs import Answer, RemoteJob, RemotePlacement, RemoteTask
from policies.remote.r_queue import (
    NETWORK_AWARE,
    ExpectedRelease,
    JobWork,
    NetworkSpeeds,
    RQueue,
    judged,
    local_start_s,
    predicted_s,
)
from policies.remote.r_queue.queues import empty_nodes


@dataclass(frozen=True, slots=True)
class GQueue:
    """A node serves one job: whole nodes for each task, in the order of their names."""

    name: str = "g-queue"

    def decide(self, job: RemoteJob, left: Capacities, running: Mapping[str, int]) -> Answer:
        """Nodes without any job for every task, or wait; `running`: jobs on each node."""
        wanted = job.request.gpus_per_node
        empty = empty_nodes(job, left, running)
        if len(empty) < len(wanted):
            return Wait(f"{len(empty)} of {len(wanted)} whole nodes are free")
        pairs = zip(empty, wanted, strict=True)
        tasks = tuple(RemoteTask(node.name, gpus_of(node.free)[:gpus]) for node, gpus in pairs)
        return RemotePlacement(tasks, self.name, "a whole node for every task")


@dataclass(frozen=True, slots=True)
class AutoRQueue:
    """The R queue that leaves a job waiting where remote GPUs would make it end later.

    Donors are those of the queue's order, or of `NETWORK_AWARE` where the model predicts an
    earlier end with them.
    """

    queue: RQueue = field(default_factory=RQueue)
    wires: NetworkSpeeds = field(default_factory=NetworkSpeeds)
    name: str = "r-queue-auto"

    def decide(
        self,
        job: RemoteJob,
        work: JobWork,
        left: Capacities,
        running: Mapping[str, int],
        releases: Iterable[ExpectedRelease],
    ) -> Answer:
        """A place, or a wait that says both predictions; nothing is changed."""
        answer = self.queue.decide(job, left, running)
        if isinstance(answer, Wait) or not answer.remote_gpus:
            return answer
        now_s = predicted_s(answer, work, self.wires, running)
        other = replace(self.queue, donors=NETWORK_AWARE).decide(job, left, running)
        if isinstance(other, RemotePlacement):
            other_s = predicted_s(other, work, self.wires, running)
            if other_s < now_s:
                answer = other
        wait_s = local_start_s(job, self.queue, left, running, releases)
        return judged(answer, work, self.wires, running, wait_s)
