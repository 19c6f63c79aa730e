"""The distance matrices of hwloc XML: NUMA latencies, NVLink and xGMI bandwidths."""

from __future__ import annotations

from dataclasses import dataclass

from gres_topology import cpulist
from gres_topology.errors import TopologyError
from gres_topology.readers.xmltree import Element


@dataclass(frozen=True)
class Matrix:
    """One matrix: identifier of a row -> identifier of a column -> value as printed.

    Identifiers are OS indexes for NUMA nodes and hwloc's gp_index for devices; `switches`
    are those of a bandwidth matrix that are NVSwitches.
    """

    values: dict[str, dict[str, float]]
    switches: frozenset[str]


def matrices(root: Element, source: str) -> dict[str, Matrix]:
    """Name -> matrix of every `distances` element; TopologyError naming line and cell."""
    by_name: dict[str, Matrix] = {}
    switches = frozenset(
        e.get("gp_index") for e in root.walk() if "NVSwitch" in (e.get("subtype"), e.get("name"))
    )
    for element in root.walk():
        if element.tag in {"distances2", "distances2hetero"}:
            keys = [word.split(":")[-1] for word in _words(element, "indexes")]
            values = _numbers(element, _words(element, "u64values"), source)
            name = element.get("name") or "NUMALatency"
            if name == "NUMALatency" and element.get("type", "NUMANode") != "NUMANode":
                continue
        elif element.tag == "distances":
            keys = _version1_keys(root)
            base = _numbers(element, [element.get("latency_base", "0")], source)[0]
            texts = [c.get("value") for c in element.children if c.tag == "latency"]
            values = [round(v * base, 3) for v in _numbers(element, texts, source)]
            name = "NUMALatency"
            if element.get("nbobjs") != str(len(keys)):
                continue  # between objects that are not NUMA nodes
        else:
            continue
        by_name[name] = _square(element, keys, values, switches, source)
    return by_name


def _version1_keys(root: Element) -> list[str]:
    nodes = (e for e in root.walk() if e.tag == "object" and e.get("type") == "NUMANode")
    return [node.get("os_index") for node in nodes]


def _words(element: Element, tag: str) -> list[str]:
    return [word for child in element.children if child.tag == tag for word in child.text.split()]


def _numbers(element: Element, texts: list[str], source: str) -> list[float]:
    result = []
    for text in texts:
        if not text.replace(".", "", 1).isdigit() or not text.isascii() or len(text) > 20:
            raise TopologyError(
                f"{source} line {element.line}: '{text}' in <{element.tag}>; expected a number"
            )
        result.append(float(text))
    return result


def _square(
    element: Element, keys: list[str], values: list[float], switches: frozenset[str], source: str
) -> Matrix:
    n = len(keys)
    bad = [key for key in keys if cpulist.natural(key) is None]
    if bad:
        raise TopologyError(
            f"{source} line {element.line}: index '{bad[0]}' of <{element.tag}>; expected a number"
        )
    if len(values) != n * n or element.get("nbobjs") != str(n) or len(set(keys)) != n:
        raise TopologyError(
            f"{source} line {element.line}: {len(values)} values between {n} objects in"
            f" <{element.tag} nbobjs='{element.get('nbobjs')}'>; expected a square matrix"
        )
    rows = {keys[i]: dict(zip(keys, values[i * n : (i + 1) * n], strict=True)) for i in range(n)}
    for a in keys:
        for b in keys:
            if rows[a][b] != rows[b][a]:
                raise TopologyError(
                    f"{source} line {element.line}, cell {a}-{b}: is {rows[a][b]:g} but {b}-{a}"
                    f" is {rows[b][a]:g}; expected a symmetric matrix"
                )
    return Matrix(rows, switches & set(keys))
