"""Reads hwloc's XML (`lstopo --of xml`), versions 1 and 2.

The PCI tree gives the paths, the nearest CPU-side ancestor the NUMA node and CPUs. NVLink
and xGMI come from the `NVLinkBandwidth` and `XGMIBandwidth` distance matrices, which newer
hwloc writes when built with NVML or ROCm SMI; without them only the PCI tree is known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gres_topology import cpulist, links, pci
from gres_topology.errors import TopologyError
from gres_topology.links import LinkRates
from gres_topology.readers import xmltree
from gres_topology.readers.hwloc_distances import Matrix, matrices
from gres_topology.readers.xmltree import Element
from gres_topology.topology import Nic, NodeTopology, NumaNode

_IO_TYPES = {"Bridge", "PCIDev", "OSDev", "Misc"}
_PCI_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})?", re.IGNORECASE)
_GPU_CLASSES = {"0302", "0380", "1200", "0300"}
_NVIDIA, _AMD = "10de", "1002"  # most boards' own VGA chips are of others
_DISPLAY_CLASS = "0300"
_GPU_OSDEV = re.compile(r"(nvml|rsmi|cuda|ze|opencl\d+d)(\d+)$")
_NIC_OSDEV_TYPES = {"3", "OpenFabrics"}
_NETWORK_OSDEV_TYPES = {"2", "Network"}
#: Whose network devices are for MPI: HPE's Slingshot; other makers' are OpenFabrics devices, too.
_FABRIC_VENDORS = {"17db"}
#: ATI's chips on servers' boards, which compute nothing: ES1000, RV100, Rage XL.
_BOARD_VGA = {"515e", "5159", "4752"}


@dataclass(eq=False)
class HwlocGpu:
    """One GPU: its PCI element, address and OS devices (name -> element)."""

    element: Element
    address: str
    osdevs: dict[str, Element]

    def number(self, family: str) -> int | None:
        """The index a management library gives this GPU (`nvml3` -> 3)."""
        matches = (re.fullmatch(rf"{family}(\d{{1,4}})", name) for name in self.osdevs)
        return next((int(match.group(1)) for match in matches if match), None)


def read(text: str, *, name: str, source: str) -> NodeTopology:
    """NodeTopology from hwloc XML; TopologyError naming the line.

    GPUs are in NVML's or ROCm SMI's order where the XML has their devices, else in the
    order of PCI addresses.
    """
    root = xmltree.parse(text, source)
    if root.tag != "topology" or not any(e.tag == "object" for e in root.children):
        raise TopologyError(
            f"{source} line {root.line}: <{root.tag}>; expected <topology> of hwloc with objects"
        )
    gpus = _gpus(root, source)
    nodes = _numa_nodes(root, source)
    models = set(filter(None, map(_model, gpus)))
    model = models.pop() if len(models) == 1 else None
    labels, bandwidth = _links(root, gpus, links.rates_of_model(model), source)
    local = [_locality(gpu.element, nodes, source) for gpu in gpus]
    return NodeTopology(
        name=name,
        source=f"hwloc XML: {source}",
        kinds=labels,
        bandwidth_gbps=bandwidth,
        numa=tuple(numa for numa, _ in local),
        cpus=tuple(cpus for _, cpus in local),
        pci=tuple(gpu.address for gpu in gpus),
        model=model,
        nics=_nics(root, gpus, nodes, source),
        numa_nodes=nodes,
    )


def _gpus(root: Element, source: str) -> list[HwlocGpu]:
    gpus: dict[str, HwlocGpu] = {}
    #: A board's own VGA, or a GPU within the CPU, where there are others.
    displays: set[str] = set()
    for element in root.walk():
        match = _PCI_TYPE.match(element.get("pci_type"))
        if element.get("type") != "PCIDev" or match is None:
            continue
        osdevs = {e.get("name"): e for e in element.children if e.get("type") == "OSDev"}
        is_known = any(_GPU_OSDEV.match(name) for name in osdevs)
        pci_class, vendor = match.group(1), match.group(2).lower()
        if pci_class not in _GPU_CLASSES or not (is_known or vendor in {_NVIDIA, _AMD}):
            continue
        if vendor == _AMD and (match.group(3) or "").lower() in _BOARD_VGA:
            continue
        address = pci.normalise(element.get("pci_busid"))
        if address is None or address in gpus:
            raise TopologyError(
                f"{source} line {element.line}: pci_busid='{element.get('pci_busid')}';"
                " expected a PCI address, each once"
            )
        gpus[address] = HwlocGpu(element, address, osdevs)
        if pci_class == _DISPLAY_CLASS and vendor != _NVIDIA:
            is_card = is_known and _is_below_a_switch(element)
            displays.update(() if is_card else (address,))
    if len(displays) < len(gpus):
        gpus = {address: gpu for address, gpu in gpus.items() if address not in displays}
    if not gpus:
        raise TopologyError(
            f"{source} line {root.line}: no GPU among the PCI devices; expected lstopo run"
            " on a GPU node with --whole-io"
        )
    return _ordered(list(gpus.values()))


def _is_below_a_switch(element: Element) -> bool:
    """As AMD's cards are, which have one of their own; what is on the board has a port alone."""
    above = [e.get("bridge_type") for e in element.ancestors() if e.get("type") == "Bridge"]
    return sum(kind.startswith("1") for kind in above) > 1


def _ordered(gpus: list[HwlocGpu]) -> list[HwlocGpu]:
    for family in ("nvml", "rsmi"):
        numbers = [gpu.number(family) for gpu in gpus]
        known = [number for number in numbers if number is not None]
        if len(set(known)) == len(gpus):
            return [gpu for _, gpu in sorted(zip(known, gpus, strict=True), key=lambda p: p[0])]
    return sorted(gpus, key=lambda gpu: gpu.address)


def _model(gpu: HwlocGpu) -> str | None:
    infos = [
        (info.get("name"), info.get("value"))
        for e in (*gpu.osdevs.values(), gpu.element)
        for info in e.children
        if info.tag == "info"
    ]
    named = [value for name, value in infos if name in {"GPUModel", "PCIDevice"} and value]
    return named[0].strip() if named else None


def _links(
    root: Element, gpus: list[HwlocGpu], rates: LinkRates, source: str
) -> tuple[tuple[tuple[str, ...], ...], np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    by_name = matrices(root, source)
    n = len(gpus)
    labels = [["X"] * n for _ in range(n)]
    bandwidth = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i == j:
                continue
            label = _path(gpus[i].element, gpus[j].element)
            gbps = rates.gbps(label)
            for name, family, per_link in (
                ("NVLinkBandwidth", "NV", rates.nvlink_gbps),
                ("XGMIBandwidth", "XGMI", rates.xgmi_gbps),
            ):
                direct = _direct_gbps(by_name.get(name), gpus[i], gpus[j])
                if direct > 0:
                    count = max(1, round(direct / per_link))
                    label = f"NV{count}" if family == "NV" else "XGMI"
                    gbps = direct
            labels[i][j], bandwidth[i, j] = label, gbps
    return tuple(map(tuple, labels)), bandwidth


def _direct_gbps(matrix: Matrix | None, a: HwlocGpu, b: HwlocGpu) -> float:
    """GB/s between two GPUs by one matrix, directly or through switches; 0 if none."""
    if matrix is None:
        return 0.0
    ends = [_keys(a, matrix), _keys(b, matrix)]
    if not all(ends):
        return 0.0
    direct = matrix.values[ends[0][0]].get(ends[1][0], 0.0)
    others = matrix.switches
    through = min(sum(matrix.values[end[0]].get(switch, 0.0) for switch in others) for end in ends)
    return max(direct, through) / 1000.0  # hwloc counts MB/s


def _keys(gpu: HwlocGpu, matrix: Matrix) -> list[str]:
    """The identifiers under which a matrix knows this GPU or one of its OS devices."""
    indexes = [e.get("gp_index") for e in (gpu.element, *gpu.osdevs.values())]
    return [index for index in indexes if index and index in matrix.values]


def _path(a: Element, b: Element) -> str:
    """PIX, PXB, PHB, NODE or SYS, as nvidia-smi defines them, from the bridges above both."""
    above_a, above_b = list(a.ancestors()), list(b.ancestors())
    ids_b = {id(e) for e in above_b}
    common = next(e for e in above_a if id(e) in ids_b)
    if common.get("type") == "Bridge" and common.get("bridge_type").startswith("1"):
        bridges = max(above.index(common) for above in (above_a, above_b))
        return "PIX" if bridges <= 1 else "PXB"
    if common.get("type") == "Bridge":
        return "PHB"
    place = next((e for e in (common, *common.ancestors()) if e.get("nodeset")), None)
    if place is None:
        return "NODE"
    return "NODE" if len(_mask(place, "nodeset", "")) == 1 else "SYS"


def _mask(element: Element, attribute: str, source: str) -> tuple[int, ...]:
    try:
        return cpulist.parse_mask(element.get(attribute))
    except ValueError as error:
        raise TopologyError(f"{source} line {element.line}: {attribute}: {error}") from None


def _locality(
    element: Element, nodes: Sequence[NumaNode], source: str
) -> tuple[int | None, tuple[int, ...] | None]:
    """NUMA node (None if several are as near) and CPUs of the nearest CPU-side ancestor."""
    place = next(e for e in element.ancestors() if e.get("type") not in _IO_TYPES)
    near = _mask(place, "nodeset", source) if place.get("nodeset") else ()
    if len(near) == 0 and len(nodes) == 1:
        near = (nodes[0].number,)
    cpus = _mask(place, "cpuset", source) if place.get("cpuset") else ()
    return (near[0] if len(near) == 1 else None), cpus or None


def _numa_nodes(root: Element, source: str) -> tuple[NumaNode, ...]:
    by_number: dict[int, NumaNode] = {}
    distances = matrices(root, source).get("NUMALatency")
    for element in root.walk():
        if element.tag != "object" or element.get("type") != "NUMANode":
            continue
        text = element.get("os_index", "0")
        number = cpulist.natural(text)
        if number is None or number in by_number:
            raise TopologyError(
                f"{source} line {element.line}: os_index='{text}' of a NUMANode;"
                " expected a number, each once"
            )
        memory = cpulist.natural(element.get("local_memory"))
        row = distances.values.get(text, {}) if distances else {}
        by_number[number] = NumaNode(
            number=number,
            cpus=_mask(element, "cpuset", source) if element.get("cpuset") else (),
            memory_mb=None if memory is None else memory // 2**20,
            distances=tuple((int(other), round(value)) for other, value in row.items()),
        )
    return tuple(by_number[number] for number in sorted(by_number))


def _is_nic(element: Element, parent: Element) -> bool:
    kind, card = element.get("osdev_type"), _PCI_TYPE.match(parent.get("pci_type"))
    is_fabric = card is not None and card.group(2).lower() in _FABRIC_VENDORS
    return kind in _NIC_OSDEV_TYPES or (is_fabric and kind in _NETWORK_OSDEV_TYPES)


def _nics(
    root: Element, gpus: list[HwlocGpu], nodes: Sequence[NumaNode], source: str
) -> tuple[Nic, ...]:
    nics = []
    for element in root.walk():
        parent = element.parent
        if parent is not None and element.get("type") == "OSDev" and _is_nic(element, parent):
            kinds = tuple(_path(gpu.element, parent) for gpu in gpus)
            address = pci.normalise(parent.get("pci_busid"))
            numa, _ = _locality(element, nodes, source)
            nics.append(Nic(element.get("name"), kinds, address, numa))
    return tuple(nics)
