"""Logs that are plain tables: our CSV, the Standard Workload Format, TOPO-AWARE's JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from simulation.errors import SimulationError
from simulation.traces.trace import Trace

#: Columns a CSV must have; nodes, walltime_s, hint, user, cpus, mem_gb, partition and priority are
#: read where it has them.
NEEDED = ("job_id", "submit_s", "duration_s", "gpus")
#: SWF (Feitelson, version 2.2): which of its 18 fields, counted from 0.
_SWF_ID, _SWF_SUBMIT, _SWF_RUN, _SWF_USED, _SWF_ASKED, _SWF_TIME, _SWF_USER = 0, 1, 3, 4, 7, 8, 11


def from_csv(source: str, text: str) -> Trace:
    """A CSV with a header; columns in any order, unknown ones ignored."""
    trace = Trace(source, "csv")
    rows = csv.DictReader(io.StringIO(text), restval="")
    missing = [name for name in NEEDED if name not in (rows.fieldnames or ())]
    if missing:
        raise SimulationError(
            f"{source}: no column {missing[0]!r}; expected a header with {', '.join(NEEDED)}"
        )
    try:
        for row in rows:
            where = f"line {rows.line_num}"
            if None in row:
                trace.reject(where, "more fields than the header has")
            elif row["gpus"].strip() in ("0", "0.0"):
                trace.leave_out("jobs without GPUs")
            else:
                said: dict[str, Any] = dict(row)
                trace.add(where, said.pop("job_id"), **said)
    except csv.Error as error:
        trace.reject(f"from line {rows.line_num} on", str(error))
    return trace


def from_swf(source: str, text: str) -> Trace:
    """The Standard Workload Format; its processors are taken as GPUs, all on one node.

    -1 is "unknown" there: allocated processors give way to requested ones.
    """
    trace = Trace(source, "swf")
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith(";"):
            continue
        where = f"line {number}"
        if len(words) != 18:
            trace.reject(where, f"{len(words)} fields; expected 18")
            continue
        used = words[_SWF_USED] if words[_SWF_USED] != "-1" else words[_SWF_ASKED]
        if used == "0":
            trace.leave_out("jobs without processors")
            continue
        walltime = words[_SWF_TIME]
        trace.add(
            where,
            words[_SWF_ID],
            gpus=used,
            submit_s=words[_SWF_SUBMIT],
            duration_s=words[_SWF_RUN],
            walltime_s="" if walltime == "-1" else walltime,
            user=words[_SWF_USER],
        )
    return trace


def from_sc17(source: str, jobs: Mapping[str, Mapping[str, Any]]) -> Trace:
    """TOPO-AWARE's workloads (HiEST/gpu-topo-aware): network and batch become the hint.

    `time` is used as the duration, where it is one: an experiment takes it from profiles.
    """
    trace = Trace(source, "sc17")
    for key, job in jobs.items():
        words = [f"profile={job.get('type')}", f"batch={job.get('size')}"]
        utility = job.get("minimal_utility")
        if isinstance(utility, int | float):
            words.append(f"min-utility={utility:.9f}")
        trace.add(
            f"job {key}",
            job.get("id", key),
            gpus=job.get("gpus"),
            submit_s=job.get("arrival"),
            duration_s=job.get("time", 0),
            hint=",".join(words),
        )
    return trace
