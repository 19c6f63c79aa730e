"""A page of 1,000 nodes of eight GPUs, on which something changes each second: its own process.

PYTHONPATH=.:tests/slurm_plugin python tests/slurm_plugin/tell/web/large_site.py PORT
"""

import asyncio
import os
import sys
from dataclasses import dataclass, replace

from web_in_tests import ALICE, BOB, ENGINE, PlayedSlurm, job, node, running

from gres_topology import catalog
from slurm_plugin.decide.machines import Machine
from slurm_plugin.queue.watcher import Watcher
from slurm_plugin.slurm.interface import QueuedJob, SlurmNode
from slurm_plugin.tell.web.decisions import DecisionTail
from slurm_plugin.tell.web.identity import Identities
from slurm_plugin.tell.web.run import address_in, serve
from slurm_plugin.tell.web.sources import Sources
from slurm_plugin.tell.why.state import Extras

NODES, WAITING = 1000, 500
#: The job that comes and goes, with each reading.
GUEST = 900_000


@dataclass
class LargeSlurm(PlayedSlurm):
    """Most nodes are busy; a job of a whole node comes and goes."""

    #: By the clock it could be there at each reading of a page that reads every other second.
    readings: int = 0

    def queue(self) -> list[QueuedJob]:
        self.readings += 1
        guest = running(GUEST + self.readings, ALICE, {"n0001": tuple(range(8))})
        return [*self.jobs, guest] if self.readings % 2 else list(self.jobs)

    def nodes(self) -> list[SlurmNode]:
        used = tuple(range(8)) if self.readings % 2 else ()
        first = replace(self.nodes_[0], used=used, used_by_type={"v100": len(used)})
        return [first, *self.nodes_[1:]]


def site() -> LargeSlurm:
    names = [f"n{number:04d}" for number in range(1, NODES + 1)]
    jobs, nodes = [], []
    for at, name in enumerate(names):
        sizes = [(8,), (4, 2), (4, 4), (2, 2, 1), (4, 3)][at % 5] if at else ()
        first = 0
        for size in sizes:
            gpus = {name: tuple(range(first, first + size))}
            jobs.append(running(len(jobs) + 1, ALICE if at % 2 else BOB, gpus))
            first += size
        parts = ("gpu", f"rack{at // 40:02d}")
        nodes.append(node(name, tuple(range(first)), partitions=parts))
    waiting = [
        job(
            100_000 + number,
            BOB if number % 3 else ALICE,
            priority=WAITING - number,
            tres_per_node=f"gres/gpu:{(8, 4, 8, 2)[number % 4]}",
        )
        for number in range(WAITING)
    ]
    return LargeSlurm([*jobs, *waiting], nodes)


def main(port: int) -> None:
    slurm = site()
    machine = Machine(catalog.load("dgx1v"))
    sources = Sources(
        Watcher(slurm),  # type: ignore[arg-type]
        lambda snapshot: Extras(),
        lambda: ENGINE,
        DecisionTail(None),
        {one.name: machine for one in slurm.nodes_},
    )
    who = Identities(frozenset((os.getuid(),)))
    asyncio.run(serve(sources, who, [address_in(f"127.0.0.1:{port}")]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
