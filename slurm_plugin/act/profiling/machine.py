"""The nodes that are profiled: one kind, since a step takes as long as its slowest GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from gres_topology import hostlist
from slurm_plugin.errors import PluginError
from slurm_plugin.queue.capacity import is_open
from slurm_plugin.slurm.interface import SlurmNode, SlurmPartition
from slurm_plugin.slurm.slot_types import index_of, model_of


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """Where the user wants to run, in Slurm's own texts; '' where nothing was said."""

    partition: str = ""
    constraint: str = ""
    gpu_type: str = ""
    nodes: str = ""


@dataclass(frozen=True, slots=True)
class ProfiledNodes:
    """Nodes of one kind. `others` have GPUs too and are kept out by --exclude."""

    kind: str
    gpus_per_node: int
    names: tuple[str, ...]
    others: tuple[str, ...]


def models(node: SlurmNode) -> dict[str, int]:
    """The node's GPUs by model; with a GRES type per GPU those of a model together."""
    counts: dict[str, int] = {}
    for kind, count in node.gpus.items():
        model = kind if index_of(kind) is None else model_of(kind)
        counts[model] = counts.get(model, 0) + count
    return counts


def choose(
    nodes: Sequence[SlurmNode], partitions: Sequence[SlurmPartition], constraints: NodeConstraints
) -> ProfiledNodes:
    """The kind with the most nodes left (then GPUs, then by name); PluginError without any."""
    names = _names(partitions, constraints.partition)
    usable = [node for node in nodes if node.name in names and node.gpu_count]
    if not usable:
        raise PluginError(
            f"partition {constraints.partition or '(the default)'}: no nodes with GPUs"
        )
    kinds: dict[str, list[SlurmNode]] = {}
    wanted = _wanted(constraints, usable)
    for node in usable:
        if node.name in wanted and is_open(node):
            kinds.setdefault(_kind(node, constraints.gpu_type), []).append(node)
    if not kinds:
        raise PluginError(
            f"none of the partition's nodes with GPUs ({_shown(usable)}) is up and as wanted:"
            f" {_said(constraints)}"
        )
    kind = min(kinds, key=lambda kind: (-len(kinds[kind]), -kinds[kind][0].gpu_count, kind))
    first, chosen = kinds[kind][0], {node.name for node in kinds[kind]}
    return ProfiledNodes(
        kind,
        models(first)[constraints.gpu_type] if constraints.gpu_type else first.gpu_count,
        tuple(sorted(chosen)),
        tuple(sorted(node.name for node in usable if node.name not in chosen)),
    )


def _names(partitions: Sequence[SlurmPartition], text: str) -> set[str]:
    asked = text.split(",") if text else [part.name for part in partitions if part.is_default]
    known = {part.name: part.nodes for part in partitions}
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise PluginError(f"{unknown[0]}: no such partition; expected one of {', '.join(known)}")
    if not asked:
        raise PluginError(
            f"no default partition; expected sbatch -p with one of {', '.join(known)}"
        )
    return {name for part in asked for name in known[part]}


def _wanted(constraints: NodeConstraints, usable: Sequence[SlurmNode]) -> set[str]:
    names = {node.name for node in usable}
    if constraints.gpu_type:
        names &= {node.name for node in usable if constraints.gpu_type in models(node)}
    if constraints.nodes:
        try:
            asked = set(hostlist.expand(constraints.nodes))
        except ValueError as error:
            raise PluginError(f"--on {constraints.nodes}: {error}") from error
        strange = asked - {node.name for node in usable}
        if strange:
            raise PluginError(
                f"--on {min(strange)}: expected nodes with GPUs of the partition: {_shown(usable)}"
            )
        names &= asked
    elif constraints.constraint:
        # What else a constraint may say is Slurm's to judge.
        if not re.fullmatch(r"[\w.\-&]+", constraints.constraint):
            raise PluginError(
                f"--constraint={constraints.constraint}: not judged here; add --on NODES"
            )
        features = set(constraints.constraint.split("&"))
        names &= {node.name for node in usable if features <= set(node.features)}
    return names


def _kind(node: SlurmNode, gpu_type: str) -> str:
    counts = {
        model: count for model, count in models(node).items() if not gpu_type or model == gpu_type
    }
    return " + ".join(f"{count} {model or 'GPUs'}" for model, count in sorted(counts.items()))


def _shown(nodes: Sequence[SlurmNode]) -> str:
    some = [f"{node.name}: {_kind(node, '')}" for node in sorted(nodes, key=attrgetter("name"))]
    return "; ".join(some[:8]) + ("; ..." if len(some) > 8 else "")


def _said(constraints: NodeConstraints) -> str:
    said = {
        "GPU type": constraints.gpu_type,
        "--on": constraints.nodes,
        "--constraint": constraints.constraint,
    }
    return ", ".join(f"{name} {value}" for name, value in said.items() if value) or "no constraints"
