"""Reads `amd-smi topology --json`, which newer ROCm has in place of rocm-smi.

The same text may hold `amd-smi static --asic --bus --json` and `amd-smi static --numa --json`,
which tell models and NUMA nodes. Up to ROCm 6.3 each is a list of GPUs, later the static ones
stand below `gpu_data`. Of a GPU that is partitioned amd-smi lists each part: the first stands for
the GPU. Lines around them that do not begin with a bracket are passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gres_topology import links, pci
from gres_topology.errors import TopologyError
from gres_topology.matrix import Cells
from gres_topology.readers.amd import kfd
from gres_topology.topology import NodeTopology

_MARK = re.compile(r'"(?:links|bdf)"\s*:')
_START = re.compile(r"^[ \t]*(?=[\[{])", re.MULTILINE)
_LABELS = {"SELF": "X", "XGMI": "XGMI", "PCIE": "PCIE", "N/A": links.UNKNOWN,
           "UNKNOWN": links.UNKNOWN}  # fmt: skip
#: More GPUs than any node has.
_MOST = 10_000
_EXPECTED = "expected the output of amd-smi topology --json"

#: What is said of each GPU by its number.
Entries = dict[int, dict[str, Any]]


def looks_like(text: str) -> bool:
    """Whether the text is JSON of amd-smi."""
    return _MARK.search(text) is not None


def read(text: str, *, name: str, source: str) -> NodeTopology:
    """NodeTopology from the JSON of amd-smi; TopologyError naming the line, and the cell."""
    gpus: Entries = {}
    facts: Entries = {}
    line = 1
    for at, item in _items(text, source):
        number = _number(item.get("gpu"), _MOST)
        if number is None:
            raise TopologyError(f"{source} line {at}: gpu is {item.get('gpu')!r}; {_EXPECTED}")
        if "links" not in item:
            facts.setdefault(number, {}).update(item)
        elif number in gpus:
            raise TopologyError(f"{source} line {at}: GPU{number} is told of twice; {_EXPECTED}")
        else:
            gpus[number], line = item, at
    if not gpus:
        raise TopologyError(f"{source}: no links between GPUs; {_EXPECTED}")
    return _topology(*_whole(gpus, facts), name, LinkReport(source, line))


def _whole(gpus: Entries, facts: Entries) -> tuple[Entries, Entries]:
    """The first part alone of each GPU; parts have the GPU's address, or one of its functions.

    (The library's note on `amdsmi_get_gpu_bdf_id`, ROCm 6.3: the part's number is in the address's
    function, or in bits that are not shown.)
    """
    first: dict[object, int] = {}
    for gpu in sorted(gpus):
        address = pci.normalise(str(gpus[gpu].get("bdf")))
        first.setdefault(address.rpartition(".")[0] if address else gpu, gpu)
    if len(first) == len(gpus):
        return gpus, facts
    kept = set(first.values())

    def shown(links: object) -> object:
        """Without links to parts that are left out."""
        if not isinstance(links, list):
            return links
        gone = gpus.keys() - kept
        return [link for link in links if not isinstance(link, dict) or link.get("gpu") not in gone]

    wholes = {gpu: {**gpus[gpu], "links": shown(gpus[gpu]["links"])} for gpu in sorted(kept)}
    return wholes, {gpu: fact for gpu, fact in facts.items() if gpu not in gpus.keys() - kept}


class LinkReport:
    """Where links are read from; they begin in `line`."""

    def __init__(self, source: str, line: int) -> None:
        self.source, self.line = source, line

    def error(self, text: str) -> TopologyError:
        """The error about what begins there."""
        return TopologyError(f"{self.source} line {self.line}: {text}")


def _items(text: str, source: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line at which its JSON begins, what is said of one GPU)."""
    decoder, at, line, counted = json.JSONDecoder(), 0, 1, 0
    while start := _START.search(text, at):
        line, counted = line + text.count("\n", counted, start.end()), start.end()
        try:
            value, at = decoder.raw_decode(text, start.end())
        except json.JSONDecodeError as error:
            raise TopologyError(
                f"{source} line {error.lineno}: {error.msg};"
                " expected whole JSON of amd-smi (is the file truncated?)"
            ) from None
        except (RecursionError, ValueError):
            raise TopologyError(f"{source} line {line}: JSON beyond reason; {_EXPECTED}") from None
        if isinstance(value, dict):
            value = value.get("gpu_data", [value])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise TopologyError(f"{source} line {line}: no list of GPUs; {_EXPECTED}")
        yield from ((line, item) for item in value)


def _number(value: object, most: int) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < most
    return int(str(value)) if is_number else None


def _topology(gpus: Entries, facts: Entries, name: str, report: LinkReport) -> NodeTopology:
    order = sorted(gpus)
    if facts and sorted(facts) != order:
        raise report.error(
            f"links of GPUs {order} but facts of {sorted(facts)}; expected reports of one node"
        )
    pairs = {(a, b): link for a in order for b, link in _links(a, gpus, report).items()}
    cells = Cells(report.source, "SELF, XGMI, PCIE, N/A or UNKNOWN")
    for (a, b), link in pairs.items():
        back = pairs[b, a]
        if (link["weight"], link["num_hops"]) != (back["weight"], back["num_hops"]):
            raise report.error(
                f"cell GPU{a}-GPU{b}: weight and hops differ from those of GPU{b}-GPU{a};"
                " expected a symmetric matrix"
            )
        cells.put(f"GPU{a}", f"GPU{b}", _label(link, a, b, report), report.line)
    names = [f"GPU{gpu}" for gpu in order]
    cells.check_symmetric(names, names)
    kinds = cells.kinds(names)
    known = [_part(facts, gpu, "asic").get("market_name") for gpu in order]
    model = next((str(text) for text in known if text and text != "N/A"), None)
    places = [_part(facts, gpu, "numa") for gpu in order]

    def hops(i: int, j: int) -> int:
        link = pairs[order[i], order[j]]
        return kfd.hops_of(kinds[i][j], link["weight"] or 0, link["num_hops"])

    return NodeTopology(
        name=name,
        source=f"amd-smi topology: {report.source}",
        kinds=kinds,
        bandwidth_gbps=kfd.bandwidth(kinds, model, hops),
        numa=tuple(kfd.numa_of(place.get("node"), place.get("affinity")) for place in places),
        cpus=(None,) * len(order),
        pci=tuple(_address(gpu, gpus[gpu], facts, report) for gpu in order),
        model=model,
    )


def _part(facts: Entries, gpu: int, key: str) -> Mapping[str, Any]:
    """One section of what is said of a GPU; a section that amd-smi could not read is `N/A`."""
    part = facts.get(gpu, {}).get(key)
    return part if isinstance(part, dict) else {}


def _links(gpu: int, gpus: Entries, report: LinkReport) -> dict[int, dict[str, Any]]:
    """The GPU's links by the other end, each GPU once, and their numbers as numbers."""
    stated = gpus[gpu]["links"]
    by_gpu: dict[int, dict[str, Any]] = {}
    for link in stated if isinstance(stated, list) else []:
        other = _number(link.get("gpu"), _MOST) if isinstance(link, dict) else None
        if other is None or other in by_gpu or other not in gpus:
            raise report.error(f"GPU{gpu} has an unknown or repeated link: {str(link)[:60]}")
        by_gpu[other] = {**link}
        for key in ("weight", "num_hops"):
            value = link.get(key, "N/A")
            by_gpu[other][key] = None if value == "N/A" else _number(value, 10**6)
            if value != "N/A" and by_gpu[other][key] is None:
                raise report.error(f"cell GPU{gpu}-GPU{other}: {key} is {str(value)[:30]!r}")
    lost = [other for other in gpus if other not in by_gpu]
    if lost:
        raise report.error(f"cell GPU{gpu}-GPU{lost[0]}: missing; expected a link to each GPU")
    return by_gpu


def _label(link: Mapping[str, Any], a: int, b: int, report: LinkReport) -> str:
    stated = link.get("link_type")
    if stated is None and link["weight"] is not None:
        return "X" if a == b else kfd.label_of(link["weight"])
    label = _LABELS.get(str(stated))
    if label is None or (label == "X") != (a == b):
        wanted = "SELF" if a == b else "XGMI, PCIE, N/A or UNKNOWN"
        raise report.error(
            f"cell GPU{a}-GPU{b}: '{str(stated)[:30]}' is not a link; expected {wanted}"
        )
    return label


def _address(gpu: int, item: Mapping[str, Any], facts: Entries, report: LinkReport) -> str | None:
    address = pci.normalise(str(item.get("bdf")))
    other = _part(facts, gpu, "bus").get("bdf")
    if other not in (None, "N/A", item.get("bdf")):
        raise report.error(
            f"GPU{gpu} is at {item.get('bdf')} and at {other}; expected reports of one node"
        )
    return address
