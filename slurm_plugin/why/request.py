"""sbatch's options as the job that Slurm would make of them.

Only what is understood is answered: an option that could change where a job starts and is not
known here is refused, never ignored.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from slurm_plugin.errors import PluginError
from slurm_plugin.job_notes import hints
from slurm_plugin.queue.snapshot import Settings
from slurm_plugin.slurm.clients.scontrol_tables import seconds
from slurm_plugin.slurm.interface import QueuedJob

#: The most that is read of a script's lines.
MAX_SCRIPT_LINES = 2000

_MEMORY = re.compile(r"(\d{1,12})([KMGT]?)B?", re.IGNORECASE)
_GPUS = re.compile(r"(?:([A-Za-z_][\w.\-]*):)?(\d{1,6})\Z")
_GRES = re.compile(r"gpu(?::([A-Za-z_][\w.\-]*))?(?::(\d{1,6}))?\Z")
_KB = {"K": 1, "": 1 << 10, "M": 1 << 10, "G": 1 << 20, "T": 1 << 30}


class NotTried(PluginError):
    """These options cannot be judged; the text says which."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise NotTried(f"{message}; options that are not understood are not guessed at")


def _parser() -> _Parser:
    parser = _Parser(prog="gputopo try", add_help=False, allow_abbrev=False)
    for names in (
        ("-p", "--partition"),
        ("-A", "--account"),
        ("-C", "--constraint"),
        ("-w", "--nodelist"),
        ("-x", "--exclude"),
        ("-t", "--time"),
        ("-N", "--nodes"),
        ("-G", "--gpus"),
        ("--gpus-per-node",),
        ("--gpus-per-task",),
        ("--gres",),
        ("--mem",),
        ("--mem-per-cpu",),
        ("--mem-per-gpu",),
        ("--comment",),
        ("--gpu-topo",),
        ("--reservation",),
        # They change nothing about where a job starts.
        *(("-J", "--job-name"), ("-o", "--output"), ("-e", "--error"), ("-i", "--input")),
        *(("-D", "--chdir"), ("--mail-type",), ("--mail-user",), ("--export",), ("--wrap",)),
    ):
        parser.add_argument(*names, default="")
    for names in (
        ("-n", "--ntasks"),
        ("-c", "--cpus-per-task"),
        ("--ntasks-per-node",),
        ("--cpus-per-gpu",),
    ):
        parser.add_argument(*names, type=int, default=0)
    parser.add_argument("--exclusive", action="store_true")
    parser.add_argument("script", nargs="*")
    return parser


@dataclass(frozen=True, slots=True)
class Request:
    """A job that is not submitted, and its hint."""

    job: QueuedJob
    hint: str


def script_options(text: str) -> list[str]:
    """The options that a script's `#SBATCH` lines give. Raises NotTried for a broken quote."""
    words: list[str] = []
    for line in text.splitlines()[:MAX_SCRIPT_LINES]:
        if line.startswith("#SBATCH"):
            try:
                words += shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError as error:
                raise NotTried(f"#SBATCH {line[7:60]!r}: {error}") from error
        elif line.strip() and not line.startswith("#"):
            # Slurm reads no option behind the first command.
            break
    return words


def script_of(argv: Sequence[str]) -> str:
    """The script among the arguments, '' for none. Raises NotTried for an unknown option."""
    found = _parser().parse_args(list(argv)).script
    return str(found[0]) if found else ""


def request_of(argv: Sequence[str], settings: Settings, user: str, uid: int, now: float) -> Request:
    """The job that sbatch would make of these options. Raises NotTried where that is not known."""
    options = _parser().parse_args(list(argv))
    partition = options.partition or _default_partition(settings)
    least, most = _nodes(options.nodes)
    tasks = options.ntasks or options.ntasks_per_node * least or least
    fields: dict[str, Any] = {**_memory(options, settings), **_gpus(options)}
    job = QueuedJob(
        0,
        user=user,
        uid=uid,
        account=options.account,
        partition=partition,
        state="PENDING",
        reason="None",
        submit=int(now),
        eligible=int(now),
        time_limit_s=_time_s(options.time, partition, settings),
        min_nodes=least,
        max_nodes=most,
        ntasks=tasks,
        cpus=max(tasks * max(1, options.cpus_per_task), least),
        cpus_per_task=options.cpus_per_task,
        cpus_per_tres=f"gres/gpu:{options.cpus_per_gpu}" if options.cpus_per_gpu else "",
        features=options.constraint,
        req_nodes=options.nodelist,
        exc_nodes=options.exclude,
        reservation=options.reservation,
        exclusive=options.exclusive,
        **fields,
    )
    hint = options.gpu_topo or hints.hint_in_user_comment(options.comment)
    return Request(job, hint)


def _default_partition(settings: Settings) -> str:
    for one in settings.partitions:
        if one.is_default:
            return one.name
    raise NotTried("no partition is Slurm's default; give --partition")


def _nodes(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", text or "1-0")
    if match is None:
        raise NotTried(f"--nodes {text!r}: expected a number, or the least and the most")
    least, most = max(1, int(match[1])), int(match[2] or match[1])
    return least, most


def _time_s(text: str, partition: str, settings: Settings) -> int:
    if text:
        found = seconds(text)
        if not found and text.upper() not in ("UNLIMITED", "INFINITE"):
            raise NotTried(f"--time {text!r}: expected minutes, or [DAYS-]HOURS:MINUTES:SECONDS")
        return found
    mine = [one for one in settings.partitions if one.name in partition.split(",")]
    return max((one.default_time_s or one.max_time_s for one in mine), default=0)


def _memory(options: argparse.Namespace, settings: Settings) -> dict[str, int | str]:
    if options.mem_per_gpu:
        return {"memory_per_tres": f"gres/gpu:{_mb(options.mem_per_gpu)}"}
    if options.mem:
        return {"memory_per_node_mb": _mb(options.mem)}
    if options.mem_per_cpu:
        return {"memory_per_cpu_mb": _mb(options.mem_per_cpu)}
    usual = settings.config.get("DefMemPerCPU", ""), settings.config.get("DefMemPerNode", "")
    per_cpu, per_node = (int(text) if text.isdecimal() else 0 for text in usual)
    return {"memory_per_cpu_mb": per_cpu, "memory_per_node_mb": per_node}


def _mb(text: str) -> int:
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise NotTried(f"{text!r}: expected memory such as 500M or 4G")
    # A number without a unit is in MB; Slurm rounds kilobytes up.
    return -(-int(match[1]) * _KB[match[2].upper()] // 1024) if match[2] else int(match[1])


def _gpus(options: argparse.Namespace) -> dict[str, str]:
    if options.gpus_per_node and options.gres:
        raise NotTried("--gres and --gpus-per-node together are not judged")
    fields = {
        "tres_per_node": options.gpus_per_node,
        "tres_per_job": options.gpus,
        "tres_per_task": options.gpus_per_task,
    }
    found = {key: _tres(text) for key, text in fields.items() if text}
    if options.gres:
        match = _GRES.fullmatch(options.gres)
        if match is None:
            raise NotTried(f"--gres {options.gres!r}: only GPUs of one type are judged")
        found["tres_per_node"] = _gpu_text(match[1], match[2] or "1")
    if len(found) > 1:
        raise NotTried("two requests for GPUs together are not judged")
    return found


def _tres(text: str) -> str:
    match = _GPUS.fullmatch(text)
    if match is None:
        raise NotTried(f"{text!r}: expected GPUs such as 4 or v100:4")
    return _gpu_text(match[1], match[2])


def _gpu_text(kind: str | None, count: str) -> str:
    return f"gres/gpu:{kind}:{count}" if kind else f"gres/gpu:{count}"
