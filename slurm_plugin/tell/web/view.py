"""What the page shows, as plain values: a part that all may see, and a part for each viewer.

A view is a dict of tables and single values. `TABLES` names the tables, whose rows are compared one
by one, so that only rows that changed are sent (`changes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gres_topology import Network
from policies.fragmentation import Fragmentation
from slurm_plugin.queue.capacity import Node
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.tell.explain.slurm_says import loan_in
from slurm_plugin.tell.web.decisions import DecisionTail, ShownDecision
from slurm_plugin.tell.web.reasons import Reason, listed_jobs
from slurm_plugin.tell.web.sources import EngineState
from slurm_plugin.tell.why.reading import Reading
from slurm_plugin.tell.why.site import SiteNodes, fragmentation_now

View = dict[str, Any]
#: Values that are tables: row name -> row.
TABLES = ("nodes", "history", "jobs", "decisions")
#: Texts of a job are cut after so many bytes, and sentences about it.
MAX_TEXT, MAX_SENTENCE = 200, 400


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """The nodes of one reading, and the figures of them."""

    site: SiteNodes
    fragmentation: Fragmentation


def cluster_of(reading: Reading) -> ClusterFigures:
    """Nodes with what is free on them, drained ones closed whatever a job could do there."""
    # So short a job sees the nodes as they are now; a later reservation keeps it from none.
    site = reading.site_of(QueuedJob(0, time_limit_s=1))
    figures = fragmentation_now(reading.snapshot, site, lambda job: reading.state_of(job).entries)
    return ClusterFigures(site, figures)


def common_view(
    reading: Reading,
    cluster: ClusterFigures,
    engine: EngineState,
    network: Network | None,
) -> View:
    """What everybody may see: which GPUs are busy, free or stranded, and no word of any job.

    `network` is the one between the nodes where slurmctld does not say which it has in force.
    """
    figures = cluster.fragmentation
    switches = _switches(reading, network)
    nodes, per_node = figures.largest_over_nodes
    return {
        "nodes": {
            name: _node(node, cluster, switches.get(name, ()))
            for name, node in sorted(cluster.site.nodes.items())
            if node.gpu_types
        },
        "figures": {
            "gpus": figures.total,
            "free": figures.free,
            "stranded": figures.stranded,
            "fragmentation": round(figures.share, 4),
            "largest": figures.largest,
            "largest_over_nodes": [nodes, per_node],
            "nodes_with": list(figures.nodes_with),
            "running": len(reading.snapshot.active),
            "waiting": len(reading.waiting(None)),
        },
        "partitions": [one.name for one in reading.snapshot.settings.partitions],
        # msgspec writes a record as it writes a dict.
        "engine": engine,
    }


def _switches(reading: Reading, network: Network | None) -> Mapping[str, tuple[str, ...]]:
    """By node the switches or blocks above it, the lowest first."""
    told = reading.snapshot.settings.networks
    known = told.default if told and told.default.domains else network
    switches: dict[str, tuple[str, ...]] = {}
    for domain in known.domains if known else ():
        for name in domain.nodes:
            switches[name] = (*switches.get(name, ()), domain.name)
    return switches


def _node(node: Node, cluster: ClusterFigures, switches: tuple[str, ...]) -> View:
    closed = cluster.site.closed.get(node.name, "")
    is_stranded = node.name in cluster.fragmentation.stranded_on
    free = "x" if closed else "s" if is_stranded else "f"
    return {
        # A character per GPU: busy, free, stranded, or closed to all jobs.
        "gpus": "".join(free if node.free >> i & 1 else "b" for i in range(len(node.gpu_types))),
        "model": node.model or ", ".join(sorted(set(node.gpu_types))),
        "closed": closed,
        "partitions": sorted(node.partitions),
        "switches": list(switches),
        "cpus": [node.cpus, node.all_cpus],
        "memory_mb": [node.memory_mb, node.all_memory_mb],
    }


def own_view(
    reading: Reading,
    reasons: Mapping[int, Reason],
    decisions: DecisionTail,
    uid: int | None,
    colours: Mapping[int, tuple[int, int]],
) -> View:
    """The jobs and decisions that one kind of viewer may see; None sees all.

    `colours` are those of each running job and of its user.
    """
    places = reading.places
    jobs, listed = reading.seen(uid), listed_jobs(reading, uid)
    there = {job.job_id for job in listed}
    return {
        # How many more there are.
        "unlisted": len(jobs) - len(listed),
        "unlisted_waiting": sum(job.job_id in places and job.job_id not in there for job in jobs),
        "jobs": {
            str(job.job_id): _job(
                job,
                places.get(job.job_id, 0),
                reasons.get(job.job_id),
                decisions.of_job.get(job.job_id),
            )
            | ({"colours": colours[job.job_id]} if job.job_id in colours else {})
            for job in listed
        },
        "decisions": {
            str(number): decision_row(decision)
            for number, decision in list(decisions.shown)
            if uid is None or decision.uid == uid
        },
        "log_problem": (decisions.problem or decisions.left_out) if uid is None else "",
    }


def _cut(text: str, most: int = MAX_TEXT) -> str:
    """The text's beginning: what a user writes must not fill the page's memory."""
    return text[:most].encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


def _job(job: QueuedJob, place: int, reason: Reason | None, choice: ShownDecision | None) -> View:
    row: View = {
        "name": _cut(job.name or str(job.job_id)),
        "job_name": _cut(job.job_name),
        "user": _cut(job.user or str(job.uid)),
        "account": _cut(job.account),
        "partition": _cut(job.partition),
        "state": job.state,
        "asked": _cut(", ".join(filter(None, job.requests))),
        "nodes": max(job.min_nodes, len(job.nodes), 1),
        "time_limit_s": job.time_limit_s,
        "submit": job.submit,
        "comment": _cut(job.comment),
    }
    if job.state == "PENDING":
        # Its place among all waiting jobs, those of other users included.
        row |= {"place": place, "reason": _cut(job.reason)}
        row |= {"priority": job.priority, "tasks": job.tasks}
        if reason:
            row |= {"cause": reason.cause, "sentence": _cut(reason.sentence, MAX_SENTENCE)}
        return row
    row |= {"start": job.start, "end": job.end}
    row |= {"gpus": {node: list(gpus) for node, gpus in job.gpus.items()}}
    if choice is not None:
        row |= _choice(job, choice)
    loan = loan_in(job.admin_comment, is_waiting=False)
    return row | {"loan": loan} if loan else row


def _choice(job: QueuedJob, choice: ShownDecision) -> View:
    """The order of the job's ranks, and what its links are worth, if it has what was chosen."""
    has = {node: tuple(sorted(gpus)) for node, gpus in job.gpus.items()}
    if {node: tuple(sorted(gpus)) for node, gpus in choice.gpus.items()} != has:
        return {}
    return {
        "gpus": {node: list(gpus) for node, gpus in choice.gpus.items()},
        "gbps": choice.gbps,
        "slurm_gbps": choice.slurm_gbps,
        "utility": choice.utility,
    }


def decision_row(decision: ShownDecision) -> View:
    """One line of the log, as the page lists it."""
    return {
        "job": decision.job,
        "time": decision.time,
        "decision": decision.decision,
        "partition": decision.partition,
        "policy": decision.policy,
        "why": decision.why,
        "gpus": {node: list(gpus) for node, gpus in decision.gpus.items()},
        "gbps": decision.gbps,
        "slurm_gbps": decision.slurm_gbps,
        "took_ms": decision.took_ms,
    }


def changes(before: View, after: View) -> View:
    """What turns one view into the next: of tables rows that are new, changed (`set`) or `gone`."""
    changes: View = {}
    for key, value in after.items():
        old = before.get(key)
        if value == old:
            continue
        if key not in TABLES or old is None:
            changes[key] = {"set": value, "gone": []} if key in TABLES else value
            continue
        rows = {name: row for name, row in value.items() if old.get(name) != row}
        changes[key] = {"set": rows, "gone": [name for name in old if name not in value]}
    return changes


def natural(name: str) -> list[tuple[int, str]]:
    """What names are sorted by, so that n2 comes before n10."""
    parts = "".join(char if char.isdecimal() else f"\n{char}\n" for char in name).split("\n")
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts if part]
