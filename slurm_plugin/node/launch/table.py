"""Writes the node's launch table; docs/binding.md has the format.

The last line has the number of lines before it and their CRC-32, by which readers know a damaged
table.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

from gres_topology.cpulist import format_list
from policies.matching.graph_solver import MOST_GPUS
from policies.patterns.pattern import PATTERNS, TABULATED, pattern_of
from slurm_plugin.errors import PluginError
from slurm_plugin.node.launch.machine import LaunchMachine

VERSION = 1
#: The C plugin reads no larger file.
MOST_BYTES = 16 << 20
MOST_PATTERNS = 16
_LONGEST_NAME, _LONGEST_NICS = 63, 255


def write(machine: LaunchMachine, own: Sequence[str] = ()) -> str:
    """The table's text: all patterns that can be tabulated, and `own`, the site's.

    PluginError where the plugin could not read it: too many patterns, too large a machine.
    """
    patterns = tuple(PATTERNS) if machine.gpus <= MOST_GPUS else TABULATED
    _check_own(machine, len(patterns), own)
    lines = [*_machine(machine)]
    for pattern in (*patterns, *own):
        lines += _orders(machine, pattern)
    body = "".join(line + "\n" for line in lines)
    if len(body) > MOST_BYTES:
        raise PluginError(f"{machine.topology.name}: a table of {len(body)} bytes is too large")
    return f"{body}end {len(lines)} {zlib.crc32(body.encode()):08x}\n"


def _check_own(machine: LaunchMachine, others: int, own: Sequence[str]) -> None:
    for pattern in map(pattern_of, own):
        if machine.gpus > MOST_GPUS or (pattern.ranks or 0) > machine.gpus:
            raise PluginError(
                f"{pattern.title}: {pattern.ranks} ranks on {machine.gpus} GPUs of"
                f" {machine.topology.name}; expected a pattern that fits and at most"
                f" {MOST_GPUS} GPUs: no other sets are tabulated by a pattern of one's own"
            )
    if others + len(own) > MOST_PATTERNS:
        raise PluginError(f"{others + len(own)} patterns; the plugin reads {MOST_PATTERNS}")


def _machine(machine: LaunchMachine) -> Iterator[str]:
    name = machine.topology.name
    if not name.isprintable() or not name.isascii() or not 0 < len(name) <= _LONGEST_NAME:
        raise PluginError(f"machine name {name!r}: expected up to {_LONGEST_NAME} ASCII characters")
    yield f"gputopo-launch {VERSION}"
    yield f"machine {name}"
    yield f"vendor {'amd' if machine.is_amd else 'nvidia'}"
    yield f"gpus {machine.gpus}"
    for gpu in range(machine.gpus):
        nics = ",".join(machine.nics[gpu])
        if len(nics) > _LONGEST_NICS or not nics.isascii() or " " in nics:
            raise PluginError(f"{name}: NICs {nics!r} of GPU{gpu}; expected short ASCII names")
        minor, numa = _known(machine.minors[gpu]), _known(machine.numa[gpu])
        yield f"gpu {gpu} device={machine.devices[gpu]} minor={minor} numa={numa} nics={nics}"
    of_gpus = {numa for numa in machine.numa if numa is not None}
    for number in sorted(of_gpus | machine.numa_cpus.keys() | machine.numa_memory_mb.keys()):
        cpus = format_list(machine.numa_cpus.get(number, ()))
        memory_mb = _known(machine.numa_memory_mb.get(number))
        yield f"numa {number} cpus={cpus} memory_mb={memory_mb}"


def _known(number: int | None) -> str:
    return "-" if number is None else str(number)


def _orders(machine: LaunchMachine, pattern: str) -> Iterator[str]:
    """The pattern's default order, then a row per set that is ordered otherwise."""
    yield f"order {pattern_of(pattern).title} {','.join(map(str, machine.default_order(pattern)))}"
    digits = (machine.gpus + 3) // 4
    for mask, order in sorted(machine.orders(pattern).items()):
        yield f"{mask:0{digits}x} {''.join(f'{gpu:x}' for gpu in order)}"
