"""The nodes, what jobs hold of them, and what waiting jobs need: the nouns of `queue`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from slurm_plugin.gates.slot_request import recorded_demand
from slurm_plugin.job_notes.records import GATED, GateRecord
from slurm_plugin.queue.backfill import in_order
from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.capacity import (
    CLOSED,
    Gpus,
    Hold,
    Node,
    gpus_of_one_model,
    holds_in,
    nodes_of,
)
from slurm_plugin.queue.demand import READY, Demand, Unplaceable, demand_of, need_of, node_names
from slurm_plugin.slurm.interface import QueuedJob, Reservation, SlurmNode
from slurm_plugin.slurm.slot_types import index_of, model_of, slots_of
from slurm_plugin.why.state import WaitingState

#: States that a reservation gives its nodes; whom it keeps out is told by the reservation.
_RESERVED = {"RESERVED", "MAINTENANCE"}


@dataclass(frozen=True, slots=True)
class Site:
    """What there is to share."""

    #: Every node as it is now; those in `closed` are not open.
    nodes: Mapping[str, Node]
    holds: tuple[Hold, ...]
    #: Why nothing can start on a node, as far as the job is concerned.
    closed: Mapping[str, str]


def site_of(state: WaitingState) -> Site:
    """The nodes as they are to the job: GPUs by model, whatever the way of enforcing."""
    running = [job for job in state.snapshot.jobs if job.state != "PENDING"]
    nodes = nodes_of(state.snapshot.nodes, running, _gpus_by_model)
    closed = _closed(state)
    nodes = {name: replace(node, is_open=name not in closed) for name, node in nodes.items()}
    return Site(nodes, tuple(holds_in(nodes, running, state.now)), closed)


def _gpus_by_model(node: SlurmNode) -> Gpus:
    """The GPUs of any node; a slot counts as a GPU of its model."""
    slots = slots_of(node.gpus)
    if slots:
        used = sum(1 << i for i, slot in enumerate(slots) if node.used_by_type.get(slot))
        return Gpus(tuple(map(model_of, slots)), used, model_of(slots[0]))
    if (gpus := gpus_of_one_model(node)) is not None:
        return gpus
    types = tuple(model for model, count in node.gpus.items() for _ in range(count))
    return Gpus(types, sum(1 << gpu for gpu in node.used), "")


def _closed(state: WaitingState) -> dict[str, str]:
    """Nodes on which the job cannot start now, each with the reason."""
    closed: dict[str, str] = {}
    mine = {one.name for one in state.reservations} & set(state.job.reservation.split(","))
    for node in state.snapshot.nodes:
        words = {word.rstrip("*~#!%$@^-+") for word in node.state} & CLOSED - _RESERVED
        if words:
            closed[node.name] = _state_word(words)
    for one in state.reservations:
        if one.name not in mine and (why := _keeps_out(one, state)):
            closed |= {name: why for name in one.nodes if name not in closed}
    own = [one for one in state.reservations if one.name in mine and one.nodes]
    if own:
        inside = {name for one in own for name in one.nodes}
        outside = {node.name for node in state.snapshot.nodes} - inside - closed.keys()
        closed |= dict.fromkeys(outside, "not in its reservation")
    return closed


def _state_word(words: set[str]) -> str:
    if "DRAIN" in words or "DRAINED" in words or "DRAINING" in words:
        return "drained"
    if words & {"DOWN", "NOT_RESPONDING", "FAIL", "ERROR"}:
        return "down"
    return min(words).lower().replace("_", " ")


def _keeps_out(one: Reservation, state: WaitingState) -> str:
    """Why a reservation keeps the job from its nodes now, '' where it does not."""
    what = "under maintenance" if one.is_maintenance else "reserved"
    if one.start <= state.now < one.end:
        return f"{what} ({one.name})"
    limit_s = state.job.time_limit_s
    starts_soon = state.now < one.start and (not limit_s or one.start < state.now + limit_s)
    return f"{what} before the job would end ({one.name})" if starts_soon else ""


def need_of_job(job: QueuedJob, site: Site, entries: str = "") -> Need:
    """What a waiting job needs of each node.

    `entries` are ours about it, where they are not in its AdminComment. Raises Unplaceable where
    that is not known before the start.
    """
    try:
        asked = demand_of_job(job, entries)
        return _without_gpus(job) if asked is None else need_of(asked, site.nodes)
    except ValueError as error:
        raise Unplaceable(str(error)) from error


def demand_of_job(job: QueuedJob, entries: str = "") -> Demand | None:
    """The GPUs that the job's user asked for; None for a job without GPUs.

    Raises Unplaceable or ValueError where the request cannot be read.
    """
    kept = GateRecord.read_from(entries or job.admin_comment)
    if kept is not None:
        models = demand_of(replace(job, **kept.requests._asdict())).types
        return _plain(replace(recorded_demand(job, kept), types=models))
    asks = any("gpu" in text for text in job.requests)
    return _plain(demand_of(job)) if asks else None


def _plain(asked: Demand) -> Demand:
    """Its nodes are judged by the reservation itself; slots that it was given are no model."""
    models = frozenset(kind for kind in asked.types if index_of(kind) is None)
    return replace(asked, reservation="", types=models, enforce_binding=False)


def _without_gpus(job: QueuedJob) -> Need:
    nodes = max(1, job.min_nodes)
    cpus = -(-max(job.cpus, 1) // nodes)
    return Need(
        0,
        nodes,
        cpus,
        job.memory_per_node_mb or job.memory_per_cpu_mb * cpus,
        frozenset(filter(None, job.partition.split(","))),
        job.features,
        node_names(job.req_nodes),
        node_names(job.exc_nodes),
        job.exclusive,
    )


def ahead_of(state: WaitingState) -> list[QueuedJob]:
    """The jobs that are to start before this one on its partitions' nodes, first one first."""
    tiers = state.snapshot.settings.tiers
    others = [job for job in state.snapshot.jobs if job.job_id != state.job.job_id]
    order = in_order([state.job, *(job for job in others if _is_ready(job, state.now))], tiers)
    before = order[: order.index(state.job)]
    mine = _nodes_of_partitions(state.job, state)
    return [job for job in before if mine & _nodes_of_partitions(job, state)]


def _is_ready(job: QueuedJob, now: float) -> bool:
    """Does the job wait for nothing but what others hold?"""
    if job.state != "PENDING" or job.held:
        return False
    kept = GateRecord.read_from(job.admin_comment)
    is_gated = kept is not None and kept.state == GATED and kept.begin <= now
    return is_gated or (job.reason in READY and job.eligible <= now)


def _nodes_of_partitions(job: QueuedJob, state: WaitingState) -> set[str]:
    names = job.partition.split(",")
    parts = (one for one in state.snapshot.settings.partitions if one.name in names)
    return {name for part in parts for name in part.nodes}
