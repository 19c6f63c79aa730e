"""Which runs: the single-GPU batch sizes, then one batch over nodes and over GPUs per node.

B + N + G runs instead of B x N x G (GENIE, section 5.1.5). The samples per GPU are held
where the paper holds the global batch: see `policies.performance.lightweight`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from policies.performance import INFERENCE, Shape
from slurm_plugin.errors import PluginError

#: Samples per GPU where the user names none; the sweep ends where one GPU holds no more.
BATCHES = (8, 16, 32, 64, 128, 256)
#: Most nodes where the user names none: more change little, and are seldom idle.
NODES = 8
#: Values of one sweep at most.
MOST = 64

WAITING, SUBMITTING, SUBMITTED = "waiting", "submitting", "submitted"
DONE, FAILED, SKIPPED = "done", "failed", "skipped"
#: States in which nothing more happens to a run.
OVER = frozenset((DONE, FAILED, SKIPPED))


class ProfilingRun(msgspec.Struct):
    """One run of the plan, and what came of it."""

    nodes: int
    gpus_per_node: int
    local_batch: int
    state: str = WAITING
    tries: int = 0  # submissions
    failures: int = 0
    job: int = 0
    step_s: float = 0.0  # seconds per iteration
    by: str = ""  # how that is known
    startup_s: float = 0.0  # seconds before the first iteration; 0 where unknown
    note: str = ""  # why it failed or was skipped

    @property
    def shape(self) -> Shape:
        """Nodes and GPUs per node."""
        return Shape(self.nodes, self.gpus_per_node)

    @property
    def is_single(self) -> bool:
        """Whether it is one of the sweep on a single GPU."""
        return self.nodes * self.gpus_per_node == 1

    def __str__(self) -> str:
        return f"{self.shape}, {self.local_batch} per GPU"


def values(text: str, option: str) -> tuple[int, ...]:
    """`1,2,4`, ascending; PluginError for anything else."""
    parts = text.split(",")
    if len(parts) > MOST or not all(re.fullmatch(r"\s*[1-9]\d{0,8}\s*", part) for part in parts):
        raise PluginError(
            f"{option} {text[:60]!r}; expected up to {MOST} whole numbers from 1 such as 1,2,4"
        )
    return tuple(sorted({int(part) for part in parts}))


def within(asked: tuple[int, ...] | None, limit: int, most: int, what: str) -> tuple[int, ...]:
    """What was asked; else powers of two up to the lesser of `limit` and `most`, and this one too.

    PluginError where more was asked than the machine has.
    """
    if asked is not None:
        if asked[-1] > limit:
            raise PluginError(f"{what}: {asked[-1]} asked, the machine has {limit}")
        return asked
    end = min(limit, most)
    powers = {1 << bit for bit in range(end.bit_length())}
    return tuple(sorted({*powers, end}))


def shaped(
    runs: Sequence[ProfilingRun], nodes: Sequence[int], gpus: Sequence[int], task: str
) -> list[ProfilingRun]:
    """The runs over nodes and GPUs per node, at the middle batch that ran; none for inference."""
    ran = sorted({run.local_batch for run in runs if run.is_single and run.state == DONE})
    if task == INFERENCE or not ran:
        return []
    middle = ran[len(ran) // 2]
    return [ProfilingRun(1, count, middle) for count in gpus if count > 1] + [
        ProfilingRun(count, 1, middle) for count in nodes if count > 1
    ]
