"""What nvidia-smi of driver 535 prints."""

from __future__ import annotations

from gres_topology import Nic, NodeTopology, cpulist, links
from gres_topology.topology import SELF
from slurm_cluster.fake_tools.gpus import addresses, number_or, uuid_of

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


def files(topology: NodeTopology) -> dict[str, str]:
    """Relative path -> text."""
    return {
        "nvidia-smi/topo-m.txt": _topo_m(topology),
        "nvidia-smi/gpus.csv": _gpus_csv(topology),
    }


def _topo_m(topology: NodeTopology) -> str:
    nics = topology.nics
    devices = [f"GPU{i}" for i in range(topology.gpus)] + [f"NIC{i}" for i in range(len(nics))]
    rows = [["", *devices, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]]
    for gpu, kinds in enumerate(topology.kinds):
        cpus, numa = topology.cpus[gpu], topology.numa[gpu]
        # The driver puts two tabs before the last column.
        where = [cpulist.format_list(cpus) if cpus else "N/A", number_or(numa, "N/A"), "", "N/A"]
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
