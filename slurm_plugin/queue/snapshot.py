"""Slurm's queue and nodes at one moment, as every part of the engine sees them."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from math import inf
from pathlib import Path

from gres_topology.slurm_files.network import TREE, Network, Networks
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.clients.scontrol_tables import job_defaults
from slurm_plugin.slurm.interface import JobDefaults, QueuedJob, SlurmNode, SlurmPartition
from slurm_plugin.slurm.slot_types import slots_of


class Detail(IntEnum):
    """How much of Slurm a snapshot shows; each has what those before it have."""

    JOBS = 0
    NODES = 1
    SETTINGS = 2


#: States of partitions that start no jobs.
CLOSED = ("DOWN", "INACTIVE")
#: Slurm's SchedulerType, by default.
BACKFILL = "sched/backfill"


@dataclass(frozen=True)
class Settings:
    """What changes seldom: the partitions, and slurm.conf's values as Slurm shows them.

    It is used for many looks, so what follows from it is found once.
    """

    partitions: tuple[SlurmPartition, ...] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    #: What slurmctld has in force, of a kind that is empty where it does not say; None where it
    #: weighs no network.
    networks: Networks | None = None

    def configured_at(self) -> float:
        """When slurmctld last read slurm.conf (epoch), by a file that it then writes.

        0.0 where that cannot be seen from here. Looks at the file system.
        """
        folder = self.config.get("StateSaveLocation", "")
        try:
            return os.stat(os.path.join(folder, "last_config_lite")).st_mtime
        except (OSError, ValueError):
            return 0.0

    @property
    def tiers(self) -> dict[str, int]:
        """Each partition's PriorityTier."""
        return {partition.name: partition.priority_tier for partition in self.partitions}

    @cached_property
    def by_name(self) -> dict[str, SlurmPartition]:
        """The partitions by their name."""
        return {partition.name: partition for partition in self.partitions}

    @cached_property
    def default_partition(self) -> str:
        """That of jobs that name none; '' where there is none."""
        return next((one.name for one in self.partitions if one.is_default), "")

    @cached_property
    def closing(self) -> frozenset[str]:
        """The partitions whose jobs close their nodes to other users."""
        return frozenset(one.name for one in self.partitions if one.closes_nodes)

    @cached_property
    def preempting(self) -> frozenset[str]:
        """The partitions whose jobs may preempt others."""
        if "partition_prio" not in self.config.get("PreemptType", ""):
            return frozenset()
        lowest = min(self.tiers.values(), default=1)
        return frozenset(name for name, tier in self.tiers.items() if tier > lowest)

    @cached_property
    def defaults(self) -> dict[str, JobDefaults]:
        """What each partition gives a job that does not say."""
        of_all = job_defaults(self.config)
        return {partition.name: partition.defaults.over(of_all) for partition in self.partitions}

    @property
    def is_up(self) -> bool:
        """Do all partitions start jobs?"""
        return not any(partition.state in CLOSED for partition in self.partitions)

    @property
    def tracks_memory(self) -> bool:
        """Does Slurm count the memory that jobs take (CR_Memory, alone or with another unit)?"""
        return "MEMORY" in self.config.get("SelectTypeParameters", "").upper()

    @cached_property
    def unlike_sharing(self) -> frozenset[str]:
        """The partitions on some of whose nodes another one's jobs may keep Slurm from theirs.

        On a node with a job of a partition whose jobs may share cores Slurm starts none of another
        one that does not share them; nor one that does beside jobs that do not (cons_tres'
        job_test.c, `_verify_node_state`).
        """

        def is_kept_out(one: SlurmPartition, other: SlurmPartition) -> bool:
            shares = other.share > 1 or (one.is_share_forced and one.share > 1)
            return shares and one.name != other.name and not {*one.nodes}.isdisjoint(other.nodes)

        every = self.partitions
        return frozenset(
            one.name for one in every if any(is_kept_out(one, other) for other in every)
        )

    @property
    def is_by_core(self) -> bool:
        """Does Slurm give jobs whole sockets, or a whole core for each task?"""
        text = self.config.get("SelectTypeParameters", "").upper()
        return "SOCKET" in text or "ONE_TASK_PER_CORE" in text

    def first_of(self, names: str, able: Collection[str]) -> str:
        """In which of several partitions Slurm looks at a job first; '' where that is not known.

        `able`: those that would start it. One that is not for everybody may refuse it.
        """
        if "," not in names:
            return ""
        found = [self.by_name.get(name) for name in names.split(",") if name in able]
        is_up = [one for one in found if one is not None and one.state not in CLOSED]
        if not is_up:
            return ""
        first = max(is_up, key=lambda one: one.priority_tier)
        lists = first.allow_accounts, first.deny_accounts, first.allow_qos, first.deny_qos
        return "" if any((*lists, first.allow_groups)) else first.name

    def why_slurms(self, partitions: Iterable[str], nodes: int) -> str:
        """Why a job of these partitions that needs so many nodes is Slurm's to place.

        '' where it is not. A job that names nodes of two blocks, or of two trees, is refused, or
        held for good.
        """
        found = [self.by_name[name] for name in partitions if name in self.by_name]
        if any(one.share == 0 or one.min_nodes > nodes for one in found):
            return "its partition gives more than it asks for (MinNodes, OverSubscribe=EXCLUSIVE)"
        if nodes > 1 and not self._are_joined(found):
            return "its nodes are to be in one network, which Slurm alone knows"
        return ""

    def _are_joined(self, partitions: Sequence[SlurmPartition]) -> bool:
        """Whether Slurm gives a job any of these partitions' nodes together, as far as it said."""
        if self.networks is None:
            return True
        names = {one.topology for one in partitions} or {""}
        network = self.networks.of(names.pop())
        if names or network is None or network.kind != TREE:
            return False
        return network.common(node for one in partitions for node in one.nodes) is not None

    @property
    def has_limits(self) -> bool:
        """Does Slurm hold users, accounts and QOS to limits?"""
        enforced = self.config.get("AccountingStorageEnforce", "").split(",")
        return not {"limits", "safe"}.isdisjoint(enforced)

    @cached_property
    def backfill_s(self) -> int:
        """How long Slurm rests between two rounds of backfill, in seconds."""
        return self._scheduling("bf_interval", 30)

    @cached_property
    def look_s(self) -> int:
        """After so many seconds Slurm has looked at a job, its backfill included.

        Backfill rounds times by its resolution.
        """
        rest_s = self.backfill_s
        parts = self._scheduling("bf_max_time", rest_s), self._scheduling("bf_resolution", 60)
        return rest_s + sum(parts) + 30

    @cached_property
    def window_s(self) -> int:
        """How far ahead backfill plans, in seconds."""
        return 60 * self._scheduling("bf_window", 1440)

    def over_limit_s(self, partition: str) -> float:
        """How much longer than its limit a job of the partition may run, in seconds; inf: for ever.

        OverTimeLimit of the partition, or of slurm.conf: minutes, NONE or UNLIMITED. Where it reads
        otherwise, or nothing was read yet, for ever.
        """
        one = self.by_name.get(partition)
        text = one.over_time_limit if one is not None else ""
        if text in ("", "NONE"):
            text = self.config.get("OverTimeLimit", "").removesuffix(" min")
        return 60.0 * int(text) if text.isascii() and text.isdecimal() else inf

    def _scheduling(self, key: str, default: int) -> int:
        """The number that SchedulerParameters gives for `key`; `default` where it gives none."""
        words = self.config.get("SchedulerParameters", "").split(",")
        told = (word.partition("=")[2] for word in words if word.strip().startswith(f"{key}="))
        text = next(told, "")
        return int(text) if text.isascii() and text.isdecimal() else default

    @property
    def backfills(self) -> bool:
        """May jobs pass the first that waits? By default they may, under other schedulers not."""
        return self.config.get("SchedulerType", BACKFILL) == BACKFILL

    @property
    def hides_jobs(self) -> bool:
        """Does Slurm hide users' jobs from one another (PrivateData)? From no operator.

        Slurm always shows that value, so where it is missing nothing was read yet.
        """
        return "jobs" in self.config.get("PrivateData", "jobs").split(",")


#: Where nothing was read yet.
NO_SETTINGS = Settings()


def would_start(
    names: Iterable[str], time_s: int, nodes: int, partitions: Mapping[str, SlurmPartition]
) -> bool:
    """Could one of these partitions ever start a job of this time limit (0: none) and size?

    One that is down is not asked about: it comes up again.
    """
    found = [partitions[name] for name in names if name in partitions]
    return not found or any(
        not (0 < one.max_time_s < time_s) and not (0 < one.max_nodes < nodes) for one in found
    )


def is_up(names: Iterable[str], partitions: Mapping[str, SlurmPartition]) -> bool:
    """Does one of these partitions start jobs now?"""
    found = [partitions[name] for name in names if name in partitions]
    return not found or any(one.state not in CLOSED for one in found)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Nothing of it is ever changed, so any thread may read it."""

    #: When reading it began (seconds of a clock that nobody sets). Later changes may be missing.
    began: float
    #: The same as an epoch.
    at: float
    #: Every job that waits or holds resources, by id.
    jobs: tuple[QueuedJob, ...]
    detail: Detail = Detail.JOBS
    #: Every node, by name; empty without that detail.
    nodes: tuple[SlurmNode, ...] = ()
    settings: Settings = NO_SETTINGS

    @property
    def active(self) -> list[QueuedJob]:
        """The jobs that hold something."""
        return [job for job in self.jobs if job.state != "PENDING"]

    @property
    def has_slots(self) -> bool:
        """Has each GPU of some node a GRES type of its own (`enforcement: slots`)?"""
        return any(slots_of(node.gpus) for node in self.nodes)


def _networks(client: SlurmClient, config: Mapping[str, str]) -> Networks | None:
    """The networks that slurmctld weighs; topology.yaml may name some whatever slurm.conf says."""
    plugin = config.get("TopologyPlugin", "")
    beside = Path(config.get("SLURM_CONF", "/etc/slurm/slurm.conf")).parent
    if not ("block" in plugin or "tree" in plugin or os.path.exists(beside / "topology.yaml")):
        return None
    try:
        return client.networks()
    except SlurmError as error:
        untold = Network((), str(error), "")
        return Networks({"": untold}, untold)


def read_snapshot(
    client: SlurmClient,
    detail: Detail = Detail.SETTINGS,
    settings: Settings | None = None,
    began: float | None = None,
    at: float | None = None,
) -> Snapshot:
    """Ask Slurm. `settings` are read anew where none are given.

    `began` and `at` are now where not given. Raises SlurmError where Slurm does not answer.
    """
    began = time.monotonic() if began is None else began
    at = time.time() if at is None else at
    # The queue first: a job that starts in between is then counted twice, never missed.
    jobs = tuple(client.queue())
    nodes = tuple(client.nodes()) if detail >= Detail.NODES else ()
    if detail >= Detail.SETTINGS and settings is None:
        partitions, config = tuple(client.partitions()), dict(client.config())
        settings = Settings(partitions, config, _networks(client, config))
    return Snapshot(began, at, jobs, detail, nodes, settings or Settings())
