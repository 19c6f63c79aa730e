"""Slurm's nodes and jobs as the chooser of donors sees them, where GPUs have no type each.

A GPU model counts as a feature of its node, so that a request for a model asks for that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from slurm_plugin.admin_comment import Bracket
from slurm_plugin.lending import loan as loans
from slurm_plugin.protocol import Submit
from slurm_plugin.queue import demand, submitted
from slurm_plugin.queue.capacity import CLOSED, Node
from slurm_plugin.slurm.gres_text import counts
from slurm_plugin.slurm.interface import QueuedJob, SlurmNode


def room_of(nodes: Iterable[SlurmNode], running: Iterable[QueuedJob]) -> dict[str, Node]:
    """The nodes with GPUs of one model; others are not chosen one by one.

    A node where Slurm does not say which GPUs are in use counts as full.
    """
    beside: dict[str, int] = {}
    for job in running:
        for name in job.nodes:
            beside[name] = beside.get(name, 0) + 1
    found = {}
    for node in nodes:
        if len(node.gpus) != 1:
            continue
        [(model, count)] = node.gpus.items()
        taken = sum(1 << gpu for gpu in node.used)
        is_known = sum(node.used_by_type.values()) <= len(node.used)
        prefix = f"{model}." if model else ""
        found[node.name] = Node(
            node.name,
            tuple(f"{prefix}s{gpu}" for gpu in range(count)),
            (1 << count) - 1 & ~taken if is_known else 0,
            max(0, node.cpus - node.alloc_cpus),
            max(0, node.memory_mb - node.alloc_memory_mb),
            beside.get(node.name, 0),
            node.weight,
            frozenset(node.partitions),
            frozenset((*node.features, model)) if model else frozenset(node.features),
            not CLOSED & {state.upper().rstrip("*~#!%$@^-+") for state in node.state},
        )
    return found


def submit_of(job: QueuedJob) -> Submit:
    """The submit behind a waiting job, from Slurm's own figures.

    Raises demand.Unplaceable for a job without GPUs, or with several models of them.
    """
    models = {model for field in demand.REQUESTS.values() for model in _models(getattr(job, field))}
    if len(models) > 1:
        raise demand.Unplaceable("it asks for several GPU models")
    kept = {key: getattr(job, field) for key, field in demand.REQUESTS.items()}
    kept |= {
        "nodes": f"{job.min_nodes or 1}-{job.max_nodes or ''}",
        "req": job.req_nodes,
        "cpt": str(job.cpus_per_task or ""),
        "cpg": str(demand.gpus_of(job.cpus_per_tres) or ""),
    }
    features = "&".join([*([f"({job.features})"] if job.features else []), *models])
    return submitted.submit_of(_with_features(job, features), Bracket("gated", kept))


def asks_for_gpus(job: QueuedJob) -> bool:
    """Is this a job of somebody's own that waits for GPUs?"""
    if loans.parent_of(job):
        return False
    return any("gpu" in getattr(job, field) for field in demand.REQUESTS.values())


def _with_features(job: QueuedJob, features: str) -> QueuedJob:
    return replace(job, features=features) if features != job.features else job


def _models(text: str) -> set[str]:
    gpus = [item.replace("=", ":") for item in text.split(",") if "gpu" in item]
    return {model for model in counts(",".join(gpus)) if model}
