"""The gputopo.yaml that a site can begin with, by what slurmctld says of its nodes.

A GRES type is part of the GPU's name, by the rule that slurmd goes by itself, and says nothing of
the links. Where one machine of the catalog has such GPUs, and all of its links are alike, that is
written as a guess: a wrong one prefers no pair to another. Other nodes are to be asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gres_topology import NodeTopology, TopologyError, catalog
from gres_topology.slices import profile_of
from gres_topology.slurm_files import gres_file
from gres_topology.slurm_files.gres_file import NodeDevices
from slurm_plugin.config.sections import COLLECTED, DEFAULT_GRES_CONF, GRES_CONF
from slurm_plugin.slurm import slot_types
from slurm_plugin.slurm.interface import SlurmNode

#: Names of nodes -> the host list, as Slurm folds it.
Fold = Callable[[Sequence[str]], str]

#: What Slurm calls nodes that come and go.
_COMING = frozenset({"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
_HEAD = """\
# /etc/slurm/gputopo.yaml, as gputopo init wrote it by what slurmctld said of the nodes: what the
# engine of slurm-gputopo goes by (docs/configuration.md). Check it with `gputopo config check`.

# observe: decide and log, and change nothing. enforce: jobs get the GPUs that were chosen.
partitions:
  default: {mode: observe}

"""
_NETWORK = """\
# The network that slurmctld weighs: jobs of several nodes get them in one block or below a switch.
"""
_NODES = """\
# One line for each kind of GPU node. A guess is checked once `gputopo topology collect` has asked
# the nodes: one that has other links is left to Slurm, and `gputopo doctor` says so.
"""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Nodes that Slurm counts the same GPUs on."""

    gpus: tuple[tuple[str, int], ...]
    is_collected: bool
    #: They are given by a feature, as they come and go; '' by their names.
    feature: str
    nodes: tuple[str, ...]


def label(nodes: int, gpus: Iterable[tuple[str, int]]) -> str:
    """So many nodes with so many GPUs of each type, in words."""
    kinds = (
        f"{count} GPUs of type {kind}" if kind else f"{count} GPUs without a type"
        for kind, count in gpus
    )
    return f"{nodes} node{'s' * (nodes != 1)} with {' and '.join(kinds)}"


def text(
    nodes: Sequence[SlurmNode], collected: Collection[str], config: Mapping[str, str], fold: Fold
) -> str:
    """A whole gputopo.yaml that observes.

    `collected` names the nodes whose hardware is known, `config` is Slurm's (`scontrol show
    config`): the files beside its slurm.conf are read.
    """
    beside = Path(config.get("SLURM_CONF", "/etc/slurm/slurm.conf")).parent
    gres_conf, devices = beside / "gres.conf", None
    with suppress(TopologyError):
        devices = gres_file.load_devices(gres_conf)
    index = f", slurm_index: {GRES_CONF}"
    if gres_conf != DEFAULT_GRES_CONF:
        index += f", gres_conf: {json.dumps(str(gres_conf))}"
    lines = [line for kind in _kinds(nodes, collected) for line in _of(kind, devices, index, fold)]
    has_sets = any(not line.startswith("  #") for line in lines)
    head = _HEAD + _network(beside, config.get("TopologyPlugin", "")) + _NODES
    return head + "\n".join(["nodes:" if has_sets else "nodes: []", *lines]) + "\n"


def _network(beside: Path, plugin: str) -> str:
    """The line by which jobs of several nodes get them in one block, or below one switch."""
    for name in ("topology.yaml", "topology.conf"):
        if (beside / name).exists() and ("tree" in plugin or "block" in plugin or "yaml" in name):
            return f"{_NETWORK}topology_conf: {json.dumps(str(beside / name))}\n\n"
    return ""


def _kinds(nodes: Sequence[SlurmNode], collected: Collection[str]) -> list[_Kind]:
    found: dict[tuple[tuple[tuple[str, int], ...], bool, str], list[str]] = {}
    for node in filter(lambda one: one.gpu_count, nodes):
        key = tuple(sorted(models_on(node).items()))
        feature = _feature(node, nodes) if _COMING.intersection(node.state) else ""
        found.setdefault((key, node.name in collected, feature), []).append(node.name)
    return [_Kind(*key, tuple(names)) for key, names in found.items()]


def models_on(node: SlurmNode) -> Mapping[str, int]:
    """How many GPUs of each type the node has; slots (`enforcement: slots`) by their model."""
    models = {slot_types.model_of(slot) for slot in slot_types.slots_of(node.gpus)}
    return dict.fromkeys(models, node.gpu_count) if len(models) == 1 else node.gpus


def _feature(node: SlurmNode, nodes: Sequence[SlurmNode]) -> str:
    """A feature that nodes with such GPUs alone have; '' where there is none."""
    others = {feature for one in nodes if one.gpus != node.gpus for feature in one.features}
    return next((feature for feature in sorted(node.features) if feature not in others), "")


def _of(kind: _Kind, devices: NodeDevices | None, index: str, fold: Fold) -> Iterator[str]:
    """The comment about a kind, and the line of its set; `index` is what it says of gres.conf."""
    kinds = label(len(kind.nodes), kind.gpus)
    if any(profile_of(gres_type) for gres_type, _ in kind.gpus):
        yield f"  # {kinds}: left to Slurm until `slices` says how they are cut (docs/mig.md)."
        return
    machines = machines_with(dict(kind.gpus))
    topology = COLLECTED
    if len(machines) == 1 and not kind.is_collected and _is_uniform(catalog.load(machines[0])):
        [topology] = machines
    if kind.is_collected:
        why = "their hardware was collected."
    elif topology != COLLECTED:
        why = "a guess: the only machine of the catalog with these."
    else:
        could = " or ".join(machines) or "no machine of the catalog"
        why = f"{could} by that, so they are asked: gputopo topology collect."
    yield f"  # {kinds}: {why}"
    where = f"features: {json.dumps(kind.feature)}"
    if not kind.feature:
        where = f"nodes: {json.dumps(fold(kind.nodes))}"
    tells = topology == COLLECTED and _has_all(devices, kind.nodes)
    yield f"  - {{{where}, topology: {topology}{index if tells else ''}}}"


def machines_with(gpus: Mapping[str, int]) -> list[str]:
    """The machines of the catalog that a node with so many GPUs of each type can be.

    As slurmd compares a type with what it detected: the name in lower case with underscores
    (gpu_common_underscorify_tolower in Slurm's gpu_common.c, and gres.c).
    """
    [(gres_type, count), *others] = gpus.items()
    if others or not gres_type:
        return []
    machines = {name: catalog.load(name) for name in catalog.names()}
    return [
        name
        for name, machine in machines.items()
        if machine.gpus == count
        and gres_type.lower() in (machine.model or "").lower().replace(" ", "_")
    ]


def _is_uniform(machine: NodeTopology) -> bool:
    kinds = machine.kinds
    return len({kinds[i][j] for i in range(machine.gpus) for j in range(i)}) == 1


def _has_all(devices: NodeDevices | None, names: Sequence[str]) -> bool:
    """Does gres.conf tell which GPU of each node is which?"""
    with suppress(TopologyError):
        return devices is not None and all(
            devices.files(name) or devices.detected_by(name) for name in names
        )
    return False
