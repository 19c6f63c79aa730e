"""`remote=auto`: remote GPUs only where the job is predicted to end sooner than by waiting.

The prediction is the paper's model (eqs. 1-7): on remote GPUs now, beside the jobs that are on
those nodes; or on local GPUs alone, once enough running jobs have ended as expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from policies.contract.nouns import Wait
from policies.remote.capacity import Capacities, copies
from policies.remote.jobs import Answer, RemoteJob, RemotePlacement
from policies.remote.r_queue.model import JobWork, NetworkSpeeds, execution_s
from policies.remote.r_queue.queues import RQueue


@dataclass(frozen=True, slots=True)
class ExpectedRelease:
    """What a running job is expected to give back in `in_s` seconds, by node; GPUs as masks."""

    in_s: float
    gpus: Mapping[str, int]
    cpus: Mapping[str, float] = field(default_factory=dict)
    memory_mb: Mapping[str, float] = field(default_factory=dict)


def judged(
    answer: RemotePlacement,
    work: JobWork,
    wires: NetworkSpeeds,
    running: Mapping[str, int],
    wait_s: float,
    limit_s: float = float("inf"),
) -> Answer:
    """A placement with remote GPUs, of any policy, if the job ends sooner there; else a wait.

    Sooner than by waiting `wait_s` for local GPUs, and within its time limit: Slurm would
    end it there. The wait says both predictions.
    """
    now_s = predicted_s(answer, work, wires, running)
    later_s = wait_s + execution_s(work, wires, False)
    both = f"remote GPUs would end it in {now_s:.0f} s, waiting for local ones in"
    if now_s > limit_s:
        why = f"{both} {later_s:.0f} s; its time limit is {limit_s:.0f} s"
    elif now_s < later_s:
        reason = f"{answer.reason}, ends in {now_s:.0f} s instead of {later_s:.0f}"
        return replace(answer, policy=f"{answer.policy}-auto", reason=reason)
    else:
        why = f"{both} {later_s:.0f} s"
    return Wait(why, wait_s)


def predicted_s(
    answer: RemotePlacement, work: JobWork, wires: NetworkSpeeds, running: Mapping[str, int]
) -> float:
    """Seconds that the job takes there, beside the jobs on those nodes."""
    jobs = 1 + _crowd(answer, running)
    return execution_s(work, wires, answer.remote_gpus > 0, jobs)


def _crowd(answer: RemotePlacement, running: Mapping[str, int]) -> int:
    """Jobs that are on the most crowded of its nodes already."""
    nodes = {task.node for task in answer.tasks} | set(answer.donors)
    return max(running[name] for name in nodes)


def local_start_s(
    job: RemoteJob,
    queue: RQueue,
    left: Capacities,
    running: Mapping[str, int],
    releases: Iterable[ExpectedRelease],
) -> float:
    """Seconds until the job would fit on local GPUs if nothing else started; inf if never.

    What `releases` give back of other nodes than these does not count.
    """
    local = replace(queue, remote=False)
    nodes, counts = copies(left.values()), dict(running)
    wanted = sum(job.request.gpus_per_node)
    free = sum(node.free.bit_count() for node in nodes.values())
    in_s = 0.0
    for release in sorted(releases, key=lambda one: one.in_s):
        if release.in_s > in_s and free >= wanted and _fits(local, job, nodes, counts):
            return in_s
        in_s = max(in_s, release.in_s)
        for name in nodes.keys() & (release.gpus.keys() | release.cpus.keys()):
            mask = release.gpus.get(name, 0)
            free += mask.bit_count()
            nodes[name].free |= mask
            counts[name] -= 1
            nodes[name].cpus += release.cpus.get(name, 0)
            nodes[name].memory_mb += release.memory_mb.get(name, 0)
    return in_s if _fits(local, job, nodes, counts) else float("inf")


def _fits(queue: RQueue, job: RemoteJob, nodes: Capacities, counts: Mapping[str, int]) -> bool:
    return isinstance(queue.decide(job, nodes, counts), RemotePlacement)
