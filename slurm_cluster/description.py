"""What a cluster consists of, and the files that make it so.

`python -m slurm_cluster.description FILE FOLDER` reads a description (YAML, see `Description`) and
writes compose.json, the list of hosts, and what the controller gets: node lines of slurm.conf,
gres.conf, gputopo.yaml, the texts behind the fake tools.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from gres_topology import NodeTopology, TopologyError, catalog, hostlist
from gres_topology.slurm_files import gres_file
from slurm_cluster.fake_tools import fake_tools

PACKAGE = Path(__file__).parent
#: The five nodes that this project itself is tested with.
DEFAULT = PACKAGE / "cluster.yaml"
#: Cores of a fake node per GPU, and of one without any.
CORES_PER_GPU = 2
CORES_WITHOUT = 8
#: More containers than a machine for tests holds.
MOST_NODES = 256
#: Where no partitions are given to the engine. The default policy goes by who waits and what ran
#: before, which no test is to hang on.
ENFORCE = """\
partitions:
  default: {mode: enforce, policy: mapa}
  "off": {mode: "off"}
"""
_HOST = re.compile(r"[a-z][a-z0-9-]{0,61}")
_TAKEN = {"ctl", "ctl2", "localhost"}
_COMMON = """\
socket: /run/gputopo/engine.sock
enforcement: select
deadline_ms: 50
decision_log: {path: /var/log/gputopo/decisions.jsonl, max_mb: 64, keep: 4}
"""


class DescriptionError(ValueError):
    """No cluster can be made of a description: what was read, and what is expected."""


@dataclass(frozen=True)
class Description:
    """The nodes and what is beyond the usual in two files.

    nodes: Slurm's host list -> machine of the catalog, or "" for nodes without GPUs.
    slurm_conf: more lines of slurm.conf. gputopo_yaml: more lines of the engine's file; without
    any the engine decides in every partition. pocl: nodes have PoCL-Remote.
    DescriptionError for what cannot be.
    """

    nodes: Mapping[str, str]
    slurm_conf: str = ""
    gputopo_yaml: str = ENFORCE
    pocl: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.pocl, bool):
            raise DescriptionError(f"pocl: {self.pocl!r}; expected true or false")
        for key in ("slurm_conf", "gputopo_yaml"):
            if not isinstance(getattr(self, key), str):
                raise DescriptionError(f"{key}: {getattr(self, key)!r}; expected lines of text")
        pairs = list(self.nodes.items()) if isinstance(self.nodes, Mapping) else []
        if not pairs or not all(isinstance(word, str) for pair in pairs for word in pair):
            raise DescriptionError(f"nodes: {self.nodes!r}; expected {{'dgx[1-2]': 'dgx1v'}}")
        seen = [host for hosts in self._hosts.values() for host in hosts]
        if len(seen) > MOST_NODES:
            raise DescriptionError(f"nodes: {len(seen)} hosts; expected {MOST_NODES} at most")
        for host in seen:
            if not _HOST.fullmatch(host) or host in _TAKEN:
                raise DescriptionError(
                    f"nodes: '{host}'; expected lower-case letters, digits and '-', and none of"
                    f" {', '.join(sorted(_TAKEN))}"
                )
        if len(set(seen)) < len(seen):
            raise DescriptionError(f"nodes: {', '.join(self.nodes)} name a host twice")
        for machine in self.nodes.values():
            self._topology(machine)
        # What is written behind these lines must begin a line of its own.
        for key in ("slurm_conf", "gputopo_yaml"):
            lines = getattr(self, key)
            object.__setattr__(self, key, f"{lines.rstrip()}\n" if lines.strip() else "")

    @cached_property
    def _hosts(self) -> dict[str, tuple[str, ...]]:
        try:
            return {names: hostlist.expand(str(names), MOST_NODES) for names in self.nodes}
        except ValueError as error:
            raise DescriptionError(f"nodes: {error}") from error

    @staticmethod
    def _topology(machine: str) -> NodeTopology | None:
        try:
            return catalog.load(machine) if machine else None
        except TopologyError as error:
            raise DescriptionError(f"nodes: {error}") from error

    @cached_property
    def machines(self) -> dict[str, str]:
        """Node -> machine of the catalog ("" without GPUs), in the order written."""
        return {host: self.nodes[names] for names, hosts in self._hosts.items() for host in hosts}

    @cached_property
    def gpus(self) -> dict[str, int]:
        """Node -> how many GPUs it has."""
        topologies = {host: self._topology(machine) for host, machine in self.machines.items()}
        return {host: topology.gpus if topology else 0 for host, topology in topologies.items()}

    def files(self) -> dict[str, str]:
        """Relative path -> text of every file that the cluster is made of."""
        hosts = "".join(f"{host} {self.machines[host]} {self.gpus[host]}\n" for host in self.gpus)
        made = {
            "compose.json": json.dumps(self._compose(), indent=1),
            "hosts": "".join(f"{host}\n" for host in self.gpus),
            "image/fakegpu/hosts": hosts,
            "image/nodes.conf": self._nodes_conf(slots=False) + self.slurm_conf,
            "image/nodes-slots.conf": self._nodes_conf(slots=True) + self.slurm_conf,
            "image/gres.conf": self._gres_conf(slots=False),
            "image/gres-slots.conf": self._gres_conf(slots=True),
            "image/gputopo.yaml": self._engine_conf(),
        }
        for machine in sorted(set(self.nodes.values()) - {""}):
            for path, text in fake_tools(catalog.load(machine)).items():
                made[f"image/fakegpu/{machine}/{path}"] = text
        return made

    def _compose(self) -> dict[str, Any]:
        """The compose file with a service for each node."""
        text = (PACKAGE / "docker" / "docker-compose.yml").read_text(encoding="utf-8")
        made: dict[str, Any] = yaml.safe_load(text)
        node = made.pop("x-node")
        if self.pocl:
            node["image"] = node["image"].replace("-node:", "-pocl:")
        # As on a real node, users may have namespaces: the server of a donor gets one. Docker's own
        # list of denied calls has those two calls in it; ours has the others alone.
        denied = str(PACKAGE / "docker" / "seccomp.json").replace("$", "$$")
        node["security_opt"] = [f"seccomp={denied}"]
        made["services"] |= {host: {**node, "hostname": host} for host in self.machines}
        return made

    def _nodes_conf(self, *, slots: bool) -> str:
        """slurm.conf's node lines; with `slots` a type per GPU, the model as a feature."""
        return "".join(
            f"{self._node_words(names, machine, slots=slots)} State=UNKNOWN\n"
            for names, machine in self.nodes.items()
        )

    def _node_words(self, names: str, machine: str, *, slots: bool) -> str:
        topology = self._topology(machine)
        sockets, cores = 2, CORES_WITHOUT // 2
        if topology:
            dealt = list(numa_cores(topology).values())
            sockets, cores = len(dealt), len(dealt[0])
        size = f"Sockets={sockets} CoresPerSocket={cores} ThreadsPerCore=1 RealMemory=4000"
        if topology is None:
            return f"NodeName={names} {size}"
        kind = gres_file.type_of(topology.model)
        gres = f"Gres=gpu:{kind + ':' if kind else ''}{topology.gpus}"
        if slots:
            gres = gres_file.slots_node_words(topology, names).split(" ", 1)[1]
        return f"NodeName={names} {size} {gres}"

    def _gres_conf(self, *, slots: bool) -> str:
        return "".join(
            gres_file.gres_conf(
                topology, names, "/dev/fakegpu{index}", numa_cores=numa_cores(topology), slots=slots
            )
            for names, machine in self.nodes.items()
            if (topology := self._topology(machine))
        )

    def _engine_conf(self) -> str:
        nodes = [
            f'  - {{nodes: "{names}", topology: {machine}, slurm_index: identity}}\n'
            for names, machine in self.nodes.items()
            if machine
        ]
        return f"{_COMMON}nodes:{'' if nodes else ' []'}\n{''.join(nodes)}{self.gputopo_yaml}"


def numa_cores(topology: NodeTopology) -> dict[int, range]:
    """A fake node's cores by NUMA node with GPUs: as many for each."""
    numbers = sorted({node for node in topology.numa if node is not None}) or [0]
    each = -(-topology.gpus * CORES_PER_GPU // len(numbers))
    return {node: range(i * each, (i + 1) * each) for i, node in enumerate(numbers)}


def read(path: Path) -> Description:
    """The description in a YAML file. DescriptionError names the file and what is wrong there."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DescriptionError(f"{path}: {error}") from error
    known = set(Description.__dataclass_fields__)
    if not isinstance(values, dict) or set(values) - known:
        raise DescriptionError(f"{path}: expected the keys {', '.join(sorted(known))} alone")
    nodes = values.get("nodes")
    if isinstance(nodes, dict):
        values["nodes"] = {names: machine or "" for names, machine in nodes.items()}
    try:
        return Description(**{"nodes": nodes, **values})
    except DescriptionError as error:
        raise DescriptionError(f"{path}: {error}") from error


def text_of(description: Description) -> str:
    """The description as YAML, which `read` reads again."""
    plain = {**asdict(description), "nodes": dict(description.nodes)}
    return str(yaml.safe_dump(plain, sort_keys=False))


def write(description: Description, folder: Path) -> None:
    """Writes the files of a cluster into a folder."""
    for name, text in description.files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        write(read(Path(sys.argv[1])), Path(sys.argv[2]))
    except DescriptionError as error:
        sys.exit(str(error))
