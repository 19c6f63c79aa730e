"""One log of nccl-tests or rccl-tests: which GPUs ran, and what they reached.

Both print `#` lines with one `Rank` line per GPU, a row per message size (size, count, type, redop,
[root], then time, algbw, busbw, #wrong, out of place and in place), and at the end the average.
Before every line may stand what a launcher puts there (mpirun --tag-output, srun --label, kubectl
--prefix, timestamps). nccl-tests writes the same as JSON, too (option -J, src/util.cu).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

#: A line that a run begins with, and what stands before it.
_BEGIN = re.compile(
    r"^(.{0,200}?)(?:#\s*(?:nccl-tests version|Collective test starting|nThread \d|Using devices)"
    r"|#?\s*Rank\s+\d+\s+(?:Group|Pid)\s)",
    re.MULTILINE,
)
_DAY = re.compile(r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2}\b")
_ADDRESS = re.compile(r"[0-9a-fA-F:.]+|0x[0-9a-fA-F]+")
_RANK = re.compile(
    r"#?\s*Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+"
    r"device\s+(\d+)\s+\[(" + _ADDRESS.pattern + r")\]\s*(.*)"
)
_NAMED = re.compile(r"#?\s*Collective test starting:\s*(\S+)")
#: Its name without what a build adds: MPI builds are all_reduce_perf_mpi (NAME_SUFFIX).
_PROGRAM = re.compile(r"(?:.*/)?(\w+?_perf)(?![a-z])")
#: The command in a script's log; releases before 2.17 name themselves nowhere else.
_COMMAND = re.compile(r"(?:^|[/\s])((?!_)[a-z_]{1,40}_perf)(?:_mpi)?(?=\s+-|\s*$)")
_ERROR = re.compile(r".*?(Test (?:NCCL |CUDA )?failure .*|# error: .*)")
_TIMESTAMP = re.compile(r"\s\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$")
_AVERAGE = re.compile(r"#?\s*Avg bus bandwidth\s*:")
_BOUNDS = re.compile(r"#?\s*Out of bounds values\s*:\s*(\d+)\s+(\w+)")
_ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z]\w*\s+[\w.]+\s")


@dataclass(frozen=True, slots=True)
class Log:
    """The machine and the bandwidths that one log of nccl-tests or rccl-tests tells of."""

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
    if text.lstrip().startswith("{"):
        return _read_json(text, reader)
    prefix = _prefix(text)
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        reader.line(number, prefix.sub("", line, count=1))
    return reader.log(max(1, len(lines)))


def _prefix(text: str) -> re.Pattern[str]:
    """What a launcher puts before every line, whatever its numbers and days are in each."""
    first = _BEGIN.search(text)
    parts = re.split(r"(\s*\d+)", first[1] if first else "")
    forms = [_DAY.sub(r"\\w+ \\w+", re.escape(part).replace("\\ ", " ")) for part in parts[::2]]
    numbers = [r"\s+\d+" if part[0].isspace() else r"\d+" for part in parts[1::2]]
    if numbers and not forms[0]:
        numbers[0] = r"\s*\d+"  # srun --label aligns its numbers to the right
    inner = [form + number for form, number in zip(forms, numbers, strict=False)]
    return re.compile("^" + "".join(inner) + forms[-1], re.ASCII)


def _read_json(text: str, reader: _Reader) -> Log:
    """The file that nccl-tests writes with -J; PluginError where it is none, or not whole."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise reader.fail(line, "no whole JSON: it was cut off; expected that of -J") from None
    try:
        reader.json(said)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, PluginError):
            raise
        said = f"{type(error).__name__} {error}"[:80]
        raise reader.fail(1, f"not nccl-tests' JSON of -J ({said}); expected {EXPECTED}") from None
    return reader.log(1)


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
        #: The collective as the log names it, and as the command above it does.
        self._name = self._command = ""
        #: By rank, the address of its GPU and the number of its line.
        self._gpus: dict[int, tuple[str, int]] = {}
        self._host = self._product = ""
        self._largest = 0
        self._best = 0.0
        self._rows = 0
        self._ended = 0

    def fail(self, line: int, text: str) -> PluginError:
        return PluginError(f"{self._path}:{line}: {text}")

    def line(self, number: int, line: str) -> None:
        """One printed line; PluginError where it shows what cannot be used."""
        if match := _RANK.fullmatch(line.rstrip()):
            rank, address, name = int(match[1]), match[4].lower(), match[5].strip()
            self._rank(number, rank, match[2], address, name)
        elif match := _NAMED.match(line):
            self._named(number, match[1])
        elif match := _BOUNDS.match(line):
            if match[2] != "OK":
                raise self.fail(number, f"{match[1]} values out of bounds; expected none")
        elif _AVERAGE.match(line):
            self._ended = number
        elif match := _ERROR.match(line):
            said = match[1].strip()[:120]
            raise self.fail(number, f"the run failed: {said}; expected one without errors")
        elif _ROW.match(line + " "):
            self._row(number, _TIMESTAMP.sub("", line).split())
        elif not self._gpus and (match := _COMMAND.search(line)):
            self._command = match[1]

    def json(self, said: Mapping[str, Any]) -> None:
        """What nccl-tests writes with -J; KeyError and such where it is something else."""
        self._named(1, str(said["args"][0]))
        config = said["config"]
        if int(config["nthreads"]) * int(config["ngpus"]) > 1:
            # It names the first GPU of each process alone (parseRankInfo in its util.cu).
            message = "of several GPUs in a process the JSON names the first alone"
            raise self.fail(1, f"{message}; expected a process for each GPU, or what was printed")
        for one in config["devices"]:
            address, host, name = (
                " ".join(str(one[key]).split()) for key in ("device_hex", "hostname", "device_info")
            )
            if not _ADDRESS.fullmatch(address):
                raise self.fail(1, f"device_hex {address[:40]!r}; expected a PCI address")
            self._rank(1, int(one["rank"]), host, address.lower(), name)
        for row in said["results"]:
            out, inside = row["out_of_place"], row.get("in_place")
            wrong = [
                str(0 if one["nwrong"] is None else one["nwrong"]) for one in (out, inside) if one
            ]
            speeds = float(out["alg_bw"]), float(out["bus_bw"])
            self._result(1, int(row["size"]), speeds, wrong, reduces=row["redop"] != "none")
        if errors := [" ".join(str(one).split()) for one in said["errors"] if one]:
            raise self.fail(1, f"the run failed: {errors[0][:120]}; expected one without errors")
        if int(said["out_of_bounds"]["count"]):
            count = said["out_of_bounds"]["count"]
            raise self.fail(1, f"{count} values out of bounds; expected none")
        self._ended = 1 if "average_bus_bandwidth" in said else 0

    def _named(self, number: int, program: str) -> None:
        """The collective by its program; PluginError for one that says nothing of rings."""
        match = _PROGRAM.match(program)
        self._name = match[1] if match else program[:40]
        if self._name not in COLLECTIVES:
            raise self.fail(number, f"a log of {self._name}; expected {EXPECTED}")

    def _rank(self, number: int, rank: int, host: str, address: str, name: str) -> None:
        if rank in self._gpus or self._rows:
            message = "another run begins here, or each process ran alone (a build without MPI)"
            raise self.fail(number, f"{message}; expected one run per file")
        if self._gpus and host != self._host:
            raise self.fail(number, f"host {host} beside {self._host}; expected one node")
        if self._gpus and name != self._product:
            raise self.fail(number, f"{name} beside {self._product}; expected GPUs of one kind")
        if any(other == address for other, _ in self._gpus.values()):
            message = (
                f"a second GPU at [{address}]; expected one rank per GPU, each at its own address"
            )
            raise self.fail(number, message)
        self._gpus[rank], self._host, self._product = (address, number), host, name

    def _row(self, number: int, fields: list[str]) -> None:
        if len(fields) == 21:  # option -I has four more behind each half
            fields = [*fields[:9], *fields[13:17]]
        # Before 2.12 there was no column `root`.
        if len(fields) not in (12, 13):
            is_old = "of a release of 2020 or before" if len(fields) == 11 else "cut off or mixed"
            message = f"{len(fields)} columns; expected 12 or 13: the log is {is_old}"
            raise self.fail(number, message)
        if not self._gpus:
            raise self.fail(number, "a row before any `Rank` line; expected which GPUs ran")
        if self._ended:
            raise self.fail(number, "a row after the average; expected one run per file")
        try:
            size = int(fields[0])
            # Out of place: time, algbw, busbw, #wrong; then the same four in place.
            algbw, busbw = (float(field) for field in fields[-7:-5])
        except ValueError:
            raise self.fail(number, "not a row of numbers: the log is damaged or mixed") from None
        wrongs = [wrong for wrong in (fields[-5], fields[-1]) if wrong != "N/A"]
        self._result(number, size, (algbw, busbw), wrongs, reduces=fields[3] != "none")

    def _result(
        self, number: int, size: int, gbps: tuple[float, float], wrongs: list[str], *, reduces: bool
    ) -> None:
        """One message size: algorithm and bus bandwidth out of place, and what was wrong."""
        for wrong in wrongs:
            if not _is_clean(wrong):
                raise self.fail(number, f"#wrong is {wrong}; expected 0: a run without errors")
        self._rows += 1
        self._is_ring(number, *gbps, reduces=reduces)
        self._largest = max(self._largest, size)
        if size >= LEAST_BYTES:
            self._best = max(self._best, gbps[1])

    def _is_ring(self, number: int, algbw: float, busbw: float, *, reduces: bool) -> None:
        """PluginError where the two bandwidths do not fit the collective and the number of GPUs."""
        ranks = len(self._gpus)
        if not self._name and self._command:
            self._named(number, self._command)
        # Without its name only what reduces is certain: all_gather looks like alltoall.
        names = [self._name] if self._name else ["all_reduce_perf", "reduce_scatter_perf"]
        for factor, does_reduce in (COLLECTIVES[name] for name in names):
            expected = algbw * factor * (ranks - 1) / ranks
            if does_reduce == reduces and abs(busbw - expected) <= ROUNDING * (1 + expected):
                return
        raise self.fail(
            number,
            f"bus bandwidth {busbw:g} of {algbw:g} GB/s over {ranks} GPUs is that of another"
            f" collective, or `Rank` lines are missing; expected {EXPECTED}",
        )

    def log(self, last: int) -> Log:
        """What was read; raises PluginError where the run is not whole."""
        if not self._gpus:
            raise self.fail(1, f"no `Rank` line; expected {EXPECTED}")
        if not self._ended:
            message = "ends without `Avg bus bandwidth`; expected a whole run: it was cut off"
            raise self.fail(last, message)
        ranks = sorted(self._gpus)
        if ranks != list(range(len(ranks))):
            raise self.fail(self._gpus[ranks[-1]][1], f"ranks {ranks}; expected all from 0 on")
        if len(ranks) < 2:
            raise self.fail(self._gpus[0][1], "one GPU; expected two or more of one node")
        if self._largest < LEAST_BYTES:
            message = f"{self._rows} rows, none of {LEAST_BYTES >> 20} MiB or more"
            raise self.fail(
                self._ended, f"{message}: small messages measure latency; expected -e 256M, say"
            )
        if not 0 < self._best < float("inf"):
            message = f"{self._best:g} GB/s; expected a bandwidth above zero"
            raise self.fail(self._ended, message)
        gpus = dict(self._gpus[rank] for rank in ranks)
        return Log(self._path, self._host, self._product, gpus, self._best)
