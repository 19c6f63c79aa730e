"""in-step: how long engine and slurmctld are out of step after either is started again, and such.

A job starts ten times a second. A start is in step if the engine chose among all nodes that the job
may use, and Slurm took its choice. After an event a while may pass in which starts are not: from
the first to the last of them that is the figure, with all that happens meanwhile (the engine's own
start, say). In none of the starts may Slurm find a GPU of the advice in use.

IN_STEP_NODES (0: the five of the cluster) has it measured with so many nodes of a slurmd each.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench.live import shim_log
from bench.live.cluster import ASSETS, BENCH_DIR, BenchCluster, clean
from bench.live.start_many import PARTITION, ManyNodes, many_nodes
from bench.measure import Figure, at_most, conditions

LOG = "/var/log/gputopo/decisions.jsonl"
EVERY_S = 0.1
ROUNDS = 3
#: Starts in step before an event, and after it.
CALM_S = 2.0
AFTERWARDS_S = 6.0
BAR_S = 1.0
#: What a plugin finds that was told of GPUs which are in use.
WRONG = "bad_advice"


@dataclass(frozen=True, slots=True)
class Start:
    """A job that started."""

    at: float
    #: What the plugin made of the answer; None where the engine was not asked.
    asked: shim_log.Added | None
    #: Nodes that the engine chose among.
    among: int | None

    def is_in_step(self, nodes: int | None) -> bool:
        """Was it placed among all nodes that it might use (`nodes` of them)?"""
        known = self.asked is not None and (self.asked.nodes, self.asked.result) == ("all", "used")
        return known and nodes in (None, self.among)


@dataclass(frozen=True, slots=True)
class Site:
    """The nodes that jobs of a partition may use, and two of them."""

    nodes: int
    partition: str
    one: str


def out_of_step(starts: Sequence[Start], since: float, nodes: int | None) -> tuple[float, int]:
    """Seconds from the first start that was not in step to the next one after the last such.

    And how many there were. RuntimeError where the last start of all was not.
    """
    after = sorted((one for one in starts if one.at >= since), key=lambda one: one.at)
    bad = [one for one in after if not one.is_in_step(nodes)]
    if not after or (bad and bad[-1] is after[-1]):
        raise RuntimeError(f"not in step again: {after[-1:]} of {len(after)} starts")
    if not bad:
        return 0.0, 0
    again = next(one.at for one in after if one.at > bad[-1].at and one.is_in_step(nodes))
    return again - bad[0].at, len(bad)


class Stream:
    """Jobs that start one after the other, until the end of the block."""

    def __init__(self, cluster: BenchCluster, partition: str, name: str) -> None:
        self._cluster, self._partition = cluster, partition
        self._file = f"/tmp/in-step.{name}.{time.monotonic_ns()}"
        self._thread = threading.Thread(target=self._run)
        self.starts: list[Start] = []

    def _run(self) -> None:
        command = f"python3 {BENCH_DIR}/start_stream.py {self._file} {self._partition} {EVERY_S}"
        self._cluster.sh(command, user="alice")

    def __enter__(self) -> Stream:
        self._since = self._cluster.slurmctld_log_size()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.sh(f"touch {self._file}.stop")
        self._thread.join()
        results = shim_log.read(self._cluster.slurmctld_log_from(self._since))
        by_job = {one.job: one for one in results}
        among = {}
        for line in self._cluster.sh(f"tail -n 3000 {LOG}").splitlines():
            record = json.loads(line)
            if "decision" in record and "candidate_nodes" in record:
                among[record["job"]] = record["candidate_nodes"]
        for line in self._cluster.sh(f"cat {self._file}").splitlines():
            start = json.loads(line)
            job = start["job"]
            self.starts.append(Start(start["at"], by_job.get(job), among.get(job)))


#: Does it, and returns when starts are to be in step (epoch), and among how many nodes if it
#: matters: after a while without starts too many may begin for all nodes to have room.
Event = Callable[[BenchCluster, Site], tuple[float, int | None]]


def _from_now(command: str) -> tuple[Event]:
    """From the moment on at which the command begins."""

    def do(cluster: BenchCluster, site: Site) -> tuple[float, None]:
        began = time.time()
        cluster.sh(command)
        return began, None

    return (do,)


def _of_node(change: str, back: str, fewer: int) -> tuple[Event, Event]:
    """An update of a node and the one that takes it back, each from its end on.

    With so many fewer nodes in between.
    """

    def do(cluster: BenchCluster, site: Site) -> tuple[float, int]:
        cluster.sh(change.format(site.one))
        return time.time(), site.nodes - fewer

    def undo(cluster: BenchCluster, site: Site) -> tuple[float, int]:
        cluster.sh(back.format(site.one))
        return time.time(), site.nodes

    return do, undo


RESERVE = "scontrol create reservation reservationname=r users=bob starttime=now duration=10 nodes="
#: A node of the five loses a GPU, in slurm.conf and gres.conf as in the machine.
_FEWER = """\
cp /cluster/slurm.conf /cluster/slurm.conf.full; cp /cluster/gres.conf /cluster/gres.conf.full
sed -i '/^NodeName=minsky1 /s/p100:4/p100:3/' /cluster/slurm.conf
sed -i '/^NodeName=minsky1 .*fakegpu3/d' /cluster/gres.conf
scontrol reconfigure"""
_FULL = """\
mv /cluster/slurm.conf.full /cluster/slurm.conf; mv /cluster/gres.conf.full /cluster/gres.conf
scontrol reconfigure
until sinfo -h -n minsky1 -o %T | grep -Eqx 'idle|mixed'; do
    scontrol update nodename=minsky1 state=resume 2>/dev/null || true
    sleep 0.5
done"""
#: Event -> what happens; a pair is done and taken back.
EVENTS: dict[str, tuple[Event, ...]] = {
    "engine_restart": _from_now("clusterctl engine restart"),
    "engine_killed": _from_now("clusterctl engine kill; clusterctl engine start"),
    "engine_reload": _from_now("kill -HUP $(clusterctl engine pid)"),
    "slurmctld_restart": _from_now("clusterctl slurmctld restart"),
    "reconfigure": _from_now("scontrol reconfigure"),
    "drain": _of_node(
        "scontrol update nodename={} state=drain reason=x",
        "scontrol update nodename={} state=resume",
        1,
    ),
    "weight": _of_node(
        "scontrol update nodename={} weight=9", "scontrol update nodename={} weight=1", 1
    ),
    "gpus": _of_node(f"{_FEWER}; : {{}}", f"{_FULL}; : {{}}", 1),
    "reservation": _of_node(RESERVE + "{}", "scontrol delete reservationname=r; : {}", 1),
}


def measured(cluster: BenchCluster, site: Site, name: str, events: Sequence[Event]) -> Figure:
    """The longest of some rounds of an event."""
    took: list[float] = []
    missed, wrong, starts = 0, 0, 0
    for _ in range(ROUNDS):
        for event in events:
            with Stream(cluster, site.partition, name) as stream:
                time.sleep(CALM_S)
                since, nodes = event(cluster, site)
                time.sleep(AFTERWARDS_S)
            try:
                seconds, bad = out_of_step(stream.starts, since, nodes)
            except RuntimeError as error:
                raise RuntimeError(f"{name}: {error}") from error
            took.append(round(seconds, 2))
            missed += bad
            wrong += sum(
                one.asked is not None and one.asked.result == WRONG for one in stream.starts
            )
            starts += len(stream.starts)
    detail = {"seconds": took, "starts": starts, "not_in_step": missed, "nodes": site.nodes}
    detail |= {"advice_with_busy_gpus": wrong, **conditions()}
    return at_most(f"in_step.{name}", max(took), "s", BAR_S, detail=detail)


def figures(cluster: BenchCluster, site: Site) -> Iterator[Figure]:
    """Every event."""
    cluster.put_folder("ctl", BENCH_DIR, ASSETS)
    cluster.sh(f"chmod -R a+rX {BENCH_DIR}")
    wanted = os.environ.get("IN_STEP_EVENTS", "").split()
    wanted = wanted or [name for name in EVENTS if site.nodes == 5 or name != "gpus"]
    for name in wanted:
        yield measured(cluster, site, name, EVENTS[name])


def run() -> Iterator[Figure]:
    """On the cluster's nodes, or on many."""
    many = int(os.environ.get("IN_STEP_NODES", 0))
    with clean() as cluster:
        if not many:
            yield from figures(cluster, Site(5, "gpu", "dgx2"))
            return
        nodes = ManyNodes(many)
        nodes.configure(cluster)
        with many_nodes(cluster, nodes):
            width = len(str(many))
            yield from figures(cluster, Site(many, PARTITION, f"many{1:0{width}d}"))
