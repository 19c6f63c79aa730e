"""What a job asks of Slurm, and what it therefore needs of each node."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import NamedTuple

from gres_topology import hostlist
from slurm_plugin.base.protocol import FORMS, ResourceRequest
from slurm_plugin.queue.candidates import Need, Spread, groups, most_of
from slurm_plugin.queue.capacity import Nodes
from slurm_plugin.slurm.gres_text import counts
from slurm_plugin.slurm.interface import QueuedJob

#: Slurm's codes for a job that lacks nothing but GPUs, CPUs or memory.
READY = frozenset(("", "None", "Resources", "Priority", "Cleaning"))
#: Those of one behind a begin time, or that Slurm has not looked at since it changed.
NOT_LOOKED_AT = ("BeginTime", "None", "")
#: How Slurm's sentences begin for a partition that does not take the job: whatever comes free, it
#: does not start (part_policy_valid_qos and _acct; node_scheduler.c for groups).
ABOUT_ACCESS = ("Job's account", "Job's QOS", "uid ")
#: GPUs are not looked for on more nodes than this.
MAX_NODES = 64
#: The most nodes that a job may name or exclude: the list is expanded at every look.
MAX_NAMED = 4096

_GPU = re.compile(r"(?:gres[/:])?gpu(?:[:=]|\Z)")


class Unplaceable(Exception):
    """GPUs cannot be chosen for this job; the text says why."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, slots=True)
class Demand(ResourceRequest):
    """What a job asks of Slurm, as its user wrote it. 0, '' and an empty set mean unset."""

    #: GPUs in all; 0 where that is not known before the start.
    gpus: int = 0
    #: GPUs on each node; 0 where that is not known before the start.
    per_node: int = 0
    #: GPUs for each task; 0 where they are not counted so.
    per_task: int = 0
    #: Sockets on each node among which its GPUs are to be split evenly.
    sockets: int = 0
    #: GRES types that it names.
    types: frozenset[str] = frozenset()
    nodes: int = 0
    max_nodes: int = 0
    tasks: int = 0
    #: Slurm counts its tasks by its GPUs.
    is_by_gpu: bool = False
    #: Comma-separated.
    partitions: str = ""
    #: The request is in the words of Slurm 22.05 (`gres:gpu:2`).
    is_22_05: bool = False


class Whose(NamedTuple):
    """Jobs that are equal in this have the same limits. As Slurm writes them, '' for none."""

    uid: int
    account: str
    qos: str
    partition: str
    licenses: str

    @classmethod
    def of(cls, job: QueuedJob) -> Whose:
        """What a job is limited by."""
        return cls(job.uid, job.account, job.qos, job.partition, job.licenses)


class Asked(NamedTuple):
    """What a job asks for in all, as far as there are limits of it."""

    nodes: int
    gpus: int
    cpus: int
    memory_mb: int
    #: inf where it has no time limit.
    time_s: float
    #: On each node: there are limits of that, too.
    gpus_each: int = 0
    cpus_each: int = 0
    memory_each_mb: int = 0

    @classmethod
    def of(cls, need: Need, time_s: int) -> Asked:
        """What a job with this need asks for; `time_s` is 0 for no time limit."""
        nodes = need.nodes
        amounts = nodes * need.gpus, nodes * need.cpus, nodes * need.memory_mb
        each = need.gpus, need.cpus, need.memory_mb
        return cls(nodes, *amounts, time_s or math.inf, *each)

    def covers(self, other: Asked) -> bool:
        """Does it ask for no less of anything?"""
        return all(mine >= theirs for mine, theirs in zip(self, other, strict=True))


def lacks_only_room(job: QueuedJob, *also: str) -> bool:
    """Whether Slurm names nothing but room that a waiting job lacks; `also`: or one of these codes.

    In all releases its codes are words of letters alone (src/common/job_state_reason.c), and any
    other one is a limit, a licence, a hold. Where some part of Slurm writes a sentence instead of a
    code (26.05: `No suitable topology unit found`), nothing but ABOUT_ACCESS is known to keep a job
    waiting that is not held.
    """
    code = job.reason.partition(",")[0]
    is_told = not (code.isalpha() or job.held or code.startswith(ABOUT_ACCESS))
    return code in READY or code in also or is_told


def waits_for_room(job: QueuedJob, now: float) -> bool:
    """Whether a job that waits would start if there were room; `now` is an epoch.

    The reason alone does not tell: any update of a job takes away that of its begin time, be that
    its user's or Slurm's own for a job that was requeued.
    """
    return not (job.held or job.depends) and job.eligible <= now and lacks_only_room(job)


def demand_of(job: QueuedJob, sockets: int = 0) -> Demand:
    """What a waiting job asks for in Slurm's own record of it.

    `sockets` is its --sockets-per-node, which no field of the record tells. Raises Unplaceable
    for a job without GPUs.
    """
    gpus = {form: gpus_of(text) for form, text in zip(FORMS, job.requests, strict=True)}
    form = next((form for form, count in gpus.items() if count), "")
    if not form:
        raise Unplaceable("it asks for no GPUs")
    nodes, each, tasks = max(1, job.min_nodes), gpus[form], job.ntasks or 1
    in_all = {"node": each * nodes, "job": each, "task": each * tasks}
    models = {model for text in job.requests for model in gpu_counts(text) if model}
    return Demand(
        form=form,
        gpus=in_all.get(form, 0),
        per_node={"node": each, "socket": each * sockets}.get(form, 0),
        per_task=gpus["task"],
        sockets=sockets if form == "socket" else 0,
        types=frozenset(models),
        nodes=nodes,
        max_nodes=job.max_nodes,
        tasks=tasks,
        is_by_gpu=job.tasks_per_gpu > 0,
        cpus=job.cpus,
        cpus_per_task=job.cpus_per_task,
        cpus_per_gpu=gpus_of(job.cpus_per_tres),
        mem_node_mb=job.memory_per_node_mb,
        mem_cpu_mb=job.memory_per_cpu_mb,
        mem_gpu_mb=gpus_of(job.memory_per_tres),
        exclusive=job.exclusive,
        by_core=job.by_core or (form != "socket" and job.sockets_per_node > 0),
        by_thread=job.by_thread,
        together=job.together,
        features=job.features,
        req_nodes=job.req_nodes,
        exc_nodes=job.exc_nodes,
        reservation=job.reservation,
        partitions=job.partition,
        is_22_05=job.requests.is_22_05,
    )


def need_of(asked: Demand, nodes: Nodes) -> Need:
    """What the job needs of each of its nodes, which are as few as it allows.

    Raises Unplaceable where the GPUs per node cannot be known before the job starts.
    """
    # How many sockets of a node it then gets goes by its tasks, too.
    if not (asked.gpus or asked.sockets) or (asked.form == "socket" and asked.by_core):
        raise Unplaceable("GPUs per node are not known before the start")
    if asked.reservation:
        raise Unplaceable("the job runs in a reservation")
    count = _nodes(asked, nodes)
    gpus = asked.gpus // count if asked.form in ("job", "task") else asked.per_node
    if asked.together and count > 1:
        raise Unplaceable("which nodes are neighbours Slurm alone knows")
    sockets = asked.sockets
    if asked.enforce_binding:
        _check_one_socket(gpus, sockets, nodes)
        sockets = 1
    per_task, per_gpu = asked.cpus_per_task, asked.cpus_per_gpu
    least = max(asked.cpus, per_task * max(1, asked.tasks), per_gpu * gpus * count)
    each = -(-max(least, count) // count)
    partitions = frozenset(filter(None, asked.partitions.split(",")))
    most = [asked.max_nodes, most_of(partitions, nodes, lambda one: one.max_nodes)]
    return Need(
        gpus,
        count,
        each,
        _memory_mb(asked, gpus, each),
        partitions,
        asked.features,
        node_names(asked.req_nodes),
        node_names(asked.exc_nodes),
        asked.exclusive,
        sockets,
        asked.types,
        _spread(asked, gpus, least, min(filter(None, most), default=0), _largest(nodes)),
        asked.by_core,
        asked.by_thread,
    )


def check_served(need: Need, empty: Nodes) -> None:
    """Raises Unplaceable, or Unsupported, where slots cannot serve a job that needs this.

    `empty` are the nodes without jobs.
    """
    if not groups(need, empty):
        raise Unplaceable("no node can ever serve it")
    most = most_of(need.partitions, empty, lambda one: one.max_cpus_per_socket)
    if 0 < most < need.cpus:
        # How many it gets of which socket goes by the cores that others have there.
        raise Unplaceable(
            f"it needs {need.cpus} CPUs of a node, and its partition allows {most} of a socket"
            " (MaxCPUsPerSocket)"
        )


def _memory_mb(asked: Demand, gpus: int, cpus: int) -> int:
    """What it needs of a node on which it has so many GPUs and CPUs."""
    return asked.mem_node_mb or asked.mem_cpu_mb * cpus or asked.mem_gpu_mb * gpus


def _spread(asked: Demand, gpus: int, cpus: int, most: int, largest: int) -> Spread | None:
    """How Slurm may spread a job that needs so many `gpus` of each of as few nodes as it allows.

    `cpus`: in all. `most`: nodes; 0 for no bound. `largest`: the most GPUs of one node.
    """
    is_by_node = asked.form in ("node", "socket")
    # One task's CPUs are of one node.
    if most == 1 or (is_by_node and asked.tasks <= max(1, asked.nodes)):
        return None
    each = asked.cpus_per_task or 1
    unit = gpus if is_by_node else asked.per_task or 1
    # GPUs that are counted for each task go with that task's CPUs.
    with_unit = max(asked.cpus_per_gpu * unit, each if asked.per_task else 0)
    shares = []
    for count in range(1, 1 + (1 if is_by_node else min(asked.gpus, largest) // unit)):
        least = max(each, with_unit * count)
        shares.append((unit * count, least, _memory_mb(asked, unit * count, least)))
    in_all, least = 0 if is_by_node else asked.gpus, asked.nodes or 1
    return Spread(tuple(shares), in_all, cpus, least, most, asked.mem_cpu_mb) if shares else None


def _check_one_socket(gpus: int, sockets: int, nodes: Nodes) -> None:
    """Raises Unplaceable where a job that may use only cores near its GPUs needs several sockets.

    Slurm keeps to the cores near each GRES type in turn, and finds none near two sockets at once.
    """
    sizes = (mask.bit_count() for node in nodes.values() for mask in node.sockets)
    if sockets > 1 or gpus > max(sizes, default=0):
        raise Unplaceable("with --gres-flags=enforce-binding slots have to be of one socket")


def gpu_counts(text: str) -> dict[str, int]:
    """The GPUs that one request names, by type ('' for any)."""
    gpus = [item.replace("=", ":") for item in text.split(",") if "gpu" in item]
    return counts(",".join(gpus))


def gpus_of(text: str) -> int:
    """The number of GPUs that one request names, of whatever type."""
    return sum(gpu_counts(text).values())


def _nodes(asked: Demand, nodes: Nodes) -> int:
    """The fewest nodes that the job may have."""
    least = max(1, asked.nodes)
    if asked.form in ("node", "socket"):
        if not asked.per_node:
            raise Unplaceable("GPUs per node are not known before the start")
        return least
    largest = _largest(nodes)
    for count in range(least, min(asked.max_nodes or MAX_NODES, MAX_NODES) + 1):
        even = asked.gpus % count == 0 and (asked.form != "task" or asked.tasks % count == 0)
        if even and asked.gpus // count <= largest:
            return count
    raise Unplaceable(f"{asked.gpus} GPUs cannot be spread evenly over the nodes asked for")


def _largest(nodes: Nodes) -> int:
    """The most GPUs that one node has."""
    return max((len(node.gpu_types) for node in nodes.values()), default=0)


def node_names(text: str) -> frozenset[str]:
    """The nodes of a host list; raises Unplaceable for one that cannot be read."""
    try:
        return frozenset(hostlist.expand(text, MAX_NAMED)) if text else frozenset()
    except ValueError as error:
        raise Unplaceable(f"node list: {error}") from error


def without_gpus(text: str) -> str:
    """A request without its GPUs: `cpu=4,gres/gpu=1` leaves `cpu=4`."""
    return ",".join(item for item in text.split(",") if item and not _GPU.match(item))
