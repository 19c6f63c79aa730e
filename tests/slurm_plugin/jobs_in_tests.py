"""Jobs and nodes as Slurm shows them; what a test is about it gives as fields."""

from collections.abc import Iterable, Mapping, Sequence

from slurm_plugin.slurm.interface import QueuedJob, SlurmNode


def waits(job_id: int, gpus: int, /, **fields: object) -> QueuedJob:
    """A job of one node and so many GPUs that lacks room."""
    values: dict[str, object] = {
        "name": str(job_id), "state": "PENDING", "reason": "Resources", "partition": "batch",
        "cpus": 1, "ntasks": 1, "min_nodes": 1, "tres_per_node": f"gres/gpu:{gpus}" if gpus else "",
        "time_limit_s": 3600,
    }  # fmt: skip
    return QueuedJob(job_id, **{**values, **fields})


def runs(
    job_id: int, gpus: Sequence[int] | Mapping[str, Sequence[int]], /, **fields: object
) -> QueuedJob:
    """A job that has these GPUs, of dgx1 or of each node."""
    held = gpus if isinstance(gpus, Mapping) else {"dgx1": gpus}
    values: dict[str, object] = {
        "name": str(job_id), "state": "RUNNING", "partition": "batch", "priority": 1, "cpus": 1,
        "nodes": tuple(held), "tres_per_node": f"gres/gpu:{max(map(len, held.values()))}",
        "gpus": {node: tuple(some) for node, some in held.items() if some},
    }  # fmt: skip
    return QueuedJob(job_id, **{**values, **fields})


def node(name: str, used: Iterable[int] = (), /, **fields: object) -> SlurmNode:
    """A node of eight V100, of which these are in use."""
    in_use = tuple(used)
    values: dict[str, object] = {
        "state": ("MIXED",), "partitions": ("batch",), "weight": 1, "cpus": 16, "memory_mb": 4000,
        "gpus": {"v100": 8}, "used": in_use, "used_by_type": {"v100": len(in_use)},
    }  # fmt: skip
    return SlurmNode(name, **{**values, **fields})
