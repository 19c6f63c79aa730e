"""Replays a workload on a virtual cluster: Slurm and the clock are replaced, policies not.

Event-driven (a heap of job ends, submits and second askings; no time steps), first in
first out: a job that does not fit stops those behind it, one that waits by its policy's
wish lets them pass and is placed anyway after `MAX_POSTPONED` times.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gres_topology import NodeTopology
from policies import Cluster, NodeState, Placement, Policy, Wait
from policies.hints import parse, to_request
from policies.queue import fits, without
from simulation.errors import SimulationError
from simulation.workload import SimJob

#: Postponements after which a job takes what there is.
MAX_POSTPONED = 10


@dataclass(frozen=True, slots=True)
class Record:
    """What happened to one job. `seed` is the workload's, so that a table can name it."""

    job: SimJob
    start_s: float
    end_s: float
    placement: Placement
    postponed: int = 0
    seed: int | None = None


class _Replay:
    def __init__(self, cluster: Mapping[str, NodeTopology], policy: Policy) -> None:
        self.policy = policy
        self.cluster = Cluster(
            {
                name: NodeState(name, topology, free=(1 << topology.gpus) - 1)
                for name, topology in cluster.items()
            }
        )
        self.queue: list[SimJob] = []
        self.not_before: dict[int, float] = {}
        self.postponed: dict[int, int] = {}
        self.events: list[tuple[float, int, SimJob | None, Placement | None]] = []
        self.records: list[Record] = []
        self._serial = 0

    def push(self, at_s: float, job: SimJob | None, ended: Placement | None) -> None:
        self._serial += 1
        heapq.heappush(self.events, (at_s, self._serial, job, ended))

    def release(self, placement: Placement) -> None:
        nodes = dict(self.cluster.nodes)
        for name, gpus in placement.gpus.items():
            freed = sum(1 << gpu for gpu in gpus)
            nodes[name] = replace(nodes[name], free=nodes[name].free | freed)
        self.cluster = replace(self.cluster, nodes=nodes)

    def step(self) -> None:
        """Everything that happens at the next moment, then one pass over the queue."""
        now = self.events[0][0]
        while self.events and self.events[0][0] == now:
            _, _, job, ended = heapq.heappop(self.events)
            if ended is not None:
                self.release(ended)
            elif job is not None:
                self.queue.append(job)
        self.schedule(now)

    def schedule(self, now: float) -> None:
        waiting: list[SimJob] = []
        for at, job in enumerate(self.queue):
            if self.not_before.get(job.job_id, now) > now:
                waiting.append(job)
                continue
            request = to_request(parse(job.hint), job.gpus_per_node, job_id=job.job_id)
            if not fits(request, self.cluster):
                waiting.extend(self.queue[at:])
                break
            answer = self.policy.place(request, self.cluster)
            if isinstance(answer, Wait) and self.wait(job, answer, now):
                waiting.append(job)
                continue
            placement = answer if isinstance(answer, Placement) else answer.instead
            if placement is None:
                raise SimulationError(f"job {job.job_id}: the policy waits and offers nothing")
            self.start(job, placement, now)
        self.queue = waiting

    def wait(self, job: SimJob, answer: Wait, now: float) -> bool:
        """Postpone the job, unless it has been often enough."""
        times = self.postponed.get(job.job_id, 0)
        if times >= MAX_POSTPONED and answer.instead is not None:
            return False
        self.postponed[job.job_id] = times + 1
        self.not_before[job.job_id] = now + answer.at_most_s
        self.push(now + answer.at_most_s, None, None)
        return True

    def start(self, job: SimJob, placement: Placement, now: float) -> None:
        self.cluster = without(self.cluster, placement)
        end_s = now + job.duration_s
        self.push(end_s, None, placement)
        times = self.postponed.get(job.job_id, 0)
        self.records.append(Record(job, now, end_s, placement, times))


def replay(
    jobs: Iterable[SimJob],
    cluster: Mapping[str, NodeTopology],
    policy: Policy,
    seed: int | None = None,
) -> list[Record]:
    """Run every job once, first in first out; records in the order of their starts.

    `cluster` is node name -> topology; all GPUs free at first. `seed` is only written into
    the records. SimulationError for a job that could never start.
    """
    run = _Replay(cluster, policy)
    for job in jobs:
        if not fits(to_request(parse(job.hint), job.gpus_per_node), run.cluster):
            raise SimulationError(
                f"job {job.job_id} asks for {'+'.join(map(str, job.gpus_per_node))} GPUs;"
                " the empty cluster has no such nodes"
            )
        run.push(job.submit_s, job, None)
    while run.events:
        run.step()
    return [replace(record, seed=seed) for record in run.records]
