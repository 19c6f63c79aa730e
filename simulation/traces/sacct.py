"""A site's own log: `sacct --json`, or `sacct --parsable2` with its header.

Recorded replies of Slurm 24.11 are test assets; fields that a release leaves out are
treated as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from gres_topology.slices import profile_of
from simulation.errors import SimulationError
from simulation.traces.trace import Trace

#: What `--format` must name at least, and how to get all that is used.
NEEDED = ("JobID", "Submit", "AllocTRES")
COMMAND = (
    "sacct -a -X --parsable2"
    " --format=JobID,User,State,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,NNodes"
    ",AllocTRES,Partition,AdminComment"
)
#: What the engine writes there of jobs that wait for it, by a begin time or a hold of its own.
_HELD = ("[gpu-slots: ", "[gpu-shape: ", "[gpu-loan: ")
#: A comment may have sacct's own separator in it, and stands in one column however many it looks.
_COMMENT = "AdminComment"
#: A job's number; tasks of arrays have numbers of their own in JobIDRaw.
_IDS = ("JobID", "JobIDRaw")
_LIMIT = re.compile(r"(?:(\d{1,5})-)?(?:(\d{1,5}):)?(\d{1,5}):(\d\d)(?:\.\d+)?", re.ASCII)
_GPU = re.compile(r"gres/gpu(:[^=,]+)?=(\d+)")
_HINT = re.compile(r"\[gpu-topo: ([^|\]]*)")


def from_json(source: str, jobs: list[Any]) -> Trace:
    """The `jobs` of `sacct --json`."""
    trace = Trace(source, "sacct-json")
    for place, job in enumerate(jobs):
        where = f"jobs[{place}]"
        try:
            _add_json(trace, where, job)
        except (KeyError, TypeError, AttributeError) as error:
            lacks = f"no {error.args[0]!r}" if isinstance(error, KeyError) else str(error)
            trace.reject(where, f"not a job of sacct --json: {lacks[:80]}")
    return trace


def _add_json(trace: Trace, where: str, job: Mapping[str, Any]) -> None:
    times, state = job["time"], job["state"]["current"]
    state = state[0] if isinstance(state, list) else state
    counts = {
        (tres.get("name") or ""): tres["count"]
        for tres in job["tres"]["allocated"]
        if tres["type"] == "gres" and (tres.get("name") or "").split(":")[0] == "gpu"
    }
    where = f"{where} (job {job['job_id']})"
    if _is_over(trace, where, state, times["start"], times["end"]):
        limit = times.get("limit")
        if isinstance(limit, dict):  # a plain number before Slurm 23.02
            limit = limit.get("number") if limit.get("set") else None
        gpus = counts.get("gpu") or sum(counts.values())
        if _is_left_out(trace, gpus, counts):
            return
        trace.add(
            where,
            job["job_id"],
            gpus=gpus,
            nodes=job.get("allocation_nodes") or 1,
            submit_s=_could_start(times["submission"], times.get("eligible"), _comment_in(job)),
            start_s=times["start"],
            duration_s=times["elapsed"],
            walltime_s=None if limit is None else 60 * limit,
            hint=_hint(_comment_in(job)),
            user=job.get("user"),
            cpus=_allocated(job, "cpu"),
            mem_gb=_allocated(job, "mem") / 1024,
            partition=job.get("partition"),
        )


def _allocated(job: Mapping[str, Any], kind: str) -> int:
    """How much of a TRES it had in all; memory in MB."""
    return sum(tres["count"] for tres in job["tres"]["allocated"] if tres["type"] == kind)


def from_parsable(source: str, text: str) -> Trace:
    """The lines of `sacct --parsable2`; columns in any order, a command or comments above them."""
    trace = Trace(source, "sacct")
    lines = text.splitlines() or [""]
    first = header_line(text) or 0
    header = lines[first].split("|")
    if "JobID" not in header:
        header = ["JobID" if name == "JobIDRaw" else name for name in header]
    missing = [name for name in NEEDED if name not in header]
    if missing or not {"ElapsedRaw", "End"} & set(header):
        name = missing[0] if missing else "ElapsedRaw"
        raise SimulationError(f"{source}: no column {name}; expected the output of: {COMMAND}")
    for number, line in enumerate(lines[first + 1 :], first + 2):
        if not line.strip():
            continue
        words = _cells(line, header)
        where = f"line {number}"
        if len(words) != len(header):
            reason = f"{len(words)} fields; the header has {len(header)}"
            trace.reject(where, reason)
            continue
        row = dict(zip(header, words, strict=True))
        try:
            _add_row(trace, f"{where} (job {row['JobID']})", row)
        except ValueError as error:
            trace.reject(where, str(error))
    return trace


def _cells(line: str, header: list[str]) -> list[str]:
    """The fields of a line; what is too much belongs to the comment, if there is one."""
    words = line.split("|")
    more = len(words) - len(header)
    if more > 0 and _COMMENT in header:
        at = header.index(_COMMENT)
        words[at : at + more + 1] = ["|".join(words[at : at + more + 1])]
    return words


def header_line(text: str) -> int | None:
    """Which line is the header, from 0: the first that names jobs, below what a terminal shows."""
    for number, line in enumerate(text.splitlines()):
        if "|" in line and not {*_IDS}.isdisjoint(line.split("|")):
            return number
        if line.strip() and not re.match(r"\s*[#$>%]|.*\bsacct\b", line[:400]):
            return None
    return None


def _add_row(trace: Trace, where: str, row: Mapping[str, str]) -> None:
    if "." in row["JobID"]:
        trace.leave_out("job steps")
        return
    start, end = _epoch(row.get("Start", "")), _epoch(row.get("End", ""))
    elapsed = row.get("ElapsedRaw", "")
    if "Start" in row and not _is_over(trace, where, row.get("State", ""), start, end):
        return
    # Untyped GPUs, else the typed ones together: Slurm counts the same GPU under both.
    counts = {kind: int(count) for kind, count in _GPU.findall(row["AllocTRES"])}
    gpus = counts.get("") or sum(counts.values())
    if _is_left_out(trace, gpus, counts):
        return
    trace.add(
        where,
        row["JobID"],
        gpus=gpus,
        nodes=row.get("NNodes") or row.get("AllocNodes") or 1,
        submit_s=_could_start(
            _epoch(row["Submit"]), _epoch(row.get("Eligible", "")), row.get(_COMMENT, "")
        ),
        start_s=start,
        duration_s=elapsed or (end or 0) - (start or 0),
        walltime_s=_limit_s(row),
        hint=_hint(row.get(_COMMENT)),
        user=row.get("User"),
        partition=row.get("Partition"),
        **_amounts(row["AllocTRES"]),
    )


def _limit_s(row: Mapping[str, str]) -> int | None:
    """Seconds of TimelimitRaw (minutes) or Timelimit (D-HH:MM:SS); None for no limit."""
    raw = row.get("TimelimitRaw", "")
    if raw.isdecimal():
        return 60 * int(raw)
    match = _LIMIT.fullmatch(row.get("Timelimit", ""))
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((24 * days + hours) * 60 + minutes) * 60 + seconds


def _is_over(trace: Trace, where: str, state: str, start: object, end: object) -> bool:
    """Whether the job ran and ended; counted where it did not."""
    word = state.split(" ")[0] or "in no state"
    if not start:
        trace.leave_out(f"never started ({word.lower()})")
    elif not end:
        trace.leave_out("still running")
    return bool(start and end)


def _could_start(submit: float | None, eligible: float | None, comment: str) -> float | None:
    """When it could have started first: before, it waited for a time, for others or for people.

    Of a job that the engine kept behind a gate, or held, Slurm knows no more than when it let go.
    """
    is_ours = any(entry in comment for entry in _HELD)
    return max(submit, eligible) if submit and eligible and not is_ours else submit


def _comment_in(job: Mapping[str, Any]) -> str:
    return (job.get("comment") or {}).get("administrator") or ""


def _is_left_out(trace: Trace, gpus: int, kinds: Iterable[str]) -> bool:
    """Has the job no whole GPUs? Counted where it has none."""
    has_slices = any(profile_of(kind.lower()) for kind in kinds)
    if has_slices:
        trace.leave_out("jobs on slices of GPUs")
    elif not gpus:
        trace.leave_out("jobs without GPUs")
    return has_slices or not gpus


def _amounts(tres: str) -> dict[str, float]:
    """CPUs and GB of `cpu=8,mem=64G,...`; memory without a unit is in MB."""
    cpus, memory = re.search(r"\bcpu=(\d+)", tres), re.search(r"\bmem=([\d.]+)([KMGTP]?)", tres)
    gb = float(memory[1]) * 1024.0 ** ("KMGTP".index(memory[2] or "M") - 2) if memory else 0.0
    return {"cpus": int(cpus[1]) if cpus else 0, "mem_gb": gb}


def _epoch(text: str) -> float | None:
    """Seconds since 1970 of `2026-01-31T12:00:00` (read as UTC) or a number."""
    if text in ("", "Unknown", "None"):
        return None
    if text.isdecimal():
        return float(text)
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise ValueError(f"{text!r} is no time; expected 2026-01-31T12:00:00") from None


def _hint(comment: str | None) -> str:
    """The user's hint in the admin comment's bracket."""
    match = _HINT.search(comment or "")
    text = match[1].strip() if match else ""
    return "" if text == "off" else text
