"""Who lends to a job that fits on no node: the choice among what nodes have left.

The same for every way of enforcing: nothing here knows slots, gates or Slurm's calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from policies import Request, Wait
from policies.remote import NodeCapacity, RemoteJob, RemotePlacement
from policies.remote.r_queue import (
    LEAST_OCCUPIED,
    LOCAL_FIRST,
    NETWORK_AWARE,
    AutoRQueue,
    Release,
    RQueue,
    local_start_s,
)
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.lending.network_use import UNKNOWN, NetworkUse

ORDERS = {"local-first": LOCAL_FIRST, "least-occupied": LEAST_OCCUPIED}


@dataclass(frozen=True, slots=True)
class Spare:
    """What an open node has left: free GPUs (a mask of Slurm's indices), CPUs, MB of memory.

    `jobs` run there now. GPUs are lent among nodes of one `model`.
    """

    name: str
    free: int
    cpus: int
    memory_mb: int
    model: str = ""
    jobs: int = 0


@dataclass(frozen=True, slots=True)
class Borrower:
    """A job of one node that fits on none; `usable` are the names of the nodes it may use.

    With `is_auto` it is lent to only where it is predicted to end sooner, by its `use` of the
    network; Slurm ends it after `limit_s`. `rounds_waited` and `postponed` (by the network
    alone) are DRMaestro's.
    """

    gpus: int
    cpus: int
    memory_mb: int
    usable: frozenset[str]
    is_auto: bool = False
    limit_s: float = math.inf
    use: NetworkUse = UNKNOWN
    rounds_waited: int = 0
    postponed: int = 0


@dataclass(frozen=True, slots=True)
class Market:
    """All there is to lend at one moment, by node.

    `releases` are what running jobs are expected to give back, `loads` what their loans take
    of each node's network (0 to 1).
    """

    spares: Mapping[str, Spare]
    releases: Sequence[Release] = ()
    loads: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Offer:
    """GPUs of the job's own node (`mask` of `host`), those of its donors, and why these."""

    host: str
    mask: int
    donors: Mapping[str, int]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Declined:
    """Nothing is lent. `by_choice`: though enough GPUs are free in all; that is worth telling.

    `is_network`: for a calmer network alone.
    """

    why: str
    by_choice: bool = False
    is_network: bool = False


TOO_FEW = Declined("too few GPUs are free in all")
NO_CPUS = Declined(
    "enough GPUs are free, but not the CPUs or the memory beside them that the job or its donors"
    " need",
    by_choice=True,
)
NOT_PREDICTED = Declined(
    "no profile of the job says how long it runs, so nothing is predicted (profile=NAME)",
    by_choice=True,
)


def offer(job: Borrower, market: Market, settings: RemoteConfig) -> Offer | Declined:
    """The best loan for this job now, by the R queue's rule; for `remote=auto` if it gains.

    At least one GPU is local. Of several GPU models, the one that needs the fewest donors' GPUs.
    """
    if job.is_auto and job.use.work is None:
        return NOT_PREDICTED
    found: list[Offer] = []
    declined = [TOO_FEW]
    wait_s = local_wait_s(job, market, settings) if job.is_auto else 0.0
    for nodes in by_model(job, market):
        for answer in _answers(job, nodes, settings):
            made = judged(job, answer, nodes, settings, wait_s)
            if isinstance(made, Offer):
                found.append(made)
                break
            if made.by_choice:
                declined.insert(0, made)
    if not found and declined[0] is TOO_FEW:
        return too_little(job, market, settings)
    return max(found, key=lambda one: one.mask.bit_count(), default=declined[0])


def too_little(job: Borrower, market: Market, settings: RemoteConfig) -> Declined:
    """What is missing for a job that nothing can be lent to: GPUs, or what they need beside."""
    if settings.preset.max_donors:
        return TOO_FEW
    sums = [sum(node.free.bit_count() for node in nodes) for nodes in by_model(job, market)]
    return NO_CPUS if max(sums, default=0) >= job.gpus else TOO_FEW


def judged(
    job: Borrower,
    answer: RemotePlacement,
    nodes: Sequence[Spare],
    settings: RemoteConfig,
    wait_s: float,
) -> Offer | Declined:
    """A placement as an offer: what can be enacted, and with `remote=auto` what gains.

    `wait_s` is when local GPUs will be free. What can be enacted has a GPU beside the job, and
    no more donors than the middleware knows.
    """
    most = settings.preset.max_donors
    if not answer.remote_gpus or not answer.tasks[0].local or (most and len(answer.donors) > most):
        return TOO_FEW
    if job.is_auto:
        assert job.use.work is not None
        auto = AutoRQueue(queue_of(settings), settings.wires)
        running = {node.name: node.jobs for node in nodes}
        said = auto.judged(answer, job.use.work, running, wait_s, job.limit_s)
        if isinstance(said, Wait):
            return Declined(said.reason, by_choice=True)
        answer = said
    [task] = answer.tasks
    mask = sum(1 << gpu for gpu in task.local)
    return Offer(task.node, mask, dict(answer.donors), f"{answer.policy}: {answer.reason}")


def local_wait_s(job: Borrower, market: Market, settings: RemoteConfig) -> float:
    """Seconds until one of the job's nodes has all of its GPUs free, as jobs end by their limits.

    Jobs that wait in front of it are not looked at: it may be later.
    """
    nodes = [market.spares[name] for name in sorted(job.usable & market.spares.keys())]
    releases = [_on(nodes, one) for one in market.releases]
    running = {node.name: node.jobs for node in nodes}
    rooms = rooms_of(nodes, settings)
    return local_start_s(asked_by(job), queue_of(settings), rooms, running, releases)


def _on(nodes: Sequence[Spare], release: Release) -> Release:
    """The part of a release that is on these nodes."""
    names = {node.name for node in nodes}
    return Release(
        release.in_s,
        {name: mask for name, mask in release.gpus.items() if name in names},
        {name: cpus for name, cpus in release.cpus.items() if name in names},
        {name: memory for name, memory in release.memory_mb.items() if name in names},
    )


def _answers(
    job: Borrower, nodes: Sequence[Spare], settings: RemoteConfig
) -> Iterator[RemotePlacement]:
    """The R queue's answer on nodes of one model; for `remote=auto` also by its network's order.

    The one that the model calls quicker stands first.
    """
    queue = queue_of(settings)
    orders = [queue, replace(queue, donors=NETWORK_AWARE)] if job.is_auto else [queue]
    running = {node.name: node.jobs for node in nodes}
    rooms = rooms_of(nodes, settings)
    found = [one.decide(asked_by(job), rooms, running) for one in orders]
    placed = [answer for answer in found if isinstance(answer, RemotePlacement)]
    if job.is_auto and job.use.work is not None:
        auto, work = AutoRQueue(queue, settings.wires), job.use.work
        placed.sort(key=lambda answer: auto.predicted_s(answer, work, running))
    yield from placed


def asked_by(job: Borrower) -> RemoteJob:
    """The job in the words of the rules."""
    return RemoteJob(
        Request((job.gpus,)),
        job.cpus,
        job.memory_mb,
        rounds_waited=job.rounds_waited,
        postponed=job.postponed,
        sensitivity=job.use.sensitivity,
        max_slowdown=job.use.max_slowdown or math.inf,
    )


def by_model(job: Borrower, market: Market) -> list[list[Spare]]:
    """The nodes this job may use, those of one GPU model together, in the order of names."""
    models: dict[str, list[Spare]] = {}
    for name in sorted(job.usable & market.spares.keys()):
        spare = market.spares[name]
        models.setdefault(spare.model, []).append(spare)
    return [nodes for _, nodes in sorted(models.items())]


def rooms_of(nodes: Iterable[Spare], settings: RemoteConfig) -> dict[str, NodeCapacity]:
    """The nodes in the words of the rules; a GPU lent takes a donor's CPUs and memory, too."""
    cpus, memory_mb = settings.donor_cpus, settings.donor_memory_mb
    return {
        node.name: NodeCapacity(node.name, node.free, node.cpus, node.memory_mb, cpus, memory_mb)
        for node in nodes
    }


def queue_of(settings: RemoteConfig) -> RQueue:
    """The R queue as the site set it."""
    return RQueue(
        donors=ORDERS[settings.donors],
        donor_cpus=settings.donor_cpus,
        donor_memory_mb=settings.donor_memory_mb,
    )
