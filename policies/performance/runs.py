"""Measured runs: what a performance model is fitted from, and reading them from a table.

A table is CSV with a header: nodes, gpus (in all), local_batch (per GPU), step_s. Columns
of the public Pollux measurements are understood too: num_nodes, num_replicas, local_bsz,
step_time, and `placement` (one digit per node: its GPUs).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policies.errors import ProfileError

#: Column -> other names it is known by.
ALIASES = {
    "nodes": ("nodes", "num_nodes"),
    "gpus": ("gpus", "num_replicas"),
    "local_batch": ("local_batch", "local_bsz"),
    "step_s": ("step_s", "step_time"),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement: GPUs on so many nodes, samples per GPU, seconds per iteration.

    GPUs need not be spread evenly: models see their mean number per node.
    """

    nodes: int
    gpus: int
    local_batch: int
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
    run = Run(int(nodes), int(gpus), int(_number(row, "local_batch", where)),
                _number(row, "step_s", where))  # fmt: skip
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
    """The B + N + G runs of the lightweight profiler (GENIE, section 5.1.5).

    Every single-GPU run, and for one local batch (the middle one of the sweep) the runs with
    one GPU per node and those on one node. The paper holds the global batch fixed; public
    measurements are on a grid of local ones, so the local one is held.
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


def check_enough(runs: Iterable[Run]) -> None:
    """ProfileError unless there is a single-GPU run: without it no model has a base."""
    if not any(run.gpus == 1 for run in runs):
        raise ProfileError("no run on a single GPU; expected at least one, better one per batch")
