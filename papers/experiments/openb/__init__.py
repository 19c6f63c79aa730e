"""Alibaba's OpenB trace: 7,228 tasks of 34 days with CPUs, memory and fractions of GPUs, and nodes.

Weng et al., USENIX ATC'23 (hkust-adsl/kubernetes-scheduler-simulator, Apache-2.0; NOTICE and
LICENSE beside the files). Its tasks keep 20 of the cluster's 6,212 GPUs busy in the mean, so that a
queue forms on a few of its nodes only.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from policies.remote import NodeCapacity

#: What becomes of a task that asks for a part of a GPU: no two jobs share a GPU here.
FRACTIONS = ("whole", "left-out")
#: Nodes to take of the 1,213, evenly over the list, which is by model.
NODES = ("8", "6", "12")


@dataclass(frozen=True, slots=True)
class OpenbTask:
    """One task, which runs on one node; `gpus` is whole, 0 for a task of CPUs alone."""

    submit_s: float
    duration_s: float
    gpus: int
    cpus: int
    memory_mb: int


def nodes(count: int) -> dict[str, NodeCapacity]:
    """So many of its nodes, free."""
    return {
        row["node"]: NodeCapacity(
            row["node"], (1 << int(row["gpus"])) - 1, int(row["cpus"]), 1000 * int(row["mem_gb"])
        )
        for row in _taken(count)
    }


def models(count: int) -> dict[str, str]:
    """The model of the GPUs of each of these nodes."""
    return {row["node"]: row["model"] for row in _taken(count)}


def _taken(count: int) -> list[dict[str, str]]:
    rows = _rows("alibaba_openb_2023_nodes.csv.gz")
    return [rows[len(rows) * (2 * at + 1) // (2 * count)] for at in range(count)]


def tasks(on: Mapping[str, NodeCapacity], fractions: str = "whole") -> list[OpenbTask]:
    """The tasks that fit one of these nodes, in the order of their submits; durations at least 1 s.

    CPUs are rounded up. A part of a GPU counts as one GPU, or its task is left out.
    """
    tasks = []
    for row in _rows("alibaba_openb_2023.csv.gz"):
        asked = float(row["gpus"])
        if fractions == "left-out" and asked != int(asked):
            continue
        task = OpenbTask(
            float(row["submit_s"]),
            max(1.0, float(row["duration_s"])),
            math.ceil(asked),
            math.ceil(float(row["cpus"])),
            math.ceil(1000 * float(row["mem_gb"])),
        )
        if any(fits(task, node) for node in on.values()):
            tasks.append(task)
    return tasks


def fits(task: OpenbTask, node: NodeCapacity) -> bool:
    """Whether the task would run on that node if all of it were free."""
    return (
        node.free.bit_count() >= task.gpus
        and node.cpus >= task.cpus
        and node.memory_mb >= task.memory_mb
    )


def _rows(name: str) -> list[dict[str, str]]:
    packed = resources.files(__name__).joinpath(name).read_bytes()
    return list(csv.DictReader(io.StringIO(gzip.decompress(packed).decode())))
