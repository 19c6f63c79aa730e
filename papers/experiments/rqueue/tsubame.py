"""rqueue-tsubame, -histograms and -shrink: sections IV.C and IV.D on the synthetic year."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from papers.experiments import Result
from papers.experiments.experiment import averaged
from papers.experiments.rqueue.decreases import MINUTE_S, histograms, moments
from papers.experiments.rqueue.middleware import PAPER_WIRES, PAPERS, told, wires_of
from papers.experiments.rqueue.workload import NODES, YEARS, jobs, nodes, pool
from papers.simulators.loans import Ended
from papers.simulators.queued_loans import QueuedLoanJob, QueuedLoanSimulator
from papers.simulators.queues import AutoRQueue, GQueue
from policies import Wait
from policies.remote import NodeCapacity
from policies.remote.capacity import Capacities
from policies.remote.jobs import Answer, RemoteJob
from policies.remote.r_queue import (
    LEAST_OCCUPIED,
    LOCAL_FIRST,
    NetworkSpeeds,
    RQueue,
)
from policies.remote.r_queue.queues import empty_nodes
from simulation.core.steps import each


@dataclass(frozen=True, slots=True)
class PrintedRQueue(RQueue):
    """Figure 6 to the letter: its loop over donors ends after the first GPU.

    `break` and the test for too few GPUs stand inside that loop. So a process of two GPUs or more
    finds no place outside a whole node, and its job is put back.
    """

    donors: str = LEAST_OCCUPIED

    def decide(self, job: RemoteJob, left: Capacities, running: Mapping[str, int]) -> Answer:
        """A place, or a wait; nothing is changed."""
        empty = empty_nodes(job, left, running)
        if any(gpus > 1 for gpus in job.request.gpus_per_node[len(empty) :]):
            return Wait("a process of two GPUs or more has no whole node")
        return RQueue.decide(self, job, left, running)


G_QUEUE, SHARED = "g-queue", "nodes shared, nothing remote"
PRINTED = "r-queue, Figure 6 to the letter"
R_QUEUE, OURS = "r-queue, the paper's donors", "r-queue, local first"
IDLE_DONORS = "r-queue, a node that only lends runs nothing"
AUTO = "r-queue, local first, only where it gains"
BOUND = "bound: one pool of all GPUs"
QUEUES: dict[str, GQueue | RQueue | AutoRQueue] = {
    G_QUEUE: GQueue(),
    SHARED: RQueue(LEAST_OCCUPIED, remote=False),
    PRINTED: PrintedRQueue(),
    R_QUEUE: RQueue(LEAST_OCCUPIED),
    IDLE_DONORS: RQueue(LEAST_OCCUPIED, lending_counts=False),
    OURS: RQueue(LOCAL_FIRST),
    AUTO: AutoRQueue(RQueue(LOCAL_FIRST)),
}
#: Section IV.C.
PAPER = {
    G_QUEUE: {"idle_gpus": 78.02},
    R_QUEUE: {
        "wait_decrease_percent": 25.24,
        "execution_increase_percent": 0.03,
        "life_decrease_percent": 5.06,
        "idle_gpus": 66.56,
        "waiting_longer_percent": 0.81,
        "waiting_longer_s": 3.51 * MINUTE_S,
    },
}
#: Table III: nodes -> mean and standard deviation over the jobs, seconds, of the decrease of the
#: wait, the execution time and the lifetime against the G queue on 480 nodes.
TABLE_3 = {
    450: ((-901.49, 4236.04), (-5.81, 39.46), (-907.29, 4238.53)),
    460: ((-32.87, 3654.48), (-4.55, 35.27), (-37.42, 3651.69)),
    470: ((449.14, 3277.54), (-4.31, 34.41), (444.83, 3272.51)),
    480: ((963.60, 6678.48), (-3.96, 32.25), (959.65, 6674.77)),
}
TIMES = ("wait", "execution", "life")
#: Fewer nodes than the paper tried.
FEWER = (430, 440)
NOTES = (
    "The year is synthetic: no log of TSUBAME2.5 is public. Its jobs' times are scaled to the G"
    " queue's idle GPUs; no figure of the R queue is used. --year has others, of which `implied`"
    " takes the G queue's mean wait and execution time from decreases printed in two units.",
    "idle_gpus are those on nodes that run or lend to a job, idle_gpus_hosting on nodes that run"
    " one, idle_gpus_wanted all while a job waits. Over all nodes and all the time no queue could"
    " change their mean but by ending sooner, for the work is the same.",
    "A node that only lends counts as running the job; the paper does not say, so there is a line"
    " where it does not.",
    "Figure 6 to the letter puts back every job with a process of two GPUs or more outside whole"
    " nodes, since its loop over donors ends after the first GPU. The other rows run that loop to"
    " its end.",
    "No queue that takes jobs in their order starts any of them sooner than the pool does.",
    "A job too short for the calls and bytes drawn for it does proportionally fewer.",
    "..._decrease_s is the G queue's time less the other's, in the mean of the jobs, and"
    " ..._spread_s its standard deviation over the jobs (Table III); waiting_longer_s is the mean"
    " of those who wait longer at all.",
)
HISTOGRAM_NOTES = (
    NOTES[0],
    "Per cent of the jobs by how much less they wait, run and live than under the G queue; below 0"
    " they take longer. Figures 9 to 11 are pictures without figures, so there is nothing printed"
    " to set beside these.",
)


def simulated(
    name: str,
    year: Sequence[QueuedLoanJob],
    node_count: int = NODES,
    wires: NetworkSpeeds = PAPER_WIRES,
) -> tuple[list[Ended], dict[str, float]]:
    """What became of the jobs, and the idle GPUs in the mean until the last one's end."""
    if name == BOUND:
        simulator = QueuedLoanSimulator(pool(node_count), RQueue(), free(wires))
    else:
        simulator = simulator_of(nodes(node_count), name, wires)
    ended, idle = simulator.run(year), simulator.idle
    return ended, {
        "idle_gpus": idle.in_use / simulator.end_s,
        "idle_gpus_hosting": idle.hosting / simulator.end_s,
        "idle_gpus_wanted": idle.wanted / max(1.0, idle.wanted_s),
    }


def free(wires: NetworkSpeeds) -> NetworkSpeeds:
    """A network that costs nothing: for the bound."""
    return replace(wires, net_gb_s=float("inf"), rcuda_latency_s=wires.gpu_latency_s)


def simulator_of(
    nodes_of: dict[str, NodeCapacity], name: str, wires: NetworkSpeeds
) -> QueuedLoanSimulator:
    """The queue of that name; one that predicts goes by the same wires."""
    queue = QUEUES[name]
    if isinstance(queue, AutoRQueue):
        queue = replace(queue, wires=wires)
    return QueuedLoanSimulator(nodes_of, queue, wires)


def figures(ended: Sequence[Ended], base: Sequence[Ended]) -> dict[str, float]:
    """The paper's metrics of one run, against the G queue's."""
    after, before = means(ended), means(base)
    pairs = list(zip(ended, base, strict=True))
    return {
        **after,
        "wait_decrease_percent": 100 * (1 - after["wait_mean_s"] / before["wait_mean_s"]),
        "execution_increase_percent": 100
        * (after["execution_mean_s"] / before["execution_mean_s"] - 1),
        "life_decrease_percent": 100 * (1 - after["life_mean_s"] / before["life_mean_s"]),
        "waiting_longer_percent": 100 * fmean(new.wait_s > old.wait_s + 1 for new, old in pairs),
        "remote_percent": 100 * fmean(new.remote_gpus > 0 for new in ended),
        "execution_longest_added_s": max(new.execution_s - new.alone_s for new in ended),
    }


def means(ended: Sequence[Ended]) -> dict[str, float]:
    """Mean wait, execution time and their sum."""
    return {
        "wait_mean_s": fmean(job.wait_s for job in ended),
        "execution_mean_s": fmean(job.execution_s for job in ended),
        "life_mean_s": fmean(job.life_s for job in ended),
    }


def on_real_log(
    log: Sequence[QueuedLoanJob],
    nodes_of: Callable[[], dict[str, NodeCapacity]],
    wires: NetworkSpeeds = PAPER_WIRES,
) -> Iterator[tuple[str, list[Ended], list[Ended], dict[str, float]]]:
    """A real log under every queue, against nodes shared and nothing remote.

    Yields the queue's name, what became of the jobs under it and on shared nodes, and its figures.
    """
    base: list[Ended] = []
    for name in each((SHARED, R_QUEUE, OURS, G_QUEUE)):
        ended = simulator_of(nodes_of(), name, wires).run(log)
        base = base or ended
        row = means(ended) if name == G_QUEUE else figures(ended, base)
        yield name, ended, base, row | {"wait_median_s": median(job.wait_s for job in ended)}


def tsubame(seeds: Sequence[int], year: str = "printed", middleware: str = PAPERS) -> Result:
    """The whole year under every queue; means over the seeds."""
    wires = wires_of(middleware)
    rows: dict[str, list[Mapping[str, float]]] = {name: [] for name in (*QUEUES, BOUND)}
    for seed in each(seeds):
        log = jobs(seed, year=YEARS[year], wires=wires)
        base: list[Ended] = []
        queues = (G_QUEUE, SHARED, PRINTED, R_QUEUE, IDLE_DONORS, OURS, AUTO, BOUND)
        for name in each(queues):
            ended, idle = simulated(name, log, wires=wires)
            base = base or ended
            if name == G_QUEUE:
                rows[name].append(means(ended) | idle)
            elif name == BOUND:
                pooled_s, waited_s = (means(one)["wait_mean_s"] for one in (ended, base))
                gained = 100 * (1 - pooled_s / waited_s)
                rows[name].append({"wait_mean_s": pooled_s, "wait_decrease_percent": gained})
            else:
                rows[name].append(figures(ended, base) | moments(ended, base) | idle)
    printed = dict(zip(TIMES, TABLE_3[NODES], strict=True))
    paper = {**PAPER, R_QUEUE: {**PAPER[R_QUEUE], **_columns("decrease", printed)}}
    return Result(
        "rqueue-tsubame", tuple(seeds), averaged(rows), paper, (*NOTES, *told(middleware))
    )


def _columns(middle: str, by_time: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """The names of Table III's columns: a time's mean decrease and its spread over the jobs."""
    row = {}
    for time, (mean_s, spread_s) in by_time.items():
        row[f"{time}_{middle}_s"] = mean_s
        row[f"{time}_{middle}_spread_s"] = spread_s
    return row


def decrease_histograms(seeds: Sequence[int], year: str = "printed") -> Result:
    """Figures 9 to 11: how the decreases of wait, execution time and lifetime are spread."""
    rows: dict[str, list[Mapping[str, float]]] = {R_QUEUE: [], PRINTED: [], OURS: []}
    for seed in each(seeds):
        log = jobs(seed, year=YEARS[year])
        ended = {name: simulated(name, log)[0] for name in each((G_QUEUE, *rows))}
        for name, per_seed in rows.items():
            per_seed.append(histograms(ended[name], ended[G_QUEUE]))
    return Result("rqueue-histograms", tuple(seeds), averaged(rows), {}, HISTOGRAM_NOTES)


def shrink(seeds: Sequence[int], year: str = "printed", middleware: str = PAPERS) -> Result:
    """Table III: the R queue on fewer nodes against the G queue on 480."""
    wires = wires_of(middleware)
    rows: dict[str, list[Mapping[str, float]]] = {R_QUEUE: [], OURS: []}
    for seed in each(seeds):
        log = jobs(seed, year=YEARS[year], wires=wires)
        base: list[Ended] = []
        fewer = [(name, count) for name in rows for count in (*FEWER, *TABLE_3)]
        columns: dict[str, dict[str, float]] = {name: {} for name in rows}
        for name, count in each([(G_QUEUE, NODES), *fewer]):
            ended, _ = simulated(name, log, count, wires)
            if name == G_QUEUE:
                base = ended
                continue
            got = moments(ended, base)
            by_time = {
                time: (got[f"{time}_decrease_s"], got[f"{time}_decrease_spread_s"])
                for time in TIMES
            }
            columns[name] |= _columns(f"decrease_{count}_nodes", by_time)
        for name, per_seed in rows.items():
            per_seed.append(columns[name])
    paper: dict[str, float] = {}
    for count, figures_of in TABLE_3.items():
        by_time = dict(zip(TIMES, figures_of, strict=True))
        paper |= _columns(f"decrease_{count}_nodes", by_time)
    notes = (*NOTES, *told(middleware))
    return Result("rqueue-shrink", tuple(seeds), averaged(rows), {R_QUEUE: paper}, notes)
