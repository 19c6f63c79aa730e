"""Slurm's topology.conf(5): `topology/tree` or `topology/block` as lines of Key=value.

Switches are SwitchName=... Nodes=... or Switches=..., blocks BlockName=... Nodes=... and
BlockSizes=....
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gres_topology.errors import TopologyError
from gres_topology.slurm_files import conf_lines
from gres_topology.slurm_files.network import (
    USUAL_RATIOS,
    Declared,
    Network,
    blocks,
    ratios,
    tree,
)

EXPECTED = (
    "lines such as SwitchName=s1 Nodes=n[1-8], SwitchName=top Switches=s[1-2], or"
    " BlockName=b1 Nodes=n[1-18] and BlockSizes=18,36"
)
_KEYS = {
    "switchname": {"switchname", "nodes", "switches", "linkspeed"},
    "blockname": {"blockname", "nodes"},
    "blocksizes": {"blocksizes"},
}


@dataclass(frozen=True, slots=True)
class _Line:
    """One line's keys (lower case) and values, and where it stands."""

    where: str
    values: Mapping[str, str]

    def fail(self, text: str) -> TopologyError:
        return TopologyError(f"{self.where}: {text}")

    def declared(self, key: str) -> Declared:
        get = self.values.get
        return Declared(self.where, self.values[key], get("nodes", ""), get("switches", ""))


def parse(text: str, source: str) -> Network:
    """The network described; TopologyError names file, line and what is wrong."""
    lines = list(_lines(text, source))
    kinds = {next(kind for kind in _KEYS if kind in line.values) for line in lines}
    if not lines:
        raise TopologyError(f"{source}: says nothing; expected {EXPECTED}")
    if "switchname" in kinds and len(kinds) > 1:
        odd = next(line for line in lines if "switchname" not in line.values)
        raise odd.fail("blocks beside switches; one file describes one network")
    if "switchname" in kinds:
        return tree((line.declared("switchname") for line in lines), source)
    base = [line.declared("blockname") for line in lines if "blockname" in line.values]
    sized = [line for line in lines if "blocksizes" in line.values]
    if not base:
        raise sized[0].fail(f"BlockSizes= without any BlockName=; expected {EXPECTED}")
    if len(sized) > 1:
        raise sized[1].fail(f"BlockSizes= stands in {sized[0].where} already")
    return blocks(base, _ratios(sized[0]) if sized else USUAL_RATIOS, source)


def _lines(text: str, source: str) -> Iterator[_Line]:
    for line in conf_lines.lines(text):
        where = f"{source}:{line.number}"
        try:
            values = conf_lines.pairs(line)
        except ValueError as error:
            raise TopologyError(f"{where}: {error}: {EXPECTED}") from None
        if values:
            yield _line(values, line.joined.strip(), where)


def _line(values: Mapping[str, str], text: str, where: str) -> _Line:
    kind = next((kind for kind in _KEYS if kind in values), None)
    if kind is None:
        raise TopologyError(f"{where}: {text!r} names no switch and no block; expected {EXPECTED}")
    for key in values:
        if key not in _KEYS[kind]:
            allowed = ", ".join(sorted(_KEYS[kind]))
            raise TopologyError(f"{where}: unknown key {key}; expected {allowed}")
    return _Line(where, values)


def _ratios(line: _Line) -> tuple[int, ...]:
    text = line.values["blocksizes"]
    try:
        found = ratios([int(part) for part in text.split(",")])
    except ValueError:
        found = None
    if found is None:
        raise line.fail(
            f"BlockSizes={text}: expected the size of a base block, then larger ones, each the"
            " first times a power of two, such as 18,36,72"
        )
    return found
