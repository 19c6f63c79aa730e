"""What slurmctld has in force of a topology, by what `scontrol show topology` prints.

BlockName=b1 BlockIndex=0 Nodes=n[1-18] BlockSize=18
AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-36] BlockSize=36
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-8]
SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-16] Switches=s[1-2]
"""

from __future__ import annotations

from collections.abc import Mapping

from gres_topology.errors import TopologyError
from gres_topology.slurm_files.network import Declared, Network, blocks, ratios, tree

#: Kinds of topology whose nodes we leave to Slurm, by the first key of their lines.
OTHER_KINDS = {"RingName": "ring", "TorusName": "torus3d"}


def parse(text: str, source: str) -> Network:
    """The network shown. TopologyError for one that cannot be known by it.

    Before 24.11 Slurm tells no sizes of blocks. Nothing at all is shown of a flat network, and
    where scontrol got no answer: it ends then as if all were well.
    """
    lines = [_pairs(line) for line in text.splitlines()]
    for key, kind in OTHER_KINDS.items():
        if any(key in line for line in lines):
            return Network((), source, kind)
    switches = [_declared(line, "SwitchName", source) for line in lines if "SwitchName" in line]
    if switches:
        return tree(switches, source, may_be_empty=True)
    if any("BlockName" in line for line in lines):
        return _blocks(lines, source)
    if text.strip():
        raise TopologyError(f"{source}: {text[:60]!r}: expected blocks or switches")
    raise TopologyError(f"{source}: says nothing")


def _pairs(line: str) -> dict[str, str]:
    """Keys and values; a list of hosts may have blanks in it, as it stands in the file."""
    pairs: dict[str, str] = {}
    key = ""
    for word in line.split():
        if "=" in word:
            key, _, pairs[key] = word.partition("=")
        elif key:
            pairs[key] = f"{pairs[key].rstrip(',')},{word.lstrip(',')}"
    return pairs


def _blocks(lines: list[dict[str, str]], source: str) -> Network:
    base = [line for line in lines if "BlockName" in line]
    try:
        base.sort(key=lambda line: int(line["BlockIndex"]))
        sizes = sorted({int(line["BlockSize"]) for line in lines if "BlockSize" in line})
    except (KeyError, ValueError):
        sizes = []
    if (joined := ratios(sizes)) is None:
        raise TopologyError(f"{source}: its blocks have no sizes")
    declared = [_declared(line, "BlockName", source) for line in base]
    return blocks(declared, joined, source, sizes=tuple(sizes))


def _declared(line: Mapping[str, str], name: str, source: str) -> Declared:
    return Declared(source, line[name], _hosts(line, "Nodes"), _hosts(line, "Switches"))


def _hosts(line: Mapping[str, str], key: str) -> str:
    text = line.get(key, "")
    return "" if text == "(null)" else text
