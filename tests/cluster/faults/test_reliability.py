"""Whatever happens to the engine, to slurmctld or to a job: jobs run, and no GPU is given twice."""

import itertools
import time
from collections.abc import Sequence

import pytest
from live_harness import IN_BOTH_MODES, PICKY, TAKEN, advised_again, kill_slurmctld, visible
from mallory import Mallory, as_slurm_has, victims_of
from select_harness import stock_pair

from bench.live import shim_log
from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = IN_BOTH_MODES

RESTARTS = {
    "restart": Cluster.restart_slurmctld,
    "scontrol reconfigure": Cluster.reconfigure,
    "SIGKILL": kill_slurmctld,
}


def wait_nodes(cluster: Cluster) -> None:
    """Before 24.11 a job that starts on a node that has not registered yet gets no GPUs."""
    if cluster.release < (24, 11):
        unknown = "scontrol show node | grep -c SlurmdStartTime=None"
        until(lambda: cluster.run("ctl", unknown, check=False).code, "all nodes have registered")


ONE_OF = pytest.mark.long("another way to lose and find the same")
WAYS = [pytest.param(way, marks=() if way == "SIGKILL" else ONE_OF) for way in RESTARTS]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.both_modes("short")
def test_slurmctld_comes_back_with_every_job_as_it_was(cluster, watch, way):
    """Running jobs keep their GPUs; pending and postponed ones wait on and then start."""
    cluster.occupy("dgx1", TAKEN)
    held = cluster.submit_many([("-w", n, "--gres=gpu:3") for n in ("dgx2", "amd1", "bridged1")])
    before = cluster.running_gpus(held)
    full = cluster.submit_many([("-w", "minsky1", "--gres=gpu:4")] * 2)
    cluster.wait_running(full[0])
    picky = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", PICKY, sleep_s=300)
    cluster.wait_postponed(picky)
    used = cluster.gres_used()
    RESTARTS[way](cluster)
    wait_nodes(cluster)
    until(lambda: cluster.gres_used() == used, "the same GPUs in use")
    assert cluster.running_gpus(held) == before
    assert visible(cluster, held) == [gpus for got in before for gpus in got.values()]
    assert cluster.job(picky).state == cluster.job(full[1]).state == "PENDING"
    cluster.cancel(full[0])
    assert cluster.running_gpus(full[1:])[0] == {"minsky1": (0, 1, 2, 3)}
    cluster.run("ctl", "squeue -h -u bob -w dgx1 -o %A | xargs scancel")
    got = cluster.wait_running(picky, timeout_s=90).gpus["dgx1"]
    assert len(got) == 2


def test_slurmctld_starts_while_the_engine_is_away(cluster, watch):
    """Neither needs the other to start; advice begins when both are there."""
    jobid = cluster.sbatch("-w", "dgx2", "--gres=gpu:3", sleep_s=300)
    gpus = cluster.wait_running(jobid).gpus
    cluster.engine("kill")
    cluster.restart_slurmctld()
    wait_nodes(cluster)
    stock = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", script="sleep 300")
    assert cluster.wait_running(stock).gpus == stock_pair(cluster)
    assert cluster.job(jobid).gpus == gpus
    cluster.end([stock, jobid])
    cluster.engine("start")
    advised_again(cluster, start_s=30, timeout_s=60)


SOCKET = "/run/gputopo/engine.sock"
FORMS = (
    ("--gres=gpu:2",),
    ("--gpus=3", "-N1"),
    ("--gpus-per-node=1",),
    ("-n2", "-N1", "--gpus-per-task=1"),
    ("--gres=gpu:4", "--comment=gpu-topo: pattern=all-to-all"),
)
COUNTS = (2, 3, 1, 2, 4)
SHORT = "sleep 1"


#: The engine stops for 40 to 200 ms, again and again: half its answers come late.
JITTER = (
    "(pid=$(clusterctl engine pid); while kill -STOP $pid 2>/dev/null; do"
    " for s in 0.04 0.2 0.08; do kill -STOP $pid; sleep $s; kill -CONT $pid; sleep 0.03; done;"
    " done) >/dev/null 2>&1 & echo $! >/tmp/jitter.pid"
)
#: What happens to the engine, what undoes it, and the result that slurmctld's log then shows.
TROUBLES = {
    "killed": ("clusterctl engine kill", "clusterctl engine start", "down"),
    "stopped by SIGSTOP": ("clusterctl engine pause", "clusterctl engine resume", "timeout"),
    "restarted": ("clusterctl engine restart", "clusterctl engine restart", "used"),
    "slow": (JITTER, "kill $(cat /tmp/jitter.pid); kill -CONT $(clusterctl engine pid)", "timeout"),
    "without its socket": (
        f"clusterctl engine kill; rm {SOCKET}",
        "clusterctl engine start",
        "down",
    ),
}
EVERY_RUN = ("killed", "stopped by SIGSTOP")
ANOTHER = pytest.mark.long("another way for the engine to be away")


# From here on the deadline is the usual one; it stays so for the file's other tests in this mode.
@pytest.mark.usefixtures("usual_deadline")
@pytest.mark.select_plugin
@pytest.mark.parametrize(
    "trouble", [pytest.param(one, marks=() if one in EVERY_RUN else ANOTHER) for one in TROUBLES]
)
def test_a_stream_of_jobs_while_the_engine_is(cluster, watch, trouble):
    """Jobs before, during and after it: each runs to its end with the GPUs it asked for.

    A user who tries to make use of the moment moves nobody's.
    """
    pid, victims = cluster.slurmctld("pid"), victims_of(cluster)
    before = as_slurm_has(cluster, victims)
    log = cluster.slurmctld_log_size()
    ids = cluster.submit_many(FORMS * 2, script=SHORT)
    do, undo, met = TROUBLES[trouble]
    with cluster.temporarily(do, undo):
        ids += cluster.submit_many(FORMS * 3, script=SHORT)
        Mallory(cluster, len(trouble), victims).act(4)
        finish(cluster, ids[: -len(FORMS)])
        ids += until_met(cluster, met, log)
    ids += cluster.submit_many(FORMS, script=SHORT)
    finish(cluster, ids)
    assert as_slurm_has(cluster, victims) == before
    cluster.cancel(*reversed(victims))
    cluster.wait_idle()
    assert cluster.slurmctld("pid") == pid
    for jobid, count in zip(ids, itertools.cycle(COUNTS)):
        for held in watch.held.get(jobid, ()):
            assert sum(len(gpus) for _, gpus in held) == count
    advised_again(cluster, start_s=30, timeout_s=60)


def until_met(cluster: Cluster, result: str, log: int) -> list[int]:
    """More jobs until slurmctld's log shows the result: which questions are late is chance."""
    ids: list[int] = []
    deadline = time.monotonic() + 120
    while result not in (logged := results(cluster.slurmctld_log_from(log))):
        assert time.monotonic() < deadline, f"no {result} among {logged}"
        more = cluster.submit_many(FORMS, script=SHORT)
        finish(cluster, more)
        ids += more
    return ids


def results(log: Sequence[str]) -> set[str]:
    """What became of the questions."""
    return {one.result for one in shim_log.read(log)}


def finish(cluster: Cluster, ids: Sequence[int]) -> None:
    """Waits for the ends of jobs, all of them good ones."""
    for jobid in ids:
        assert cluster.wait_finished(jobid, timeout_s=120).state == "COMPLETED"


@pytest.mark.usefixtures("usual_deadline")
def test_ten_megabytes_of_hint(cluster):
    """A job script with such a line is refused; a client of the socket is disconnected."""
    hint = "head -c 10000000 /dev/zero | tr '\\0' x"
    script = f"(echo '#!/bin/sh'; printf '#SBATCH --comment=gpu-topo:'; {hint}; echo)"
    refused = cluster.run("ctl", f"{script} | sbatch --gres=gpu:1", user="alice", check=False)
    assert refused.code != 0
    assert refused.err.count("\n") <= 3
    pid = cluster.engine_pid()
    line = f"(printf 'place id=7 job=7 hint='; {hint}; echo) | socat - UNIX-CONNECT:{SOCKET}"
    reply = cluster.run("ctl", line, check=False).out
    assert reply == "" or reply.startswith("error id=0 ")
    assert cluster.engine_pid() == pid
    advised_again(cluster, start_s=30, timeout_s=60)
