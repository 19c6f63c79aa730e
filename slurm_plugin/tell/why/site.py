"""The nodes, what jobs hold of them, and what waiting jobs need: the nouns of `queue`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from gres_topology import Network
from gres_topology.features import Unsupported
from policies.contract.bits import lowest_bits
from policies.fragmentation import Fragmentation
from slurm_plugin.act.gates.slot_request import recorded_demand
from slurm_plugin.base.job_notes.records import GATED, GateRecord, LoanRecord
from slurm_plugin.queue import backfill
from slurm_plugin.queue.backfill import in_order, place_of
from slurm_plugin.queue.candidates import Need, Spread, fits, free_for, most_of
from slurm_plugin.queue.capacity import (
    Gpus,
    Hold,
    Node,
    Nodes,
    closed_states,
    end_of,
    gpus_by_slot,
    gpus_of_any_type,
    gpus_of_one_model,
    holds_in,
    nodes_of,
    with_hold,
)
from slurm_plugin.queue.demand import (
    Demand,
    Unplaceable,
    demand_of,
    need_of,
    node_names,
    waits_for_room,
)
from slurm_plugin.queue.fragmentation import fragmentation_of, usual_requests
from slurm_plugin.queue.slurms_choice import first_hold, rooms, spread_hold
from slurm_plugin.queue.snapshot import Snapshot
from slurm_plugin.slurm.interface import QueuedJob, Reservation, SlurmNode
from slurm_plugin.slurm.slot_types import index_of, model_of
from slurm_plugin.tell.why.state import WaitingState, WaitReason

#: States that a reservation gives its nodes; whom it keeps out is told by the reservation.
_RESERVED = {"RESERVED", "MAINTENANCE"}
#: Waiting jobs of one user that count in the figures of fragmentation, the first in line.
MOST_COUNTED_OF_ONE = 500


@dataclass(frozen=True, slots=True)
class SiteNodes:
    """The nodes as the job may use them, and what the running jobs hold of them."""

    #: Every node as it is now; those in `closed` are not open.
    nodes: Mapping[str, Node]
    holds: tuple[Hold, ...]
    #: Why nothing can start on a node, as far as the job is concerned.
    closed: Mapping[str, str]
    #: Each GPU has a GRES type of its own: a job gets the same GPUs on all of its nodes if it can.
    is_slots: bool = False
    #: By partition, as far as they are known.
    networks: Mapping[str, Network] = field(default_factory=dict)
    #: What is missing for needs that were looked at already (`shortage_of`).
    shortages: dict[Need, WaitReason | None] = field(default_factory=dict, init=False, repr=False)

    def network_of(self, need: Need) -> Network | None:
        """That within whose units Slurm keeps the job together; None where any nodes will do.

        Of several partitions with topologies of their own Slurm alone knows.
        """
        found = [self.networks.get(name) for name in need.partitions or self.networks]
        first = found[0] if found else None
        if first is None or not first.units or any(one is not first for one in found):
            return None
        return first

    def rooms(self, need: Need, nodes: Mapping[str, Node]) -> list[Nodes]:
        """The nodes, as sets in one of which Slurm keeps the whole job."""
        return rooms(need, nodes, self.network_of(need))

    def hold(self, need: Need, nodes: Mapping[str, Node], end: float) -> Hold | None:
        """What the job would hold of these nodes now until `end`; None where it does not fit."""
        holds = (self._hold_in(room, need, end) for room in self.rooms(need, nodes))
        return next(filter(None, holds), None)

    def start_of(self, need: Need, now: float) -> float:
        """When the job could start as the holds end by their limits (epoch); inf: never known."""
        every = self.rooms(need, self.nodes)
        starts = (backfill.earliest_start(need, room, self.holds, now) for room in every)
        return min(starts, default=math.inf)

    def delays(self, first: Need, new: Sequence[Hold], now: float) -> bool:
        """Would the holds `new`, which are not in `nodes` yet, make the first job start later?"""
        every = self.rooms(first, self.nodes)
        if len(every) == 1:
            return backfill.delays(first, every[0], self.holds, new, now)
        starts = [backfill.earliest_start(first, room, self.holds, now) for room in every]
        soonest = min(starts, default=math.inf)
        return bool(every) and all(
            start > soonest or backfill.delays(first, room, self.holds, new, now)
            for start, room in zip(starts, every, strict=True)
        )

    def _hold_in(self, nodes: Mapping[str, Node], need: Need, end: float) -> Hold | None:
        same = first_hold(need, nodes, end) if self.is_slots or need.nodes == 1 else None
        if same is not None or need.nodes == 1:
            return same
        # Where no GPUs are free on all of its nodes Slurm itself chooses.
        ready = [node for node in nodes.values() if fits(need, node)]
        ready.sort(key=lambda node: (node.name not in need.req_nodes, node.weight, node.name))
        lacks_named = not need.req_nodes.issubset(node.name for node in ready)
        if len(ready) < need.nodes or lacks_named:
            return spread_hold(need, nodes, end)
        chosen = ready[: need.nodes]
        masks = {node.name: lowest_bits(free_for(need, node), need.gpus) for node in chosen}
        return replace(need.hold((), 0, end), gpus=masks)


def site_of(state: WaitingState) -> SiteNodes:
    """The nodes as they are to the job: GPUs by model, whatever the way of enforcing."""
    running = state.snapshot.active
    partitions = state.snapshot.settings.partitions
    nodes = nodes_of(state.snapshot.nodes, running, _gpus_by_model, partitions=partitions)
    closed = _closed(state)
    nodes = {name: replace(node, is_open=name not in closed) for name, node in nodes.items()}
    holds = tuple(holds_in(nodes, running, state.now))
    return SiteNodes(nodes, holds, closed, state.snapshot.has_slots, _networks(state))


def _networks(state: WaitingState) -> dict[str, Network]:
    """The networks of the partitions, as far as slurmctld told them."""
    settings = state.snapshot.settings
    if (told := settings.networks) is None:
        return {}
    found = ((one.name, told.of(one.topology)) for one in settings.partitions)
    return {name: network for name, network in found if network is not None}


def without_loans(site: SiteNodes, state: WaitingState) -> tuple[SiteNodes, dict[int, Hold]]:
    """The site without the GPUs that are kept for loans whose borrowers wait to start.

    And what each of the borrowers and their donors that wait is going to hold, by its job's id.
    The records stand in the jobs' AdminComment: of jobs that Slurm hides nothing is known.
    """
    waiting = {job.job_id: job for job in state.snapshot.jobs if job.state == "PENDING"}
    kept: dict[int, Hold] = {}
    for job in waiting.values():
        record = LoanRecord.read_from(job.admin_comment) or GateRecord.read_from(job.admin_comment)
        loan = record.loan if record is not None else None
        if loan is None or job.job_id == state.job.job_id:
            continue
        shares = [(job, loan.host, loan.mask)]
        shares += [(waiting[d.job_id], d.node, d.mask) for d in loan.donors if d.job_id in waiting]
        for one, node, mask in shares:
            memory = one.memory_per_node_mb or one.memory_per_cpu_mb * one.cpus
            end = end_of(one, state.now)
            kept[one.job_id] = Hold({node: mask}, one.cpus, memory, end, one.partition)
    nodes = dict(site.nodes)
    for hold in kept.values():
        nodes = with_hold(nodes, hold)
    return replace(site, nodes=nodes, holds=(*site.holds, *kept.values())), kept


def _gpus_by_model(node: SlurmNode) -> Gpus:
    """The GPUs of any node; a slot counts as a GPU of its model."""
    if (slots := gpus_by_slot(node)) is not None:
        return slots._replace(types=tuple(map(model_of, slots.types)))
    return gpus_of_one_model(node) or gpus_of_any_type(node)


def _closed(state: WaitingState) -> dict[str, str]:
    """Nodes on which the job cannot start now, each with the reason."""
    closed: dict[str, str] = {}
    mine = {one.name for one in state.extras.reservations} & set(state.job.reservation.split(","))
    for node in state.snapshot.nodes:
        if words := closed_states(node) - _RESERVED:
            closed[node.name] = _state_word(words)
    for one in state.extras.reservations:
        if one.name not in mine and (why := _keeps_out(one, state)):
            closed |= {name: why for name in one.nodes if name not in closed}
    own = [one for one in state.extras.reservations if one.name in mine and one.nodes]
    if own:
        inside = {name for one in own for name in one.nodes}
        outside = {node.name for node in state.snapshot.nodes} - inside - closed.keys()
        closed |= dict.fromkeys(outside, "not in its reservation")
    return closed


def _state_word(words: frozenset[str]) -> str:
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


def need_of_job(job: QueuedJob, site: SiteNodes, entries: str = "") -> Need:
    """What a waiting job needs of each node.

    `entries` are ours about it, where they are not in its AdminComment. Raises Unplaceable where
    that is not known before the start.
    """
    try:
        asked = demand_of_job(job, entries)
        return _without_gpus(job, site.nodes) if asked is None else need_of(asked, site.nodes)
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


def _without_gpus(job: QueuedJob, nodes: Nodes) -> Need:
    count, each = max(1, job.min_nodes), max(1, job.cpus_per_task)
    cpus = -(-max(job.cpus, 1) // count)
    memory = job.memory_per_node_mb
    partitions = frozenset(filter(None, job.partition.split(",")))
    bounds = job.max_nodes, most_of(partitions, nodes, lambda one: one.max_nodes)
    most = min(filter(None, bounds), default=0)
    spread = None
    if most != 1 and job.ntasks > count and not job.tasks_per_node:
        # Each node gets as many whole tasks as it has room for.
        share = (0, each, memory or job.memory_per_cpu_mb * each)
        spread = Spread((share,), 0, job.cpus, count, most, job.memory_per_cpu_mb)
    return Need(
        0,
        count,
        cpus,
        memory or job.memory_per_cpu_mb * cpus,
        partitions,
        job.features,
        node_names(job.req_nodes),
        node_names(job.exc_nodes),
        job.exclusive,
        spread=spread,
    )


class QueueOrder:
    """The jobs of one snapshot that wait for nothing but what others hold, first one first.

    It is made once, and asked about any number of jobs.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._tiers = snapshot.settings.tiers
        self._nodes_of: dict[str, frozenset[str]] = {}

    @cached_property
    def jobs(self) -> list[QueuedJob]:
        """All of them, in Slurm's order."""
        now = self._snapshot.at
        return in_order((job for job in self._snapshot.jobs if _is_ready(job, now)), self._tiers)

    def ahead_of(self, job: QueuedJob) -> list[QueuedJob]:
        """Those that are to start before this one on its partitions' nodes."""
        place, mine = place_of(job, self._tiers), self._nodes(job.partition)
        return [
            other
            for other in self.jobs
            if other.job_id != job.job_id
            and place_of(other, self._tiers) < place
            and mine & self._nodes(other.partition)
        ]

    def _nodes(self, partitions: str) -> frozenset[str]:
        """The nodes of these partitions, whose names are separated by commas."""
        members = self._nodes_of.get(partitions)
        if members is None:
            names = partitions.split(",")
            parts = (one for one in self._snapshot.settings.partitions if one.name in names)
            members = frozenset(node for one in parts for node in one.nodes)
            self._nodes_of[partitions] = members
        return members


def ahead_of(state: WaitingState) -> list[QueuedJob]:
    """The jobs that are to start before this one on its partitions' nodes, first one first."""
    return QueueOrder(state.snapshot).ahead_of(state.job)


def _is_ready(job: QueuedJob, now: float) -> bool:
    """Does the job wait for nothing but what others hold?"""
    if job.state != "PENDING" or job.held:
        return False
    kept = GateRecord.read_from(job.admin_comment)
    is_gated = kept is not None and kept.state == GATED and kept.begin <= now
    return is_gated or waits_for_room(job, now)


def fragmentation_now(
    snapshot: Snapshot, site: SiteNodes, entries: Callable[[QueuedJob], str] = lambda job: ""
) -> Fragmentation:
    """How scattered the free GPUs are to the jobs of the snapshot.

    `entries` are ours about a job, where they are not in its AdminComment.
    """
    needs = []
    of_one: Counter[int] = Counter()
    for job in QueueOrder(snapshot).jobs:
        of_one[job.uid] += 1
        # One user's many jobs must not keep everybody waiting for the figures.
        if of_one[job.uid] > MOST_COUNTED_OF_ONE:
            continue
        with suppress(Unplaceable, Unsupported):
            needs.append(need_of_job(job, site, entries(job)))
    usual = usual_requests(snapshot.jobs)
    return fragmentation_of(site.nodes, needs, usual, site.network_of)
