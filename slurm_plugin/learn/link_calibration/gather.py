"""What each set of GPUs reached, from the logs of one kind of machine.

A log's ranks are GPUs of the topology by their PCI address; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gres_topology import NodeTopology, pci
from slurm_plugin.errors import PluginError
from slurm_plugin.learn.link_calibration.nccl_log import Log, read_log

#: Product families in a name: V100, MI250 (of MI250X), L40S; never memory sizes.
_FAMILY = re.compile(r"\b([a-z]{1,3}\d{2,4}[a-wyz]?)x?\b")


def gather(
    paths: Sequence[Path], topology: NodeTopology
) -> tuple[dict[tuple[int, ...], float], dict[tuple[int, ...], list[str]]]:
    """Mean bus bandwidth in GB/s of all logs of a set, and their names, by the topology's GPUs.

    Raises PluginError for the first that cannot be used.
    """
    logs = [read_log(path) for path in paths]
    reached: dict[tuple[int, ...], list[float]] = {}
    sources: dict[tuple[int, ...], list[str]] = {}
    for log, gpus in zip(logs, gpus_of(logs, topology), strict=True):
        reached.setdefault(gpus, []).append(log.busbw_gbps)
        sources.setdefault(gpus, []).append(log.path.name)
    return {gpus: sum(all_) / len(all_) for gpus, all_ in reached.items()}, sources


def gpus_of(logs: Sequence[Log], topology: NodeTopology) -> list[tuple[int, ...]]:
    """The GPUs of each log, ascending; raises PluginError for a log of another machine."""
    for log in logs:
        _same_model(log, topology)
        if len(log.gpus) > topology.gpus:
            raise log.fail(
                f"{len(log.gpus)} GPUs; {topology.name} has {topology.gpus}: another machine"
            )
    if any(topology.pci):
        known = {str(address): gpu for gpu, address in enumerate(topology.pci) if address}
        return [_found(log, known, topology) for log in logs]
    return [_found(log, _by_order(log, logs, topology), topology) for log in logs]


def _same_model(log: Log, topology: NodeTopology) -> None:
    """The products' families are the same, where both names say one."""
    names = topology.model or "", log.product
    here, there = (set(_FAMILY.findall(name.lower())) for name in names)
    if here and there and not here & there:
        raise log.fail(f"{log.product}; {topology.name} has {topology.model}: another machine")


def _found(log: Log, known: dict[str, int], topology: NodeTopology) -> tuple[int, ...]:
    """The topology's GPUs at the addresses of one log."""
    gpus = [_at(log, address, known, topology) for address in log.gpus]
    if len(set(gpus)) < len(gpus):
        raise log.fail("two ranks on one GPU; expected one rank per GPU")
    return tuple(sorted(gpus))


def _at(log: Log, printed: str, known: dict[str, int], topology: NodeTopology) -> int:
    matching = [at for address, at in known.items() if _is_at(printed, address)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        message = f"[{printed}] fits {len(matching)} GPUs of {topology.name}; expected one"
        raise log.fail(f"{message}: use nccl-tests of 2023 or later, which print domains", printed)
    message = (
        f"no GPU of {topology.name} is at [{printed}] (they are at {', '.join(sorted(known))})"
    )
    raise log.fail(f"{message}: another machine", printed)


def _is_at(printed: str, address: str) -> bool:
    """Whether `0x07`, `0000:07:00` or `0000:07:00.0` stands for the address `0000:07:00.0`."""
    if printed.startswith("0x"):
        return int(printed, 16) == int(address.split(":")[1], 16)
    full = pci.normalise(printed)
    return full is not None and full.rpartition(".")[0] == address.rpartition(".")[0]


def _by_order(log: Log, logs: Sequence[Log], topology: NodeTopology) -> dict[str, int]:
    """Addresses in the order in which the vendors' tools number GPUs, where all are known."""
    printed = {gpu for other in logs if other.host == log.host for gpu in other.gpus}
    addresses = {
        f"0000:{int(p, 16):02x}:00.0" if p[:2] == "0x" else pci.normalise(p) for p in printed
    }
    known = sorted(address for address in addresses if address is not None)
    if len(known) != topology.gpus or len(printed) != topology.gpus:
        raise PluginError(
            f"{log.path}: the logs of host {log.host} name {len(printed)} of {topology.gpus} GPUs,"
            f" and {topology.name} has no PCI addresses to find them by; expected a log of all"
            " GPUs among them, or the node's own topology (nvidia-smi, NCCL XML, collected)"
        )
    return {address: gpu for gpu, address in enumerate(known)}
