"""sbatch's options as the job that Slurm would make of them.

Only what is understood is answered: an option that could change where a job starts is never
ignored. Those that are sbatch's and not judged here leave the answer to Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slurm_plugin.act.gates.slot_request import defaults_of
from slurm_plugin.base.job_notes import hints
from slurm_plugin.errors import PluginError
from slurm_plugin.queue.demand import Unplaceable, node_names
from slurm_plugin.queue.snapshot import Settings
from slurm_plugin.slurm.clients.scontrol_tables import seconds
from slurm_plugin.slurm.interface import JobDefaults, QueuedJob
from slurm_plugin.slurm.sbatch_options import (
    BY_SLURM,
    NOT_JUDGED,
    OPTIONS,
    WITH_OR_WITHOUT,
    read_options,
    script_words,
)
from slurm_plugin.tell.why.state import WaitingState

#: How lines of other batch systems begin, which sbatch reads, too.
_OTHERS = re.compile(r"^#(?:PBS|BSUB)\b", re.MULTILINE)
#: The most that is read of a script.
MAX_SCRIPT_CHARS = 1 << 20

_MEMORY = re.compile(r"(\d{1,12})([KMGT]?)B?", re.IGNORECASE)
_GPUS = re.compile(r"(?:([A-Za-z_][\w.\-]*):)?(\d{1,6})\Z")
_GRES = re.compile(r"gpu(?::([A-Za-z_][\w.\-]*))?(?::(\d{1,6}))?\Z")
#: Times that are no limit to sbatch (arg_set_time_limit of slurm_opt.c, time_str2secs).
_NO_LIMIT = re.compile(r"0+(?:[-:]0+){0,3}|-1|INFINITE|UNLIMITED", re.IGNORECASE)
_KB = {"K": 1, "": 1 << 10, "M": 1 << 10, "G": 1 << 20, "T": 1 << 30}


class NotTried(PluginError):
    """These options are none that sbatch takes, or cannot be read; the text says which."""


class NotJudged(NotTried):
    """What becomes of such a job is not known here; Slurm may say."""


#: The variables that sbatch reads like options; each begins with SBATCH_.
VARIABLES = {
    "ACCOUNT": "account",
    "CONSTRAINT": "constraint",
    "CPUS_PER_GPU": "cpus-per-gpu",
    "EXCLUSIVE": "exclusive",
    "GPUS": "gpus",
    "GPUS_PER_NODE": "gpus-per-node",
    "GPUS_PER_TASK": "gpus-per-task",
    "GRES": "gres",
    "MEM_PER_CPU": "mem-per-cpu",
    "MEM_PER_GPU": "mem-per-gpu",
    "MEM_PER_NODE": "mem",
    "PARTITION": "partition",
    "QOS": "qos",
    "RESERVATION": "reservation",
    "TIMELIMIT": "time",
    # These are not judged.
    **{"ARRAY_INX": "array", "BURST_BUFFER": "bb", "REQ_SWITCH": "switches"},
    "SEGMENT_SIZE": "segment",
    **{
        name: name.lower().replace("_", "-")
        for name in (
            *("BATCH", "CLUSTERS", "CLUSTER_CONSTRAINT", "CORE_SPEC", "DELAY_BOOT"),
            *("DISTRIBUTION", "GPUS_PER_SOCKET", "GRES_FLAGS", "HINT", "NETWORK", "OVERCOMMIT"),
            *("SPREAD_SEGMENTS", "CONSOLIDATE_SEGMENTS"),
            *("SPREAD_JOB", "THREADS_PER_CORE", "THREAD_SPEC", "TRES_PER_TASK", "USE_MIN_NODES"),
        )
    },
}
#: Of these sbatch takes one.
_MEMORY_OPTIONS = frozenset(("mem", "mem-per-cpu", "mem-per-gpu"))


def parsed(argv: Sequence[str]) -> tuple[dict[str, str], str]:
    """The options by their long names, and the script, '' for none.

    What stands behind the script is the script's. Raises NotTried for an unknown option.
    """
    given, at = read_options(argv)
    for name, value in given.items():
        if problem := _problem(name, value):
            word = f"--{name}" if len(name) > 1 else f"-{name}"
            raise NotTried(
                f"option {word} {problem}; options that are not understood are not guessed at"
            )
    options = {name: value or "" for name, value in given.items()}
    return options, argv[at] if at < len(argv) else ""


def _problem(name: str, value: str | None) -> str:
    """Why sbatch would not take the option so, '' where it would."""
    if f"{name}=" in OPTIONS:
        return "requires an argument" if value is None else ""
    if name not in OPTIONS:
        return "is not known, or begins several names"
    return "takes no argument" if value is not None and name not in WITH_OR_WITHOUT else ""


def environment_options(environ: Mapping[str, str]) -> dict[str, str]:
    """The options that sbatch reads from its environment."""
    names = {f"SBATCH_{name}": option for name, option in VARIABLES.items()}
    names |= {"SLURM_CLUSTERS": "clusters", "SLURM_HINT": "hint"}
    return {
        option: text
        for name, option in names.items()
        # An empty text is --exclusive without a value; it unsets any other option.
        if (text := environ.get(name)) or (text == "" and option == "exclusive")
    }


def options_of(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """The options as sbatch takes them, and whether the job's commands are among them.

    An option on the command line counts before the environment's, and that before the script's.
    Raises PluginError for one that is not understood, or where the script cannot be read.
    """
    given, script = parsed(argv)
    if script == ":":
        raise NotTried("heterogeneous jobs are not judged")
    text = _script_text(script) if script else ""
    # Of several components those of the first: the job is not judged.
    words, next_component = script_words(text, script)
    inside = parsed(words)[0]
    outside = environment_options(environ)
    if (inside.keys() | given.keys()) & _MEMORY_OPTIONS:
        # What options ask of memory replaces all that the environment asks of it.
        outside = {name: text for name, text in outside.items() if name not in _MEMORY_OPTIONS}
    options = {**inside, **outside, **given}
    if "ignore-pbs" not in options:
        options |= dict.fromkeys(_OTHERS.findall(text), "")
    if next_component:
        options[next_component] = ""
    return options, bool(script) or "wrap" in given


@dataclass(frozen=True, slots=True)
class TriedJob:
    """A job that is not submitted, as if it were the last one that waits, and its hint."""

    state: WaitingState
    hint: str
    #: Options that are not judged here; of those in `by_slurm` Slurm's own test tells enough.
    beyond: tuple[str, ...] = ()
    by_slurm: tuple[str, ...] = ()


def _script_text(path: str) -> str:
    """The beginning of a script. Raises NotTried where it cannot be read."""
    try:
        with Path(path).open(errors="replace") as file:
            return file.read(MAX_SCRIPT_CHARS)
    except OSError as error:
        raise NotTried(f"{path}: {error.strerror}") from error


def tried_job(options: Mapping[str, str], site: WaitingState) -> TriedJob:
    """The job that sbatch would make of these options.

    Raises NotTried for values that cannot be read, NotJudged where that job is not known.

    `site` has the account and the QOS of jobs that name none.
    """
    settings, now = site.snapshot.settings, int(site.now)
    partition = options.get("partition") or _default_partition(settings)
    least, most = _nodes(options.get("nodes", ""))
    if "nodes" not in options:
        # As many as it names, and as many more as it needs (sbatch's opt.c).
        least = max(least, len(_names(options.get("nodelist", ""))))
    tasks, on_each = _count(options, "ntasks"), _count(options, "ntasks-per-node")
    if tasks and on_each and not most:
        least = max(least, -(-tasks // on_each))
    tasks = tasks or on_each * least or least
    each, per_gpu = _count(options, "cpus-per-task"), _count(options, "cpus-per-gpu")
    gpus = _gpus(options)
    try:
        defaults = defaults_of(
            partition,
            settings.defaults,
            counts_cpus=bool(gpus) and not (each or per_gpu),
            counts_memory=not options.keys() & _MEMORY_OPTIONS,
        )
    except Unplaceable as error:
        raise NotJudged(error.why) from error
    beside = sorted(options.keys() & {"cpus-per-gpu", "mem-per-gpu"})
    if beside and not gpus:
        raise NotJudged(f"--{beside[0]} without a request for GPUs is not judged")
    per_gpu = per_gpu or defaults.cpus_per_gpu
    fields: dict[str, Any] = {**_memory(options, defaults, has_gpus=bool(gpus)), **gpus}
    job = replace(
        site.job,
        account=options.get("account", site.job.account),
        qos=options.get("qos", site.job.qos),
        partition=partition,
        state="PENDING",
        reason="None",
        submit=now,
        eligible=now,
        time_limit_s=_time_s(options.get("time", ""), partition, settings),
        min_nodes=least,
        max_nodes=most,
        ntasks=tasks,
        tasks_per_node=on_each,
        cpus=max(tasks * max(1, each), least),
        cpus_per_task=each,
        cpus_per_tres=f"gres/gpu:{per_gpu}" if per_gpu else "",
        features=options.get("constraint", ""),
        req_nodes=options.get("nodelist", ""),
        exc_nodes=options.get("exclude", ""),
        reservation=options.get("reservation", ""),
        exclusive="exclusive" in options or _gives_nodes(partition, settings),
        licenses=options.get("licenses", ""),
        **fields,
    )
    hint = options.get("gpu-topo") or hints.hint_in_user_comment(options.get("comment", ""))
    return TriedJob(
        replace(site, job=job),
        hint,
        tuple(_beyond(options)),
        tuple(_by_slurm(options)),
    )


def _beyond(options: Mapping[str, str]) -> Iterator[str]:
    """What is not judged at all, as it is written."""
    for name in sorted(options):
        if name.startswith("#"):
            yield name
        elif _is_one_of(NOT_JUDGED, name):
            yield f"--{name}"


def _by_slurm(options: Mapping[str, str]) -> Iterator[str]:
    """Options that Slurm's own test judges, as they are written."""
    for name, text in sorted(options.items()):
        if name == "exclusive":
            if text.lower() not in ("", "exclusive", "allocation"):
                yield f"--{name}={text}"
        elif name in _MEMORY_OPTIONS:
            # All of each node's memory, so that nothing else may hold any.
            if not _mb(text):
                yield f"--{name}=0"
        elif _is_one_of(BY_SLURM, name):
            yield f"--{name}"


def _is_one_of(table: Mapping[str, str], name: str) -> bool:
    return not table.keys().isdisjoint((name, f"{name}="))


def names_some(job: QueuedJob) -> bool:
    """Does the job name fewer nodes than it needs?"""
    try:
        return 0 < len(node_names(job.req_nodes)) < job.min_nodes
    except Unplaceable:
        return False


def _gives_nodes(partitions: str, settings: Settings) -> bool:
    """Do the partitions give whole nodes, whatever is asked for? Raises NotJudged if some do."""
    named = (settings.by_name.get(name) for name in partitions.split(","))
    found = {one.share == 0 for one in named if one is not None}
    if len(found) > 1:
        raise NotJudged("some of its partitions give whole nodes (OverSubscribe=EXCLUSIVE)")
    return found == {True}


def _names(text: str) -> frozenset[str]:
    try:
        return node_names(text)
    except Unplaceable as error:
        raise NotTried(f"--nodelist {text!r}: {error.why}") from error


def _count(options: Mapping[str, str], name: str) -> int:
    text = options.get(name, "0")
    if not re.fullmatch(r"\d{1,6}", text):
        raise NotTried(f"--{name} {text!r}: expected a number")
    return int(text)


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
        limit_s = seconds(text)
        if not limit_s and not _NO_LIMIT.fullmatch(text):
            raise NotTried(f"--time {text!r}: expected minutes, or [DAYS-]HOURS:MINUTES:SECONDS")
        return limit_s
    mine = [one for one in settings.partitions if one.name in partition.split(",")]
    return max((one.default_time_s or one.max_time_s for one in mine), default=0)


def _memory(
    options: Mapping[str, str], defaults: JobDefaults, *, has_gpus: bool
) -> dict[str, int | str]:
    if len(options.keys() & _MEMORY_OPTIONS) > 1:
        raise NotTried("sbatch takes one of --mem, --mem-per-cpu and --mem-per-gpu")
    if text := options.get("mem-per-gpu"):
        return {"memory_per_tres": f"gres/gpu:{_mb(text)}"}
    if text := options.get("mem"):
        return {"memory_per_node_mb": _mb(text)}
    if text := options.get("mem-per-cpu"):
        return {"memory_per_cpu_mb": _mb(text)}
    if has_gpus and defaults.mem_gpu_mb:
        return {"memory_per_tres": f"gres/gpu:{defaults.mem_gpu_mb}"}
    return {"memory_per_cpu_mb": defaults.mem_cpu_mb, "memory_per_node_mb": defaults.mem_node_mb}


def _mb(text: str) -> int:
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise NotTried(f"{text!r}: expected memory such as 500M or 4G")
    # A number without a unit is in MB; Slurm rounds kilobytes up.
    return -(-int(match[1]) * _KB[match[2].upper()] // 1024) if match[2] else int(match[1])


def asks_for_gpus(options: Mapping[str, str]) -> bool:
    """Would the engine be asked about a submit of these options?"""
    return any(
        name.startswith("gpus") or (name in ("gres", "tres-per-task") and "gpu" in text)
        for name, text in options.items()
    )


def _gpus(options: Mapping[str, str]) -> dict[str, str]:
    requests = {
        key: _tres(options[name])
        for name, key in (
            ("gpus-per-node", "tres_per_node"),
            ("gpus", "tres_per_job"),
            ("gpus-per-task", "tres_per_task"),
        )
        if name in options
    }
    if "gres" in options:
        match = _GRES.fullmatch(options["gres"])
        if match is None:
            raise NotJudged(f"--gres {options['gres']!r}: only GPUs of one type are judged")
        requests["gres"] = _gpu_text(match[1], match[2] or "1")
    if len(requests) > 1:
        raise NotJudged("two requests for GPUs together are not judged")
    return {"tres_per_node" if key == "gres" else key: text for key, text in requests.items()}


def _tres(text: str) -> str:
    match = _GPUS.fullmatch(text)
    if match is None:
        raise NotTried(f"{text!r}: expected GPUs such as 4 or v100:4")
    return _gpu_text(match[1], match[2])


def _gpu_text(kind: str | None, count: str) -> str:
    return f"gres/gpu:{kind}:{count}" if kind else f"gres/gpu:{count}"
