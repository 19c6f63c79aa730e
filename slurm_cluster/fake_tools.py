"""What a node's fake nvidia-smi, or amd-smi and rocm-smi, answers from, for any topology.

The texts have the shape that driver 535, amd-smi of ROCm 7 and rocm-smi of ROCm 6 print;
docker/image/fake-smi reads them.
What a topology does not know (PCI addresses, UUIDs, memory) is made up, the same every time.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import networkx as nx

from gres_topology import Nic, NodeTopology, cpulist, links
from gres_topology.topology import SELF

#: PCI domain and bus (0x0A01: domain 10, bus 1) of these machines' GPUs; elsewhere any will do.
_BUSES = {
    "a100-pcie-bridged": (0x01, 0x25, 0x41, 0x61, 0x81, 0xA1, 0xC1, 0xE1),
    "dgx1v": (0x06, 0x07, 0x0A, 0x0B, 0x85, 0x86, 0x89, 0x8A),
    "mi250x": (0xC1, 0xC6, 0xC9, 0xCE, 0xD1, 0xD6, 0xD9, 0xDE),
    "minsky": (0x0201, 0x0301, 0x0A01, 0x0B01),
}

#: NVIDIA's product name -> (memory in GiB, PCI device id).
_CARDS = {
    "NVIDIA A100 80GB PCIe": (80, "20B5"),
    "NVIDIA A100-PCIE-40GB": (40, "20F1"),
    "NVIDIA A100-SXM4-40GB": (40, "20B0"),
    "NVIDIA B200": (180, "2901"),
    "NVIDIA GB200": (186, "2941"),
    "NVIDIA GB300": (279, "31C2"),
    "NVIDIA GH200 120GB": (96, "2342"),
    "NVIDIA GH200 480GB": (96, "2342"),
    "NVIDIA H100 80GB HBM3": (80, "2330"),
    "NVIDIA H200": (141, "2335"),
    "NVIDIA L40S": (48, "26B9"),
    "NVIDIA RTX 6000 Ada Generation": (48, "26B1"),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": (96, "2BB5"),
    "Tesla K20X": (6, "1020"),
    "Tesla P100-SXM2-16GB": (16, "15F9"),
    "Tesla V100-SXM2-16GB": (16, "1DB1"),
    "Tesla V100-SXM3-32GB": (32, "1DB8"),
}
_OTHER_CARD = (16, "0000")
#: The name that nvidia-smi prints of a card that the driver has no name for.
_NO_NAME = "Graphics Device"

_NVIDIA_LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""  # noqa: E501 - as the tool prints it

#: Hops and weight that KFD reports of two GPUs on different sockets without a fabric between.
_PCIE_HOPS, _PCIE_WEIGHT = 3, 72
_XGMI_HOP_WEIGHT = 15


def fake_tools(topology: NodeTopology) -> dict[str, str]:
    """Relative path -> text, as fake-smi reads them.

    nvidia-smi/topo-m.txt and nvidia-smi/gpus.csv, or for AMD's GPUs files below amd-smi and
    rocm-smi.
    """
    if "Intel" in (topology.model or ""):
        return {
            "xpu-smi/topology.txt": _tiles(topology),
            "xpu-smi/discovery.json": _amd_json({"device_list": list(_devices(topology))}),
        }
    if is_amd(topology):
        return {
            "amd-smi/topology.json": _amd_json(_amd_links(topology)),
            "amd-smi/asic-bus.json": _amd_json({"gpu_data": list(_amd_cards(topology))}),
            "amd-smi/numa.json": _amd_json({"gpu_data": list(_amd_places(topology))}),
            "rocm-smi/showtopo.txt": _showtopo(topology),
            "rocm-smi/showbus.txt": _showbus(topology),
            "rocm-smi/showproductname.txt": _showproductname(topology),
        }
    return {
        "nvidia-smi/topo-m.txt": _topo_m(topology),
        "nvidia-smi/gpus.csv": _gpus_csv(topology),
    }


def is_amd(topology: NodeTopology) -> bool:
    """Whether its tools are AMD's."""
    labels = {label for row in topology.kinds for label in row}
    return "AMD" in (topology.model or "") or any(label.startswith("XGMI") for label in labels)


def addresses(topology: NodeTopology) -> list[str]:
    """The GPUs' PCI addresses: those known, else the machine's usual ones, else made-up ones."""
    known = [address for address in topology.pci if address is not None]
    if len(known) == topology.gpus:
        return known
    buses: Sequence[int] = _BUSES.get(topology.name, ())
    if len(buses) != topology.gpus:
        buses = range(1, topology.gpus + 1)
    return [f"{bus >> 8:04x}:{bus & 0xFF:02x}:00.0" for bus in buses]


def uuid_of(*parts: object) -> uuid.UUID:
    """One that is made up of these, the same every time."""
    return uuid.UUID(bytes=hashlib.sha1("".join(map(str, parts)).encode()).digest()[:16])


# -- nvidia-smi ---------------------------------------------------------------


def _topo_m(topology: NodeTopology) -> str:
    nics = topology.nics
    devices = [f"GPU{i}" for i in range(topology.gpus)] + [f"NIC{i}" for i in range(len(nics))]
    rows = [["", *devices, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]]
    for gpu, kinds in enumerate(topology.kinds):
        cpus, numa = topology.cpus[gpu], topology.numa[gpu]
        # The driver puts two tabs before the last column.
        where = [cpulist.format_list(cpus) if cpus else "N/A", _number(numa, "N/A"), "", "N/A"]
        rows.append([f"GPU{gpu}", *map(_cell, kinds), *(nic.kinds[gpu] for nic in nics), *where])
    for i, nic in enumerate(nics):
        others = (SELF if other is nic else _path(nic, other) for other in nics)
        rows.append([f"NIC{i}", *nic.kinds, *map(_cell, others)])
    text = "".join("\t".join(row) + "\n" for row in rows) + _NVIDIA_LEGEND
    if nics:
        text += "\nNIC Legend:\n\n"
        text += "".join(f"  NIC{i}: {nic.name}\n" for i, nic in enumerate(nics))
    return text


def _cell(label: str) -> str:
    return f" {SELF} " if label == SELF else label


def _number(value: int | None, unknown: str) -> str:
    return unknown if value is None else str(value)


def _path(a: Nic, b: Nic) -> str:
    """The path between two NICs: PCIe is a tree, so it is no longer than by way of any GPU."""
    order = [*links.PCIE_SHARE, links.UNKNOWN]
    by_gpu = (max(pair, key=order.index) for pair in zip(a.kinds, b.kinds, strict=True))
    return min(by_gpu, key=order.index)


def _gpus_csv(topology: NodeTopology) -> str:
    model = topology.model or _NO_NAME
    memory_gib, device = _CARDS.get(model, _OTHER_CARD)
    lines = []
    for gpu, address in enumerate(addresses(topology)):
        # The driver writes the PCI domain in eight digits.
        bus = address.upper().rjust(len("00000000:00:00.0"), "0")
        name = f"GPU-{uuid_of(topology.name, gpu)}"
        lines.append(f"{gpu}, {bus}, {model}, {name}, {memory_gib * 1024} MiB, 0x{device}10DE\n")
    return "".join(lines)


# -- amd-smi ------------------------------------------------------------------


def _amd_json(said: object) -> str:
    return json.dumps(said, indent=4) + "\n"


def _amd_links(topology: NodeTopology) -> list[dict[str, Any]]:
    hops, known = _hops(topology), addresses(topology)
    return [
        {
            "gpu": gpu,
            "bdf": address,
            "links": [
                {"gpu": other, "bdf": known[other], **_amd_link(gpu, other, hops[gpu])}
                for other in range(topology.gpus)
            ],
        }
        for gpu, address in enumerate(known)
    ]


def _amd_link(gpu: int, other: int, hops: Mapping[int, int]) -> dict[str, Any]:
    """One link as `amd-smi topology --json` of ROCm 7 tells it."""
    is_self, is_xgmi = gpu == other, other in hops
    of_link = ("SELF",) * 4 if is_self else ("C", "64,32", "T", "T")
    return {
        "weight": hops[other] * _XGMI_HOP_WEIGHT if is_xgmi else _PCIE_WEIGHT,
        "link_status": "ENABLED",
        "link_type": "SELF" if is_self else "XGMI" if is_xgmi else "PCIE",
        "num_hops": hops.get(other, _PCIE_HOPS),
        "bandwidth": "50000-50000" if is_xgmi and not is_self else "N/A",
        **dict(zip(("coherent", "atomics", "dma", "bi_dir"), of_link, strict=True)),
    }


def _amd_cards(topology: NodeTopology) -> Iterable[dict[str, Any]]:
    for gpu, address in enumerate(addresses(topology)):
        asic = {"market_name": topology.model or "N/A", "vendor_id": "0x1002", "oam_id": gpu}
        yield {"gpu": gpu, "asic": asic, "bus": {"bdf": address, "slot_type": "OAM"}}


def _amd_places(topology: NodeTopology) -> Iterable[dict[str, Any]]:
    for gpu, numa in enumerate(topology.numa):
        node = -1 if numa is None else numa
        yield {"gpu": gpu, "numa": {"node": node, "affinity": node, "cpu_affinity": "N/A"}}


# -- xpu-smi ------------------------------------------------------------------


def _tiles(topology: NodeTopology) -> str:
    """The matrix, of one tile a GPU: how the tiles of a real one are joined is not known."""
    names = [f"GPU {gpu}/0" for gpu in range(topology.gpus)]
    lines = [" " * 9 + "|".join(names) + "|CPU Affinity"]
    for name, kinds, cpus in zip(names, topology.kinds, topology.cpus, strict=True):
        cells = ("S" if label == SELF else label for label in kinds)
        words = [*(word.ljust(7) for word in cells), cpulist.format_list(cpus or ())]
        lines.append(f"{name} |" + "|".join(words))
    return "".join(f"{line}\n" for line in lines)


def _devices(topology: NodeTopology) -> Iterable[dict[str, Any]]:
    for gpu, address in enumerate(addresses(topology)):
        named = {"device_name": topology.model, "vendor_name": "Intel(R) Corporation"}
        yield {"device_id": gpu, **named, "device_type": "GPU", "pci_bdf_address": address}


# -- rocm-smi -----------------------------------------------------------------


def _showtopo(topology: NodeTopology) -> str:
    hops = _hops(topology)

    def weight(i: int, j: int) -> str:
        return str(_PCIE_WEIGHT if j not in hops[i] else hops[i][j] * _XGMI_HOP_WEIGHT)

    def hop_count(i: int, j: int) -> str:
        return str(hops[i].get(j, _PCIE_HOPS))

    def link(i: int, j: int) -> str:
        # XGMI over several hops too, and never how many links.
        return "0" if i == j else "XGMI" if j in hops[i] else "PCIE"

    gpus = range(topology.gpus)
    lines = [
        *_square("Weight between two GPUs", topology.gpus, weight),
        *_square("Hops between two GPUs", topology.gpus, hop_count),
        *_square("Link Type between two GPUs", topology.gpus, link),
        _title("Numa Nodes"),
    ]
    for gpu in gpus:
        node = _number(topology.numa[gpu], "-1")
        lines += [_fact(gpu, f"(Topology) Numa {what}: {node}") for what in ("Node", "Affinity")]
    return _report(lines)


def _hops(topology: NodeTopology) -> dict[int, dict[int, int]]:
    """GPU -> GPUs that the fabric reaches from it -> links on the way."""
    gpus = range(topology.gpus)
    fabric = nx.Graph()
    fabric.add_nodes_from(gpus)
    kinds = topology.kinds
    fabric.add_edges_from((i, j) for i in gpus for j in gpus if links.is_direct(kinds[i][j]))
    return dict(nx.all_pairs_shortest_path_length(fabric))


def _showbus(topology: NodeTopology) -> str:
    facts = [
        _fact(gpu, f"PCI Bus: {address.upper()}") for gpu, address in enumerate(addresses(topology))
    ]
    return _report([_title("PCI Bus ID"), *facts, "=" * 90])


def _showproductname(topology: NodeTopology) -> str:
    model = topology.model or "N/A"
    facts = [_fact(gpu, f"Card Series: \t\t{model}") for gpu in range(topology.gpus)]
    return _report([_title("Product Info"), *facts, "=" * 90])


def _square(title: str, gpus: int, cell: Callable[[int, int], str]) -> list[str]:
    def row(first: str, cells: Sequence[str]) -> str:
        return (first.ljust(7) + "".join(word.ljust(13) for word in cells)).rstrip()

    names = [f"GPU{i}" for i in range(gpus)]
    rows = [row(names[i], [cell(i, j) for j in range(gpus)]) for i in range(gpus)]
    return [_title(title), row("", names), *rows, ""]


def _title(text: str) -> str:
    return f" {text} ".center(90, "=")


def _fact(gpu: int, text: str) -> str:
    return f"GPU[{gpu}]\t\t: {text}"


def _report(lines: Sequence[str]) -> str:
    first, last = _title("ROCm System Management Interface"), _title("End of ROCm SMI Log")
    return "\n".join(["", "", first, *lines, last, ""])
