"""loan-start: how much later than an ordinary job one with lent GPUs makes its first call.

Two of eight GPUs are free on each of two nodes. In turns a job of two starts, and one of four that
borrows two; both note when their first line runs, the latter also when the donor's server
answered. Slurm looks at its queue at each full second, so each pair is submitted in another part of
it. slurmctld's log has the steps between. With the stand-in middleware, whose first call lists the
donor's devices. GPUTOPO_ENFORCEMENT=select, or slots, measures one way of enforcing alone.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise

from bench.live.cluster import BenchCluster, clean
from bench.live.slots import in_slots
from bench.measure import Figure, at_most, conditions, quantile
from slurm_cluster.hosts import until

ROUNDS = 12
#: Each way of enforcing, and the cluster in it.
WAYS = {"select": clean, "slots": in_slots}
BAR_S = 2.0
FOLDER = "/cluster/loan-start"
PROGRAM = f"{FOLDER}/gputopo-node"
#: Where the image of the controller has what is compiled.
BUILT = "/usr/local/share/cluster/launch"
CONFIG = "/etc/slurm/gputopo.yaml"
LOG = "/var/log/slurm/slurmctld.log"
#: Taken, so that two GPUs of each node are free.
TAKEN = {"dgx1": range(6), "dgx2": range(2, 8)}
ASKS = "--comment='gpu-topo: remote=allow'"
NOTED = "date +%s.%N >$HOME/at.$SLURM_JOB_ID; {}; date +%s.%N >>$HOME/at.$SLURM_JOB_ID"
_LINE = re.compile(r"^\[([\dT:.-]+)\] (.*)$", re.MULTILINE)
_STARTS = "(?:sched: Allocate|sched/backfill: _start_job: Started)"
#: The steps between a submit and a first call, in their order.
STEPS = ("donor asked for", "donor starts", "donor ready", "job let go", "job starts")


def put_program(cluster: BenchCluster) -> None:
    """What borrowers need on every node, and a TaskProlog that runs it."""
    cluster.run("ctl", f"rm -rf {FOLDER} && mkdir -p {FOLDER}; gputopo remote program {PROGRAM}")
    cluster.run("ctl", f"cp /src/slurm_plugin/node/task-prolog {FOLDER}/task-prolog")
    cluster.run("ctl", f"cd {BUILT} && cp gputopo-carry gputopo-wire.so {FOLDER}")
    cluster.configure_extra(f"TaskProlog={FOLDER}/task-prolog")
    cluster.reconfigure()


def prepared(cluster: BenchCluster) -> None:
    """The site lends; all but two GPUs of each node are in use."""
    put_program(cluster)
    lends = f"remote: {{allow: yes, program: {PROGRAM}, donor_memory_mb: 64}}\n"
    cluster.put("ctl", CONFIG, cluster.read("ctl", CONFIG) + lends)
    cluster.engine("restart")
    cluster.wait_reconciled()
    for ids in cluster.occupy_nodes({node: tuple(gpus) for node, gpus in TAKEN.items()}).values():
        words = f"jobid={','.join(map(str, ids))} TimeLimit=UNLIMITED"
        cluster.run("ctl", f"scontrol update {words}")


def started(
    cluster: BenchCluster, phase: float, gpus: int, call: str, asks: str = ""
) -> tuple[int, list[float]]:
    """A job's id; seconds from its submit to its first line, and until its first call is done.

    It is submitted `phase` after a full second, or a little later.
    """
    time.sleep((phase - time.time()) % 1)
    submit = f"sbatch --parsable -p dgx -o /dev/null --mem=100 --gres=gpu:{gpus} {asks}"
    said = cluster.sh(f"date +%s.%N; {submit} --wrap '{NOTED.format(call)}'", user="alice")
    began, job = said.split()
    noted = f"/home/alice/at.{job}"
    until(lambda: len(cluster.sh(f"cat {noted} 2>/dev/null || true").split()) == 2, "it ran", 60)
    first, called = cluster.sh(f"cat {noted}").split()
    until(lambda: cluster.uses_exactly(used()), "its GPUs are free again", 60)
    return int(job), [float(at) - float(began) for at in (first, called)]


def used() -> dict[str, tuple[int, ...]]:
    """The GPUs in use between two jobs."""
    return {node: tuple(gpus) for node, gpus in TAKEN.items()}


def steps_of(job: int, log: str) -> list[float]:
    """Seconds that each of STEPS took, by slurmctld's log; ValueError where one is not there."""
    donor = re.search(rf"gpu-donor ready of={job} port=\d+ for JobId=(\d+)", log)
    if donor is None:
        raise ValueError(f"slurmctld's log knows no donor of job {job}")
    lines = [(datetime.fromisoformat(at), text) for at, text in _LINE.findall(log)]

    def at(start: str) -> datetime:
        found = next((when for when, text in lines if re.match(start, text)), None)
        if found is None:
            raise ValueError(f"slurmctld's log has no line {start!r}")
        return found

    moments = [
        at(rf"_slurm_rpc_submit_batch_job: JobId={job} "),
        at(rf"_slurm_rpc_submit_batch_job: JobId={donor[1]} "),
        at(rf"{_STARTS} JobId={donor[1]} "),
        at(rf"_update_job: setting comment to gpu-donor ready of={job} "),
        at(rf"sched: _update_job: setting .*tres_per_node:gres/gpu:.* for JobId={job}\b"),
        at(rf"{_STARTS} JobId={job} "),
    ]
    return [(b - a).total_seconds() for a, b in pairwise(moments)]


def median_s(values: Sequence[float]) -> float:
    """The median in seconds, to the millisecond."""
    return round(quantile(values, 0.5), 3)


def run() -> Iterator[Figure]:
    """A figure for each way of enforcing."""
    wanted = os.environ.get("GPUTOPO_ENFORCEMENT")
    for way in [wanted] if wanted else WAYS:
        yield beyond_an_ordinary_start(way)


def beyond_an_ordinary_start(way: str) -> Figure:
    """The medians' difference. Its detail has the steps' medians."""
    with WAYS[way]() as cluster:
        prepared(cluster)
        ordinary, lent, steps, joined = [], [], [], []
        for nth in range(ROUNDS):
            phase = nth / ROUNDS
            _, (first, _) = started(cluster, phase, 2, "true")
            ordinary.append(first)
            echo = f"{PROGRAM} echo >/dev/null"
            job, (first, called) = started(cluster, phase, 4, echo, ASKS)
            lent.append(called)
            steps.append(steps_of(job, cluster.sh(f"cat {LOG}")))
            joined.append((first - sum(steps[-1]), called - first))
        cluster.sh(f"rm -rf {FOLDER} /home/alice/at.*")
    pairs = zip(STEPS, zip(*steps, strict=True), strict=True)
    detail = {
        "ordinary_s": median_s(ordinary),
        "lent_s": median_s(lent),
        "lent_p90_s": round(quantile(lent, 0.9), 3),
        "steps_s": {
            **{name: median_s(took) for name, took in pairs},
            "first line": median_s([first for first, _ in joined]),
            "first call": median_s([called for _, called in joined]),
        },
        "rounds": ROUNDS,
        **conditions(),
    }
    beyond = median_s(lent) - median_s(ordinary)
    name = f"loan-start.{way}.beyond_an_ordinary_start"
    return at_most(name, beyond, "s", BAR_S, detail=detail)
