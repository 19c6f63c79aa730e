"""Who lends to a job that fits on no node: the choice among what nodes have left.

The same for every way of enforcing: nothing here knows slots, gates or Slurm's calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from policies import Request
from policies.r_queue import LEAST_OCCUPIED, LOCAL_FIRST, RQueue
from policies.remote import RemoteJob, RemotePlacement, Room
from slurm_plugin.remote.settings import RemoteConfig

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
    """A job of one node that fits on none; `usable` are the names of the nodes it may use."""

    gpus: int
    cpus: int
    memory_mb: int
    usable: frozenset[str]


@dataclass(frozen=True, slots=True)
class Market:
    """All there is to lend at one moment, by node."""

    spares: Mapping[str, Spare]


@dataclass(frozen=True, slots=True)
class Offer:
    """GPUs of the job's own node (`mask` of `host`), those of its donors, and why these."""

    host: str
    mask: int
    donors: Mapping[str, int]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Declined:
    """Nothing is lent. `by_choice`: it could be, and a rule says that the job had better wait."""

    why: str
    by_choice: bool = False


def offer(job: Borrower, market: Market, settings: RemoteConfig) -> Offer | Declined:
    """The best loan for this job now, by the R queue's rule.

    At least one GPU is local. Of several GPU models, the one that needs the fewest donors' GPUs.
    """
    found = []
    for nodes in by_model(job, market):
        answer = placed(job, nodes, settings)
        if (made := offer_of(answer, settings)) is not None:
            found.append(made)
    best = max(found, key=lambda one: one.mask.bit_count(), default=None)
    return best or Declined("too few GPUs are free in all")


def by_model(job: Borrower, market: Market) -> list[list[Spare]]:
    """The nodes this job may use, those of one GPU model together, in the order of names."""
    models: dict[str, list[Spare]] = {}
    for name in sorted(job.usable & market.spares.keys()):
        spare = market.spares[name]
        models.setdefault(spare.model, []).append(spare)
    return [nodes for _, nodes in sorted(models.items())]


def rooms_of(nodes: Iterable[Spare], settings: RemoteConfig) -> dict[str, Room]:
    """The nodes in the words of the rules; a GPU lent takes a donor's CPUs and memory, too."""
    cpus, memory_mb = settings.donor_cpus, settings.donor_memory_mb
    return {
        node.name: Room(node.name, node.free, node.cpus, node.memory_mb, cpus, memory_mb)
        for node in nodes
    }


def placed(job: Borrower, nodes: Sequence[Spare], settings: RemoteConfig) -> RemotePlacement | None:
    """The R queue's answer on nodes of one model; None where the job does not fit."""
    asked = RemoteJob(Request((job.gpus,)), job.cpus, job.memory_mb)
    running = {node.name: node.jobs for node in nodes}
    answer = queue_of(settings).decide(asked, rooms_of(nodes, settings), running)
    return answer if isinstance(answer, RemotePlacement) else None


def queue_of(settings: RemoteConfig) -> RQueue:
    """The R queue as the site set it."""
    return RQueue(
        donors=ORDERS[settings.donors],
        donor_cpus=settings.donor_cpus,
        donor_memory_mb=settings.donor_memory_mb,
    )


def offer_of(answer: RemotePlacement | None, settings: RemoteConfig) -> Offer | None:
    """What can be enacted: a GPU beside the job, others lent, not by more donors than may be."""
    if answer is None or not answer.remote_gpus or not answer.tasks[0].local:
        return None
    most = settings.preset.max_donors
    if most and len(answer.donors) > most:
        return None
    [task] = answer.tasks
    mask = sum(1 << gpu for gpu in task.local)
    return Offer(task.node, mask, dict(answer.donors), f"{answer.policy}: {answer.reason}")
