"""Writes Slurm's gres.conf for a topology, and reads one back.

`Links` counts the direct links (NVLink, xGMI) to every GPU in File order, -1 for itself.
`Cores` are Slurm's abstract cores, which are not Linux's CPU numbers: core k is the k-th core
of the machine counted NUMA node by NUMA node. `core_numbers` does that sum: CPUs are folded
into cores (with t threads of c cores, Linux on x86 numbers siblings k, k+c, ...; on POWER and
where a core's threads have adjacent numbers, k*t ... k*t+t-1), then cores are counted through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gres_topology import cpulist, hostlist, links, plain_file
from gres_topology.errors import TopologyError
from gres_topology.slurm_files import conf_lines
from gres_topology.topology import NodeTopology

#: The number of a model in what Slurm's AutoDetect makes of its name (`nvidia_rtx_a6000`): whole,
#: with the words of its series where the number alone would be no name.
_TYPE = re.compile(
    r"(?<![a-z0-9])(?:(?:rtx_pro|rtx|gtx|rx)_\d{3,4}[a-z]{0,2}(?:_sff)?(?:_(?:ada|ti|super|xtx?|d))*"
    r"|titan_[a-z]{1,3}|(?:max|flex)_\d{3,4}[a-z]?|[a-z]{1,2}\d{1,4}[a-z]{0,2})(?![a-z0-9])"
)
#: hwloc and lspci name the chip, and then the product: `GH100 [H100 SXM5 80GB]`.
_PRODUCT = re.compile(r".*\[(.+)\]")


@dataclass(frozen=True, slots=True)
class GresLine:
    """One GPU's device, and its type as written."""

    file: str
    type: str | None


#: What slurmd knows of AutoDetect=, in the order in which it looks: `_handle_autodetect_flags`
#: in Slurm's gres.c. `nrt` came with 23.11, `nvidia` with 24.11, `full` with 26.05.
DETECTIONS = ("full", "nvml", "rsmi", "oneapi", "nrt", "nvidia")


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """What a gres.conf says of each node's GPUs; '' has what it says of all other nodes.

    A line that cannot be read costs the nodes that it is about: asked for one of those, each method
    raises TopologyError with the line.
    """

    #: In the order in which slurmd reads them.
    lines: Mapping[str, Sequence[GresLine]]
    #: AutoDetect= as one of DETECTIONS; '' where slurmd goes by the lines alone.
    detection: Mapping[str, str]
    #: The first line of each node that cannot be read.
    faults: Mapping[str, str]

    def files(self, node: str) -> list[str]:
        """The device files of the node's GPUs, as gres.conf lists them."""
        return [line.file for line in self._lines(node)]

    def detected_by(self, node: str) -> str:
        """How slurmd finds the node's GPUs: `nvml`, `rsmi`, ..., or ''."""
        self._check(node)
        return self.detection.get(node, self.detection.get("", ""))

    def follows_types(self, node: str, types: Iterable[str]) -> bool:
        """Whether the node's lines stand in the order of `types`, which are those of slurm.conf.

        slurmd counts the GPUs of the first type in slurm.conf's Gres= first (`_merge_config` in
        Slurm's gres.c), wherever their lines stand.
        """
        order = [one.lower() for one in types]
        own = [(line.type or "").lower() for line in self._lines(node)]
        places = [order.index(one) for one in own if one in order]
        return places == sorted(places)

    def _lines(self, node: str) -> Sequence[GresLine]:
        self._check(node)
        return self.lines.get(node, self.lines[""])

    def _check(self, node: str) -> None:
        if fault := self.faults.get(node) or self.faults.get(""):
            raise TopologyError(fault)


def gres_conf(
    topology: NodeTopology,
    node_names: str,
    device_pattern: str = "/dev/nvidia{minor}",
    *,
    gpu_type: str | None = None,
    with_cores: bool = True,
    numa_cores: Mapping[int, Sequence[int]] | None = None,
    slots: bool = False,
) -> str:
    """One line per GPU: NodeName, Name, Type, File, Cores, Links.

    `device_pattern` may use {minor} (must be known) and {index}. `gpu_type` defaults to that
    of `type_of` (v100, rtx_6000_ada; none if unknown). `numa_cores` gives abstract
    cores by NUMA node where the administrator knows better than `core_numbers`; without
    NUMA nodes or CPUs, or with `with_cores=False`, Cores is left out. With `slots` every
    GPU is a type of its own (`slot_types`). Raises TopologyError.
    """
    _check_names(node_names)
    kind = gpu_type if gpu_type is not None else type_of(topology.model)
    types = slot_types(topology, kind) if slots else [kind] * topology.gpus
    cores = numa_cores
    if with_cores and cores is None:
        cores = core_numbers(topology)
    lines = []
    for gpu in range(topology.gpus):
        parts = [f"NodeName={node_names}", "Name=gpu"]
        if types[gpu]:
            parts.append(f"Type={types[gpu]}")
        parts.append(f"File={_device(topology, gpu, device_pattern)}")
        node = topology.numa[gpu]
        own = cores.get(node) if cores and node is not None else None
        if own:
            parts.append(f"Cores={cpulist.format_list(own)}")
        parts.append("Links=" + ",".join(map(str, link_counts(topology, gpu))))
        lines.append(" ".join(parts))
    return "\n".join(lines) + "\n"


def slot_types(topology: NodeTopology, gpu_type: str | None = None) -> list[str]:
    """A GRES type per GPU, by Slurm's index: v100.s0, v100.s1, ... (s0, ... without a type).

    Raises TopologyError for a type that Slurm could not tell from the rest of a request.
    """
    if gpu_type and not re.fullmatch(r"[A-Za-z][\w-]*", gpu_type):
        raise TopologyError(
            f"GRES type '{gpu_type}': expected a letter, then letters, digits, '_' or '-'"
        )
    prefix = f"{gpu_type}." if gpu_type else ""
    return [f"{prefix}s{gpu}" for gpu in range(topology.gpus)]


def slots_node_words(
    topology: NodeTopology, node_names: str, *, gpu_type: str | None = None
) -> str:
    """What slurm.conf's node line says where every GPU is a type of its own.

    `NodeName=dgx[1-4] Gres=gpu:v100.s0:1,... Feature=v100`: jobs keep asking for a model by
    its feature. Without a known type there is no Feature. Raises TopologyError.
    """
    _check_names(node_names)
    kind = gpu_type if gpu_type is not None else type_of(topology.model)
    gres = ",".join(f"gpu:{slot}:1" for slot in slot_types(topology, kind))
    return f"NodeName={node_names} Gres={gres}" + (f" Feature={kind}" if kind else "")


def _check_names(node_names: str) -> None:
    if not re.fullmatch(r"[\w.\[\],-]+", node_names):
        raise TopologyError(f"node names '{node_names}': expected Slurm's form, dgx[1-4]")


def type_of(model: str | None) -> str | None:
    """A short GRES type from a product name: `Tesla V100-SXM2-16GB` -> `v100`.

    It is part of the type that slurmd's AutoDetect gives the GPU, the whole name in lower case with
    underscores, and slurmd takes any such part for it (`gpu_common_underscorify_tolower` in Slurm's
    gpu_common.c, and gres.c): lines stay right when AutoDetect is switched on. None for a name
    without a model's number.
    """
    name = (model or "").lower()
    product = _PRODUCT.match(name)
    match = _TYPE.search((product[1] if product else name).replace(" ", "_"))
    return match[0] if match else None


def link_counts(topology: NodeTopology, gpu: int) -> tuple[int, ...]:
    """Direct links of one GPU to each, -1 for itself: Slurm's `Links`."""
    row = topology.kinds[gpu]
    return tuple(-1 if j == gpu else links.link_count(row[j]) for j in range(topology.gpus))


def core_numbers(topology: NodeTopology) -> dict[int, tuple[int, ...]] | None:
    """NUMA node -> Slurm's abstract cores; None if CPUs or NUMA nodes are not known.

    Raises TopologyError if the known NUMA nodes do not cover the machine's CPUs, since the
    cores before a gap cannot be counted then.
    """
    nodes = {node.number: node.cpus for node in topology.numa_nodes if node.cpus}
    if not nodes:
        places = zip(topology.numa, topology.cpus, strict=True)
        nodes = {numa: cpus for numa, cpus in places if numa is not None and cpus}
    if not nodes or any(n is not None and n not in nodes for n in topology.numa):
        return None
    threads = topology.threads_per_core or _threads(nodes.values())
    total = len({cpu for cpus in nodes.values() for cpu in cpus})
    if sorted(cpu for cpus in nodes.values() for cpu in cpus) != list(range(total)):
        raise TopologyError(
            f"{topology.name}: CPUs of NUMA nodes {sorted(nodes)} are not 0..{total - 1}, so"
            " Slurm's cores cannot be counted; leave Cores out or state them per NUMA node"
        )
    result, first = {}, 0
    for number in sorted(nodes):
        count = len(_cores(nodes[number], threads, total))
        result[number] = tuple(range(first, first + count))
        first += count
    return result


def _cores(cpus: Sequence[int], threads: int, total: int) -> set[int]:
    """The cores these CPUs belong to, whichever way Linux numbered the siblings."""
    adjacent = {cpu // threads for cpu in cpus}
    apart = {cpu % max(1, total // threads) for cpu in cpus}
    return adjacent if len(adjacent) < len(apart) else apart


def _threads(nodes: Iterable[Sequence[int]]) -> int:
    """Two if every node's CPUs are two equal runs far apart (siblings on x86), else one."""
    for cpus in nodes:
        half = len(cpus) // 2
        runs = cpulist.format_list(cpus).count(",") + 1
        if runs != 2 or len(cpus) % 2 or cpus[half] == cpus[half - 1] + 1:
            return 1
    return 2


def _device(topology: NodeTopology, gpu: int, pattern: str) -> str:
    minor = topology.minors[gpu]
    if "{minor}" in pattern and minor is None:
        raise TopologyError(
            f"{topology.name}: device minor of GPU{gpu} is unknown; give a"
            " device pattern with {index} if files and topology are numbered alike"
        )
    try:
        return pattern.format(minor=minor, index=gpu)
    except (KeyError, IndexError, ValueError):
        raise TopologyError(
            f"device pattern '{pattern}': expected only {{minor}} and {{index}}"
        ) from None


def _text(path: Path) -> str:
    try:
        raw = plain_file.read_bytes(path)
    except OSError as error:
        raise TopologyError(f"{path}: {error.strerror}") from None
    if b"\0" in raw:
        raise TopologyError(f"{path}: has a NUL byte, behind which Slurm reads nothing of a line")
    # Comments may be in any encoding.
    return raw.decode("utf-8", "surrogateescape")


def load_devices(path: Path, text_of: Callable[[Path], str] = _text) -> NodeDevices:
    """What the file and those that it includes say of each node's GPUs; `text_of` reads a file.

    In the order in which slurmd reads it: first the lines without NodeName=, wherever they stand in
    the file, and then the node's own; it does not look into those of other nodes
    (`gres_g_node_config_load` and `_parse_gres_config_node` in Slurm's gres.c, in all releases from
    22.05 to 26.05). TopologyError where a file cannot be read, and for a line that is no
    `Key=value`, or a host list that cannot be read: it may be any node's.
    """
    for_all: list[GresLine] = []
    by_node: dict[str, list[GresLine]] = {}
    detection: dict[str, str] = {}
    faults: dict[str, str] = {}
    for file, line in conf_lines.included(path, text_of):
        where = f"{file} line {line.number}"
        try:
            pairs = conf_lines.pairs(line)
        except ValueError as error:
            raise TopologyError(f"{where}: {error}") from None
        nodes = _nodes(pairs.get("nodename", ""), where)
        try:
            found = _lines(pairs, where)
            if said := _detection(pairs):
                detection |= dict.fromkeys(nodes or ("",), _method(said, where))
        except TopologyError as error:
            for node in nodes or ("",):
                faults.setdefault(node, str(error))
            continue
        if not nodes:
            for_all += found
        elif found:
            for node in nodes:
                by_node.setdefault(node, []).extend(found)
    lines = {node: [*for_all, *own] for node, own in by_node.items()}
    return NodeDevices({"": for_all, **lines}, detection, faults)


def _detection(pairs: Mapping[str, str]) -> str:
    """AutoDetect= of a line; slurmd passes over one behind Name= where no node is named."""
    return "" if next(iter(pairs), "") == "name" else pairs.get("autodetect", "")


def _method(said: str, where: str) -> str:
    """What AutoDetect= means, '' for off: the first of DETECTIONS that is in it, as in slurmd.

    slurmd only logs an error for another word and goes by the lines: TopologyError.
    """
    text = said.lower()
    method = next((word for word in DETECTIONS if word in text), None)
    if method is None and text != "off":
        raise TopologyError(
            f"{where}: AutoDetect={said}; expected {', '.join(DETECTIONS)} or off: slurmd ignores"
            " any other word, so write one of these, or leave it out"
        )
    return method or ""


def _nodes(names: str, where: str) -> Sequence[str]:
    try:
        return tuple(hostlist.expand(names)) if names else ()
    except ValueError as error:
        raise TopologyError(f"{where}: NodeName={names}: {error}") from error


def _lines(pairs: Mapping[str, str], where: str) -> list[GresLine]:
    """One for each GPU's device that a line names."""
    if pairs.get("name", "").lower() != "gpu" or not pairs.keys() & {"file", "files"}:
        return []
    try:
        files = list(_files(pairs.get("file") or pairs["files"]))
        if "cores" in pairs:
            # For its faults; as Slurm's bit_unfmt, which does not mind brackets.
            cpulist.parse_list(pairs["cores"].strip("[]"))
    except ValueError as error:
        raise TopologyError(f"{where}: {error}; expected numbers") from None
    count = pairs.get("count", "")
    if count.isdecimal() and int(count) != len(files):
        raise TopologyError(
            f"{where}: Count={count} of {len(files)} files: slurmd stops there; leave Count= out"
        )
    return [GresLine(file, pairs.get("type")) for file in files]


def _files(text: str) -> Iterator[str]:
    """The devices of File= in Slurm's order, which is the one in which they are written.

    Raises ValueError for a range that is none.
    """
    for word in re.findall(r"(?:[^,\[]|\[[^\]]*\]?)+", text):
        parts = re.fullmatch(r"([^\[\]]*)\[([^\[\]]*)\]([^\[\]]*)", word)
        if parts is None:
            if "[" in word or "]" in word:
                raise ValueError(f"File={text}")
            yield word
            continue
        before, ranges, behind = parts.groups()
        for one in ranges.split(","):
            bounds = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", one, re.A)
            first, last = bounds.groups() if bounds else ("", "")
            if not first or int(last or first) < int(first):
                raise ValueError(f"File={text}")
            for number in range(int(first), int(last or first) + 1):
                yield f"{before}{number:0{len(first)}}{behind}"
