"""What a viewer is told of GPUs in use: of those of own jobs, who sees all of all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from statistics import fmean
from typing import Any

from slurm_plugin.decide.machines import Machines
from slurm_plugin.slurm.interface import QueuedJob, SlurmNode
from slurm_plugin.tell.web.details import NotFound
from slurm_plugin.tell.web.utilisation.exporters import GpuUse, by_slurms_gpu
from slurm_plugin.tell.web.utilisation.prometheus import Exported
from slurm_plugin.tell.why.reading import Reading

#: Seconds for which a value may be older than the query: Prometheus' own lookback (5 min), whatever
#: it scrapes how often. A job that started later is not told of: it would be told of the job before
#: it, another user's perhaps.
OLDEST_S = 300.0

#: Characters of a job's name.
MAX_NAME = 200
NOT_ANSWERED = "Prometheus does not answer."


class ShownUse:
    """One answer of Prometheus beside one reading of Slurm. Pure."""

    def __init__(self, exported: Exported, reading: Reading, machines: Machines) -> None:
        self._exported, self._reading, self._machines = exported, reading, machines

    def node(self, name: str, uid: int | None) -> dict[str, Any]:
        """What is told of a node's GPUs to this user, or to who sees all (None).

        Raises NotFound where there is no such node.
        """
        if all(node.name != name for node in self._reading.snapshot.nodes):
            raise NotFound(f"node {name}")
        return self._told(self._rows((name,), uid), uid)

    def job(self, number: int, uid: int | None) -> dict[str, Any]:
        """The same of a job's GPUs, with their mean in percent where all of them are known.

        Raises NotFound where there is no such job, and where it is another user's.
        """
        job = next((one for one in self._reading.snapshot.jobs if one.job_id == number), None)
        if job is None or uid not in (None, job.uid):
            raise NotFound(f"job {number}")
        rows = [row for row in self._rows(tuple(job.gpus), uid) if number in row["jobs"]]
        busy = [row["busy_percent"] for row in rows if row["busy_percent"] is not None]
        has_all = bool(busy) and len(busy) == sum(map(len, job.gpus.values()))
        return self._told(rows, uid) | {"mean_percent": round(fmean(busy), 1) if has_all else None}

    def _told(self, rows: list[dict[str, Any]], uid: int | None) -> dict[str, Any]:
        why = self._exported.problem
        problem = "" if not why else f"Prometheus: {why}" if uid is None else NOT_ANSWERED
        return {"gpus": rows, "problem": problem}

    def _rows(self, names: Collection[str], uid: int | None) -> list[dict[str, Any]]:
        """The GPUs of these nodes of which something certain may be told."""
        holders: defaultdict[tuple[str, int], list[QueuedJob]] = defaultdict(list)
        for job in self._reading.snapshot.jobs:
            for name in job.gpus.keys() & names:
                for gpu in job.gpus[name]:
                    holders[name, gpu].append(job)
        nodes = {node.name: node for node in self._reading.snapshot.nodes}
        rows = []
        for name in names:
            for gpu, use in sorted(self._uses(nodes.get(name)).items()):
                jobs = holders[name, gpu]
                is_seen = uid is None or {job.uid for job in jobs} == {uid}
                if is_seen and self._is_certain(use, jobs):
                    rows.append(_row(name, gpu, use, jobs))
        return rows

    def _uses(self, node: SlurmNode | None) -> Mapping[int, GpuUse]:
        machine = None if node is None else self._machines.get(node.name)
        exported = () if node is None else self._exported.nodes.get(node.name, ())
        if node is None or machine is None or not exported:
            return {}
        return by_slurms_gpu(exported, machine, sum(node.gpus.values()))

    def _is_certain(self, use: GpuUse, jobs: list[QueuedJob]) -> bool:
        """Is what is said of the jobs that hold the GPU now, and is anything said?"""
        if use.busy_percent is None and use.used_mib is None:
            return False
        if self._reading.snapshot.began < self._exported.answered:
            # Who held it when Slurm was read may have given it to somebody else before the answer.
            return False
        if not use.jobs <= {job.job_id for job in jobs}:
            # Of a job before, or the exporter counts GPUs otherwise than Slurm.
            return False
        return all(0 < job.start <= self._exported.asked_at - OLDEST_S for job in jobs)


def _row(node: str, gpu: int, use: GpuUse, jobs: list[QueuedJob]) -> dict[str, Any]:
    return {
        "node": node,
        "gpu": gpu,
        "jobs": {job.job_id: (job.name or str(job.job_id))[:MAX_NAME] for job in jobs},
        "busy_percent": use.busy_percent,
        "used_mib": use.used_mib,
        "total_mib": use.total_mib,
    }
