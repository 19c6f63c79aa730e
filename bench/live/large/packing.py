"""packing-live: the mixes of `packing` on 72 real slurmd for each side, both sides at once.

One Slurm with two partitions of 72 nodes in four blocks: in one of them `mode: off` leaves the
choice to stock Slurm, in the other it is ours. Each job is submitted to both at the same moment
and lasts as long, so whatever disturbs the machine disturbs both. A job is an allocation without a
process: what it would compute costs the two cores nothing. PACKING_PAIRS seeds run at once, each
with two partitions of its own. Durations are a twentieth of
`packing`'s, and Slurm's backfill looks every 2 s, as often for them as every 40 s for those. As in
the simulator it keeps nodes free for the first job that waits; PACKING_RESERVE=0: for all of them,
which is Slurm's default. Starts and ends are those of Slurm's accounting, to the second.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.live import shim_log
from bench.live.cluster import ASSETS, BENCH_DIR, BenchCluster, clean
from bench.live.start_many import (
    ALIKE,
    ALL_OF_THEM,
    FIRST_PORT,
    PARTITION,
    TOGETHER,
    ManyNodes,
    many_nodes,
)
from bench.measure import Figure, conditions
from bench.simulated.packing import (
    MACHINE,
    NODES,
    PER_NODE,
    Packed,
    Size,
    figures,
    judged,
    mix,
    topology_conf,
)
from gres_topology import hostlist
from policies import Placement
from simulation.core.jobs import SimJob
from simulation.core.record import Record, SimulatedRun
from slurm_cluster.description import Description
from slurm_cluster.hosts import until

MEAN_S = 30.0
SEEDS, JOBS = 1, 800
TIMEOUT_S = 900
#: side -> what its partitions begin with.
SIDES = {"mapa": "packed", "stock": "plain"}
ENGINE_CONF = "/etc/slurm/gputopo.yaml"
TOPOLOGY_CONF = "/etc/slurm/gputopo-network.conf"
DRIVER = ASSETS / "submit_at.py"
#: On a busy machine a job of a limit near its duration is ended by that limit.
FINE = ("COMPLETED", "TIMEOUT")
_COLUMNS = "JobName,Partition,Submit,Start,End,NodeList,State"


@dataclass(frozen=True)
class PackingNodes(ManyNodes):
    """72 nodes with a slurmd each for either side of each pair."""

    count: int = 2 * NODES
    #: More lines of slurm.conf.
    more_conf: str = ""

    @property
    def pairs(self) -> int:
        """Seeds that run at once."""
        return self.count // (2 * NODES)

    @property
    def machine(self) -> str:
        """Of the catalog."""
        return MACHINE

    @property
    def engine_partitions(self) -> str:
        """Lines of gputopo.yaml's `partitions`."""
        rules = {"stock": '{mode: "off"}', "mapa": "{mode: enforce, policy: mapa}"}
        return "".join(
            f"  {partition_of(side, pair)}: {rule}\n"
            for pair in range(self.pairs)
            for side, rule in rules.items()
        )

    @property
    def partitions(self) -> list[str]:
        """Slurm's names of them; each has as many nodes as the next one, in this order."""
        return [partition_of(side, pair) for pair in range(self.pairs) for side in SIDES]

    def members(self, partition: str) -> list[str]:
        """The names of its nodes."""
        each, at = self.count // len(self.partitions), self.partitions.index(partition)
        return list(hostlist.expand(self.names))[at * each : (at + 1) * each]

    def of(self, side: str, pair: int = 0) -> list[str]:
        """The names of one side's nodes."""
        return self.members(partition_of(side, pair))

    @property
    def alike(self) -> list[tuple[str, str, int]]:
        """Host lists of Slurm's, the machine of each in the catalog, and how many nodes it has."""
        return [(self.names, self.machine, self.count)]

    def _described(self, machine: str, file: str, names: str) -> str:
        # A description has fewer nodes than these.
        text = Description({"one": machine}).files()[f"image/{file}"]
        return text.replace("NodeName=one ", f"NodeName={names} ")

    def slurm_conf(self) -> str:
        """Their lines, with a partition for each side."""
        lines, first = ALL_OF_THEM.format(tree=self.count + 8), FIRST_PORT
        for names, machine, count in self.alike:
            words = self._described(machine, "nodes.conf", names).split(None, 1)[1].strip()
            last = first + count - 1
            lines += ALIKE.format(names=names, first=first, last=last, machine=words)
            first = last + 1
        partitions = {PARTITION: self.names} | {
            partition: ",".join(self.members(partition)) for partition in self.partitions
        }
        lines += "".join(
            TOGETHER.format(name=name, members=members) for name, members in partitions.items()
        )
        return lines + self.more_conf

    @property
    def network(self) -> str:
        """The blocks as the engine knows them; empty for none."""
        return topology_conf([n for pair in range(self.pairs) for n in self.of("mapa", pair)])

    def configure(self, cluster: BenchCluster) -> None:
        """The nodes in slurm.conf, gres.conf and gputopo.yaml, until the next reset."""
        cluster.put("ctl", "/cluster/extra.conf", self.slurm_conf())
        gres = "".join(self._described(kind, "gres.conf", names) for names, kind, _ in self.alike)
        cluster.put("ctl", "/tmp/gres", gres)
        cluster.sh("clusterctl configure gputopo; cat /tmp/gres >>/cluster/gres.conf")
        text = cluster.read("ctl", ENGINE_CONF)
        nodes = "\n".join(
            f'  - {{nodes: "{names}", topology: {kind}}}' for names, kind, _ in self.alike
        )
        for key, lines in (("nodes", nodes), ("partitions", self.engine_partitions.rstrip())):
            text = re.sub(
                f"^{key}:.*", lambda found, more=lines: f"{found[0]}\n{more}", text, flags=re.M
            )
        if self.network:
            cluster.put("ctl", TOPOLOGY_CONF, self.network)
            text += f"topology_conf: {TOPOLOGY_CONF}\n"
        cluster.put("ctl", ENGINE_CONF, text)
        cluster.sh("clusterctl engine restart")


def partition_of(side: str, pair: int = 0) -> str:
    """Slurm's name of it."""
    return f"{SIDES[side]}{pair + 1}"


def backfill() -> str:
    """SchedulerParameters of both sides."""
    reserve = int(os.environ.get("PACKING_RESERVE", "1"))
    more = f",bf_job_part_count_reserve={reserve}" if reserve else ""
    return f"SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=2{more}\n"


def schedule(mixes: Sequence[Sequence[SimJob]], run_name: str) -> str:
    """For the driver: when to submit what, a mix for each pair, both sides of a job together."""
    lines = []
    for pair, jobs in enumerate(mixes):
        for job in jobs:
            nodes, gpus = len(job.gpus_per_node), job.gpus_per_node[0]
            limit = max(1, math.ceil((job.walltime_s or job.duration_s) / 60))
            asked = [f"-N{nodes}", f"-n{nodes}", "--mem=10", f"--gres=gpu:{gpus}", f"-t{limit}"]
            line = {"at_s": job.submit_s, "hold_s": round(job.duration_s, 2)}
            for side in SIDES:
                where = ["-p", partition_of(side, pair), "-J", f"{run_name}-{job.job_id}"]
                lines.append(line | {"command": ["salloc", "--no-shell", *asked, *where]})
    lines.sort(key=lambda line: line["at_s"])
    return "\n".join(map(json.dumps, lines)) + "\n"


def driven(
    cluster: BenchCluster, run_name: str, lines: str, files: Mapping[str, str] | None = None
) -> float:
    """alice submits what the schedule's lines say; by how much the latest was late (s).

    `files`: text by name, put beside the schedule.
    """
    # Too long for an argument of a command.
    with tempfile.TemporaryDirectory(prefix="gputopo-bench-") as folder:
        texts = {DRIVER.name: DRIVER.read_text(), run_name: lines, **(files or {})}
        for name, text in texts.items():
            Path(folder, name).write_text(text)
        cluster.put_folder("ctl", BENCH_DIR, Path(folder), user="alice")
    command = f"python3 {BENCH_DIR}/{DRIVER.name} {BENCH_DIR}/{run_name}"
    return float(cluster.sh(command, user="alice").strip())


def ended(
    cluster: BenchCluster, run_name: str, count: int, fine: Sequence[str] = FINE
) -> list[dict[str, str]]:
    """Slurm's accounting of the run's jobs, once all have ended, in these states."""
    found: list[dict[str, str]] = []

    def all_there() -> bool:
        text = cluster.sh(
            "SLURM_TIME_FORMAT=%s sacct -a -X -n -P -S now-2hours --user alice"
            f" -o {_COLUMNS} | grep '^{run_name}-' || true"
        )
        rows = [
            dict(zip(_COLUMNS.split(","), line.split("|"), strict=True))
            for line in text.splitlines()
        ]
        found[:] = [row for row in rows if row["End"].isdigit()]
        return len(found) == count

    until(all_there, lambda: f"{len(found)} of {count} jobs ended", 120)
    bad = [row for row in found if row["State"].split()[0] not in fine]
    if bad:
        raise RuntimeError(f"{len(bad)} jobs did not complete, such as {bad[0]}")
    return found


def records(rows: Sequence[dict[str, str]], jobs: Sequence[SimJob], partition: str) -> list[Record]:
    """The jobs of one side as the simulator would have recorded them, the first submit at 0.

    Which GPUs of a node a job had is not asked here: all sets are alike.
    """
    by_number = {job.job_id: job for job in jobs}
    first = min(int(row["Submit"]) for row in rows)
    made = []
    for row in rows:
        if row["Partition"] != partition:
            continue
        job = by_number[int(row["JobName"].rpartition("-")[2])]
        gpus = tuple(range(job.gpus_per_node[0]))
        nodes = hostlist.expand(row["NodeList"])
        if len(nodes) != len(job.gpus_per_node):
            raise RuntimeError(f"{row}: expected {len(job.gpus_per_node)} nodes")
        seen = SimJob(job.job_id, job.gpus_per_node, job.duration_s, int(row["Submit"]) - first)
        placement = Placement(dict.fromkeys(nodes, gpus), partition, "")
        made.append(Record(seen, int(row["Start"]) - first, int(row["End"]) - first, placement))
    return made


def run_seeds(
    cluster: BenchCluster, nodes: PackingNodes, mixes: Sequence[Sequence[SimJob]]
) -> tuple[list[dict[str, SimulatedRun]], float]:
    """Both sides' runs of each pair's jobs, and by how much the latest submit was late (s)."""
    run_name = f"p{time.monotonic_ns()}"
    late = driven(cluster, run_name, schedule(mixes, run_name))
    # What happens after the last submit and the last start is not looked at.
    cluster.sh("scancel -u alice")
    until(lambda: not cluster.sh("squeue -h -u alice -o %A"), "alice has no job", TIMEOUT_S)
    rows = ended(cluster, run_name, 2 * sum(map(len, mixes)), (*FINE, "CANCELLED"))
    runs = []
    for pair, jobs in enumerate(mixes):
        made = {side: records(rows, jobs, partition_of(side, pair)) for side in SIDES}
        runs.append({side: SimulatedRun(side, made[side], gpus=NODES * PER_NODE) for side in SIDES})
    return runs, late


def measure(cluster: BenchCluster, size: Size) -> Iterator[Figure]:
    """From the first slurmd to the last job; the cluster is to be reset afterwards."""
    pairs = int(os.environ.get("PACKING_PAIRS", "1"))
    nodes = PackingNodes(2 * NODES * pairs, more_conf=backfill())
    nodes.configure(cluster)
    with many_nodes(cluster, nodes):
        for load, seeds in size.cells:
            runs: dict[str, list[Packed]] = {side: [] for side in SIDES}
            late_s = []
            with cluster.slurmctld_log_of() as log:
                for first in range(0, len(seeds), pairs):
                    some = seeds[first : first + pairs]
                    mixes = [mix(seed, size.jobs, load, MEAN_S) for seed in some]
                    seen, late = run_seeds(cluster, nodes, mixes)
                    late_s.append(late)
                    for pair, found in enumerate(seen):
                        for side in SIDES:
                            made = judged(found[side], nodes.of(side, pair), MEAN_S)
                            runs[side].append(made)
            yield from figures("packing_live", load, runs)
            asked = shim_log.results(shim_log.read(log))
            detail = {"plugin_results": asked, **conditions()}
            yield Figure(
                f"packing_live.{100 * load:.0f}.latest_submit", max(late_s), "s late", detail=detail
            )


def run() -> Iterator[Figure]:
    """Of the size that the environment says."""
    with clean() as cluster:
        yield from measure(cluster, Size.from_environment(SEEDS, JOBS))
