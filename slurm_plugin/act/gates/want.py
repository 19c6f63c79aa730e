"""What waiting jobs want, read from Slurm once and kept while nothing about them changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gres_topology.features import Unsupported
from slurm_plugin.act.gates.plan import Want
from slurm_plugin.act.gates.slot_request import NO_DEFAULTS, check_tasks, recorded_demand
from slurm_plugin.base.job_notes.records import GATED, PLACED, GateRecord
from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.capacity import Nodes
from slurm_plugin.queue.demand import Unplaceable, check_served, need_of
from slurm_plugin.slurm.interface import JobDefaults, QueuedJob

CHANGED = "its request was changed while it waited"
#: Needs beside those of the jobs there are that are kept.
MOST_NEEDS = 1000


def want_of(
    job: QueuedJob, empty: Nodes, defaults: Mapping[str, JobDefaults] = NO_DEFAULTS
) -> Want | None:
    """What a job wants; None for one without our bracket. `empty` are the nodes without jobs.

    `defaults`: what each partition gives a job that does not say.
    """
    kept = GateRecord.read_from(job.admin_comment)
    if kept is None:
        return None
    if kept.is_changed and kept.state == GATED:
        return Want(kept, problem=CHANGED)
    try:
        asked = recorded_demand(job, kept, defaults)
        need = need_of(asked, empty)
        check_tasks(asked, need)
        if kept.state == PLACED and (loan := kept.loan):
            # Its other GPUs are its donors'.
            need = replace(need, gpus=loan.mask.bit_count())
        check_served(need, empty)
    except Unsupported as error:
        return Want(kept, problem=f"the constraint {error} cannot be judged")
    except (Unplaceable, ValueError) as error:
        return Want(kept, problem=str(error))
    return Want(kept, asked, need)


class Wants:
    """Keeps what was read; a thousand jobs at every poll are too many to read anew."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[tuple[object, ...], Want | None]] = {}
        # Equal needs are one object: a plan tells by that what it has looked at.
        self._needs: dict[Need, Need] = {}
        self._machine: frozenset[object] = frozenset()

    def read(
        self,
        jobs: Iterable[QueuedJob],
        empty: Nodes,
        defaults: Mapping[str, JobDefaults] = NO_DEFAULTS,
    ) -> dict[int, Want]:
        """Wants by job id, of the jobs that have our bracket."""
        machine = frozenset(
            (
                *(node.name, node.gpu_types, node.kind, node.partitions, node.features),
                *(node.cpus, node.memory_mb, node.cpus_by_gpu, *sorted(node.limits.items())),
            )
            for node in empty.values()
        ) | {*defaults.items()}
        if machine != self._machine:
            self._machine, self._kept, self._needs = machine, {}, {}
        kept: dict[int, tuple[tuple[object, ...], Want | None]] = {}
        for job in jobs:
            seen = _watched(job)
            before = self._kept.get(job.job_id)
            if before is None or before[0] != seen:
                before = (seen, self._want(job, empty, defaults))
            kept[job.job_id] = before
        self._kept = kept
        if len(self._needs) > MOST_NEEDS + len(kept):
            self._needs = {}
        return {job_id: want for job_id, (_, want) in kept.items() if want is not None}

    def _want(
        self, job: QueuedJob, empty: Nodes, defaults: Mapping[str, JobDefaults]
    ) -> Want | None:
        want = want_of(job, empty, defaults)
        if want is None or want.need is None:
            return want
        return replace(want, need=self._needs.setdefault(want.need, want.need))


def _watched(job: QueuedJob) -> tuple[object, ...]:
    return (
        *(job.admin_comment, job.partition, job.features, job.req_nodes, job.exc_nodes),
        *(job.time_limit_s, job.ntasks, job.cpus, job.exclusive, job.reservation),
        *(job.memory_per_node_mb, job.memory_per_cpu_mb, job.memory_per_tres),
        *(job.tres_per_node, job.tres_per_job),
    )
