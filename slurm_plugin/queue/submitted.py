"""A queued job with our bracket as it was submitted."""

from __future__ import annotations

from slurm_plugin import admin_comment
from slurm_plugin.admin_comment import Bracket
from slurm_plugin.protocol import Submit
from slurm_plugin.queue import demand
from slurm_plugin.slots_keys import SlotsKeys
from slurm_plugin.slurm.interface import QueuedJob

_FORMS = {"tpn": "node", "tpj": "job", "tpt": "task", "tps": "socket"}


def is_old(kept: Bracket) -> bool:
    """Was the job submitted to Slurm 22.05, which writes `gres:gpu:2`?

    There types and no types, or two sets of types, merge in one update, and a job that has
    types keeps some.
    """
    return any(kept.get(key).startswith("gres:") for key in _FORMS)


def submit_of(job: QueuedJob, kept: Bracket) -> Submit:
    """The submit behind a job, from its bracket and Slurm's own figures.

    Raises demand.Unplaceable for a bracket without a GPU request.
    """
    key = next((key for key in _FORMS if demand.gpus_of(kept.get(key))), "")
    if not key:
        raise demand.Unplaceable("the bracket names no GPUs")
    least, _, most = kept.get("nodes").partition("-")
    nodes, each = max(1, int(least or 1)), demand.gpus_of(kept.get(key))
    tasks = job.ntasks or 1
    in_all = {"tpn": each * nodes, "tpj": each, "tpt": each * tasks}.get(key, 0)
    slots = SlotsKeys(
        form=_FORMS[key],
        batch=kept.get("by") != "job",
        begin=kept.number("begin"),
        time_s=job.time_limit_s,
        cpus=job.cpus,
        cpus_per_task=kept.number("cpt"),
        cpus_per_gpu=kept.number("cpg"),
        mem_node_mb=job.memory_per_node_mb,
        mem_cpu_mb=job.memory_per_cpu_mb,
        mem_gpu_mb=demand.gpus_of(job.memory_per_tres),
        exclusive=job.exclusive,
        enforce_binding=kept.get("bind") == "1",
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
        id=job.job_id,
        uid=job.uid,
        gpus=in_all,
        nodes=nodes,
        per_node=each * {"tpn": 1, "tps": kept.number("spn")}.get(key, 0),
        tasks=tasks,
        max_nodes=int(most or 0),
        user=job.user,
        account=job.account,
        partition=job.partition,
        hint=admin_comment.hint_in(job.admin_comment),
        slots=slots,
    )


def tied_to(job: QueuedJob, kept: Bracket) -> frozenset[str]:
    """The only slots that a job of 22.05 can start on once it had some; else empty.

    An update there adds GRES types to a job and never removes one (one that the job no longer
    asks for stays with a count of zero), and the job starts on no node without all of them.
    """
    if not is_old(kept):
        return frozenset()
    return frozenset(demand.slots_given(job))
