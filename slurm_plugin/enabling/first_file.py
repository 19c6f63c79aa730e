"""The gputopo.yaml that a site can begin with, by what slurmctld says of its nodes.

A GRES type names a GPU and says nothing of the links. Where one machine of the catalog has such
GPUs, and all of its links are alike, that is written as a guess: a wrong one prefers no pair to
another. Other nodes are to be asked.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gres_topology import NodeTopology, TopologyError, catalog
from gres_topology.slices import profile_of
from gres_topology.slurm_files import gres_file, networks
from gres_topology.slurm_files.gres_file import NodeDevices
from slurm_plugin.config.sections import COLLECTED, DEFAULT_GRES_CONF, GRES_CONF
from slurm_plugin.slurm import slot_types
from slurm_plugin.slurm.interface import SlurmNode

#: Names of nodes -> the host list, as Slurm folds it.
Fold = Callable[[Sequence[str]], str]

#: What Slurm calls nodes that come and go.
_COMING = frozenset({"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
#: How many GPUs there are of each type.
_Gpus = tuple[tuple[str, int], ...]
_HEAD = """\
# {path}, as gputopo init wrote it by what slurmctld said of the nodes: what the engine
# of slurm-gputopo goes by (docs/configuration.md). Check it with `gputopo config check`.

# observe: decide and log, and change nothing. enforce: jobs get the GPUs that were chosen.
partitions:
  default: {{mode: observe}}

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

    gpus: _Gpus
    is_collected: bool
    #: They come and go, and are declared by a feature; '' by their names.
    feature: str
    nodes: tuple[str, ...]


def text(
    path: Path,
    nodes: Sequence[SlurmNode],
    collected: Collection[str],
    config: Mapping[str, str],
    fold: Fold,
) -> str:
    """A whole gputopo.yaml that observes, for `path`.

    `collected` names the nodes whose hardware is known, `config` is Slurm's (`scontrol show
    config`): the files beside its slurm.conf are read.
    """
    beside = Path(config.get("SLURM_CONF", "/etc/slurm/slurm.conf")).parent
    index = _Index(beside / "gres.conf")
    lines = [line for kind in _kinds(nodes, collected) for line in _of(kind, index, fold)]
    has_sets = any(not line.startswith("  #") for line in lines)
    head = _HEAD.format(path=path) + _network(beside, config) + _NODES + index.fault
    return head + "\n".join(["nodes:" if has_sets else "nodes: []", *lines]) + "\n"


def _network(beside: Path, config: Mapping[str, str]) -> str:
    """The line by which jobs of several nodes get them in one block, or below one switch."""
    plugin = config.get("TopologyPlugin", "")
    release = re.match(r"(\d+)\.(\d+)", config.get("SLURM_VERSION", ""))
    # Since that release topology.yaml goes before slurm.conf's TopologyPlugin.
    reads_yaml = release is not None and (int(release[1]), int(release[2])) >= (25, 5)
    path = beside / "topology.yaml"
    if not (reads_yaml and os.path.exists(path)):
        path = beside / "topology.conf"
        if not (("tree" in plugin or "block" in plugin) and os.path.exists(path)):
            return ""
    try:
        networks.read(path)
    except TopologyError as error:
        said = " ".join(str(error).split())
        return f"# topology_conf is left out, as it cannot be used:\n# {said}\n\n"
    return f"{_NETWORK}topology_conf: {json.dumps(str(path))}\n\n"


class _Index:
    """What gres.conf says of which GPU is which."""

    def __init__(self, path: Path) -> None:
        self._devices: NodeDevices | None = None
        #: A comment where the file is there and cannot be used.
        self.fault = ""
        #: What a set says to have it used.
        self.keys = f", slurm_index: {GRES_CONF}"
        if path != DEFAULT_GRES_CONF:
            self.keys += f", gres_conf: {json.dumps(str(path))}"
        try:
            self._devices = gres_file.load_devices(path)
        except TopologyError as error:
            if os.path.exists(path):
                said = " ".join(str(error).split())
                self.fault = f"# gres.conf cannot be used to tell which GPU is which:\n# {said}\n"

    def tells(self, names: Sequence[str], gpus: int) -> bool:
        """Does it tell of every GPU of these nodes?"""
        devices = self._devices
        with suppress(TopologyError):
            return devices is not None and all(
                len(devices.files(name)) == gpus or devices.detected_by(name) for name in names
            )
        return False


def _kinds(nodes: Sequence[SlurmNode], collected: Collection[str]) -> list[_Kind]:
    found: dict[tuple[_Gpus, bool, str], list[str]] = {}
    for node in filter(lambda one: one.gpu_count, nodes):
        gpus = tuple(sorted(models_on(node).items()))
        feature = _feature(node, gpus, nodes) if _COMING.intersection(node.state) else ""
        # Whoever comes later with the feature is to be asked, or the guess holds for all.
        is_known = not feature and node.name in collected
        found.setdefault((gpus, is_known, feature), []).append(node.name)
    return [_Kind(*key, tuple(names)) for key, names in found.items()]


def models_on(node: SlurmNode) -> Mapping[str, int]:
    """How many GPUs of each type the node has; slots (`enforcement: slots`) by their model."""
    models = {slot_types.model_of(slot) for slot in slot_types.slots_of(node.gpus)}
    return dict.fromkeys(models, node.gpu_count) if len(models) == 1 else node.gpus


def _feature(node: SlurmNode, gpus: _Gpus, nodes: Sequence[SlurmNode]) -> str:
    """A feature that names the node's type of GPU, and that no node with others has; else ''."""
    others = {feature for one in nodes if one.gpus != node.gpus for feature in one.features}
    for feature in sorted(set(node.features) - others):
        names_type = any(name and _is_part(name, feature) for name, _ in gpus)
        if names_type and re.fullmatch(r"[\w.\-]+", feature):
            return feature
    return ""


def label(nodes: int, gpus: Iterable[tuple[str, int]]) -> str:
    """So many nodes with so many GPUs of each type, in words."""
    kinds = (
        f"{count} GPUs of type {kind}" if kind else f"{count} GPUs without a type"
        for kind, count in gpus
    )
    return f"{nodes} node{'s' * (nodes != 1)} with {' and '.join(kinds)}"


def has_slices(gpus: Iterable[str]) -> bool:
    """Is one of these GRES types that of slices or partitions of GPUs?"""
    return any(profile_of(gres_type.lower()) for gres_type in gpus)


def _of(kind: _Kind, index: _Index, fold: Fold) -> Iterator[str]:
    """The comment about a kind, and the line of its set."""
    kinds = label(len(kind.nodes), kind.gpus)
    if has_slices(gres_type for gres_type, _ in kind.gpus):
        yield f"  # {kinds}: left to Slurm until `slices` says how they are cut (docs/slices.md)."
        return
    machines = machines_with(dict(kind.gpus))
    topology = COLLECTED
    if len(machines) == 1 and not kind.is_collected and is_uniform(catalog.load(machines[0])):
        [topology] = machines
    if kind.is_collected:
        why = "their hardware was collected."
    elif topology != COLLECTED:
        why = "a guess: the only machine of the catalog with these."
    else:
        could = f"could be {' or '.join(machines)}" if machines else "not in the catalog"
        why = f"{could}, so they are asked: gputopo topology collect."
    yield f"  # {kinds}: {why}"
    where = f"features: {json.dumps(kind.feature)}"
    if not kind.feature:
        where = f"nodes: {json.dumps(fold(kind.nodes))}"
    tells = topology == COLLECTED and index.tells(kind.nodes, sum(dict(kind.gpus).values()))
    yield f"  - {{{where}, topology: {topology}{index.keys if tells else ''}}}"


def machines_with(gpus: Mapping[str, int]) -> list[str]:
    """The machines of the catalog with so many GPUs, whose model has the type's words."""
    [(gres_type, count), *others] = gpus.items()
    if others:
        return []
    machines = {name: catalog.load(name) for name in catalog.names()}
    return [
        name
        for name, machine in machines.items()
        if machine.gpus == count and _is_part(gres_type, machine.model or "")
    ]


def _is_part(gres_type: str, name: str) -> bool:
    """Do the words of a type stand in a name, one behind the other? `h200` is none of GH200.

    A type that names no number (`gpu`, `nvidia`) is no model's.
    """
    words, all_words = (re.findall(r"[a-z0-9.]+", one.lower()) for one in (gres_type, name))
    places = range(len(all_words) - len(words) + 1)
    has_number = re.search(r"\d", gres_type) is not None
    return has_number and any(all_words[at : at + len(words)] == words for at in places)


def is_uniform(machine: NodeTopology) -> bool:
    """Are all of its links alike, so that whoever is wrong about it prefers no pair?"""
    kinds = machine.kinds
    return len({kinds[i][j] for i in range(machine.gpus) for j in range(i)}) == 1
