"""A JobUpdate in scontrol's words."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.interface import NOW, JobUpdate

_WORDS = {
    "tres_per_job": "TresPerJob",
    "tres_per_task": "TresPerTask",
    "tres_per_socket": "TresPerSocket",
    "tres_bind": "TresBind",
    "req_nodes": "ReqNodeList",
    "exc_nodes": "ExcNodeList",
    "features": "Features",
    "min_cpus": "NumCPUs",
    "cpus_per_task": "CPUsPerTask",
    "min_cpus_per_node": "MinCPUsNode",
    "cpus_per_tres": "CpusPerTres",
    "memory_per_node_mb": "MinMemoryNode",
    "memory_per_cpu_mb": "MinMemoryCPU",
    "memory_per_tres": "MemPerTres",
    "admin_comment": "AdminComment",
    "num_tasks": "NumTasks",
    "time_limit": "TimeLimit",
    "site_factor": "SiteFactor",
    "priority": "Priority",
}
_TRES = ("tres_per_job", "tres_per_task", "tres_per_socket")


def words(jobs: Sequence[str], change: JobUpdate, separator: str) -> list[str]:
    """`JobId=.. Key=Value ...` for scontrol, with this release's `separator` in `gres/gpu`.

    Raises SlurmError for a value that scontrol would read as something else.
    """
    texts = [f"JobId={','.join(jobs)}"]
    # Other kinds of request first: those of the node are refused while they stand.
    for name in (*_TRES, *(name for name in _WORDS if name not in _TRES)):
        value = getattr(change, name)
        if value is not None:
            text = tres(value, separator) if name in _TRES else str(value)
            texts.append(f"{_WORDS[name]}={text}")
    if change.tres_per_node is not None:
        # Not `Gres=`, which makes `gres/` of an empty text.
        texts.append(f"TresPerNode={tres(change.tres_per_node, separator)}")
    if change.num_nodes is not None:
        low, high = change.num_nodes
        texts.append(f"NumNodes={low}-{high}" if high else f"NumNodes={low}")
    if change.begin_time is not None:
        # `uts` is scontrol's word for an epoch: no time zone can shift it.
        at = "now" if change.begin_time == NOW else f"uts{change.begin_time}"
        texts.append(f"StartTime={at}")
    for word in texts:
        if "\n" in word or "\0" in word:
            raise SlurmError(f"scontrol update: {word!r} has a line break; nothing was changed")
    return texts


def tres(text: str, separator: str) -> str:
    """`gpu:s1:1` or `gres:gpu:s1:1` as this release writes it: `gres/gpu:s1:1`."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    return ",".join(
        item
        if item.startswith(("cpu", "mem", "license"))
        else f"gres{separator}{item.removeprefix('gres/').removeprefix('gres:')}"
        for item in items
    )
