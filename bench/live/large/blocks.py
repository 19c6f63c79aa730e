"""blocks-live: the mixes of `blocks` on 72 real slurmd for each side, both sides at once.

One Slurm under topology/block: each side has a partition of four domains of eighteen nodes. As in
`packing-live` each job is submitted to both at the same moment and lasts as long; here in one of
them `mode: off` leaves the choice to stock Slurm's topology/block.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from bench.live import shim_log
from bench.live.cluster import BenchCluster, clean
from bench.live.large.packing import PackingNodes, run_seeds
from bench.live.start_many import many_nodes
from bench.measure import Figure, conditions
from bench.simulated import blocks

#: Slurm's accounting is to the second.
MEAN_S = 15.0
#: Where slurmctld reads it, and where every slurmd of the container finds it.
SLURMS = ("/etc/slurm/topology.conf", "/cluster/topology.conf")


@dataclass(frozen=True)
class BlockNodes(PackingNodes):
    """144 nodes of four GPUs, in four domains for each side."""

    @property
    def machine(self) -> str:
        """Of the catalog."""
        return blocks.MACHINE

    @property
    def network(self) -> str:
        """All blocks: Slurm and the engine go by the same file."""
        return blocks.topology_conf([*self.of("mapa"), *self.of("stock")])

    def slurm_conf(self) -> str:
        """The same, with Slurm's topology plugin."""
        return f"{super().slurm_conf()}TopologyPlugin=topology/block\n"

    def configure(self, cluster: BenchCluster) -> None:
        """As packing's; slurmctld does not start without the file."""
        for path in SLURMS:
            cluster.put("ctl", path, self.network)
        super().configure(cluster)


def measure(cluster: BenchCluster) -> Iterator[Figure]:
    """From the first slurmd to the last job; the cluster is to be reset afterwards."""
    first = int(os.environ.get("BLOCKS_FIRST_SEED", "1"))
    nodes, seeds = BlockNodes(), range(first, first + int(os.environ.get("BLOCKS_SEEDS", "2")))
    count, load = int(os.environ.get("BLOCKS_JOBS", "250")), 0.6
    runs: dict[str, list[blocks.Kept]] = {side: [] for side in blocks.SIDES}
    late_s = []
    nodes.configure(cluster)
    with many_nodes(cluster, nodes), cluster.slurmctld_log_of() as log:
        for seed in seeds:
            mixes = [blocks.mix(seed, count, load, MEAN_S)]
            [seen], late = run_seeds(cluster, nodes, mixes)
            late_s.append(late)
            for side, of in (("ours", "mapa"), ("stock", "stock")):
                runs[side].append(blocks.judged(seen[of], nodes.of(of), MEAN_S))
    yield from blocks.figures(load, runs, "blocks_live")
    asked = shim_log.results(shim_log.read(log))
    detail = {"plugin_results": asked, **conditions()}
    yield Figure("blocks_live.latest_submit", max(late_s), "s late", detail=detail)


def run() -> Iterator[Figure]:
    """BLOCKS_SEEDS (2) seeds from BLOCKS_FIRST_SEED (1) on, of BLOCKS_JOBS (250) jobs."""
    with clean() as cluster:
        try:
            yield from measure(cluster)
        finally:
            cluster.sh(f"rm -f {' '.join(SLURMS)}")
