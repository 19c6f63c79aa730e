"""slots-many: enforcement: slots with ten thousand jobs behind their gates.

All nodes are busy. First nothing changes, then running jobs end one by one, while submits are asked
about all the time. Times are those of the programs on the controller and of the decision log.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from bench.live.cluster import BENCH_DIR, BenchCluster
from bench.live.slots import LOG, TICKS_PER_S, cancel_all, cpu_ticks, in_slots, occupy_all
from bench.measure import Figure, at_most, conditions, quantile
from bench.request_lines import encode_request
from slurm_cluster.hosts import until
from slurm_plugin.base.protocol import SlotsKeys, Submit

ARRAYS, TASKS = 4, 1000
LOOPS, SINGLES = 4, 1500
MANY = ARRAYS * TASKS + LOOPS * SINGLES
IDLE_S = 60
ENDS = 15
BAR_IDLE_SHARE = 0.05
BAR_RELEASE_S = 1.0
BAR_ANSWER_MS = 50.0
#: What each of the jobs asks for that wait for dgx1: four sizes, six time limits.
JOB = "-t $((10 + i % 6)) -w dgx1 --gres=gpu:$((1 + i % 4))"

#: Ends a job of dgx2, and prints the seconds from the moment that Slurm shows its GPUs free to the
#: next release in the decision log, and those from scancel on.
RELEASED = """\
import json, os, re, subprocess, sys, time
def used():
    node = ["scontrol", "-o", "show", "node", "dgx2"]
    text = subprocess.run(node, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = re.search(r"AllocTRES=\\S*gres/gpu=(\\d+)", text)
    return int(found[1]) if found else 0
start = os.path.getsize({log!r}) if os.path.exists({log!r}) else 0
log = None
before = used()
began = time.time()
subprocess.run(["scancel", sys.argv[1]], check=True)
freed = released = None
while time.time() < began + 60 and not (freed and released):
    if freed is None:
        asked = time.time()
        freed = asked if used() < before else None
    if log is None and os.path.exists({log!r}):
        log = open({log!r})
        log.seek(start)
    for line in log or ():
        if json.loads(line).get("decision") == "use":
            released = released or time.time()
    time.sleep(0.002)
if not released:
    sys.exit("no release within 60 s")
print(max(0.0, released - (freed or released)), released - began)
"""

#: Asks the engine about submits for so many seconds, and prints the milliseconds of each answer.
ASKS = """\
import socket, sys, time
peer = socket.socket(socket.AF_UNIX)
peer.connect("/run/gputopo/engine.sock")
line, took = {line!r}, []
end = time.time() + float(sys.argv[1])
while time.time() < end:
    began = time.perf_counter()
    peer.send(line)
    while not peer.recv(65536).endswith(b"\\n"):
        pass
    took.append(1e3 * (time.perf_counter() - began))
    time.sleep(0.02)
print(*took)
"""


class Spent(NamedTuple):
    """What the engine and slurmctld have spent so far."""

    #: Seconds of processor time of the engine with its commands, and of slurmctld.
    engine_s: float
    slurmctld_s: float
    #: Requests that slurmctld answered: how many, and the seconds of all, by their name.
    requests: dict[str, tuple[int, float]]
    at: float

    def since(self, before: Spent) -> dict[str, object]:
        """What was spent meanwhile."""
        passed = self.at - before.at
        found = {}
        for name, (count, seconds) in self.requests.items():
            old_count, old_s = before.requests.get(name, (0, 0.0))
            if count > old_count:
                found[name] = [count - old_count, round(seconds - old_s, 3)]
        return {
            "engine_of_a_core": round((self.engine_s - before.engine_s) / passed, 4),
            "slurmctld_of_a_core": round((self.slurmctld_s - before.slurmctld_s) / passed, 4),
            "requests and their seconds": found,
            "over_s": round(passed),
        }


def spent(cluster: BenchCluster) -> Spent:
    """As of now."""
    stat = cluster.sh("cat /proc/$(cat /run/slurm/slurmctld.pid)/stat").rpartition(")")[2].split()
    table = cluster.sh("sdiag").partition("by message type")[2].partition("Remote Proc")[0]
    lines = re.findall(r"REQUEST_(\w+) .*count:(\d+) .*total_time:(\d+)", table)
    requests = {name: (int(count), 1e-6 * int(total)) for name, count, total in lines}
    slurmctld_s = (int(stat[11]) + int(stat[12])) / TICKS_PER_S
    return Spent(cpu_ticks(cluster) / TICKS_PER_S, slurmctld_s, requests, time.monotonic())


def occupy(cluster: BenchCluster) -> list[int]:
    """Every node is full; the jobs of dgx2, which are to end one by one."""
    for node in ("amd1", "bridged1", "dgx1"):
        occupy_all(cluster, node)
    alone = "sbatch --parsable -o /dev/null -p off -t 60 {} --wrap 'sleep 3600'"
    minsky = int(cluster.sh(alone.format("-w minsky1 --gres=gpu:4")))
    own = f"for i in $(seq 8); do {alone.format('-w dgx2 --gres=gpu:1')}; done"
    ending = [int(word) for word in cluster.sh(own).split()]
    for jobid in (minsky, *ending):
        cluster.wait_running(jobid)
    cluster.wait_reconciled()
    return ending


def submit_all(cluster: BenchCluster) -> float:
    """Ten thousand jobs, by loops beside each other and as arrays; the seconds that takes."""
    began = time.monotonic()
    one = f"sbatch -o /dev/null {JOB} --wrap 'sleep 300' >/dev/null || true"
    loops = f"for p in $(seq {LOOPS}); do (for i in $(seq {SINGLES}); do {one}; done) & done"
    array = f"sbatch -o /dev/null {JOB} --array=1-{TASKS} --wrap 'sleep 300' >/dev/null"
    arrays = f"for i in $(seq {ARRAYS}); do {array}; done"
    cluster.sh(f"cd; {loops}; {arrays}; wait", user="alice")
    # Behind all others, which wait for another node: whoever ends on dgx2 lets one of these start.
    last = "sbatch -o /dev/null -t 10 -w dgx2 --gres=gpu:1 --wrap 'sleep 600' >/dev/null"
    cluster.sh(f"cd; for i in $(seq {ENDS + 1}); do {last}; done", user="alice")
    return time.monotonic() - began


def wait_calm(cluster: BenchCluster) -> None:
    """Until the engine knows of all, and no gate is renewed for having been shut for one lease."""
    # Submits that Slurm turned away in the burst are not made again.
    records = int(0.95 * (LOOPS * SINGLES + ARRAYS))
    until(lambda: cluster.status()["slots"]["gated"] >= records, f"{records} gates", 120)
    before = spent(cluster)
    for _ in range(20):
        time.sleep(6)
        now = spent(cluster)
        asked, _ = now.requests.get("UPDATE_JOB", (0, 0.0))
        if asked - before.requests.get("UPDATE_JOB", (0, 0.0))[0] < 200:
            return
        before = now


def released(cluster: BenchCluster, holders: list[int]) -> tuple[list[float], list[float]]:
    """Seconds from free GPUs, and from scancel, to the next release, for each end."""
    took, whole = [], []
    for _ in range(ENDS):
        own = cluster.sh("squeue -h -w dgx2 -t running -o %A").split()
        ends = next((job for job in map(str, holders) if job in own), own[0])
        answer = cluster.sh(f"python3 {BENCH_DIR}/released.py {ends}").split()
        took.append(float(answer[0]))
        whole.append(float(answer[1]))
        time.sleep(2)
    return took, whole


def question() -> bytes:
    """A submit of a job that has to wait."""
    keys = SlotsKeys("node", time_s=3600, tpn="gres/gpu:8", held=True)
    asked = Submit(1, 2001, 8, 1, 8, 1, user="alice", account="research", slots=keys)
    return encode_request(asked)


def figures(cluster: BenchCluster) -> Iterator[Figure]:
    """All of them, with one queue."""
    # On a machine at work a late answer would leave jobs to Slurm, and too few would wait.
    settings = "deadline_ms = 1000\nbudget_ms = 1000"
    cluster.sh(f"echo '{settings}' >>/etc/slurm/gputopo-bridge.conf")
    cluster.restart_clean()
    holders = occupy(cluster)
    cluster.sh(f"mkdir -p {BENCH_DIR}")
    cluster.put("ctl", f"{BENCH_DIR}/released.py", RELEASED.format(log=LOG))
    cluster.put("ctl", f"{BENCH_DIR}/asks.py", ASKS.format(line=question()))
    submitted_s = submit_all(cluster)
    wait_calm(cluster)
    before = spent(cluster)
    time.sleep(IDLE_S)
    idle = spent(cluster).since(before)
    detail = {"gated": MANY, "submitted_in_s": round(submitted_s), **idle, **conditions()}
    share = float(str(idle["engine_of_a_core"]))
    yield at_most("slots.ten_thousand.idle_cpu", share, "of a core", BAR_IDLE_SHARE, detail=detail)
    answers: list[float] = []

    def ask() -> None:
        text = cluster.sh(f"python3 {BENCH_DIR}/asks.py {3 * ENDS}")
        answers.extend(map(float, text.split()))

    asking = threading.Thread(target=ask)
    before = spent(cluster)
    asking.start()
    took, whole = released(cluster, holders)
    during = spent(cluster).since(before)
    asking.join()
    slow = {"median_s": round(quantile(took, 0.5), 3), "from_scancel_s": quantile(whole, 0.5)}
    detail = {"ends": ENDS, **slow, **during, **conditions()}
    yield at_most("slots.ten_thousand.release", max(took), "s", BAR_RELEASE_S, detail=detail)
    more = {"p50": round(quantile(answers, 0.5), 2), "max": round(max(answers, default=0.0), 1)}
    detail = {"submits": len(answers), **more, **conditions()}
    p99 = quantile(answers, 0.99)
    yield at_most("slots.ten_thousand.submit_p99", p99, "ms", BAR_ANSWER_MS, detail=detail)
    cancel_all(cluster)


def run() -> Iterator[Figure]:
    """What ten thousand waiting jobs cost, and how soon they are released."""
    with in_slots() as cluster:
        yield from figures(cluster)
