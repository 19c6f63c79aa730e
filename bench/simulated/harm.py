"""harm: whether jobs wait longer under the default policy than under best-fit or stock Slurm.

Simulated, on some of the workloads of papers/experiments/harm; the three policies have the same
jobs, seed by seed. Its seeds are used for nothing else, so nothing was fitted to them. The first
tenth of the jobs, of which run times are learned, do not count; `cold` counts them.
HARM_WORKLOADS (names, by commas), HARM_SEEDS and HARM_JOBS make it another size.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from bench.measure import Figure, at_most
from papers.experiments.harm.judging import OURS, Row, beside, run_one

FIRST_SEED, SEEDS, JOBS = 9001, 16, 2000
OTHERS = ("best-fit", "stock")
CASES = ("h100-l40s", "h100-l40s-quiet", "dgx1v-pairs", "hgx", "dgx1v-quiet", "mi250x-quiet",
         "dgx1v-day", "bridged-bursts", "several-nodes")  # fmt: skip
#: How many times as long the mean wait may be: when run times are known, and from the start.
MOST, MOST_COLD = 1.05, 1.07
#: Intervals miss the truth with this probability.
ERROR = 0.05


def figures(name: str, rows: Mapping[str, Sequence[Row]], seeds: Sequence[int]) -> Iterator[Figure]:
    """Ours beside each of the others on one workload."""
    for other in OTHERS:
        for key, end, most in (("wait_s", "", MOST), ("cold_wait_s", ".cold", MOST_COLD)):
            found = beside(rows[OURS], rows[other], key, ERROR)
            detail = {
                "interval": [round(found.ratio + sign * found.half, 4) for sign in (-1, 1)],
                "wait_s": {OURS: round(found.ours, 1), other: round(found.theirs, 1)},
                "seeds": [seeds[0], seeds[-1]],
            }
            figure = f"harm.{name}.{other}{end}"
            yield at_most(
                figure, found.ratio, f"of the mean wait under {other}", most, detail=detail
            )
    shares = {
        side: round(fmean(row["share"] for row in some), 4)
        for side, some in rows.items()
        if all("share" in row for row in some)
    }
    if shares:
        beside_ours = ", ".join(f"{other}: {shares[other]:.4f}" for other in OTHERS)
        yield Figure(
            f"harm.{name}.bandwidth", shares[OURS], "share of the ideal", compared_with=beside_ours
        )


def run() -> Iterator[Figure]:
    """Workload by workload."""
    count = int(os.environ.get("HARM_SEEDS", SEEDS))
    jobs = int(os.environ.get("HARM_JOBS", JOBS))
    seeds = range(FIRST_SEED, FIRST_SEED + count)
    for name in os.environ.get("HARM_WORKLOADS", ",".join(CASES)).split(","):
        rows = {
            side: [run_one(name, side, seed, jobs) for seed in seeds] for side in (OURS, *OTHERS)
        }
        yield from figures(name, rows, seeds)
