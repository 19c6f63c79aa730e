"""Measured step times of six models on 1 to 16 nodes of four T4 GPUs (Pollux, OSDI'21).

The data beside this file are the authors' (Apache-2.0, see NOTICE).
"""

from __future__ import annotations

import gzip
from functools import lru_cache
from importlib import resources

from policies.performance import Run, read_runs

#: The models that were measured.
PROFILES = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")
#: GPUs of a node there.
GPUS_PER_NODE = 4


@lru_cache(maxsize=len(PROFILES))
def runs_of(profile: str) -> tuple[Run, ...]:
    """Every measured run of a model: local batch sizes times placements."""
    runs: list[Run] = []
    for part in ("placements", "scalability"):
        packed = resources.files(__package__).joinpath(f"{profile}-{part}.csv.gz").read_bytes()
        runs += read_runs(gzip.decompress(packed).decode(), f"{profile}-{part}.csv")
    return tuple(runs)
