"""How scattered the free GPUs are: the one definition that reports, pages and metrics share.

A node is *of use* to a job that may run there if the job's share of one node could start on it now.

- A free GPU is *stranded* where no job that waits and may run on its node finds the node of use.
  Where no job waits for the node, the usual request stands in: the most common one of the jobs
  that run and may run there. With neither, nothing is stranded.
- *Fragmentation* is the share of the free GPUs that a job cannot use, on average over the jobs
  that wait or run: each node's free GPUs times the share of the jobs, of those that may run
  there, that do not find it of use; over all free GPUs. This is the fragmentation rate F / R of
  Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
  Gradient Descent", USENIX ATC 2023, section 3, with whole GPUs. Its workload is "typical tasks";
  here it is the jobs of the moment, and a job counts only on nodes where it may run at all.

Both are 0 where no GPU is free. So what is stranded depends on what waits, and is lost until a job
ends or a smaller one comes; fragmentation also tells of jobs like those that run now.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Set
from dataclasses import dataclass, field
from typing import TypeVar

R = TypeVar("R", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """What is free, and what of it jobs cannot use where it is."""

    #: GPUs of all nodes.
    total: int = 0
    free: int = 0
    #: Node -> how many of its GPUs are stranded; nodes without any are left out.
    stranded_on: Mapping[str, int] = field(default_factory=dict)
    #: Free GPUs times the share of jobs that cannot use them, over all nodes: F of the paper.
    unusable: float = 0.0
    #: Element k is the number of nodes on which at least k + 1 GPUs are free.
    nodes_with: tuple[int, ...] = ()
    #: Nodes, and GPUs on each, of the largest job that could start; (0, 0) where none can. Of
    #: equally large jobs the one on fewest nodes.
    largest_over_nodes: tuple[int, int] = (0, 0)

    @property
    def stranded(self) -> int:
        """Stranded GPUs of all nodes."""
        return sum(self.stranded_on.values())

    @property
    def share(self) -> float:
        """Fragmentation, from 0 (any job can use every free GPU) to 1 (no job can use one)."""
        return self.unusable / self.free if self.free else 0.0

    @property
    def largest(self) -> int:
        """The most GPUs that are free on one node."""
        return len(self.nodes_with)

    @property
    def by_largest_set(self) -> dict[int, int]:
        """Free GPUs by how many are free on their node: together all that are free."""
        larger = (*self.nodes_with, 0)[1:]
        exactly = (n - more for n, more in zip(self.nodes_with, larger, strict=True))
        return {size: size * nodes for size, nodes in enumerate(exactly, 1) if nodes}


def fragmentation_of(
    free: Mapping[str, int],
    waiting: Mapping[R, int],
    running: Mapping[R, int],
    fits: Callable[[R, str], bool | None],
    total: int = 0,
    together: Callable[[Set[str]], int] = len,
) -> Fragmentation:
    """The figures of nodes on which so many GPUs are `free`; `total` is only passed on.

    `together` says how many of some nodes one job may have, where the network between them bounds
    that.

    Nodes on which no job may start now have nothing free. `waiting` and `running` are kinds
    of jobs, each with how many there are of it; `waiting` are those that lack nothing but
    resources. `fits(kind, node)` says whether one node's share of such a job could start there now;
    None where it may never run there.
    """
    stranded: dict[str, int] = {}
    unusable = 0.0
    for name, count in free.items():
        if not count:
            continue
        wait = _verdicts(waiting, name, fits)
        run = _verdicts(running, name, fits)
        # Of equally common requests the one that can use the node.
        usual = [max(run, key=lambda verdict: (verdict[1], verdict[0]))] if run else []
        asked = wait or usual
        if asked and not any(is_of_use for is_of_use, _ in asked):
            stranded[name] = count
        jobs = sum(times for _, times in wait + run)
        if jobs:
            unusable += count * sum(n for is_of_use, n in wait + run if not is_of_use) / jobs
    most = max(free.values(), default=0)
    nodes = [{name for name, count in free.items() if count >= k} for k in range(1, most + 1)]
    possible = [(together(some), size) for size, some in enumerate(nodes, 1)]
    largest = max(possible, key=lambda job: (job[0] * job[1], -job[0]), default=(0, 0))
    nodes_with = tuple(map(len, nodes))
    return Fragmentation(total, sum(free.values()), stranded, unusable, nodes_with, largest)


def _verdicts(
    kinds: Mapping[R, int], node: str, fits: Callable[[R, str], bool | None]
) -> list[tuple[bool, int]]:
    """(is the node of use to such jobs, how many there are), where they may run there at all."""
    verdicts = ((fits(kind, node), count) for kind, count in kinds.items() if count > 0)
    return [(verdict, count) for verdict, count in verdicts if verdict is not None]


def by_count(free: Mapping[str, int]) -> Callable[[int, str], bool | None]:
    """`fits` for jobs of which no more is known than their GPUs per node."""
    return lambda gpus, node: free[node] >= gpus
