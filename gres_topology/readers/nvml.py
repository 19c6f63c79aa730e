"""Reads this node's topology from NVML (the extra `nvml`: nvidia-ml-py).

What other tools only print is asked for here: PCI address, device minor, NVLinks by where
they end (GPU or NVSwitch), common ancestor on PCIe, CPUs and NUMA node.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gres_topology import cpulist, links, pci
from gres_topology.errors import TopologyError
from gres_topology.links import LinkRates
from gres_topology.topology import NodeTopology

#: nvmlGpuTopologyLevel_t -> label (nvml.h; 0 is two GPUs on one board).
_LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_MAX_LINKS = 18
#: nvmlIntNvLinkDeviceType_t
_SWITCH = 2
_MASK_WORDS = 64  # words of 64 bits asked for: 4096 CPUs
_NODE_SCOPE = 0


@dataclass
class NvmlDevice:
    """One GPU as NVML describes it; None where NVML does not say."""

    handle: Any
    address: str
    model: str
    minor: int | None
    cpus: tuple[int, ...] | None
    numa: int | None
    links: dict[str, int] = field(default_factory=dict)
    switch_links: int = 0
    nvlink_version: int | None = None
    pcie_generation: int | None = None


def read(module: Any = None, *, name: str = "localhost") -> NodeTopology:
    """NodeTopology of this node, in NVML's order. `module` stands in for pynvml in tests.

    Raises TopologyError if the extra or the driver is missing, or NVML reports no GPU.
    """
    nvml = module if module is not None else _pynvml()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise TopologyError(f"NVML: {error}; expected a node with the NVIDIA driver") from None
    try:
        return _topology(nvml, name)
    except nvml.NVMLError as error:
        raise TopologyError(f"NVML: {error}; expected every GPU to answer") from None
    finally:
        nvml.nvmlShutdown()


def _pynvml() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        raise TopologyError(
            "reading NVML needs the extra: pip install 'slurm-gputopo[nvml]'"
        ) from None


def _topology(nvml: Any, name: str) -> NodeTopology:
    count = nvml.nvmlDeviceGetCount()
    if not count:
        raise TopologyError("NVML: no GPU on this node; expected at least one")
    devices = [_device(nvml, index) for index in range(count)]
    for device in devices:
        _count_links(nvml, device)
    for a in devices:
        for b in devices:
            if a.links.get(b.address, 0) != b.links.get(a.address, 0):
                raise TopologyError(
                    f"NVML: {a.links.get(b.address, 0)} NVLinks from {a.address} to {b.address}"
                    f" but {b.links.get(a.address, 0)} back; is a link down? (nvidia-smi nvlink -s)"
                )
    rates = _rates(devices[0])
    labels = tuple(tuple(_label(nvml, a, b) for b in devices) for a in devices)
    matrix = np.array([[rates.gbps(label) for label in row] for row in labels])
    models = {device.model for device in devices}
    return NodeTopology(
        name=name,
        source="NVML",
        kinds=labels,
        bandwidth_gbps=matrix,
        numa=tuple(device.numa for device in devices),
        cpus=tuple(device.cpus for device in devices),
        pci=tuple(device.address for device in devices),
        minors=tuple(device.minor for device in devices),
        model=models.pop() if len(models) == 1 else None,
    )


def _device(nvml: Any, index: int) -> NvmlDevice:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        raise TopologyError(
            f"NVML: GPU{index}: {error}; expected every GPU to answer (dmesg may tell why)"
        ) from None
    text = _text(nvml.nvmlDeviceGetPciInfo(handle).busId)
    address = pci.normalise(text)
    if address is None:
        raise TopologyError(f"NVML: GPU{index} has PCI address '{text}'; expected 0000:07:00.0")
    nodes = _mask(_ask(nvml, "nvmlDeviceGetMemoryAffinity", handle, _MASK_WORDS, _NODE_SCOPE))
    return NvmlDevice(
        handle=handle,
        address=address,
        model=_text(nvml.nvmlDeviceGetName(handle)),
        minor=_ask(nvml, "nvmlDeviceGetMinorNumber", handle),
        cpus=_mask(_ask(nvml, "nvmlDeviceGetCpuAffinity", handle, _MASK_WORDS)),
        numa=nodes[0] if nodes else None,
        pcie_generation=_ask(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle),
    )


def _ask(nvml: Any, function: str, *arguments: Any) -> Any:
    """A call's answer; None where this GPU, driver or nvidia-ml-py does not support it."""
    call: Callable[..., Any] | None = getattr(nvml, function, None)
    if call is None:
        return None
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None


def _count_links(nvml: Any, device: NvmlDevice) -> None:
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", _MAX_LINKS)):
        if _ask(nvml, "nvmlDeviceGetNvLinkState", device.handle, link) != 1:
            continue
        device.nvlink_version = _ask(nvml, "nvmlDeviceGetNvLinkVersion", device.handle, link)
        if _ask(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", device.handle, link) == _SWITCH:
            device.switch_links += 1
            continue
        remote = _ask(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", device.handle, link)
        address = pci.normalise(_text(remote.busId)) if remote is not None else None
        if address is not None:
            device.links[address] = device.links.get(address, 0) + 1


def _label(nvml: Any, a: NvmlDevice, b: NvmlDevice) -> str:
    if a is b:
        return "X"
    count = max(a.links.get(b.address, 0), min(a.switch_links, b.switch_links))
    if count:
        return f"NV{count}"
    level = _ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", a.handle, b.handle)
    return _LEVELS.get(level, links.UNKNOWN)


def _rates(device: NvmlDevice) -> LinkRates:
    """By what NVML says of the generations, else by the model."""
    by_model = links.rates_of_model(device.model)
    nvlink = links.NVLINK_GBPS.get(device.nvlink_version or 0)
    pcie = links.PCIE_GBPS.get(device.pcie_generation or 0)
    return LinkRates(
        nvlink[0] if nvlink else by_model.nvlink_gbps,
        by_model.xgmi_gbps,
        pcie if pcie else by_model.pcie_gbps,
    )


def _mask(words: Any) -> tuple[int, ...] | None:
    """Bits of NVML's array of 64-bit words, lowest first; None for no bit or no answer."""
    value = sum(int(word) << 64 * i for i, word in enumerate(words or ()))
    return cpulist.bits(value) or None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
