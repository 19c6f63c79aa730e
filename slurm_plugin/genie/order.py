"""The queue's order as site factors: shaped jobs exchange their priorities among themselves.

The set of their priorities stays what Slurm's multifactor plugin made it (age, fair share, quality
of service), so against all other jobs the group stands where it stood; within it the scheduler's
order counts. Jobs of equal priority get one point of difference each, downwards where there is
room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

#: What scontrol takes (NICE_OFFSET - 3).
MOST = 2**31 - 3
#: 0 would hold a job.
LEAST = 1


def site_factors(
    order: Sequence[int], priority: Mapping[int, int], site: Mapping[int, int]
) -> dict[int, int]:
    """New site factors by job, of those that must change; `order`: who goes first stands first.

    `priority` is Slurm's now, `site` the factor in it (0 where missing). Empty where Slurm's order
    is the wanted one already.
    """
    now = [priority[job] for job in order]
    if all(one > other for one, other in pairwise(now)):
        return {}
    base = {job: priority[job] - site.get(job, 0) for job in order}
    targets: list[int] = []
    for own in sorted(base.values(), reverse=True):
        targets.append(min(own, targets[-1] - 1) if targets else own)
    if targets and targets[-1] < LEAST:
        targets = [target + LEAST - targets[-1] for target in targets]
    wanted = {
        job: max(-MOST, min(MOST, target - base[job]))
        for job, target in zip(order, targets, strict=True)
    }
    return {job: factor for job, factor in wanted.items() if factor != site.get(job, 0)}
