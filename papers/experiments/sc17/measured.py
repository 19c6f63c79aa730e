"""sc17-profile: Figures 4 and 6 from the authors' own profile, which is of other runs than these.

It has jobs of two GPUs alone, on one socket and across both, and beside one other such job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from papers.experiments import Result
from papers.experiments.sc17 import loaded
from papers.experiments.sc17.profile import INTER, INTRA

ALEXNET = "bvlc_alexnet"
#: Row of the jobs that share the machine.
BESIDE = f"{ALEXNET} beside {ALEXNET}"
#: Section 3.2 ("AlexNet with a batch equals one"), section 3.3 (up to 30 %; 24 and 21 % where the
#: first job has a big batch and the second a tiny or a small one).
PAPER: Mapping[str, Mapping[str, float | None]] = {
    ALEXNET: {"batch_1_pack_speedup": 1.27},
    BESIDE: {
        f"{pair}_over_{alone}": value
        for pair, value in (("1_beside_1", 1.30), ("128_beside_1", 1.24), ("128_beside_4", 1.21))
        for alone in ("spread", "packed")
    },
}


def _pairs(profile: Mapping[str, Any]) -> Mapping[str, float]:
    pairs: Mapping[str, float] = profile["num_gpus"]["2"]
    return pairs


def run(seeds: Sequence[int]) -> Result:
    """The experiment; it draws nothing, so seeds change nothing."""
    data = loaded("prof_from_experiments_full")
    measured: dict[str, dict[str, float | None]] = {
        network: {
            f"batch_{batch}_pack_speedup": _pairs(profile)[INTER] / _pairs(profile)[INTRA]
            for batch, profile in sorted(batches.items(), key=lambda item: int(item[0]))
        }
        for network, batches in data["solo"].items()
    }
    measured[BESIDE] = _beside(data)
    return Result("sc17-profile", (), measured, PAPER, _NOTES)


def _beside(data: Mapping[str, Any]) -> dict[str, float | None]:
    """Seconds of one job beside another over those alone, across the sockets and on one."""
    row: dict[str, float | None] = {}
    for batch, profile in data["collocation"][ALEXNET].items():
        alone = _pairs(data["solo"][ALEXNET][batch])
        for other, counts in profile["num_gpus"]["2"][ALEXNET].items():
            seconds = float(counts["num_gpus"]["2"])
            row[f"{batch}_beside_{other}_over_spread"] = seconds / alone[INTER]
            row[f"{batch}_beside_{other}_over_packed"] = seconds / alone[INTRA]
    return row


_NOTES = (
    "Seconds of the authors' published profile, of jobs of two GPUs; batches of 1, 4, 64 and 128,"
    " where the figures have eight from 1 to 128. pack_speedup is the time across the sockets over"
    " that on one socket.",
    "Section 3.3 does not say how the collocated jobs were placed, nor against which placement the"
    " slowdown is taken. Against the job alone across the sockets two tiny jobs do not slow each"
    " other at all in the profile; against the job alone on one socket they do, by what being"
    " across the sockets costs.",
    "Entries of jobs of unequal length (batch 1 beside 64 or 128) mix both jobs' times, which is"
    " why the simulations hold every slowdown to 1.30.",
)
