"""An application's pattern from NVLink traffic (MAPA, SC'21, section 3.1, figure 9b).

One text with the output of nvidia-smi, in this order: which GPU each link leads to
(`nvlink -R` or `-p`), the counters before the run and those after it (`nvlink -gt d`, or
`-g 0` of older drivers). Two GPUs talk if the links between them carried more than
`LEAST_SHARE` of what the busiest pair's did.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gres_topology import pci
from policies.errors import PatternError

#: Traffic below this share of the busiest pair's is set-up and housekeeping, no pattern.
LEAST_SHARE = 0.01
RECIPE = "nvidia-smi nvlink -R, then nvidia-smi nvlink -gt d before and after the run"

_GPU = re.compile(r"GPU (\d+):.*")
_TARGET = re.compile(r"Link (\d+):\s+(?:Remote Device )?([0-9a-fA-F:.]+?)(?::\s+Link \d+)?")
_COUNTER = re.compile(
    r"Link (\d+):\s+(?:Data |Raw )?([TR]x)\d?:\s*([\d,]+|N/A)(?:\s*([KMG]i?(?:B|Bytes)))?"
)
_BUS_ID = re.compile(r"(\d+),\s*([0-9a-fA-F]+:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)")
_KIB = {"K": 1, "M": 1 << 10, "G": 1 << 20}

Link = tuple[int, int]
Pair = tuple[int, int]


def looks_like(text: str) -> bool:
    """Whether the text is output of `nvidia-smi nvlink`."""
    return bool(re.search(r"^\s*GPU \d+:", text, re.MULTILINE)) and "Link " in text


def edges(text: str, source: str) -> set[Pair]:
    """Pairs of GPUs (nvidia-smi's numbers) that talked; PatternError where that is unclear."""
    reader = _Reader(source)
    for number, line in enumerate(text.splitlines(), 1):
        reader.line(number, line.strip())
    moved = reader.moved_kib()
    pairs: dict[Pair, int] = {}
    for (gpu, link), kib in moved.items():
        if kib and (peer := reader.peer(gpu, link)) is not None:
            pair = min(gpu, peer), max(gpu, peer)
            pairs[pair] = pairs.get(pair, 0) + kib
    if not pairs:
        raise PatternError(
            f"{source}: nothing moved over NVLink between the readings; expected {RECIPE}"
        )
    busiest = max(pairs.values())
    return {pair for pair, kib in pairs.items() if kib > LEAST_SHARE * busiest}


class _Reader:
    """Collects link targets and readings of counters, line by line."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._gpu: int | None = None
        self._targets: dict[Link, str] = {}
        self._named: dict[int, str] = {}
        #: One dict per reading: (gpu, link, "Tx" or "Rx") -> KiB.
        self._readings: list[dict[tuple[int, int, str], int]] = []

    def line(self, number: int, line: str) -> None:
        if match := _GPU.fullmatch(line):
            self._gpu = int(match[1])
        elif match := _BUS_ID.fullmatch(line):
            self._named[int(match[1])] = str(pci.normalise(match[2]))
        elif line.startswith("Link "):
            self._link(number, line)

    def _link(self, number: int, line: str) -> None:
        if self._gpu is None:
            problem = "a link before any `GPU n:` line; expected whole output of nvidia-smi"
            raise self._error(number, problem)
        counters = list(self._counters(number, line))
        for link, way, kib in counters:
            key = (self._gpu, link, way)
            if not self._readings or key in self._readings[-1]:
                self._readings.append({})
            self._readings[-1][key] = kib
        target = None if counters else _TARGET.fullmatch(line)
        address = pci.normalise(target[2]) if target else None
        if target and address:
            self._targets[self._gpu, int(target[1])] = address

    def _counters(self, number: int, line: str) -> Iterator[tuple[int, str, int]]:
        """Counters of one line: newer drivers write one, older ones `Rx0: .., Tx0: ..`."""
        link, _, rest = line.partition(": ")
        for part in re.split(r",\s+(?=[TR]x)", rest):
            match = _COUNTER.fullmatch(f"{link}: {part}")
            if match is None:
                continue
            if match[3] == "N/A":
                problem = "N/A: this driver or GPU does not count; profile the pattern elsewhere"
                raise self._error(number, problem)
            kib = int(match[3].replace(",", "")) * _KIB[(match[4] or "K")[0]]
            yield int(match[1]), match[2], kib

    def moved_kib(self) -> dict[Link, int]:
        """KiB sent and received over each link between the first and the last reading."""
        if len(self._readings) < 2:
            raise PatternError(
                f"{self._source}: {len(self._readings)} reading of the counters; expected {RECIPE}"
            )
        first, last = self._readings[0], self._readings[-1]
        if first.keys() != last.keys():
            gpu, link, way = min(first.keys() ^ last.keys())
            raise PatternError(
                f"{self._source}: {way} of link {link} of GPU {gpu} is in one reading only;"
                " expected the same GPUs before and after (is the file cut off?)"
            )
        moved: dict[Link, int] = {}
        for (gpu, link, way), kib in last.items():
            more = kib - first[gpu, link, way]
            if more < 0:
                raise PatternError(
                    f"{self._source}: {way} of link {link} of GPU {gpu} fell from"
                    f" {first[gpu, link, way]} to {kib} KiB; expected counters that were not reset"
                )
            moved[gpu, link] = moved.get((gpu, link), 0) + more
        return moved

    def peer(self, gpu: int, link: int) -> int | None:
        """The GPU at the other end; PatternError where that is not known."""
        if not self._targets:
            raise PatternError(f"{self._source}: no line says where links lead; expected {RECIPE}")
        address = self._targets.get((gpu, link))
        for index, own in self._addresses().items():
            if own == address:
                return index
        raise PatternError(
            f"{self._source}: link {link} of GPU {gpu} leads to {address or 'an unknown place'},"
            " which is no GPU: behind NVSwitches the counters do not say who talks to whom;"
            " write an edge list or use NCCL's graphs"
        )

    def _addresses(self) -> Mapping[int, str]:
        """GPU -> PCI address: as stated, else by nvidia-smi's order, which is that of PCI."""
        if self._named:
            return self._named
        known = sorted(set(self._targets.values()))
        gpus = sorted({gpu for gpu, _ in self._targets})
        if len(known) != len(gpus):
            raise PatternError(
                f"{self._source}: {len(gpus)} GPUs, and their links lead to {len(known)} devices;"
                " behind NVSwitches the counters do not say who talks to whom, elsewhere add"
                " nvidia-smi --query-gpu=index,pci.bus_id --format=csv,noheader"
            )
        return dict(zip(gpus, known, strict=True))

    def _error(self, number: int, problem: str) -> PatternError:
        return PatternError(f"{self._source}:{number}: {problem}")
