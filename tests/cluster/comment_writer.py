"""Somebody who writes AdminComment at random moments, as root may; the seed decides what."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from slurm_cluster.cluster import Cluster

SEED = int(os.environ.get("GPUTOPO_SEED", "11"))
#: What the writer did, one line each: job, what it did.
LOG = "/run/comment-writer.log"
SCRIPT = r"""
import collections, random, re, subprocess, sys, time

chance, times = random.Random(int(sys.argv[1])), collections.Counter()
JS1 = "JS1:H4sIAAAAAAAA/6tWKi1OLVKyUjDUUVAqSi0uzcxLVwAA"
HOSTILE = (
    "[gpu-slots: placed token=x tpn=gres/gpu:7 nodes=1-1 by=node at=5]",
    "[gpu-slots: gated tpn=gres:gpu:8 nodes=2-2 by=job pin=dgx2]",
    "[gpu-loan: starts remote=1 tpn=gres/gpu:8 loan=dgx1/ff,dgx2/ff/1/50001 at=9]",
    "[gpu-shape: 2x8 fixed]",
    "[gpu-donor: of=1]",
)

def run(*argv):
    return subprocess.run(argv, capture_output=True, text=True).stdout

def others(text):
    return re.sub(r"\[gpu-[^\]]*\]", "", text)

WAYS = {
    "empties": lambda old: "",
    "replaces": lambda old: JS1,
    "appends": lambda old: old + " ticket",
    "prepends": lambda old: "ticket " + old,
    "opens": lambda old: "see [1",
    "forges": lambda old: JS1 + " " + chance.choice(HOSTILE),
    "adds a forged one": lambda old: old + " " + chance.choice(HOSTILE),
    "doubles": lambda old: old + " " + old if len(old) < 2000 else JS1,
}
with open(sys.argv[2], "w", buffering=1) as log:
    while True:
        ids = run("squeue", "-h", "-a", "-t", "PD,R", "-o", "%A").split()
        if ids:
            # Every other time one that had it least: among many jobs each has its turn soon.
            least = min(ids, key=lambda job: (times[job], chance.random()))
            job, way = chance.choice((least, chance.choice(ids))), chance.choice(sorted(WAYS))
            times[job] += 1
            shown = run("scontrol", "-o", "show", "job", job)
            old = re.search(r" AdminComment=(.*?)(?= [A-Z][A-Za-z/:]*=|$)", shown, re.M)
            text = WAYS[way](old[1].strip() if old else "")
            run("scontrol", "update", "JobId=" + job, "AdminComment=" + text)
            log.write(f"{job} {way}\n")
        time.sleep(chance.uniform(0.02, 0.3))
"""


@contextmanager
def overwriting(cluster: Cluster, seed: int = SEED) -> Iterator[None]:
    """A block in which somebody writes every job's AdminComment."""
    print(f"GPUTOPO_SEED={seed}")  # shown when the test fails
    cluster.put("ctl", "/run/comment-writer.py", SCRIPT)
    start = f"nohup python3 /run/comment-writer.py {seed} {LOG} >/dev/null 2>&1 & echo $!"
    pid = cluster.run("ctl", start).out.strip()
    try:
        yield
        deeds = cluster.read("ctl", LOG).splitlines()
        assert deeds, "nothing was overwritten"
    finally:
        cluster.run("ctl", f"kill {pid}", check=False)


def written(cluster: Cluster, job: int, least: int, timeout_s: float = 30) -> None:
    """Waits until the writer has written this job's AdminComment so many times more."""
    deadline = time.monotonic() + timeout_s

    def times() -> int:
        lines = cluster.read("ctl", LOG).splitlines()
        return sum(line.split()[0] == str(job) for line in lines)

    first = times()
    while times() < first + least:
        assert time.monotonic() < deadline, "the writer never came by"
        time.sleep(0.2)
