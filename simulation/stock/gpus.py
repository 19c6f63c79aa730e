"""Which GPUs of a chosen node a job gets, and which of its cores.

A model of Slurm's `_cyclic_sync_core_bitmap`, `_set_node_bits` (`--gres`), `_set_job_bits1` and
`_set_job_bits2` (`--gpus`), of 24.11. gres.conf's Links come in by `_pick_gres_topo`, which sorts
the GPUs by their links to those taken already, fewest first, and skips the first of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulation.stock.nouns import StockMachine, StockNode


def cores_taken(usable: Sequence[int], cpus: int, cpus_per_task: int) -> tuple[int, ...]:
    """Cores by socket, dealt out in turn; those of a task of several CPUs on one socket."""
    left, taken = list(usable), [0] * len(usable)
    if cpus_per_task > 1:
        for socket, cores in enumerate(left):
            gone = min(cpus, cores - cores % cpus_per_task)
            taken[socket] += gone
            left[socket] -= gone
            cpus -= gone
    while cpus > 0 and any(left):
        for socket in range(len(left)):
            if left[socket] and cpus > 0:
                taken[socket] += 1
                left[socket] -= 1
                cpus -= 1
    return tuple(taken)


class Picker:
    """Takes GPUs of one node for one job."""

    def __init__(self, node: StockNode, cores: Sequence[int]) -> None:
        """`cores` are those that the job has, by socket."""
        self.machine: StockMachine = node.machine
        self.free = node.free
        self.taken = 0
        self.cores = cores
        count = self.machine.gpus
        self._order = list(range(count))
        self._links = [0] * count

    def of_node(self, wanted: int) -> int:
        """As for `--gres=gpu:N`: GPUs in proportion to the cores, then what else there is."""
        machine, needed = self.machine, wanted
        used = [socket for socket, cores in enumerate(self.cores) if cores]
        other = [socket for socket, cores in enumerate(self.cores) if not cores]
        by_links = bool(machine.links)
        for socket in used:
            share = min(needed, _share(wanted, self.cores, socket))
            needed -= self._pick(machine.sockets[socket], share, by_links)
        for mask in (machine.anywhere, *(machine.sockets[socket] for socket in (*used, *other))):
            needed -= self._pick(mask, needed, by_links)
        return self.taken

    def of_job(self, most: int, total: int, got: int, nodes_left: int) -> int:
        """As for `--gpus=N`: how many; with Links all of the sockets, less those linked worst."""
        machine = self.machine
        most = min(total - got - (nodes_left - 1), most)
        # 65534 stands for "all" in Slurm; what matters is that every GPU of a socket is taken.
        wanted = 65534 if most > 1 and machine.links else max(most, 1)
        used = [socket for socket, cores in enumerate(self.cores) if cores]
        count = 0
        for socket in used:
            share = min(wanted - count, _share(wanted, self.cores, socket))
            count += self._pick(machine.sockets[socket], share)
        for mask in (machine.anywhere, *(machine.sockets[socket] for socket in used)):
            count += self._pick(mask, wanted - count)
        for socket, mask in enumerate(machine.sockets):
            if not count and socket not in used:
                count += self._pick(mask, 1)
        if count > most:
            count -= self._drop_worst(count - most)
        return count

    def rest_of_job(self, wanted: int) -> int:
        """GPUs beyond the job's sockets, where `of_job` left some to be found; how many."""
        machine, before = self.machine, self.taken.bit_count()
        if machine.links:
            for gpu in self._held():
                self._count_links(gpu)
            self._sort()
        for mask in (*machine.sockets, machine.anywhere):
            wanted -= self._pick(mask, wanted, by_links=bool(machine.links))
        return self.taken.bit_count() - before

    def _held(self) -> list[int]:
        return [gpu for gpu in range(self.machine.gpus) if self.taken >> gpu & 1]

    def _pick(self, among: int, wanted: int, by_links: bool = False) -> int:
        """Takes up to `wanted` free GPUs of a mask; how many."""
        left, at = wanted, 0
        while at < len(self._order) and left > 0:
            gpu = self._order[at] if by_links else at
            bit = 1 << gpu
            if bit & among & self.free & ~self.taken:
                self.taken |= bit
                left -= 1
                if by_links:
                    self._count_links(gpu)
                    self._sort()
                    at = 0  # and so, since it is raised below, the first is never looked at again
            at += 1
        return wanted - left

    def _count_links(self, gpu: int) -> None:
        for other, links in enumerate(self.machine.links[gpu]):
            if other != gpu and self.free >> other & 1:
                self._links[other] += links

    def _sort(self) -> None:
        self._order.sort(key=lambda gpu: self._links[gpu])

    def _drop_worst(self, surplus: int) -> int:
        """Gives back GPUs with the fewest links to one of the best linked pair; how many."""
        links, held = self.machine.links, self._held()
        best, centre = -1, -1
        for at, gpu in enumerate(held):
            for other in held[at + 1 :]:
                if links[gpu][other] > best:
                    best, centre = links[gpu][other], gpu
        if centre < 0:
            return 0
        for _ in range(surplus):
            worst = min((g for g in self._held() if g != centre), key=lambda g: links[centre][g])
            self.taken &= ~(1 << worst)
        return surplus


def _share(wanted: int, cores: Sequence[int], socket: int) -> int:
    """GPUs in proportion to the cores on a socket, in Slurm's own precision."""
    per_core = np.float32(wanted) / np.float32(sum(cores))
    return int(np.float32(cores[socket]) * per_core)
