"""Reads the topology XML of NCCL and RCCL (`NCCL_TOPO_DUMP_FILE`, or a cloud's static file).

Paths follow NCCL's own reading of the tree (NCCL's path types PIX, PXB, PHB, SYS): one `pci`
element of class 0x0604 is one switch; `cpu` is one NUMA node with its host bridges. NVLinks
that end in NVSwitches join every pair of GPUs that reach one; a GPU that lost its own goes by PCIe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gres_topology import cpulist, links, pci
from gres_topology.errors import TopologyError
from gres_topology.links import LinkRates
from gres_topology.readers import xmltree
from gres_topology.readers.xmltree import Element
from gres_topology.topology import Nic, NodeTopology, NumaNode

_GPU_CLASSES = ("0x0302", "0x0380", "0x1200", "0x0300")
_NIC_CLASSES = ("0x0200", "0x0207")
_NVSWITCH_CLASS = "0x0680"
#: GT/s -> PCIe generation. Slower than 8 GT/s a link of a GPU or switch is asleep, not slow.
_GENERATION = {8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


@dataclass(eq=False)
class NcclDevice:
    """One GPU or NIC: its element, address, and how many links go where."""

    element: Element
    address: str
    links: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    switch_links: int = 0

    @property
    def gpu(self) -> Element | None:
        """The `gpu` element inside, if NCCL wrote one."""
        return next((c for c in self.element.children if c.tag == "gpu"), None)


def read(text: str, *, name: str, source: str) -> NodeTopology:
    """NodeTopology from an NCCL or RCCL topology XML.

    GPUs are in the order of their `dev` numbers, else of their PCI addresses. Raises
    TopologyError naming the line.
    """
    root = xmltree.parse(text, source)
    system = next((e for e in root.walk() if e.tag == "system"), None)
    if system is None:
        raise TopologyError(f"{source} line {root.line}: <{root.tag}>; expected <system> of NCCL")
    gpus = _gpus(system, source)
    for gpu in gpus:
        _count_links(gpu, {other.address for other in gpus}, source)
    _check_links(gpus, source)
    rates, model = _rates(gpus)
    n = len(gpus)
    labels = [["X"] * n for _ in range(n)]
    matrix = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i != j:
                labels[i][j], matrix[i, j] = _best(gpus[i], gpus[j], rates)
    cpus = [_cpu(gpu.element) for gpu in gpus]
    return NodeTopology(
        name=name,
        source=f"NCCL topology XML: {source}",
        kinds=tuple(map(tuple, labels)),
        bandwidth_gbps=matrix,
        numa=tuple(_numa(cpu, source) for cpu in cpus),
        cpus=tuple(_affinity(cpu, source) for cpu in cpus),
        pci=tuple(gpu.address for gpu in gpus),
        model=model,
        nics=_nics(system, gpus),
        numa_nodes=_numa_nodes(system, source),
    )


def _gpus(system: Element, source: str) -> list[NcclDevice]:
    gpus: list[NcclDevice] = []
    for element in system.walk():
        is_gpu = any(child.tag == "gpu" for child in element.children)
        if element.tag != "pci" or not (is_gpu or _is_class(element, _GPU_CLASSES)):
            continue
        device = NcclDevice(element, _address(element, "busid", source))
        if any(other.address == device.address for other in gpus):
            raise TopologyError(
                f"{source} line {element.line}: a second GPU at {device.address};"
                " expected each PCI address once"
            )
        gpus.append(device)
    if not gpus:
        raise TopologyError(
            f"{source} line {system.line}: no GPU in <system>; expected <pci> elements with"
            " <gpu> inside or of class 0x0302"
        )
    devs = [_number(d.gpu, "dev", source) if d.gpu else None for d in gpus]
    known = [dev for dev in devs if dev is not None]
    if len(known) == len(gpus):
        if len(set(known)) < len(known):
            raise TopologyError(f"{source} line {system.line}: two GPUs with the same dev number")
        return [device for _, device in sorted(zip(known, gpus, strict=True), key=lambda p: p[0])]
    return sorted(gpus, key=lambda device: device.address)


def _is_class(element: Element, classes: Sequence[str]) -> bool:
    return element.get("class").lower()[:6] in classes


def _address(element: Element, attribute: str, source: str) -> str:
    text = element.get(attribute)
    address = pci.normalise(text)
    if address is None:
        raise TopologyError(
            f"{source} line {element.line}: {attribute}='{text}' of <{element.tag}>;"
            " expected a PCI address such as 0000:07:00.0"
        )
    return address


def _number(element: Element, attribute: str, source: str) -> int:
    text = element.get(attribute)
    number = cpulist.natural(text)
    if number is None or number >= cpulist.MAX_CPUS:
        raise TopologyError(
            f"{source} line {element.line}: {attribute}='{text}' of <{element.tag}>;"
            " expected a number"
        )
    return number


def _count_links(gpu: NcclDevice, addresses: set[str], source: str) -> None:
    """Sum a GPU's nvlink and xgmi elements by where they end."""
    for element in gpu.gpu.children if gpu.gpu else ():
        if element.tag not in {"nvlink", "xgmi"}:
            continue
        count = _number(element, "count", source)
        if count == 0:
            raise TopologyError(f"{source} line {element.line}: count='0'; expected links")
        if _is_switch(element):
            gpu.switch_links += count
            continue
        target = _address(element, "target", source)
        if target == gpu.address:
            raise TopologyError(f"{source} line {element.line}: a link from {target} to itself")
        # A job's dump may name GPUs of the node that the job does not have.
        if target in addresses:
            gpu.links[target] = gpu.links.get(target, 0) + count
            gpu.lines[target] = element.line


def _is_switch(element: Element) -> bool:
    return element.get("tclass").lower().startswith(_NVSWITCH_CLASS) and element.tag == "nvlink"


def _check_links(gpus: list[NcclDevice], source: str) -> None:
    by_address = {gpu.address: gpu for gpu in gpus}
    for gpu in gpus:
        for target, count in gpu.links.items():
            back = by_address[target].links.get(gpu.address, 0)
            if back != count:
                raise TopologyError(
                    f"{source} line {gpu.lines[target]}, cell {gpu.address}-{target}: {count}"
                    f" links there but {back} back; expected a symmetric matrix"
                )


def _rates(gpus: list[NcclDevice]) -> tuple[LinkRates, str | None]:
    """Link rates by `sm` (NVIDIA compute capability) or `gcn` (AMD), and the model if AMD says."""
    gpu = gpus[0].gpu
    if gpu is None:
        return LinkRates(), None
    gcn = gpu.get("gcn")
    if gcn:
        # Older RCCL writes numbers.
        arch = {"910": "gfx90a"}.get(gcn, f"gfx{gcn}" if gcn.isdecimal() else gcn)
        return links.rates_of_model(arch), arch
    sm = cpulist.natural(gpu.get("sm")) or 70
    generation = next(
        g for least, g in ((100, 5), (90, 4), (80, 3), (70, 2), (0, 1)) if sm >= least
    )
    return links.rates(generation, {1: 3, 2: 3, 3: 4}.get(generation, 5)), None


def _best(a: NcclDevice, b: NcclDevice, rates: LinkRates) -> tuple[str, float]:
    """Label and bandwidth of the best path between two GPUs."""
    count = max(a.links.get(b.address, 0), min(a.switch_links, b.switch_links))
    if count:
        is_amd = any(child.tag == "xgmi" for child in (a.gpu.children if a.gpu else ()))
        label = f"XGMI{count}" if is_amd and count > 1 else "XGMI" if is_amd else f"NV{count}"
        return label, rates.gbps(label)
    path = _path(a.element, b.element)
    return path, _pcie_gbps(a.element, b.element, path, rates)


def _path(a: Element, b: Element) -> str:
    """PIX, PXB, PHB or SYS by NCCL's rules: switches passed, host bridge, CPU sockets."""
    above_a, above_b = list(a.ancestors()), list(b.ancestors())
    if a is b:
        return "PIX"
    common = next((e for e in above_a if any(e is other for other in above_b)), None)
    if common is None or common.tag not in {"pci", "cpu"}:
        return "SYS" if _numa_text(a) != _numa_text(b) or not _numa_text(a) else "NODE"
    if common.tag == "cpu":
        return "PHB"
    switches = sum(
        1 for above in (above_a, above_b) for e in above[: _index(above, common)] if e.tag == "pci"
    )
    return "PXB" if switches else "PIX"


def _index(elements: list[Element], wanted: Element) -> int:
    return next(i for i, element in enumerate(elements) if element is wanted)


def _pcie_gbps(a: Element, b: Element, path: str, rates: LinkRates) -> float:
    """The slowest awake PCIe link on the way, as peer traffic gets it; else by generation."""
    common = {id(e) for e in a.ancestors()} & {id(e) for e in b.ancestors()}
    speeds = []
    for end in (a, b):
        for element in (end, *end.ancestors()):
            if element.tag != "pci" or id(element) in common:
                break
            gts = _leading_number(element.get("link_speed"))
            lanes = _leading_number(element.get("link_width"))
            if gts in _GENERATION and 0 < lanes <= 32:
                speeds.append(links.PCIE_GBPS[_GENERATION[gts]] * lanes / 16)
    return min(speeds) * links.PCIE_SHARE[path] if speeds else rates.gbps(path)


def _leading_number(text: str) -> float:
    word = text.split(" ")[0]
    try:
        return float(word) if word.replace(".", "", 1).isdigit() else 0.0
    except ValueError:
        return 0.0


def _cpu(element: Element) -> Element | None:
    return next((e for e in element.ancestors() if e.tag == "cpu"), None)


def _numa_text(element: Element) -> str:
    cpu = _cpu(element)
    return cpu.get("numaid") if cpu else ""


def _numa(cpu: Element | None, source: str) -> int | None:
    if cpu is None or cpu.get("numaid", "-1") == "-1":
        return None
    return _number(cpu, "numaid", source)


def _affinity(cpu: Element | None, source: str) -> tuple[int, ...] | None:
    if cpu is None or not cpu.get("affinity"):
        return None
    try:
        return cpulist.parse_mask(cpu.get("affinity")) or None
    except ValueError as error:
        raise TopologyError(f"{source} line {cpu.line}: affinity: {error}") from None


def _numa_nodes(system: Element, source: str) -> tuple[NumaNode, ...]:
    nodes: dict[int, NumaNode] = {}
    for element in system.walk():
        number = _numa(element, source) if element.tag == "cpu" else None
        if number is not None:
            if number in nodes:
                raise TopologyError(
                    f"{source} line {element.line}: a second <cpu> with numaid {number};"
                    " expected each once"
                )
            nodes[number] = NumaNode(number, _affinity(element, source) or ())
    return tuple(nodes[number] for number in sorted(nodes))


def _nics(system: Element, gpus: list[NcclDevice]) -> tuple[Nic, ...]:
    """One NIC per `net` element, or per network PCI device where there are none."""
    nics: list[Nic] = []
    for element in system.walk():
        if element.tag == "nic" or (
            element.tag == "pci"
            and _is_class(element, _NIC_CLASSES)
            and not any(child.tag == "nic" for child in element.children)
        ):
            names = [n.get("name") or "net" for n in element.children if n.tag == "net"]
            device = element if element.tag == "pci" else element.parent
            address = pci.normalise(device.get("busid")) if device is not None else None
            end = device if device is not None and device.tag == "pci" else element
            kinds = tuple(_path(gpu.element, end) for gpu in gpus)
            cpu = _cpu(element)
            node = cpulist.natural(cpu.get("numaid")) if cpu else None
            nics += [Nic(name, kinds, address, node) for name in names or [address or "nic"]]
    return tuple(nics)
