"""What is run for the proof: rounds of cells, policies and seeds, each kept in files of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from policies.registry import registry
from simulation.experiments.proof import bounds
from simulation.experiments.proof.cells import LIMITS, TRACES, Workload, workload
from simulation.experiments.proof.judging import Cell, row_of
from simulation.models.slurm import SlurmSimulator

#: In the order in which they are run.
LOADS = (90, 80, 95)
#: With other limits, to see whether they matter: these traces, at this load.
SWEPT, SWEPT_LOAD = ("philly", "mapa-dgx1v"), 90

#: (trace, load, limits).
Name = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class Round:
    """Each of these policies in each of these cells, once for each seed; files in a folder."""

    cells: tuple[Name, ...]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    folder: str = ""

    def path(self, results: Path, name: Name) -> Path:
        """The file of a cell."""
        return results / self.folder / f"{'-'.join(map(str, name))}.json"

    def stored(self, results: Path, name: Name) -> Cell:
        """What earlier runs left of a cell."""
        try:
            found: Cell = json.loads(self.path(results, name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {one: rows for one, rows in found.items() if len(rows) == len(self.seeds)}

    def run(
        self,
        results: Path,
        tell: Callable[[str], None],
        only: Collection[str] = (),
        again: Collection[str] = (),
    ) -> None:
        """Run what is missing, policy by policy; those in `again` in any case.

        `only`: these traces. A file for each cell, written after each policy: an interrupted run
        goes on where it was.
        """
        for name in self.cells:
            if only and name[0] not in only:
                continue
            path = self.path(results, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = dict(self.stored(results, name))
            for policy in self.policies:
                if policy not in kept or policy in again:
                    kept[policy] = [run_one(name, policy, seed) for seed in self.seeds]
                    path.write_text(json.dumps(kept, indent=0) + "\n", encoding="utf-8")
            tell(" ".join(filter(None, (self.folder, "-".join(map(str, name))))))


def run_one(name: Name, policy: str, seed: int) -> dict[str, float]:
    """The figures of one policy, or bound, in one resampling of a cell."""
    made = _workload(name, seed)
    if policy in bounds.FIGURES:
        return rounded(bounds.FIGURES[policy](made))
    run = SlurmSimulator(made.nodes, made.policy(policy), made.site, made.speed).run(made.jobs)
    return rounded(row_of(run, made.nodes))


@lru_cache(maxsize=64)
def _workload(name: Name, seed: int) -> Workload:
    """The same for every policy: to cut a log takes as long as to run it."""
    trace, load, limits = name
    return workload(trace, load, seed, limits)


def rounded(row: dict[str, float]) -> dict[str, float]:
    """As it is kept."""
    return {key: float(f"{value:.6g}") for key, value in row.items()}


def _every_cell() -> tuple[Name, ...]:
    judged = [(trace, load, "drawn") for load in LOADS for trace in TRACES]
    swept = [(trace, SWEPT_LOAD, how) for trace in SWEPT for how in LIMITS if how != "drawn"]
    return (*judged, *swept)


#: Every cell with stock Slurm and every policy. Seed 1 was looked at while sizes were chosen.
FIRST = Round(_every_cell(), ("stock", *registry.names()), tuple(range(101, 111)))

#: The comparisons of the first round in which ours was behind on average by more than the margin.
WERE_BEHIND: tuple[tuple[str, int, str], ...] = (
    ("philly", 90, "bandwidth_share"), ("philly", 95, "wait_p99_s"),
    ("openb", 80, "wait_p99_s"), ("openb", 95, "wait_p99_s"),
    ("mapa-a100-bridged", 80, "wait_mean_s"), ("mapa-a100-bridged", 90, "wait_mean_s"),
    ("sc17", 80, "wait_mean_s"), ("genie", 90, "wait_mean_s"), ("genie", 90, "wait_p99_s"),
)  # fmt: skip
#: Their cells again on seeds that nobody ran before, with whoever was the best in one of their
#: figures; `genie` places as `mapa` there, and `topo-aware` as `topo-aware-p`.
FRESH = Round(
    tuple(dict.fromkeys((trace, load, "drawn") for trace, load, _ in WERE_BEHIND)),
    ("horizon", "mapa", "mapa-preserve", "mapa-preserve-site", "mapa-greedy", "best-fit", "fcfs",
     "topo-aware-p", "stock"),
    tuple(range(301, 341)),
    "fresh",
)  # fmt: skip

#: What the judged cells allow, on the same jobs.
BOUNDS = Round(
    tuple(name for name in FIRST.cells if name[2] == "drawn"),
    tuple(bounds.FIGURES),
    FIRST.seeds,
    "bounds",
)
