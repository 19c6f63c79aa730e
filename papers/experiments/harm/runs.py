"""What is run: a first block of seeds that says how many are needed, and one that is judged."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from papers.experiments.harm.judging import MARGINS, OURS, Row, run_one, seeds_needed
from papers.experiments.harm.traces import TRACES, WORKLOADS

POLICIES = ("stock", "best-fit", "first-fit", "mapa", "topo-aware", OURS)
JOBS = 2500
#: All claims that the page can make.
COMPARISONS = len(WORKLOADS) * (len(POLICIES) - 1) * len(MARGINS)
#: The seeds of the first block; the first judged one, and how many are judged at most.
TUNING, FIRST_JUDGED, MOST = range(7001, 7013), 8001, 400
BLOCKS = ("tuning", "judged")

#: What runs `run_one` for several seeds.
Map = Callable[..., Iterable[dict[str, float]]]


@dataclass(frozen=True, slots=True)
class Results:
    """The rows there are, as files in a folder: one for each block and workload."""

    folder: Path

    def _path(self, block: str, name: str) -> Path:
        return self.folder / f"{block}-{name}.json"

    def cell(self, block: str, name: str) -> dict[str, list[Row]]:
        """What earlier runs left, by policy; empty where there is nothing."""
        try:
            found = json.loads(self._path(block, name).read_text(encoding="utf-8"))
        except OSError:
            return {}
        return {policy: _rows(found[policy]) for policy in POLICIES if policy in found}

    def whole(self, block: str) -> dict[str, dict[str, list[Row]]]:
        """The cells in which every policy has the same two seeds or more."""
        cells = {name: self.cell(block, name) for name in WORKLOADS}
        return {
            name: cell
            for name, cell in cells.items()
            if cell.keys() == {*POLICIES}
            and len({len(rows) for rows in cell.values()}) == 1
            and len(cell[OURS]) > 1
        }

    def seeds(self, block: str, name: str) -> range:
        """Those of a workload; no judged ones before the first block is there.

        A whole log, of which one run takes minutes, has no first block.
        """
        of_log = TRACES[name].seeds if name in TRACES else 0
        if block == "tuning":
            return TUNING[:0] if of_log else TUNING
        if of_log:
            return range(FIRST_JUDGED, FIRST_JUDGED + of_log)
        tuning = self.whole("tuning").get(name)
        count = 0 if tuning is None else min(MOST, seeds_needed(tuning, COMPARISONS))
        return range(FIRST_JUDGED, FIRST_JUDGED + count)

    def times_judged(self) -> int:
        """How often the judged block was run, each time with other code."""
        path = self.folder / "judged-times"
        return int(path.read_text(encoding="utf-8")) if path.exists() else 0

    def run(
        self,
        block: str,
        tell: Callable[[str], None],
        *,
        only: Collection[str] = (),
        again: bool = False,
        most: int | None = None,
        jobs: int = JOBS,
        processes: int = 1,
    ) -> None:
        """Run what is missing; an interrupted run goes on where it was.

        `again`: all of ours anew, which counts as another judgement. `most`: so many seeds.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if block == "judged" and (again or not self.times_judged()):
            times = self.folder / "judged-times"
            times.write_text(f"{self.times_judged() + 1}\n", encoding="utf-8")
        with _mapping(processes) as mapped:
            for name in only or WORKLOADS:
                self._run(block, name, list(self.seeds(block, name))[:most], jobs, again, mapped)
                tell(f"{block} {name}")

    def _run(
        self, block: str, name: str, seeds: list[int], jobs: int, again: bool, mapped: Map
    ) -> None:
        cell = self.cell(block, name)
        for policy in POLICIES:
            kept = [] if again and policy == OURS else cell.get(policy, [])
            left = seeds[len(kept) :]
            if left:
                rows = mapped(run_one, repeat(name), repeat(policy), left, repeat(jobs))
                cell[policy] = [*kept, *map(_rounded, rows)]
                lines = {policy: _columns(cell[policy]) for policy in cell}
                text = json.dumps(lines, indent=0, separators=(",", ":")) + "\n"
                self._path(block, name).write_text(text, encoding="utf-8")


def _rounded(row: Row) -> Row:
    """As it is kept."""
    return {key: float(f"{value:.4g}") for key, value in row.items()}


def _columns(rows: Sequence[Row]) -> dict[str, str]:
    """{figure: its values, seed by seed}, `-` where there is none: the files are to be small."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: " ".join(f"{row[key]:g}" if key in row else "-" for row in rows) for key in keys}


def _rows(columns: Mapping[str, str]) -> list[Row]:
    """The rows of `_columns`."""
    values = [line.split() for line in columns.values()]
    return [
        {key: float(value) for key, value in zip(columns, row, strict=True) if value != "-"}
        for row in zip(*values, strict=True)
    ]


@contextmanager
def _mapping(processes: int) -> Iterator[Map]:
    if processes == 1:
        yield map
        return
    with ProcessPoolExecutor(processes) as pool:
        yield pool.map
