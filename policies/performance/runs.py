"""Measured runs, from which performance models are fitted, and how they are read.

A table of runs is CSV with the columns nodes, gpus (in all), local_batch (per GPU) and step_s,
or those of the public Pollux measurements: num_nodes and num_replicas or `placement` (one digit
per node: its GPUs), local_bsz, step_time.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from policies.errors import ProfileError

Floats = NDArray[np.float64]

#: Column -> other names it is known by.
ALIASES = {
    "nodes": ("nodes", "num_nodes"),
    "gpus": ("gpus", "num_replicas"),
    "local_batch": ("local_batch", "local_bsz"),
    "step_s": ("step_s", "step_time"),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement. GPUs need not be spread evenly: models use their mean per node."""

    nodes: int
    #: On all nodes together.
    gpus: int
    #: Samples per GPU and iteration.
    local_batch: int
    #: Seconds of one iteration.
    step_s: float


def read_runs(text: str, name: str = "runs") -> list[Run]:
    """The runs of a CSV text; ProfileError names `name`, the line and what is wrong."""
    rows = list(csv.DictReader(text.splitlines()))
    if not rows:
        raise ProfileError(f"{name}: no rows; expected CSV with a header: {', '.join(ALIASES)}")
    return [_run(row, f"{name}:{line}") for line, row in enumerate(rows, start=2)]


def _run(row: Mapping[str, Any], where: str) -> Run:
    if row.get("placement"):
        digits = str(row["placement"])
        if not digits.isdecimal():
            raise ProfileError(f"{where}: placement {digits!r}; expected one digit per node")
        nodes, gpus = float(len(digits)), float(sum(map(int, digits)))
    else:
        nodes, gpus = _number(row, "nodes", where), _number(row, "gpus", where)
    run = Run(
        int(nodes),
        int(gpus),
        int(_number(row, "local_batch", where)),
        _number(row, "step_s", where),
    )
    if (nodes, gpus) != (run.nodes, run.gpus) or not 1 <= nodes <= gpus:
        raise ProfileError(
            f"{where}: {gpus:g} GPUs on {nodes:g} nodes; expected whole numbers and at least"
            " one GPU per node"
        )
    if run.local_batch < 1:
        raise ProfileError(f"{where}: local_batch {run.local_batch}; expected 1 or more")
    return run


def _number(row: Mapping[str, Any], column: str, where: str) -> float:
    for name in ALIASES[column]:
        if row.get(name) is not None:
            try:
                value = float(row[name])
            except (TypeError, ValueError):
                value = math.nan
            if not (math.isfinite(value) and value > 0):
                raise ProfileError(
                    f"{where}: {name} {row[name]!r}; expected a number greater than 0"
                )
            return value
    raise ProfileError(f"{where}: no {column}; expected the columns {', '.join(ALIASES)}")


def lightweight(runs: Sequence[Run]) -> list[Run]:
    """The runs that the lightweight profiler would make (GENIE, section 5.1.5).

    Every single-GPU run, and for the middle one of their local batches the runs with one GPU per
    node and those on one node. The paper fixes the global batch instead; public measurements
    have few runs of the same one. ProfileError without a single-GPU run.
    """
    sweep = sorted({run.local_batch for run in runs if run.gpus == 1})
    if not sweep:
        raise ProfileError("no run on a single GPU; expected the sweep over batch sizes")
    middle = sweep[len(sweep) // 2]
    return [
        run
        for run in runs
        if run.gpus == 1
        or (run.local_batch == middle and (run.nodes == 1 or run.nodes == run.gpus))
    ]


class Columns(NamedTuple):
    """Runs or shapes as columns of one length: nodes, GPUs in all, samples per GPU."""

    nodes: Floats
    gpus: Floats
    batch: Floats


def columns(rows: Iterable[tuple[float, float, float]]) -> Columns:
    """The columns of (nodes, GPUs in all, samples per GPU)."""
    return Columns(*np.array(list(rows), dtype=np.float64).reshape(-1, 3).T)


def columns_of_runs(runs: Sequence[Run]) -> Columns:
    """What was run, without how long it took."""
    return columns((run.nodes, run.gpus, run.local_batch) for run in runs)


def steps_of_runs(runs: Sequence[Run]) -> Floats:
    """Measured seconds per iteration of every run."""
    return np.array([run.step_s for run in runs], dtype=np.float64)


def check_enough(runs: Iterable[Run]) -> None:
    """ProfileError unless there is a single-GPU run: without it no model has a base."""
    if not any(run.gpus == 1 for run in runs):
        raise ProfileError("no run on a single GPU; expected at least one, better one per batch")
