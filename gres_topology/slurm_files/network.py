"""The network between nodes, from Slurm's topology.conf: which nodes hang below one switch.

Reads both of its forms: `topology/tree` (SwitchName=... Nodes=... or Switches=...) and
`topology/block` (BlockName=... Nodes=..., BlockSizes=...; topology.conf(5)). Key names are
read in any case, `#` begins a comment, and a line that ends in a backslash goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gres_topology import hostlist
from gres_topology.errors import TopologyError

_EXPECTED = (
    "lines such as SwitchName=s1 Nodes=n[1-8], SwitchName=top Switches=s[1-2], or"
    " BlockName=b1 Nodes=n[1-18] and BlockSizes=18,36"
)
_KEYS = {
    "switchname": {"switchname", "nodes", "switches", "linkspeed"},
    "blockname": {"blockname", "nodes"},
    "blocksizes": {"blocksizes"},
}
_PAIR = re.compile(r'(\w+)\s*=\s*("[^"]*"|\S+)\s*')


@dataclass(frozen=True, slots=True)
class Domain:
    """The nodes below one switch, in one block, or in several neighbouring blocks.

    `level` 0 is a leaf switch or a base block; each level above joins those below.
    """

    name: str
    level: int
    nodes: frozenset[str]


@dataclass(frozen=True)
class Network:
    """All domains, the lowest level first, then by name; `source` is what was read."""

    domains: tuple[Domain, ...]
    source: str

    @cached_property
    def top(self) -> int:
        """The highest level there is, -1 without domains."""
        return max((domain.level for domain in self.domains), default=-1)

    def common(self, nodes: Iterable[str]) -> Domain | None:
        """The lowest domain that holds all the nodes; None where nothing joins them."""
        wanted = frozenset(nodes)
        return next((domain for domain in self.domains if wanted <= domain.nodes), None)

    def hops(self, first: str, second: str) -> int:
        """Switches on the way between two nodes: 0 to itself, 1 below one leaf, then 3, 5, ...

        Nodes that no switch joins are one level farther apart than any that one does.
        """
        if first == second:
            return 0
        joined = self.common((first, second))
        return 2 * (self.top + 1 if joined is None else joined.level) + 1


@dataclass(frozen=True, slots=True)
class _Line:
    """One line's keys (lower case) and values, and where it stands."""

    where: str
    values: Mapping[str, str]

    def fail(self, text: str) -> TopologyError:
        return TopologyError(f"{self.where}: {text}")

    def names(self, key: str) -> tuple[str, ...]:
        """A host list's names, none where the key is not given."""
        try:
            return hostlist.expand(self.values[key]) if key in self.values else ()
        except ValueError as error:
            raise self.fail(f"{key}: {error}") from error


def read(path: Path) -> Network:
    """The network a topology.conf describes; TopologyError names file, line and what is wrong."""
    if path.suffix in (".yaml", ".yml"):
        raise TopologyError(
            f"{path}: topology.yaml is not read; expected Slurm's topology.conf ({_EXPECTED})"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TopologyError(f"{path}: cannot be read: {error}") from error
    return parse(text, str(path))


def parse(text: str, source: str) -> Network:
    """The network described by the text of a topology.conf; see `read`."""
    lines = list(_lines(text, source))
    kinds = {next(kind for kind in _KEYS if kind in line.values) for line in lines}
    if not lines:
        raise TopologyError(f"{source}: says nothing; expected {_EXPECTED}")
    if "switchname" in kinds and len(kinds) > 1:
        odd = next(line for line in lines if "switchname" not in line.values)
        raise odd.fail("blocks beside switches; one file describes one network")
    domains = _tree(lines) if "switchname" in kinds else _blocks(lines)
    return Network(tuple(sorted(domains, key=lambda d: (d.level, d.name))), source)


def _lines(text: str, source: str) -> Iterator[_Line]:
    joined, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        part = raw.split("#", 1)[0].rstrip()
        first = first or number
        if part.endswith("\\"):
            joined += part[:-1] + " "
            continue
        whole, where = (joined + part).strip(), f"{source}:{first}"
        joined, first = "", 0
        if whole:
            yield _line(whole, where)
    if joined.strip():
        raise TopologyError(f"{source}:{first}: ends in a backslash; expected the rest of the line")


def _line(text: str, where: str) -> _Line:
    values: dict[str, str] = {}
    at = 0
    while at < len(text):
        pair = _PAIR.match(text, at)
        if pair is None:
            raise TopologyError(f"{where}: {text[at:]!r} is no Key=value; expected {_EXPECTED}")
        key, at = pair[1].lower(), pair.end()
        if key in values:
            raise TopologyError(f"{where}: {pair[1]} is given twice")
        values[key] = pair[2].strip('"')
    kind = next((kind for kind in _KEYS if kind in values), None)
    if kind is None:
        raise TopologyError(f"{where}: {text!r} names no switch and no block; expected {_EXPECTED}")
    for key in values:
        if key not in _KEYS[kind]:
            allowed = ", ".join(sorted(_KEYS[kind]))
            raise TopologyError(f"{where}: unknown key {key}; expected {allowed}")
    return _Line(where, values)


def _unique(lines: Iterable[_Line], key: str) -> dict[str, _Line]:
    """The lines by what they name; each name once."""
    by_name: dict[str, _Line] = {}
    for line in lines:
        name = line.values[key]
        if name in by_name:
            raise line.fail(f"{name} stands in {by_name[name].where} already")
        by_name[name] = line
    return by_name


def _tree(lines: list[_Line]) -> Iterator[Domain]:
    switches = _unique(lines, "switchname")
    known: dict[str, Domain] = {}
    for name in switches:
        _switch(name, switches, known, ())
    yield from known.values()


def _switch(
    name: str, switches: Mapping[str, _Line], known: dict[str, Domain], above: tuple[str, ...]
) -> Domain:
    """One switch with everything below it; `above` are those it is looked at from."""
    if name in known:
        return known[name]
    line = switches[name]
    nodes, children = line.names("nodes"), line.names("switches")
    if not nodes and not children:
        raise line.fail(f"switch {name} has neither Nodes= nor Switches=")
    below = []
    for child in children:
        if child not in switches:
            raise line.fail(f"switch {name} lists {child}, which no SwitchName= line describes")
        if child in (*above, name):
            raise line.fail(f"switch {child} is below itself: {' > '.join((*above, name, child))}")
        below.append(_switch(child, switches, known, (*above, name)))
    level = 1 + max((domain.level for domain in below), default=-1)
    held = frozenset(nodes).union(*(domain.nodes for domain in below))
    known[name] = Domain(name, level, held)
    return known[name]


def _blocks(lines: list[_Line]) -> Iterator[Domain]:
    """Base blocks, and the enforced sizes above them: as many neighbouring blocks each."""
    blocks = _unique((line for line in lines if "blockname" in line.values), "blockname")
    sized = [line for line in lines if "blocksizes" in line.values]
    if not blocks:
        raise sized[0].fail(f"BlockSizes= without any BlockName=; expected {_EXPECTED}")
    if len(sized) > 1:
        raise sized[1].fail(f"BlockSizes= stands in {sized[0].where} already")
    base = []
    for name, line in blocks.items():
        nodes = frozenset(line.names("nodes"))
        if not nodes:
            raise line.fail(f"block {name} has no Nodes=")
        base.append(Domain(name, 0, nodes))
    yield from base
    for level, many in enumerate(_ratios(sized[0]) if sized else (), 1):
        for at in range(0, len(base), many):
            some = base[at : at + many]
            if len(some) > 1:
                name = f"{some[0].name}-{some[-1].name}"
                yield Domain(name, level, frozenset().union(*(block.nodes for block in some)))


def _ratios(line: _Line) -> tuple[int, ...]:
    """How many base blocks each further size joins."""
    text = line.values["blocksizes"]
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    ratios = [size // sizes[0] for size in sizes[1:]] if sizes and sizes[0] > 0 else []
    rising = [1, *ratios]
    is_sound = (
        bool(sizes)
        and sizes[0] > 0
        and all(size == sizes[0] * ratio for size, ratio in zip(sizes[1:], ratios, strict=True))
        and all(ratio.bit_count() == 1 for ratio in ratios)
        and all(a < b for a, b in zip(rising, ratios, strict=False))
    )
    if not is_sound:
        raise line.fail(
            f"BlockSizes={text}: expected the size of a base block, then larger ones, each the"
            " first times a power of two, such as 18,36,72"
        )
    return tuple(ratios)
