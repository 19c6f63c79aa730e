"""slots: what enforcement: slots costs, and how soon a gated job starts.

Real engine, stock Slurm with a GRES type per GPU. Times are what the jobs write down and those
of the decision log. Last come an engine and a slurmctld that are killed for a minute.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from bench.live.cluster import ASSETS, BENCH_DIR, BenchCluster, shared
from bench.live.submit import LOADS, PLAIN, Block, block, install, total
from bench.measure import Figure, at_least, at_most, conditions, quantile
from slurm_cluster.hosts import until

VARIANT = "gputopo-slots"
SETTINGS = "/etc/slurm/gputopo.yaml"
LOG = "/var/log/gputopo/decisions.jsonl"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

CHAIN = 60
AHEAD = 300
BAR_START_S = 0.7
MANY = 1000
IDLE_S = 60
BAR_IDLE_SHARE = 0.05
ENDS = 20
QUIET_S = 5
#: Seconds between two polls while nothing happens, the longest that a configuration may have.
REGULAR_S = 60
BAR_REACT_MS = 100.0
#: On two cores a round is a seventh off either way, and the median of nine six hundredths.
RATE_ROUNDS, UNLIKE_ROUNDS = 27, 9
BAR_RATE = 0.95
SURVIVORS = 200
AWAY_S = 60

#: Sends a notice and waits for the next release in the decision log; prints the seconds, and those
#: that Slurm's commands take to show the queue and the nodes right after it.
REACT = """\
import json, socket, subprocess, sys, time
QUESTIONS = (["squeue", "-h", "-o", "%i"], ["scontrol", "-o", "show", "node"])
log = open({log!r})
log.seek(0, 2)
peer = socket.socket(socket.AF_UNIX)
peer.connect("/run/gputopo/engine.sock")
began = time.time()
peer.send(b"ended job=1 array=0\\n")
while time.time() < began + 30:
    for line in log:
        if json.loads(line).get("decision") == "use":
            took = time.time() - began
            began = time.time()
            for question in QUESTIONS:
                subprocess.run(question, stdout=subprocess.DEVNULL, check=True)
            print(took, time.time() - began)
            sys.exit()
    time.sleep(0.002)
sys.exit("no release within 30 s")
"""


@contextmanager
def in_slots() -> Iterator[BenchCluster]:
    """The cluster with the slots mode in force, clean before and after."""
    cluster = shared()
    cluster.reset()
    cluster.switch(VARIANT)
    cluster.wait_nodes_idle()
    try:
        yield cluster
    finally:
        cluster.reset()


def submit(cluster: BenchCluster, count: int, args: str, script: str) -> list[int]:
    """So many jobs of one kind, in order; their ids."""
    command = f"sbatch --parsable -o /dev/null -t 1 {args} --wrap '{script}'"
    text = cluster.sh(f"cd; for i in $(seq {count}); do {command}; done", user="alice")
    return [int(word) for word in text.split()]


def wait_gated(cluster: BenchCluster, count: int) -> None:
    """Until the engine knows of so many jobs behind their gates."""
    until(lambda: cluster.status()["slots"]["gated"] >= count, f"{count} jobs behind gates", 120)


def occupy_all(cluster: BenchCluster, node: str) -> int:
    """A job that holds all GPUs of a node; its id."""
    command = f"sbatch --parsable -o /dev/null -p off -t 60 -w {node} --gres=gpu:8 --wrap"
    jobid = int(cluster.sh(f"{command} 'sleep 3600'"))
    cluster.wait_running(jobid)
    return jobid


def cancel_all(cluster: BenchCluster) -> None:
    """No job is left."""
    cluster.sh("squeue -h -o %A | sort -u | xargs -r scancel")
    cluster.wait_queue_empty()
    cluster.wait_idle()


# -- release to start ---------------------------------------------------------


def chain(cluster: BenchCluster, ahead: int) -> Figure:
    """Jobs that each need all of dgx2, one after the other; `ahead` others wait for dgx1."""
    occupy_all(cluster, "dgx1")
    first = occupy_all(cluster, "dgx2")
    cluster.wait_reconciled()
    submit(cluster, ahead, "-w dgx1 --gres=gpu:8", "true")
    cluster.sh("rm -f started.*; cd ~alice; rm -f started.*")
    # slurmctld starts what was let go at its next full second. Jobs of one length would end, and be
    # followed, at the same moment of each second: theirs are spread over one.
    length = "0.$(printf %02d $((SLURM_JOB_ID * 37 % 100)))"
    script = f"date +%s.%N >started.$SLURM_JOB_ID; sleep {length}"
    ids = submit(cluster, CHAIN, "-w dgx2 --gres=gpu:8", script)
    wait_gated(cluster, ahead + CHAIN)
    cluster.cancel(first)
    cluster.wait_finished(ids[-1], timeout_s=300)
    text = cluster.sh("cd ~alice; grep -H . started.*")
    begun = {int(name.split(".")[1]): float(at) for name, at in map(_pair, text.splitlines())}
    released = {}
    for line in cluster.sh(f"cat {LOG}").splitlines():
        record = json.loads(line)
        if record.get("decision") == "use":
            released[record["job"]] = _epoch(record["time"])
    late = [begun[jobid] - released[jobid] for jobid in ids]
    cancel_all(cluster)
    name = "slots.release_to_start" if not ahead else f"slots.release_to_start.{ahead}_ahead"
    return at_most(
        name,
        quantile(late, 0.5),
        "s",
        BAR_START_S,
        detail={"p95_s": round(quantile(late, 0.95), 3), "jobs": len(late), **conditions()},
    )


def _pair(line: str) -> tuple[str, str]:
    name, _, text = line.rpartition(":")
    return name, text


def _epoch(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


# -- a thousand jobs that wait ------------------------------------------------


def cpu_ticks(cluster: BenchCluster) -> int:
    """Processor ticks of the engine and of the commands it ran."""
    pid = cluster.engine_pid()
    fields = cluster.sh(f"cat /proc/{pid}/stat").rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15])


def idle(cluster: BenchCluster) -> Figure:
    """The engine's share of a core while a thousand jobs wait and nothing changes."""
    before, began = cpu_ticks(cluster), time.monotonic()
    time.sleep(IDLE_S)
    share = (cpu_ticks(cluster) - before) / TICKS_PER_S / (time.monotonic() - began)
    detail = {"gated": MANY, "over_s": IDLE_S, "its commands included": True, **conditions()}
    return at_most("slots.idle_cpu", share, "of a core", BAR_IDLE_SHARE, detail=detail)


def react(cluster: BenchCluster) -> Figure:
    """From the notice of an ended job to the release of another, a thousand waiting.

    Slurm's own notices are off, so that each comes when its GPUs are known to be free.
    """
    took, asking = [], []
    cluster.sh(f"mkdir -p {BENCH_DIR}")
    cluster.put("ctl", f"{BENCH_DIR}/react.py", REACT.format(log=LOG))
    for _ in range(ENDS):
        # Looks that follow the last release are over, and the regular one is far: the next one is
        # the notice's.
        while not QUIET_S <= (cluster.status()["slots"]["looked_s_ago"] or 0) < REGULAR_S / 2:
            time.sleep(0.2)
        running = cluster.sh("squeue -h -w dgx2 -t running -o %A").split()
        cluster.sh(f"scancel {running[0]}")
        cluster.wait_finished(int(running[0]))
        while cluster.gres_used()["dgx2"]:
            time.sleep(0.05)
        answer = cluster.sh(f"python3 {BENCH_DIR}/react.py").split()
        took.append(1e3 * float(answer[0]))
        asking.append(1e3 * float(answer[1]))
        end = time.monotonic() + 30
        while not cluster.sh("squeue -h -w dgx2 -t running -o %A") and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(1)
    beside = f"squeue and scontrol show node alone: {quantile(asking, 0.5):.0f} ms"
    detail = {"gated": MANY, "max_ms": round(max(took), 1), "ends": len(took), **conditions()}
    value = quantile(took, 0.5)
    return at_most("slots.react", value, "ms", BAR_REACT_MS, compared_with=beside, detail=detail)


def many(cluster: BenchCluster) -> Iterator[Figure]:
    """Both figures with a thousand jobs behind their gates."""
    section = f"slots: {{lease_s: 120, poll_s: {REGULAR_S}}}"
    cluster.sh(f"echo '{section}' >>{SETTINGS}; clusterctl engine restart")
    occupy_all(cluster, "dgx1")
    occupy_all(cluster, "dgx2")
    cluster.wait_reconciled()
    submit(cluster, MANY - ENDS, "-w dgx1 --gres=gpu:8", "true")
    submit(cluster, ENDS + 1, "-w dgx2 --gres=gpu:8", "sleep 600")
    cluster.wait_reconciled()
    wait_gated(cluster, MANY)
    cluster.sh(f"sed -i 's/poll_s: {REGULAR_S}/poll_s: 5/' {SETTINGS}; clusterctl engine restart")
    cluster.wait_reconciled()
    yield idle(cluster)
    cluster.sh(f"sed -i 's/poll_s: 5/poll_s: {REGULAR_S}/' {SETTINGS}; clusterctl engine restart")
    cluster.wait_reconciled()
    with without_notices(cluster):
        yield react(cluster)
    cancel_all(cluster)


@contextmanager
def without_notices(cluster: BenchCluster) -> Iterator[None]:
    """Slurm's epilog tells the engine nothing meanwhile."""
    # Another line in slurm.conf would not do: Slurm runs the scripts of all such lines.
    path = cluster.sh("sed -n 's/^EpilogSlurmctld=//p' /etc/slurm/slurm.conf").strip()
    cluster.sh(f"mv {path} {path}.off; ln -s /bin/true {path}")
    try:
        yield
    finally:
        cluster.sh(f"mv {path}.off {path}")


# -- submits ------------------------------------------------------------------


def rate(cluster: BenchCluster, kind: str = "") -> Figure:
    """Submits per second over those with a job_submit.lua that does nothing.

    Equal ones, as from a loop; or `unlike` ones, where no answer can be used again.
    """
    load = LOADS[0]
    cluster.put_folder("ctl", BENCH_DIR, ASSETS)
    cluster.sh(f"chmod -R a+rX,a+x {BENCH_DIR}")
    ratios: list[float] = []
    kept: dict[str, list[Block]] = {"noop": [], "bridge": []}
    for i in range(UNLIKE_ROUNDS if kind else RATE_ROUNDS):
        cluster.restart_clean()
        order = ["noop", "bridge"] if i % 2 == 0 else ["bridge", "noop"]
        by_side = {}
        for side in order:
            install(cluster, side, PLAIN)
            by_side[side] = block(cluster, load, kind)
            kept[side].append(by_side[side])
        speeds = {side: one.submits / one.wall_s for side, one in by_side.items()}
        ratios.append(speeds["bridge"] / speeds["noop"])
    sums = {side: total(blocks) for side, blocks in kept.items()}
    name, unit = f"slots.submit_rate.{load.name}", "of the no-op's rate"
    beside = f"no-op: {sums['noop'].submits / sums['noop'].wall_s:.1f}/s"
    detail = {
        "cpu_us_per_submit": {s: round(1e6 * b.cpu_s / b.submits) for s, b in sums.items()},
        "rounds": [round(ratio, 3) for ratio in ratios],
        **conditions(),
    }
    value = quantile(ratios, 0.5)
    if kind:
        name = f"{name}.{kind}"
        return Figure(name, round(value, 4), unit, compared_with=beside, detail=detail)
    return at_least(name, value, unit, BAR_RATE, compared_with=beside, detail=detail)


# -- a minute away ------------------------------------------------------------


def survive(cluster: BenchCluster, name: str, away: Callable[[], None]) -> Figure:
    """Gated jobs while something is killed for a minute: all of them run, none twice."""
    nodes = ("amd1", "bridged1", "dgx1", "dgx2", "minsky1")
    holders: list[int] = []
    for node in nodes:
        gpus = 4 if node == "minsky1" else 8
        command = f"sbatch --parsable -o /dev/null -p off -t 60 -w {node} --gres=gpu:{gpus} --wrap"
        holders.append(int(cluster.sh(f"{command} 'sleep 3600'")))
    for jobid in holders:
        cluster.wait_running(jobid)
    cluster.wait_reconciled()
    cluster.sh("cd ~alice; rm -f ran.*")
    script = "echo $SLURM_JOB_ID >>ran.$SLURM_JOB_ID; sleep 0.5"
    ids = submit(cluster, SURVIVORS, "--gres=gpu:2", script)
    wait_gated(cluster, SURVIVORS)
    away()
    began = time.monotonic()
    cluster.cancel(*holders)
    cluster.wait_queue_empty()
    drained_s = time.monotonic() - began
    lines = [int(line) for line in cluster.sh("cd ~alice; cat ran.*").split()]
    once = sum(lines.count(jobid) == 1 for jobid in ids)
    detail = {"away_s": AWAY_S, "drained_s": round(drained_s, 1), **conditions()}
    return at_least(
        f"slots.survive.{name}", once, f"of {SURVIVORS} run once", SURVIVORS, detail=detail
    )


def away(cluster: BenchCluster, who: Callable[[str], object]) -> None:
    """Killed, and started again a minute later."""
    cluster.sh("sleep 6")  # slurmctld saves its state every few seconds
    who("kill")
    time.sleep(AWAY_S)
    who("start")


def run() -> Iterator[Figure]:
    """All figures of the slots mode."""
    with in_slots() as cluster:
        yield chain(cluster, 0)
        yield chain(cluster, AHEAD)
    with in_slots() as cluster:
        yield from many(cluster)
    with in_slots() as cluster:
        yield rate(cluster)
        yield rate(cluster, "unlike")
    with in_slots() as cluster:
        yield survive(cluster, "engine", lambda: away(cluster, cluster.engine))
        yield survive(cluster, "slurmctld", lambda: away(cluster, cluster.slurmctld))
