"""Reads a machine declared in YAML: the catalog's format, and a site's own machines.

name: two-pairs
source: where this was read, in a sentence
model: NVIDIA A100-PCIE-40GB
rates: {nvlink: 3, pcie: 4}        # generations, see gres_topology.links; or xgmi: gfx90a
gpus: 4
links: {NV12: [0-1, 2-3]}          # label -> pairs
other_links: SYS                   # every pair not named
bandwidth_gbps: {SYS: 10}          # optional, replaces the table for a label
numa: [0, 0, 1, 1]
numa_nodes: {0: 0-31, 1: 32-63}    # CPUs; or {cpus:, memory_mb:, distances: {1: 20}}
threads_per_core: 1
cpus, pci, minors: one entry per GPU
nics: {mlx5_0: [PIX, PIX, SYS, SYS], mlx5_1: [SYS, SYS, PIX, PIX]}
rails: {mlx5_0: 0, mlx5_1: 1}      # which leaf switch of the network each NIC is at
sharp: [mlx5_0, mlx5_1]            # those whose switches reduce on the way
like: dgx-h100                     # optional: all keys of that machine of the catalog but these
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import yaml

from gres_topology import cpulist, links, pci
from gres_topology.catalog import files
from gres_topology.errors import TopologyError
from gres_topology.matrix import bandwidths
from gres_topology.topology import Nic, NodeTopology, NumaNode

MAX_GPUS = 256
#: Rails are numbered below this.
MAX_RAILS = 256
_KEYS = {
    "name", "source", "model", "rates", "gpus", "links", "other_links", "bandwidth_gbps", "numa",
    "numa_nodes", "threads_per_core", "cpus", "pci", "minors", "nics", "rails", "sharp",
    "like",
}  # fmt: skip


def read(text: str, *, name: str, source: str) -> NodeTopology:
    """NodeTopology from a machine declared in YAML; its own `name` wins over `name`.

    Raises TopologyError naming the file and the line or key.
    """
    machine = _keys(text, source)
    unknown = sorted(str(key) for key in machine if key not in _KEYS)
    if unknown:
        raise TopologyError(
            f"{source}: unknown key '{unknown[0]}'; expected {', '.join(sorted(_KEYS))}"
        )
    return _Machine(machine, source, _lines(text)).topology(name)


def _keys(text: str, source: str) -> dict[Any, Any]:
    """What a text declares, with what it takes over from a machine of the catalog."""
    try:
        machine = yaml.load(text, Loader=_Once)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not YAML"
        raise TopologyError(f"{source}{where}: {problem}; expected a machine in YAML") from None
    except (ValueError, RecursionError):
        raise TopologyError(f"{source}: not YAML; expected a machine in YAML") from None
    if not isinstance(machine, dict):
        raise TopologyError(f"{source}: expected a machine in YAML: keys gpus, links, ...")
    if "like" not in machine:
        return machine
    like = machine["like"]
    if like not in files.names():
        known = ", ".join(files.names())
        raise TopologyError(f"{source}: like: {like!r} is not in the catalog; it has {known}")
    taken = _keys(files.text(like), files.source(like))
    # NICs and the rails they are on belong together.
    left_out = {"name", *(("rails", "sharp") if "nics" in machine else ())}
    return {key: value for key, value in taken.items() if key not in left_out} | machine


def _lines(text: str) -> dict[str, int]:
    """The line of each key of a machine that could be read."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    return {str(key.value): key.start_mark.line + 1 for key, _ in pairs}


class _Once(yaml.SafeLoader):
    """Refuses a key that is given twice: YAML would let the first one go unseen."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise yaml.MarkedYAMLError(
                problem=f"{twice} is given twice", problem_mark=node.start_mark
            )
        return super().construct_mapping(node, deep)


class _Machine:
    """One declared machine: checks each key as it is used."""

    def __init__(self, declared: Mapping[str, Any], source: str, lines: Mapping[str, int]) -> None:
        self.declared = declared
        self.source = source
        self.lines = lines
        self.n = self.integer("gpus", declared.get("gpus"), 1, MAX_GPUS)

    def topology(self, name: str) -> NodeTopology:
        kinds = self.kinds()
        nodes = self.numa_nodes()
        numa = tuple(self.each("numa", self.number))
        self.check_numa(numa, nodes)
        by_number = {node.number: node.cpus or None for node in nodes}
        cpus = tuple(self.each("cpus", self.cpu_list))
        if "cpus" not in self.declared:
            cpus = tuple(by_number.get(node) if node is not None else None for node in numa)
        minors = tuple(self.each("minors", self.number))
        known = [minor for minor in minors if minor is not None]
        if len(set(known)) < len(known):
            raise self.fail("minors", f"{known}; expected each device minor once")
        threads = self.declared.get("threads_per_core")
        model = self.declared.get("model")
        return NodeTopology(
            name=str(self.declared.get("name", name)),
            source=" ".join(str(self.declared.get("source", self.source)).split()),
            kinds=kinds,
            bandwidth_gbps=bandwidths(kinds, self.rates()),
            numa=numa,
            cpus=cpus,
            pci=tuple(self.each("pci", self.address)),
            minors=minors,
            model=str(model) if model else None,
            nics=tuple(self.nics()),
            numa_nodes=nodes,
            threads_per_core=threads and self.integer("threads_per_core", threads, 1, 16),
        )

    def fail(self, key: str, what: str) -> TopologyError:
        line = self.lines.get(key.partition(" ")[0])
        where = f" line {line}" if line else ""
        return TopologyError(f"{self.source}{where}: {key}: {what}")

    def integer(self, key: str, value: object, low: int, high: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.fail(key, f"{value!r}; expected a number from {low} to {high}")
        return value

    def number(self, key: str, value: object) -> int:
        return self.integer(key, value, 0, 65535)

    def cpu_list(self, key: str, value: object) -> tuple[int, ...]:
        try:
            return cpulist.parse_list(str(value))
        except ValueError as error:
            raise self.fail(key, str(error)) from None

    def address(self, key: str, value: object) -> str:
        address = pci.normalise(str(value))
        if address is None:
            raise self.fail(key, f"'{value}'; expected a PCI address such as 0000:07:00.0")
        return address

    def each(self, key: str, check: Any) -> list[Any]:
        """One checked entry per GPU, None where null or where the key is missing."""
        values = self.declared.get(key, [None] * self.n)
        if not isinstance(values, list) or len(values) != self.n:
            raise self.fail(key, f"expected a list of {self.n} entries, one per GPU")
        return [None if value is None else check(key, value) for value in values]

    def label(self, key: str, value: object) -> str:
        label = links.canonical(str(value))
        if label is None or label == "X":
            raise self.fail(key, f"'{value}' is not a link; expected {links.EXPECTED[3:]}")
        return label

    def mapping(self, key: str) -> dict[Any, Any]:
        value = self.declared.get(key) or {}
        if not isinstance(value, dict):
            raise self.fail(key, f"{value!r}; expected a mapping")
        return value

    def kinds(self) -> tuple[tuple[str, ...], ...]:
        other = self.declared.get("other_links")
        labels: list[list[str | None]] = [
            [
                "X" if i == j else (self.label("other_links", other) if other else None)
                for j in range(self.n)
            ]
            for i in range(self.n)
        ]
        seen: set[tuple[int, int]] = set()
        for text, pairs in self.mapping("links").items():
            for i, j in map(self.pair, pairs if isinstance(pairs, list) else [pairs]):
                if (i, j) in seen:
                    raise self.fail("links", f"pair {i}-{j} is named twice")
                seen.add((i, j))
                labels[i][j] = labels[j][i] = self.label("links", text)
        for i in range(self.n):
            if None in labels[i]:
                j = labels[i].index(None)
                raise self.fail("links", f"pair {i}-{j} is missing and there is no other_links")
        return tuple(tuple(str(label) for label in row) for row in labels)

    def pair(self, value: object) -> tuple[int, int]:
        first, _, last = str(value).partition("-")
        if not (first.isdigit() and last.isdigit() and int(first) != int(last)):
            raise self.fail("links", f"'{value}'; expected a pair of GPUs such as 0-3")
        if max(int(first), int(last)) >= self.n:
            raise self.fail("links", f"'{value}' of a machine of {self.n} GPUs")
        return min(int(first), int(last)), max(int(first), int(last))

    def rates(self) -> links.LinkRates:
        wanted = self.mapping("rates")
        base = links.rates_of_model(self.declared.get("model"))
        tables: dict[str, Mapping[Any, Any]] = {
            "nvlink": links.NVLINK_GBPS, "pcie": links.PCIE_GBPS, "xgmi": links.XGMI_GBPS
        }  # fmt: skip
        for key, value in wanted.items():
            if key not in tables or value not in tables[key]:
                allowed = {name: list(table) for name, table in tables.items()}
                raise self.fail("rates", f"{key}: {value}; expected of {allowed}")
        overrides = {
            self.label("bandwidth_gbps", label): float(value)
            for label, value in self.mapping("bandwidth_gbps").items()
            if self.is_bandwidth(label, value)
        }
        return links.LinkRates(
            links.NVLINK_GBPS[wanted["nvlink"]][0] if "nvlink" in wanted else base.nvlink_gbps,
            links.XGMI_GBPS[wanted["xgmi"]][0] if "xgmi" in wanted else base.xgmi_gbps,
            links.PCIE_GBPS[wanted["pcie"]] if "pcie" in wanted else base.pcie_gbps,
            tuple(overrides.items()),
        )

    def is_bandwidth(self, label: object, value: object) -> bool:
        if isinstance(value, int | float) and 0 < value < math.inf:
            return True
        raise self.fail("bandwidth_gbps", f"{label}: {value!r}; expected GB/s above zero")

    def check_numa(self, numa: tuple[int | None, ...], nodes: tuple[NumaNode, ...]) -> None:
        """GPUs sit in NUMA nodes that there are, and a CPU belongs to one of them."""
        known = {node.number for node in nodes}
        for gpu, number in enumerate(numa):
            if known and number is not None and number not in known:
                raise self.fail("numa", f"GPU {gpu} in node {number}, which numa_nodes has not")
        owner: dict[int, int] = {}
        for node in nodes:
            for cpu in node.cpus:
                if owner.setdefault(cpu, node.number) != node.number:
                    conflict = f"CPU {cpu} in node {owner[cpu]} and in node {node.number}"
                    raise self.fail("numa_nodes", f"{conflict}; expected each CPU once")

    def numa_nodes(self) -> tuple[NumaNode, ...]:
        result = []
        for key, value in self.mapping("numa_nodes").items():
            number = self.number("numa_nodes", key)
            facts = value if isinstance(value, dict) else {"cpus": value}
            cpus = facts.get("cpus")
            memory = facts.get("memory_mb")
            distances = facts.get("distances") or {}
            result.append(
                NumaNode(
                    number,
                    self.cpu_list("numa_nodes", cpus) if cpus is not None else (),
                    None if memory is None else self.integer("memory_mb", memory, 0, 2**40),
                    tuple((self.number("distances", k), int(v)) for k, v in distances.items()),
                )
            )
        return tuple(sorted(result, key=lambda node: node.number))

    def nics(self) -> list[Nic]:
        result = []
        rails = self.rails()
        sharp = self.sharp(rails)
        for name, labels in self.mapping("nics").items():
            if not isinstance(labels, list) or len(labels) != self.n:
                raise self.fail(f"nics {name}", f"expected {self.n} labels, one per GPU")
            kinds = tuple(self.label(f"nics {name}", x) for x in labels)
            result.append(Nic(str(name), kinds, rail=rails.get(name), sharp=name in sharp))
        return result

    def rails(self) -> dict[Any, int]:
        """The rail of each NIC that is on one."""
        nics = self.mapping("nics")
        rails = self.mapping("rails")
        for name, rail in rails.items():
            if name not in nics:
                known = ", ".join(map(str, nics)) or "none"
                raise self.fail("rails", f"'{name}' is not among the NICs; nics has {known}")
            self.integer(f"rails {name}", rail, 0, MAX_RAILS - 1)
        return rails

    def sharp(self, rails: Mapping[Any, int]) -> list[Any]:
        """The NICs whose switches reduce."""
        names = self.declared.get("sharp") or []
        if not isinstance(names, list):
            raise self.fail("sharp", f"{names!r}; expected a list of NICs")
        lost = next((name for name in names if name not in list(rails)), None)
        if lost is not None:
            known = ", ".join(map(str, rails)) or "none"
            raise self.fail("sharp", f"{lost!r} is on no rail; rails has {known}")
        return names
