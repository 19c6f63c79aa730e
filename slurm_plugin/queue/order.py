"""The order in which Slurm considers waiting jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slurm_plugin.slurm.interface import QueuedJob


def in_order(jobs: Iterable[QueuedJob], tiers: Mapping[str, int]) -> list[QueuedJob]:
    """Highest partition tier first, then priority, then who came first.

    `tiers` are the partitions' PriorityTier; of several partitions the highest counts.
    """

    def key(job: QueuedJob) -> tuple[int, int, int, int]:
        tier = max(tiers.get(name, 1) for name in job.partition.split(","))
        return -tier, -job.priority, job.submit, job.job_id

    return sorted(jobs, key=key)
