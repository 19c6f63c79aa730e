"""Which nodes lend to a job that fits on no node, by the R queue's rules.

The same for every way of enforcing: nothing here knows slots, gates or Slurm's calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from policies import Wait, mask_of
from policies.remote import NodeCapacity, RemoteJob, RemotePlacement
from policies.remote.r_queue import (
    LEAST_OCCUPIED,
    LOCAL_FIRST,
    NETWORK_AWARE,
    ExpectedRelease,
    RQueue,
    auto,
    local_start_s,
)
from slurm_plugin.act.lending.choice.network_use import UNKNOWN, NetworkUse
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.queue.capacity import Hold, Node, Nodes

ORDERS = {"local-first": LOCAL_FIRST, "least-occupied": LEAST_OCCUPIED}


@dataclass(frozen=True, slots=True)
class Borrower:
    """A job of one node that fits on none."""

    #: What it needs, in the R queue's terms.
    asked: RemoteJob
    #: The names of the nodes that it may use.
    usable: frozenset[str]
    #: It borrows only where it is predicted to end sooner than by waiting.
    is_auto: bool = False
    #: Its time limit in seconds, and when (epoch) that is over if it starts now.
    limit_s: float = math.inf
    end: float = math.inf
    use: NetworkUse = UNKNOWN
    #: Its own; empty for any.
    partitions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SpareCapacity:
    """All there is to lend at one moment."""

    nodes: Nodes
    #: What running jobs are expected to give back.
    releases: Sequence[ExpectedRelease] = ()
    #: How much of each node's network the running loans take, from 0 to 1.
    loads: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Offer:
    """A loan that could be made."""

    #: The job's own node, and the mask of the GPUs that it has there.
    host: str
    mask: int
    #: The mask of GPUs that each other node lends.
    donors: Mapping[str, int]
    why: str = ""
    #: What the loan takes of each of its nodes, the job's own first.
    holds: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing is lent to a job."""

    why: str
    #: Enough GPUs are free in all, so the user is told why none are lent.
    by_choice: bool = False
    #: Only the load of the network is in the way.
    is_network: bool = False


TOO_FEW = Refusal("too few GPUs are free in all")
NO_CPUS = Refusal(
    "enough GPUs are free, but not the CPUs or the memory beside them that the job or its donors"
    " need",
    by_choice=True,
)
TOO_SLOW = Refusal(
    "donors for this user's jobs took too long to submit, so nothing is lent to them for some"
    " minutes",
    by_choice=True,
)
NOT_PREDICTED = Refusal(
    "no profile of the job says how long it runs, so nothing is predicted (profile=NAME)",
    by_choice=True,
)


def offer(job: Borrower, capacity: SpareCapacity, settings: RemoteConfig) -> Offer | Refusal:
    """The best loan for this job now by the R queue's rule; with `remote=auto` only one that gains.

    At least one GPU is local. Of several GPU models, the one that needs the fewest donors' GPUs.
    """
    if job.is_auto and job.use.work is None:
        return NOT_PREDICTED
    offers: list[Offer] = []
    refusals = [TOO_FEW]
    wait_s = local_wait_s(job, capacity, settings) if job.is_auto else 0.0
    for nodes in by_model(job, capacity, settings):
        for answer in _answers(job, nodes, settings):
            made = judged(job, answer, nodes, settings, wait_s)
            if isinstance(made, Offer):
                offers.append(made)
                break
            if made.by_choice:
                refusals.insert(0, made)
    if not offers and refusals[0] is TOO_FEW:
        return too_little(job, capacity, settings)
    return max(offers, key=lambda one: one.mask.bit_count(), default=refusals[0])


def too_little(job: Borrower, capacity: SpareCapacity, settings: RemoteConfig) -> Refusal:
    """What is missing where nothing can be lent: GPUs, or CPUs and memory beside them."""
    if settings.preset.max_donors:
        return TOO_FEW
    sums = [
        sum(node.free.bit_count() for node in nodes) for nodes in by_model(job, capacity, settings)
    ]
    return NO_CPUS if max(sums, default=0) >= sum(job.asked.request.gpus_per_node) else TOO_FEW


def judged(
    job: Borrower,
    answer: RemotePlacement,
    nodes: Sequence[Node],
    settings: RemoteConfig,
    wait_s: float,
) -> Offer | Refusal:
    """A placement as an offer; a refusal where it cannot be done, or gains nothing (`remote=auto`).

    `wait_s`: seconds until local GPUs are free.
    """
    most = settings.preset.max_donors
    host, hosts = answer.tasks[0], job.asked.hosts
    if not answer.remote_gpus or not host.local or (hosts and host.node not in hosts):
        return TOO_FEW
    if most and len(answer.donors) > most:
        return TOO_FEW
    if job.is_auto:
        assert job.use.work is not None
        running = {node.name: node.jobs for node in nodes}
        said = auto.judged(answer, job.use.work, settings.wires, running, wait_s, job.limit_s)
        if isinstance(said, Wait):
            return Refusal(said.reason, by_choice=True)
        answer = said
    [task] = answer.tasks
    mask, donors = mask_of(task.local), answer.donors
    holds = [Hold({task.node: mask}, job.asked.cpus, job.asked.memory_mb, job.end)]
    for node, lent in donors.items():
        gpus = lent.bit_count()
        donor = settings.donor_cpus * gpus, settings.donor_memory_mb * gpus
        holds.append(Hold({node: lent}, *donor, job.end))
    return Offer(task.node, mask, donors, f"{answer.policy}: {answer.reason}", tuple(holds))


def local_wait_s(job: Borrower, capacity: SpareCapacity, settings: RemoteConfig) -> float:
    """Seconds until one of the job's nodes has enough free GPUs, if jobs end by their time limits.

    Waiting jobs ahead of it are not counted, so the real wait may be longer.
    """
    nodes = [capacity.nodes[name] for name in sorted(job.usable & capacity.nodes.keys())]
    running = {node.name: node.jobs for node in nodes}
    capacities = capacities_of(nodes, settings, job.partitions)
    return local_start_s(job.asked, queue_of(settings), capacities, running, capacity.releases)


def _answers(
    job: Borrower, nodes: Sequence[Node], settings: RemoteConfig
) -> Iterator[RemotePlacement]:
    """The R queue's answers on nodes of one model; with `remote=auto` also one by network order.

    The one that the model predicts to be quicker comes first.
    """
    queue = queue_of(settings)
    orders = [queue, replace(queue, donors=NETWORK_AWARE)] if job.is_auto else [queue]
    running = {node.name: node.jobs for node in nodes}
    capacities = capacities_of(nodes, settings, job.partitions)
    answers = [one.decide(job.asked, capacities, running) for one in orders]
    placed = [answer for answer in answers if isinstance(answer, RemotePlacement)]
    if job.is_auto and job.use.work is not None:
        work, wires = job.use.work, settings.wires
        placed.sort(key=lambda answer: auto.predicted_s(answer, work, wires, running))
    yield from placed


def by_model(job: Borrower, capacity: SpareCapacity, settings: RemoteConfig) -> list[list[Node]]:
    """The nodes that this job may use, grouped by models that lend to each other, by name."""
    models: dict[str, list[Node]] = {}
    for name in sorted(job.usable & capacity.nodes.keys()):
        node = capacity.nodes[name]
        models.setdefault(min(settings.like(node.model)), []).append(node)
    return [nodes for _, nodes in sorted(models.items())]


def capacities_of(
    nodes: Iterable[Node], settings: RemoteConfig, partitions: frozenset[str] = frozenset()
) -> dict[str, NodeCapacity]:
    """The nodes in the R queue's terms. A GPU that is lent takes a donor's CPUs and memory, too.

    Of CPUs those count that Slurm gives jobs of these partitions which take all free GPUs.
    """
    lent = settings.donor_cpus, settings.donor_memory_mb
    return {
        node.name: NodeCapacity(
            node.name,
            node.free,
            node.cpus_for(node.free.bit_count(), partitions),
            node.memory_mb,
            *lent,
        )
        for node in nodes
    }


def queue_of(settings: RemoteConfig) -> RQueue:
    """The R queue as the site set it."""
    return RQueue(ORDERS[settings.donors])
