"""A random soup: every kind of job, hint and trouble at once; seeded, checked at every moment.

The seed decides what is submitted and done, the machine when it happens.
"""

import os
import random
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from live_harness import GPUS, IN_BOTH_MODES, Watch, at_home, watched
from mallory import PAGE_PORT, Mallory, as_slurm_has, engine_memory_mb, victims_of
from modes import enforcement

from bench.live import shim_log
from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import CommandResult, until

pytestmark = [*IN_BOTH_MODES, pytest.mark.usefixtures("short_jobs_pass")]

#: One more of the partitions, which stand last in the file.
ORDERED = "  dgx: {mode: enforce, order: predicted}"

SEED = int(os.environ.get("GPUTOPO_SEED", "7"))
BATCH = 8
TWO_NODES = "-p dgx -N2 --gpus-per-node={}"
FORMS = (
    "--gres=gpu:{}",
    "-N1 --gpus={}",
    "-N1 --gpus-per-node={}",
    "-N1 -n{} --gpus-per-task=1",
    "-N1 --gpus={} --cpus-per-gpu=1",
    "--gres=gpu:{} --mem-per-gpu=20",
    "-p dgx --gres=gpu:v100:{}",
    "-x minsky1 --gres=gpu:{}",
    "-p observe --gres=gpu:{}",
    "-p off --gres=gpu:{}",
    "-p dgx -N1-2 --gpus={}",
    "-N1 -n2 --gres=gpu:{} --gres-flags=enforce-binding",
    "-N1 --gpus={} --ntasks-per-gpu=1",
    "--array=0-2 --gres=gpu:{}",
    TWO_NODES,
)
HINTS = (
    "",
    "",
    "off",
    "pattern=all-to-all",
    "pattern=chain,sensitive=no",
    "policy=first-fit",
    "policy=mapa-preserve,pattern=tree",
    "spread",
    "min-utility=0.9",
    "min-utility=1",
)
BAD_HINTS = ("patern=ring", "pattern=", "min-utility=7", "off,spread", "a\"b='c", "x" * 2000)
# the engine goes one way and comes back another, with a batch of starts in between
TROUBLES = (
    *("kill", "start", "stop", "start", "pause", "resume", "restart"),
    *("cancel", "requeue", "reconfigure", "slurmctld"),
)


#: In one partition; and bridge and plugin wait for the engine as long as a site has them.
short_jobs_pass = at_home(yaml=ORDERED, deadline_ms=50)


class Soup:
    """What the seed does, and what is then expected of Slurm."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._chance = random.Random(seed)
        # After a start slurmctld before 24.11 gives no GPUs on nodes that have not registered yet,
        # and never forgets the ones it counted; stock Slurm does the same.
        self._troubles = [
            one for one in TROUBLES if one != "slurmctld" or cluster.release >= (24, 11)
        ]
        self._coming: list[str] = []
        self.wanted: dict[int, int] = {}
        self.starts = 0

    def submits(self) -> None:
        """A batch of jobs; none may be refused, whatever the engine does."""
        lines, counts = [], []
        for _ in range(BATCH):
            count = self._chance.choice((1, 1, 2, 2, 3, 4))
            hint = self._chance.choice(HINTS)
            form = self._chance.choice(FORMS)
            args = shlex.split(form.format(count))
            if hint:
                args.append(f"--comment=gpu-topo: {hint}")
            args.append(f"--time={self._chance.choice((1, 5, 60))}")
            wrap = f"sleep {self._chance.uniform(0.1, 2.5):.1f}"
            lines.append(shlex.join(["sbatch", "--parsable", "-o/dev/null", *args, "--wrap", wrap]))
            counts.append(2 * count if form is TWO_NODES else count)
        done = self._cluster.run("ctl", "; ".join(lines), user="alice", timeout_s=120)
        ids = [int(word) for word in done.out.split()]
        assert len(ids) == BATCH, f"refused: {done.err}"
        self.wanted.update(zip(ids, counts, strict=True))

    def refusals(self) -> None:
        """A bad hint: a clear refusal, or (no engine to know better) an ordinary job."""
        hint = self._chance.choice(BAD_HINTS)
        args = ["sbatch", "--parsable", "-o/dev/null", "--gres=gpu:1", "--wrap=sleep 0.2"]
        comment = f"--comment=gpu-topo: {hint}"
        done = self._cluster.run("ctl", [*args, comment], user="alice", check=False)
        if done.code:
            assert "gpu-topo: " in done.err
        else:
            self.wanted[int(done.out)] = 1

    def settle(self) -> None:
        """Few are left in the queue: every trouble sees starts, not only submits."""

        def short() -> bool:
            queue = self._cluster.run("ctl", "squeue -h -r -t PD -o %r").out.split()
            return len(queue) - queue.count("BeginTime") < BATCH

        until(short, "most jobs have started", 120)

    def trouble(self) -> None:
        """Something happens to the engine, or to a few jobs; every kind before one comes again."""
        if not self._coming:
            self._coming = self._chance.sample(self._troubles, len(self._troubles))
        action = self._coming.pop()
        some = " ".join(map(str, self._chance.sample(sorted(self.wanted), 3)))
        if action == "cancel":
            self._cluster.run("ctl", f"scancel {some}", check=False)
        elif action == "requeue":
            # by itself Slurm would let them wait two minutes
            again = "scontrol requeue $j && scontrol update jobid=$j starttime=now"
            self._cluster.run("ctl", f"for j in {some}; do {again}; done", check=False)
        elif action == "reconfigure":
            self._cluster.reconfigure()
            self._cluster.wait_accepted()
            self.starts += 1
        elif action == "slurmctld":
            self._cluster.restart_slurmctld()
            self._cluster.wait_accepted()
            self.starts += 1
        else:
            # not all can be done in every state (a dead engine cannot be paused)
            self._cluster.run("ctl", ["clusterctl", "engine", action], check=False)


def page_of(cluster: Cluster, job: int, user: str) -> CommandResult:
    """A job's page as this user's own connection sees it; an error where it does not."""
    script = "import sys, urllib.request as asks; asks.urlopen(sys.argv[1], timeout=15).read()"
    url = f"http://127.0.0.1:{PAGE_PORT}/api/job/{job}"
    return cluster.run("ctl", ["python3", "-c", script, url], user=user, check=False)


@contextmanager
def the_page(cluster: Cluster) -> Iterator[None]:
    """`gputopo web` on the controller, as SlurmUser, for the block."""
    start = f"gputopo web --listen 127.0.0.1:{PAGE_PORT}"
    cluster.run("ctl", f"setsid runuser -u slurm -- {start} </dev/null >/tmp/web.log 2>&1 &")
    try:
        yield
    finally:
        cluster.run("ctl", "pkill -f 'gputopo [w]eb' || true")


#: Far above what the engine needs (100 MB), far below what one hostile text once took.
MOST_MEMORY_MB = 400


@pytest.mark.parametrize(
    "jobs",
    [32, pytest.param(160, marks=[pytest.mark.long("three minutes"), pytest.mark.timeout(900)])],
)
def test_random_jobs(cluster, jobs):
    """Right counts, no GPU twice at any moment, none in use at the end, slurmctld never fell."""
    print(f"GPUTOPO_SEED={SEED}")  # shown when the test fails
    soup, victims = Soup(cluster, SEED), victims_of(cluster)
    before, mallory = as_slurm_has(cluster, victims), Mallory(cluster, SEED, victims)
    with cluster.slurmctld_log_of() as log, watched(cluster) as watch, the_page(cluster):
        while len(soup.wanted) < jobs:
            soup.submits()
            soup.refusals()
            mallory.act()
            soup.settle()
            soup.trouble()
        cluster.run("ctl", "clusterctl engine resume; clusterctl engine start", check=False)
        assert engine_memory_mb(cluster) < MOST_MEMORY_MB
        assert as_slurm_has(cluster, victims) == before, f"{mallory.tries} attacks"
        assert not mallory.said
        assert page_of(cluster, victims[0], "bob").code == 0
        assert "404" in page_of(cluster, victims[0], "mallory").err
        assert "nothing is marked" in cluster.run("ctl", "gputopo topology marks").out
        cluster.cancel(*reversed(victims))
        drain(cluster)
        order = cluster.status()["order"]
        assert "passed" in order, order
    # since 23.11 a reconfiguration is a new process; any other start would be after a crash
    assert sum("slurmctld version" in line for line in log) <= soup.starts
    assert cluster.gres_used() == dict.fromkeys(GPUS, ())
    check_counts(soup, watch)
    records = [job for job in cluster.jobs() if job.id in soup.wanted]
    states = {job.id: job.state for job in records}
    assert set(states.values()) <= {"COMPLETED", "CANCELLED"}, states
    # both ways to start were taken, or the soup was too thin
    if enforcement() == "slots":
        placed = ["[gpu-slots: placed " in job.admin_comment for job in records]
        assert jobs // 10 < placed.count(True) < len(placed), placed
        return
    results = [one.result for one in shim_log.read(log)]
    assert results.count("used") > jobs // 10, results
    # in a short run all jobs may have started before the first trouble
    assert jobs < 100 or {"timeout", "down", "breaker"} & set(results), results


def drain(cluster: Cluster) -> None:
    """The engine is well again, and all gates are its own to open.

    Jobs without one whose time has not come are told not to wait (requeued, for better GPUs).
    """
    cluster.run("ctl", "clusterctl engine resume; clusterctl engine start", check=False)

    def over() -> bool:
        jobs = [job for job in cluster.jobs() if job.state == "PENDING"]
        for job in jobs:
            gated = "[gpu-slots: gated " in job.admin_comment
            if job.reason == "BeginTime" and not gated:
                # it may start or end meanwhile
                update = f"scontrol update jobid={job.id} starttime=now"
                cluster.run("ctl", update, check=False)
        return not cluster.run("ctl", "squeue -h -o %A").out.strip()

    until(over, "every job has ended", 240)
    cluster.wait_idle()


def check_counts(soup: Soup, watch: Watch) -> None:
    """Each job that was seen running had what it asked for, and one and the same all the time."""
    seen = {jobid: held for jobid, held in watch.held.items() if jobid in soup.wanted}
    assert len(seen) > len(soup.wanted) // 4, "the watch was too slow to see the soup"
    for jobid, held in seen.items():
        for gpus in held:
            assert sum(len(indices) for _, indices in gpus) == soup.wanted[jobid], (jobid, gpus)
