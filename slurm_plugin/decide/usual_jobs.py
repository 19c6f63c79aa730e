"""What the site usually asks, as `mapa-preserve-site` uses it: given, or learned from the log."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator

from policies.contract.demand import Shares, shares
from slurm_plugin.base import whole_file
from slurm_plugin.base.log_lines import LineReader, Placing
from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.decide.decision_log import rotated
from slurm_plugin.errors import PluginError

logger = logging.getLogger(__name__)

#: The newest part of the decision log that is read: some thousand jobs, a part of a second.
MOST_BYTES = 8 << 20
#: Fewer jobs than this say nothing about the next ones.
FEWEST_JOBS = 50
#: Larger counts are no node's: a damaged line must not decide.
MOST_GPUS = 1024


def learned(log: DecisionLogConfig) -> Shares:
    """Shares by GPUs per node of the jobs in the newest part of the log; () for too few jobs."""
    jobs: dict[int, tuple[int, ...]] = {}
    for line in LineReader().records(_newest(log)):
        if isinstance(line, Placing) and line.job and line.gpus_per_node:
            jobs[line.job] = line.gpus_per_node
    if len(jobs) < FEWEST_JOBS:
        return ()
    sizes = Counter(gpus for counts in jobs.values() for gpus in counts if 0 < gpus <= MOST_GPUS)
    usual = shares(sizes)
    listed = ", ".join(f"{gpus}: {100 * share:.0f} %" for gpus, share in usual)
    logger.info("usual jobs by GPUs per node, of %d in the decision log: %s", len(jobs), listed)
    return usual


def _newest(log: DecisionLogConfig) -> Iterator[bytes]:
    """The lines of the newest `MOST_BYTES`, rotated files too, oldest file first."""
    parts: list[bytes] = []
    left = MOST_BYTES
    for path in rotated(log):
        if left <= 0:
            break
        try:
            with whole_file.opened(path) as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - left))
                parts.append(file.read(left))
        except (OSError, PluginError):
            continue  # never there, rotated away, or closed to this user
        left -= len(parts[-1])
    for part in reversed(parts):
        yield from part.splitlines()
