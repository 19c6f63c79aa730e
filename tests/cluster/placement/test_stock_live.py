"""The model of stock Slurm's choice against Slurm itself, on random states of the cluster.

A state is what is left when a random part of the jobs has ended. In each of them some jobs are
asked for, one after the other; nodes, GPU ids and the cores of each socket are compared.

With GPUTOPO_RECORD=FILE the long test takes fewer states and adds what Slurm chose to the file:
tests/simulation/stock reads such a one.
"""

import json
import os
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from live_harness import MACHINES, topology_of

from simulation.stock import Ask, NodeOrder, StockNode, Taken, choose, machine_of
from slurm_cluster.cluster import Cluster
from slurm_cluster.description import CORES_PER_GPU
from slurm_cluster.hosts import until
from slurm_cluster.slurm_text import Job, parse_jobs

pytestmark = [pytest.mark.cluster]

#: Jobs asked for in each state.
ASKS = 6
SERIAL = "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,pack_serial_at_end"
LEAST_LOADED = "SelectTypeParameters=CR_Core_Memory,CR_LLN"
RECORD = os.environ.get("GPUTOPO_RECORD", "")
#: States of each site that are recorded.
RECORDED = 8
WAIT = 'until [ -z "$(squeue -h -t completing)" ]; do sleep 0.02; done'


@dataclass(frozen=True)
class Site:
    """How Slurm is configured, and the random states that it is looked at in."""

    seed: int
    states: int
    slurm_conf: str = ""
    has_links: bool = True
    order: NodeOrder = NodeOrder.BEST_FIT
    weights: dict[str, int] = field(default_factory=dict)


SHORT = Site(seed=20_261_123, states=40)
#: 1,000 states in all. Seeds 1 to 10 are those that the model was mended by.
LONG = {
    "Links": Site(11, 300),
    "no Links": Site(12, 200, "# nodes read their files again", has_links=False),
    "weights": Site(13, 200, weights={"dgx1": 3, "dgx2": 1, "amd1": 3, "minsky1": 2}),
    "CR_LLN": Site(14, 150, LEAST_LOADED, order=NodeOrder.LEAST_LOADED),
    "pack_serial_at_end": Site(15, 150, SERIAL, order=NodeOrder.SERIAL_AT_END),
}


@contextmanager
def stock(cluster: Cluster, site: Site) -> Iterator[None]:
    """A block with nothing of ours in Slurm, configured as this site is."""
    with cluster.at_home(variant="stock", slurm_conf=site.slurm_conf, engine=False):
        if not site.has_links:
            without_links(cluster)
        weigh(cluster, site.weights)
        yield
        weigh(cluster, dict.fromkeys(site.weights, 1))


def without_links(cluster: Cluster) -> None:
    """Takes Links out of gres.conf until the next reset."""
    since = int(cluster.run("ctl", "date +%s").out)
    cluster.run("ctl", "sed -i 's/ Links=[^ ]*//' /cluster/gres.conf; sleep 1")
    cluster.reconfigure()

    def is_read() -> bool:
        shown = cluster.run("ctl", "scontrol show node").out
        times = re.findall(r"SlurmdStartTime=(\S+)", shown)
        if len(times) < len(MACHINES) or "None" in times:
            return False
        oldest = cluster.run("ctl", ["date", "-d", min(times), "+%s"]).out
        return int(oldest) > since and shown.count("State=IDLE ") == len(MACHINES)

    until(is_read, "every node has read gres.conf without Links", 60)


def weigh(cluster: Cluster, weights: dict[str, int]) -> None:
    """Gives nodes these weights."""
    for node, weight in weights.items():
        cluster.run("ctl", f"scontrol update nodename={node} weight={weight}")


class States:
    """Random states of a cluster, and what Slurm and the model make of random jobs in them."""

    def __init__(self, cluster: Cluster, site: Site) -> None:
        self.cluster, self.site = cluster, site
        self.draw = random.Random(site.seed)
        self.machines = {
            node: machine_of(topology_of(node), CORES_PER_GPU, has_links=site.has_links)
            for node in sorted(MACHINES)
        }
        self.running: dict[int, dict[str, Taken]] = {}
        self.asked = self.refused = 0
        self.wrong: list[str] = []
        self.records: list[str] = []

    def next(self) -> None:
        """Ends some jobs, asks for others, and compares."""
        ended = [job for job in self.running if self.draw.random() < self.share]
        asks = [self.ask() for _ in range(ASKS)]
        lines = [
            f"salloc --no-shell -Q --immediate -J {at} {options(ask)}"
            for at, ask in enumerate(asks)
        ]
        shell = [f"scancel {' '.join(map(str, ended))}", WAIT] if ended else []
        shell += [*lines, "scontrol show job -d"]
        output = self.cluster.run("ctl", "; ".join(shell), user="alice", check=False).out
        for job in ended:
            del self.running[job]
        got = {
            int(job.fields["JobName"]): job
            for job in parse_jobs(output)
            if job.state == "RUNNING" and job.id not in self.running
        }
        for at, ask in enumerate(asks):
            self.compare(ask, got.get(at))

    @property
    def share(self) -> float:
        return self.draw.choice((0.2, 0.5, 0.9))

    def ask(self) -> Ask:
        """A random job."""
        draw = self.draw
        is_total, nodes = draw.random() < 0.5, draw.choice((0, 0, 0, 1, 1, 2, 3))
        gpus = draw.choice((1, 1, 1, 2, 2, 3, 4, 5, 6, 8))
        if is_total:
            gpus = max(gpus, nodes)
        per_task, per_gpu = draw.choice(((1, 0), (1, 0), (1, 0), (2, 0), (4, 0), (1, 1), (1, 2)))
        return Ask(gpus, nodes, is_total, per_task, per_gpu)

    def compare(self, ask: Ask, job: Job | None) -> None:
        """Notes where the model differs; the state goes on with what Slurm did."""
        nodes = [self.state_of(node) for node in self.machines]
        by_model = choose(ask, nodes, self.site.order)
        by_slurm = None if job is None else self.taken(job)
        self.asked += 1
        self.refused += by_slurm is None
        self.records.append(recorded(ask, nodes, by_slurm, self.site))
        if by_model != by_slurm:
            self.wrong.append(f"{ask} in {nodes}: {by_slurm}, model {by_model}")
        if job is not None and by_slurm is not None:
            self.running[job.id] = by_slurm

    def state_of(self, node: str) -> StockNode:
        machine = self.machines[node]
        held = [taken[node] for taken in self.running.values() if node in taken]
        free = (1 << machine.gpus) - 1 - sum(taken.gpus for taken in held)
        cores = [machine.cores_per_socket] * len(machine.sockets)
        for taken in held:
            cores = [has - gone for has, gone in zip(cores, taken.cores, strict=True)]
        return StockNode(node, machine, free, tuple(cores), self.site.weights.get(node, 1))

    def taken(self, job: Job) -> dict[str, Taken]:
        result = {}
        for node, cores in job.cores.items():
            machine = self.machines[node]
            held = [0] * len(machine.sockets)
            for core in cores:
                held[core // machine.cores_per_socket] += 1
            result[node] = Taken(sum(1 << gpu for gpu in job.gpus.get(node, ())), tuple(held))
        return result


def recorded(ask: Ask, nodes: list[StockNode], got: dict[str, Taken] | None, site: Site) -> str:
    """A choice of Slurm's as a line of JSON."""
    return json.dumps(
        {
            "ask": [ask.gpus, ask.nodes, ask.is_total, ask.cpus_per_task, ask.cpus_per_gpu],
            "order": site.order.value,
            "links": site.has_links,
            "nodes": {node.name: [node.free, node.cores, node.weight] for node in nodes},
            "got": got and {name: [taken.gpus, taken.cores] for name, taken in got.items()},
        }
    )


def agrees(cluster: Cluster, site: Site) -> None:
    """Every choice of a site's states is the model's."""
    if cluster.release != (24, 11):
        pytest.skip("the model is of Slurm 24.11")
    with stock(cluster, site):
        states = States(cluster, site)
        for _ in range(RECORDED if RECORD else site.states):
            states.next()
    if RECORD:
        with open(RECORD, "a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in states.records)
    assert states.asked - states.refused > 2 * ASKS, "next to nothing was placed"
    assert not states.wrong, f"{len(states.wrong)} of {states.asked}:\n" + "\n".join(states.wrong)


def test_stock_slurm_chooses_as_the_model_does(live):
    agrees(live, SHORT)


@pytest.mark.long("a thousand states: seven minutes")
@pytest.mark.parametrize("site", LONG.values(), ids=[re.sub(r"\W+", "-", name) for name in LONG])
def test_so_it_does_on_a_thousand_states(live, site):
    agrees(live, site)


def options(ask: Ask) -> str:
    """The job as options of salloc."""
    words = [f"--gpus={ask.gpus}" if ask.is_total else f"--gres=gpu:{ask.gpus}"]
    words += [f"-N{ask.nodes}"] if ask.nodes else []
    words += [f"-c{ask.cpus_per_task}"] if ask.cpus_per_task > 1 else []
    words += [f"--cpus-per-gpu={ask.cpus_per_gpu}"] if ask.cpus_per_gpu else []
    return " ".join(words)
