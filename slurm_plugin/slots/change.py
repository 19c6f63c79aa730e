"""From a queued job with our bracket to its submit as it was, and to the update that gives
it slots or its own request back."""

from __future__ import annotations

import re

from slurm_plugin.protocol import Submit
from slurm_plugin.slots import bracket, demand
from slurm_plugin.slots.bracket import Bracket
from slurm_plugin.slots.candidates import Group, Need
from slurm_plugin.slots_keys import SlotsKeys
from slurm_plugin.slurm.gres_text import counts
from slurm_plugin.slurm.interface import NOW, JobUpdate, QueuedJob

#: What `NumNodes=` is told where the user gave no upper bound.
OPEN_MAX = 500

_HINT = re.compile(r"\[gpu-topo: ([^|\]]*)")
_FORMS = {"tpn": "node", "tpj": "job", "tpt": "task", "tps": "socket"}


def _gpus(text: str) -> int:
    gpus = [item.replace("=", ":") for item in text.split(",") if "gpu" in item]
    return sum(counts(",".join(gpus)).values())


def hint_of(job: QueuedJob) -> str:
    """The hint in the job's AdminComment, without the note."""
    match = _HINT.search(job.admin_comment)
    return match[1].strip() if match else ""


def submit_of(job: QueuedJob, kept: Bracket) -> Submit:
    """The submit behind a job, from its bracket and Slurm's own figures.

    Raises demand.Unplaceable for a bracket without a GPU request.
    """
    key = next((key for key in _FORMS if _gpus(kept.get(key))), "")
    if not key:
        raise demand.Unplaceable("the bracket names no GPUs")
    least, _, most = kept.get("nodes").partition("-")
    nodes, each = max(1, int(least or 1)), _gpus(kept.get(key))
    tasks = job.ntasks or 1
    in_all = {"tpn": each * nodes, "tpj": each, "tpt": each * tasks}.get(key, 0)
    slots = SlotsKeys(
        form=_FORMS[key],
        batch=kept.get("by") != "job",
        begin=int(kept.get("begin") or 0),
        time_s=job.time_limit_s,
        cpus=job.cpus,
        cpus_per_task=int(kept.get("cpt") or 0),
        cpus_per_gpu=int(kept.get("cpg") or 0),
        mem_node_mb=job.memory_per_node_mb,
        mem_cpu_mb=job.memory_per_cpu_mb,
        exclusive=job.exclusive,
        features=job.features,
        req_nodes=kept.get("req"),
        exc_nodes=job.exc_nodes,
        reservation=job.reservation,
        tpn=kept.get("tpn"),
        tpj=kept.get("tpj"),
        tpt=kept.get("tpt"),
        tps=kept.get("tps"),
    )
    return Submit(
        job.job_id,
        job.uid,
        in_all,
        nodes,
        each if key == "tpn" else 0,
        tasks,
        int(most or 0),
        job.user,
        job.account,
        job.partition,
        "",
        hint_of(job),
        slots,
    )


def release(
    job: QueuedJob, kept: Bracket, need: Need, group: Group, mask: int, now: int
) -> JobUpdate:
    """The one update that starts the job on exactly these slots."""
    fields = demand.placed(submit_of(job, kept), need, group, mask)
    values = dict(kept.values) | {"at": str(now)}
    cpus, per_task = fields.get("min_cpus"), fields.get("cpus_per_task")
    return JobUpdate(
        begin_time=NOW,
        tres_per_node=fields.get("tres_per_node", ""),
        tres_per_job=fields.get("tres_per_job", ""),
        tres_per_task=fields.get("tres_per_task", ""),
        tres_per_socket=fields.get("tres_per_socket", ""),
        tres_bind="",
        req_nodes=fields["req_nodes"],
        num_nodes=(need.nodes, need.nodes),
        min_cpus=int(cpus) if cpus else None,
        cpus_per_task=int(per_task) if per_task else None,
        cpus_per_tres=fields.get("cpus_per_tres"),
        admin_comment=bracket.replaced(job.admin_comment, Bracket("placed", values)),
    )


def restore(job: QueuedJob, kept: Bracket, begin: int | None) -> JobUpdate:
    """The update that gives the job its own request back.

    `begin` is when the new gate opens; None leaves the job to Slurm, without a bracket.
    """
    least, _, most = kept.get("nodes").partition("-")
    values = {key: text for key, text in kept.values.items() if key != "at"}
    gate = Bracket("gated", values) if begin is not None else None
    per_task = _gpus(kept.get("tpt"))
    own = int(kept.get("begin") or NOW)
    return JobUpdate(
        begin_time=own if begin is None else max(begin, own),
        tres_per_node=kept.get("tpn"),
        tres_per_job=kept.get("tpj"),
        tres_per_task=kept.get("tpt"),
        tres_per_socket=kept.get("tps"),
        tres_bind=f"gres/gpu:per_task:{per_task}" if per_task else None,
        req_nodes=kept.get("req"),
        num_nodes=(int(least or 1), int(most or OPEN_MAX)),
        cpus_per_tres=f"gres/gpu:{kept.get('cpg')}" if kept.get("cpg") else None,
        admin_comment=bracket.replaced(job.admin_comment, gate),
    )
