"""Jobs behind gates that start together or not at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from slurm_plugin.gates.plan import Want
from slurm_plugin.slurm.interface import QueuedJob

Member = tuple[QueuedJob, Want]


@dataclass(frozen=True, slots=True)
class Unit:
    """One job, or the components of a heterogeneous one that get slots, by their offset."""

    members: tuple[Member, ...]
    #: Components that are Slurm's own, such as those without GPUs.
    others: tuple[QueuedJob, ...] = ()

    @property
    def first(self) -> Member:
        """The job, or its first component."""
        return self.members[0]


def units_of(ordered: Iterable[QueuedJob], wants: Mapping[int, Want]) -> list[Unit]:
    """The units of pending jobs, in their order."""
    together: dict[tuple[str, int], list[Member]] = {}
    others: defaultdict[int, list[QueuedJob]] = defaultdict(list)
    for job in ordered:
        want = wants.get(job.job_id)
        if want is not None:
            key = ("het", job.het_id) if job.het_id else ("job", job.job_id)
            together.setdefault(key, []).append((job, want))
        elif job.het_id:
            others[job.het_id].append(job)
    return [_unit(members, others[members[0][0].het_id]) for members in together.values()]


def _unit(members: list[Member], others: list[QueuedJob]) -> Unit:
    first, *rest = sorted(members, key=lambda member: member[0].het_offset)
    token = first[1].kept.token
    own = [first]
    for job, want in rest:
        if want.kept.token != token:
            own.append((job, want))
        else:
            # Slurm gave it the first one's comment, and its own update never came.
            others.append(replace(job, admin_comment="", req_nodes=""))
    return Unit(tuple(own), tuple(others))
