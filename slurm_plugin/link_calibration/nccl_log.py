"""One log of nccl-tests or rccl-tests: which GPUs ran, and what they reached.

Both print `#` lines with one `Rank` line per GPU, a row per message size (size, count, type, redop,
[root], then time, algbw, busbw, #wrong, out of place and in place), and at the end the average.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.errors import PluginError

#: Messages smaller than this measure how long a call takes, not how wide the links are.
LEAST_BYTES = 16 << 20
#: Both bandwidths are printed with two decimals.
ROUNDING = 0.02
#: A log is a few kilobytes, with NCCL's debug output some megabytes.
MAX_BYTES = 32 << 20

#: The collectives that run along rings: name -> bus over algorithm bandwidth times n / (n - 1)
#: (nccl-tests, PERFORMANCE.md), and whether they reduce.
COLLECTIVES = {
    "all_reduce_perf": (2.0, True),
    "reduce_scatter_perf": (1.0, True),
    "all_gather_perf": (1.0, False),
}
EXPECTED = "the output of all_reduce_perf (or all_gather_perf, reduce_scatter_perf)"

_LABEL = re.compile(r"^\s*\d+:\s")  # srun --label
_RANK = re.compile(
    r"#?\s*Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+"
    r"device\s+(\d+)\s+\[([0-9a-fA-F:.]+|0x[0-9a-fA-F]+)\]\s*(.*)"
)
_NAMED = re.compile(r"#?\s*Collective test starting:\s*(\S+)")
_AVERAGE = re.compile(r"#?\s*Avg bus bandwidth\s*:")
_BOUNDS = re.compile(r"#?\s*Out of bounds values\s*:\s*(\d+)\s+(\w+)")
_ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z]\w*\s+\w+\s")


@dataclass(frozen=True, slots=True)
class Log:
    """What one log says."""

    path: Path
    host: str
    #: The product that all its GPUs are.
    product: str
    #: In the order of ranks, each GPU's PCI address as printed, and the number of its line.
    gpus: Mapping[str, int]
    #: The best of its large messages, out of place.
    busbw_gbps: float

    def fail(self, text: str, address: str = "") -> PluginError:
        """The error about the line of one GPU; without an address, about that of the first."""
        line = self.gpus[address] if address else next(iter(self.gpus.values()))
        return PluginError(f"{self.path}:{line}: {text}")


def read_log(path: Path) -> Log:
    """The log in `path`; raises PluginError."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise PluginError(f"{path}: larger than {MAX_BYTES >> 20} MiB; expected a log")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise PluginError(f"{path}: {error.strerror}; expected {EXPECTED}") from None
    return parse(text, path)


def parse(text: str, path: Path) -> Log:
    """The log in `text`; raises PluginError naming file and line."""
    reader = _Reader(path)
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        reader.line(number, _LABEL.sub("", line, count=1))
    return reader.log(max(1, len(lines)))


def _is_clean(wrong: str) -> bool:
    """Whether the last column says no error: a count, in older releases the largest deviation."""
    try:
        return 0 <= float(wrong) < 1
    except ValueError:
        return False


class _Reader:
    """Reads one log line by line; refuses what cannot be one whole run on one node."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = ""
        #: By rank, the address of its GPU and the number of its line.
        self._gpus: dict[int, tuple[str, int]] = {}
        self._host = self._product = ""
        self._largest = 0
        self._best = 0.0
        self._rows = 0
        self._ended = 0

    def _fail(self, line: int, text: str) -> PluginError:
        return PluginError(f"{self._path}:{line}: {text}")

    def line(self, number: int, line: str) -> None:
        if match := _RANK.fullmatch(line.rstrip()):
            self._rank(number, match)
        elif match := _NAMED.match(line):
            self._name = match[1]
            if match[1] not in COLLECTIVES:
                raise self._fail(number, f"a log of {match[1]}; expected {EXPECTED}")
        elif match := _BOUNDS.match(line):
            if match[2] != "OK":
                raise self._fail(number, f"{match[1]} values out of bounds; expected none")
        elif _AVERAGE.match(line):
            self._ended = number
        elif _ROW.match(line + " "):
            self._row(number, line.split())

    def _rank(self, number: int, match: re.Match[str]) -> None:
        rank, host, address, name = int(match[1]), match[2], match[4].lower(), match[5].strip()
        if rank in self._gpus or self._rows:
            message = "another run begins here, or each process ran alone (a build without MPI)"
            raise self._fail(number, f"{message}; expected one run per file")
        if self._gpus and host != self._host:
            raise self._fail(number, f"host {host} beside {self._host}; expected one node")
        if self._gpus and name != self._product:
            raise self._fail(number, f"{name} beside {self._product}; expected GPUs of one kind")
        if any(other == address for other, _ in self._gpus.values()):
            message = (
                f"a second GPU at [{address}]; expected one rank per GPU, each at its own address"
            )
            raise self._fail(number, message)
        self._gpus[rank], self._host, self._product = (address, number), host, name

    def _row(self, number: int, fields: list[str]) -> None:
        # Before 2.12 there was no column `root`.
        if len(fields) not in (12, 13):
            message = f"{len(fields)} columns; expected 12 or 13: the log is cut off or mixed"
            raise self._fail(number, message)
        if not self._gpus:
            raise self._fail(number, "a row before any `Rank` line; expected which GPUs ran")
        if self._ended:
            raise self._fail(number, "a row after the average; expected one run per file")
        try:
            size = int(fields[0])
            # Out of place: time, algbw, busbw, #wrong; then the same four in place.
            algbw, busbw = (float(field) for field in fields[-7:-5])
        except ValueError:
            raise self._fail(number, "not a row of numbers: the log is damaged or mixed") from None
        for wrong in (fields[-5], fields[-1]):
            if wrong != "N/A" and not _is_clean(wrong):
                raise self._fail(number, f"#wrong is {wrong}; expected 0: a run without errors")
        self._rows += 1
        self._is_ring(number, algbw, busbw, reduces=fields[3] != "none")
        self._largest = max(self._largest, size)
        if size >= LEAST_BYTES:
            self._best = max(self._best, busbw)

    def _is_ring(self, number: int, algbw: float, busbw: float, *, reduces: bool) -> None:
        """PluginError where the two bandwidths do not fit the collective and the number of GPUs."""
        ranks = len(self._gpus)
        # Without its name only what reduces is certain: all_gather looks like alltoall.
        names = [self._name] if self._name else ["all_reduce_perf", "reduce_scatter_perf"]
        for factor, does_reduce in (COLLECTIVES[name] for name in names):
            expected = algbw * factor * (ranks - 1) / ranks
            if does_reduce == reduces and abs(busbw - expected) <= ROUNDING * (1 + expected):
                return
        raise self._fail(
            number,
            f"bus bandwidth {busbw:g} of {algbw:g} GB/s over {ranks} GPUs is that of another"
            f" collective, or `Rank` lines are missing; expected {EXPECTED}",
        )

    def log(self, last: int) -> Log:
        """What was read; raises PluginError where the run is not whole."""
        if not self._gpus:
            raise self._fail(1, f"no `Rank` line; expected {EXPECTED}")
        if not self._ended:
            message = "ends without `Avg bus bandwidth`; expected a whole run: it was cut off"
            raise self._fail(last, message)
        ranks = sorted(self._gpus)
        if ranks != list(range(len(ranks))):
            raise self._fail(self._gpus[ranks[-1]][1], f"ranks {ranks}; expected all from 0 on")
        if len(ranks) < 2:
            raise self._fail(self._gpus[0][1], "one GPU; expected two or more of one node")
        if self._largest < LEAST_BYTES:
            message = f"{self._rows} rows, none of {LEAST_BYTES >> 20} MiB or more"
            raise self._fail(
                self._ended, f"{message}: small messages measure latency; expected -e 256M, say"
            )
        if not 0 < self._best < float("inf"):
            message = f"{self._best:g} GB/s; expected a bandwidth above zero"
            raise self._fail(self._ended, message)
        gpus = dict(self._gpus[rank] for rank in ranks)
        return Log(self._path, self._host, self._product, gpus, self._best)
