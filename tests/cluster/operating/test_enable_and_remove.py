"""Enabling and removing: the controller alone changes, and no job notices."""

from collections.abc import Iterator

import pytest
from live_harness import GPUS, OURS_ON_A_NODE, PICKY, TAKEN, Watch, by_policy, got_by, visible
from node_variants import RESTART_SLURMD
from select_harness import SWITCH, stock_pair

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.slurm import RECORD
from slurm_cluster.slurm_text import parse_indices

pytestmark = [pytest.mark.cluster, pytest.mark.select_plugin]

PAIR = ("-w", "dgx1", "--gres=gpu:2")
OUR_PAIR = {"dgx1": (0, 3)}
# Runs until told to, then notes its environment a second time.
GO_ON = f"{RECORD}; until [ -e $HOME/go-on ]; do sleep 0.2; done; env >$HOME/end.$SLURM_JOB_ID.env"


@pytest.fixture(autouse=True)
def no_files(cluster: Cluster, watch: Watch) -> Iterator[None]:
    """What the jobs of a test wait for, and what they leave."""
    cluster.run("ctl", "rm -f /home/alice/go-on")
    yield
    cluster.run("ctl", "rm -f /home/alice/go-on /home/alice/end.*.env")


def test_jobs_live_through_enabling_and_removing(cluster):
    """Started under stock, under ours, and pending all along: same GPUs, good ends, one each."""
    cluster.switch("stock")
    slurmd = cluster.run("dgx1", "cat /run/slurmd.pid").out
    old = cluster.submit_many([("-w", n, "--gres=gpu:3") for n in ("dgx2", "amd1")], script=GO_ON)
    old_gpus = cluster.running_gpus(old)
    full = cluster.sbatch("-w", "minsky1", "--gres=gpu:4", script=GO_ON)
    pending = cluster.sbatch("-w", "minsky1", "--gres=gpu:2", script=GO_ON)
    cluster.switch("gputopo")
    new = cluster.submit_many(
        [("-w", n, "--gres=gpu:3") for n in ("dgx2", "bridged1")], script=GO_ON
    )
    new_gpus = cluster.running_gpus(new)
    assert new_gpus == [
        by_policy(old_gpus[0], (3,), ("dgx2",)),
        by_policy({}, (3,), ("bridged1",)),
    ]
    assert cluster.running_gpus(old) == old_gpus
    cluster.switch("stock")
    assert cluster.running_gpus([*old, *new]) == [*old_gpus, *new_gpus]
    assert cluster.job(pending).state == "PENDING"
    cluster.run("ctl", "touch /home/alice/go-on", user="alice")
    for jobid in [*old, *new, full, pending]:
        assert cluster.wait_finished(jobid).state == "COMPLETED"
    for jobid, gpus in zip([*old, *new], [*old_gpus, *new_gpus], strict=True):
        assert list(gpus.values()) == [at_end(cluster, jobid)]
        assert visible(cluster, [jobid]) == list(gpus.values())
    cluster.wait_idle()
    assert cluster.run("dgx1", "cat /run/slurmd.pid").out == slurmd
    assert got_by(cluster, *PAIR) == stock_pair(cluster)


def at_end(cluster: Cluster, jobid: int) -> tuple[int, ...]:
    """CUDA_VISIBLE_DEVICES when the job ended."""
    line = f"sed -n 's/^CUDA_VISIBLE_DEVICES=//p' /home/alice/end.{jobid}.env"
    return parse_indices(cluster.run("ctl", line).out.strip())


@pytest.mark.long("20 s of waiting")
def test_a_postponed_job_wakes_by_itself_after_removal(cluster):
    """Nobody has to help: its begin time comes, and stock Slurm starts it."""
    cluster.run("ctl", "sed -i '$a waiting: {step_s: 10}' /etc/slurm/gputopo.yaml")
    cluster.engine("restart")
    cluster.occupy("dgx1", TAKEN)
    jobid = cluster.sbatch(*PAIR, PICKY, sleep_s=300)
    cluster.wait_postponed(jobid)
    cluster.switch("stock")

    def runs() -> bool:
        # stock Slurm looks at its queue when something happens, else once a minute
        cluster.sbatch("-n1", script="true")
        return cluster.job(jobid).state == "RUNNING"

    until(runs, "the picky job runs", 90)
    assert cluster.job(jobid).gpus == {"dgx1": (0, 5)}


def test_the_kill_switch_stops_everything_but_the_jobs(cluster):
    """One file: Slurm's own choice at once, hints no longer checked, jobs as they were."""
    cluster.occupy("dgx1", TAKEN)
    held = cluster.sbatch("-w", "dgx2", "--gres=gpu:2", sleep_s=300)
    gpus = cluster.wait_running(held).gpus
    picky = cluster.sbatch(*PAIR, PICKY, sleep_s=300)
    cluster.wait_postponed(picky)
    cluster.run("ctl", f"touch {SWITCH}; sleep 1.2")
    odd = cluster.sbatch("-w", "bridged1", "--gres=gpu:2", "--comment=gpu-topo: oops", sleep_s=300)
    assert cluster.wait_running(odd).gpus == stock_pair(cluster, "bridged1")
    cluster.run("ctl", f"scontrol update jobid={picky} starttime=now")
    assert cluster.wait_running(picky).gpus == {"dgx1": (0, 5)}
    assert cluster.job(held).gpus == gpus
    cluster.run("ctl", f"rm {SWITCH}; sleep 1.2; squeue -h -o %A | xargs scancel")
    cluster.wait_idle()
    assert got_by(cluster, *PAIR) == OUR_PAIR


@pytest.mark.long("a detail of what a shorter test shows")
def test_nodes_need_none_of_our_files(cluster):
    """Under our slurm.conf slurmd restarts on every node, with its job, and has no file of ours."""
    ids = cluster.submit_many([("-w", node, "--gres=gpu:2") for node in GPUS])
    got = cluster.running_gpus(ids)
    for node in GPUS:
        assert "PluginDir=/usr/local/lib:" in cluster.run(node, "cat /etc/slurm/slurm.conf").out
        assert cluster.run(node, OURS_ON_A_NODE).out == ""
        cluster.run(node, RESTART_SLURMD)
    for node in GPUS:
        until(lambda node=node: is_up(cluster, node), f"slurmd of {node} is back")
    assert cluster.running_gpus(ids) == got
    cluster.end(ids)
    assert got_by(cluster, *PAIR) == OUR_PAIR


def is_up(cluster: Cluster, node: str) -> bool:
    """Whether the node runs slurmd and Slurm counts on it (`mixed*` would mean no answer)."""
    state = cluster.run("ctl", f"sinfo -h -n {node} -p gpu -o %T").out.strip()
    return not cluster.run(node, "pidof slurmd", check=False).code and state == "mixed"


CLIENTS = (
    "sinfo -N",
    "squeue",
    "scontrol show config",
    "scontrol show nodes",
    "sbatch --parsable -o /dev/null --gres=gpu:1 --wrap true",
    "srun --gres=gpu:2 printenv CUDA_VISIBLE_DEVICES",
    "salloc -w dgx1 --gres=gpu:2 true",
)


@pytest.mark.parametrize("variant", ["gputopo", "stock"])
@pytest.mark.long("a detail of what a shorter test shows")
def test_commands_on_a_login_host(cluster, variant):
    """A host with stock packages reads our slurm.conf and its client commands work."""
    cluster.switch(variant)
    for command in CLIENTS:
        done = cluster.run("amd1", command, user="alice", check=False)
        assert done.code == 0, f"{command}: {done}"
        assert "plugin" not in done.err.lower(), done.err
    if variant == "gputopo":
        bad = "sbatch --gres=gpu:1 '--comment=gpu-topo: patern=ring' --wrap true"
        refused = cluster.run("amd1", bad, user="alice", check=False)
        assert refused.code != 0
        assert "unknown key 'patern'" in refused.err
