"""Recognises a log's format by its beginning and reads it."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

from simulation.errors import SimulationError
from simulation.traces import sacct, tables
from simulation.traces.trace import Trace

#: What a file may be.
FORMATS = (
    "a CSV with a header (job_id,submit_s,duration_s,gpus,...), SWF, sacct --json,"
    " sacct --parsable2 with its header, or a workload in TOPO-AWARE's JSON"
)


def read(path: Path) -> Trace:
    """The log in a file; SimulationError where it is none of the known formats.

    Broken rows do not raise: they are in the trace's `rejected`.
    """
    text = _text(path)
    stripped = text.lstrip("\ufeff \t\r\n")
    first = stripped.splitlines()[0] if stripped else ""
    # A prompt above sacct's header may begin with a bracket, as JSON does.
    if sacct.header_line(stripped) is not None:
        trace = sacct.from_parsable(str(path), stripped)
    elif first.startswith(("{", "[")):
        trace = _json(path, stripped)
    elif "," in first and "submit_s" in first:
        trace = tables.from_csv(str(path), stripped)
    elif first.startswith(";") or len(first.split()) == 18:
        trace = tables.from_swf(str(path), stripped)
    else:
        raise SimulationError(f"{path}: {_seen(first)}; expected one of {FORMATS}")
    if not trace.jobs and not trace.rejected and not trace.left_out:
        raise SimulationError(f"{path}: no jobs in it")
    return trace


def _seen(first: str) -> str:
    return f"starts with {first[:60]!r}" if first else "is empty"


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        if raw.startswith(b"\x1f\x8b"):
            raw = gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise SimulationError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    return raw.decode("utf-8", errors="replace")


def _json(path: Path, text: str) -> Trace:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SimulationError(f"{path}: not JSON: {error}") from None
    if isinstance(content, dict) and isinstance(content.get("jobs"), list):
        return sacct.from_json(str(path), content["jobs"])
    if isinstance(content, dict) and all(
        isinstance(job, dict) and "arrival" in job for job in content.values()
    ):
        return tables.from_sc17(str(path), content)
    raise SimulationError(
        f"{path}: JSON, but neither has it `jobs` as sacct --json, nor jobs"
        " with `arrival` as TOPO-AWARE's workloads"
    )
