"""`gputopo try` against what the job then gets, in random states of a live cluster."""

import json
import random
import time
from dataclasses import dataclass
from typing import Any

import pytest
from live_harness import PICKY, at_home

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from tests.cluster.users.waiting_states import LINES

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes, pytest.mark.enforced]

#: One state each, listed before the first run.
FEW = range(8)
#: Two hundred more in eight parts, of which each keeps the bar by itself.
MANY = [range(first, first + 25) for first in range(1000, 1200, 25)]
#: At most such a share of the states may be told wrongly, and be declined.
WRONG, DECLINED = 0.05, 0.02
REQUESTS = (
    "--gres=gpu:1", "--gres=gpu:2", "--gres=gpu:3", "--gres=gpu:4", "--gres=gpu:v100:2",
    "--gres=gpu:8", "--gpus-per-node=5", "-N1 --gpus=2", "-N1 --gpus=4", "-N2 --gres=gpu:2",
    "-N2 --gpus-per-node=4", "-n2 -N1 --gpus-per-task=1", "-w dgx2 --gres=gpu:2",
    "-c3 --gres=gpu:4", "--mem=2000 --gres=gpu:1", "--exclusive --gres=gpu:2",
)  # fmt: skip


@dataclass(frozen=True)
class Scene:
    """A state of two nodes, and a job's options."""

    busy: dict[str, list[int]]
    options: list[str]


def scene(seed: int) -> Scene:
    """The state of this seed."""
    dice = random.Random(seed)
    busy = {node: dice.sample(range(8), dice.randrange(9)) for node in ("dgx1", "dgx2")}
    options = ["-p", "dgx", "-t", "10", *dice.choice(REQUESTS).split()]
    return Scene(busy, options + ([PICKY] if dice.random() < 0.2 else []))


def outcome(cluster: Cluster, jobid: int) -> dict[str, Any]:
    """Whether a job that was just submitted starts now, and on which GPUs."""
    # Slurm has looked at it once it runs, or has another reason than none.
    until(
        lambda: cluster.job(jobid).state == "RUNNING" or cluster.job(jobid).reason != "None",
        "Slurm has looked at the job",
    )
    cluster.wait_reconciled()
    job = cluster.job(jobid)
    gpus = {node: sorted(some) for node, some in job.gpus.items()}
    return {"starts_now": job.state == "RUNNING", "gpus": gpus if job.state == "RUNNING" else {}}


def said_of(cluster: Cluster, options: list[str]) -> dict[str, Any]:
    """What `try` says of them."""
    argv = ["gputopo", "try", "--json", *options]
    said: dict[str, Any] = json.loads(cluster.run("ctl", argv, user="alice").out)
    return said


def told(cluster: Cluster, options: list[str]) -> dict[str, Any] | None:
    """The same with GPUs ascending; None where it declines to answer."""
    said = said_of(cluster, options)
    if said["starts_now"] is None:
        return None
    return {**said, "gpus": {node: sorted(some) for node, some in said["gpus"].items()}}


def agrees(said: dict[str, Any], got: dict[str, Any]) -> bool:
    """The same nodes and GPUs; where Slurm chooses the GPUs the nodes are what is told."""
    is_open = said["starts_now"] and not any(said["gpus"].values())
    nodes = list(said["gpus"]) == list(got["gpus"])
    same = nodes if is_open else said["gpus"] == got["gpus"]
    return said["starts_now"] == got["starts_now"] and same


def compared(cluster: Cluster, seeds: range) -> None:
    """Counts the states in which `try` was right."""
    wrong, declined = [], []
    for seed in seeds:
        now = scene(seed)
        held = cluster.occupy_nodes(now.busy)
        said = told(cluster, now.options)
        jobid = cluster.sbatch(*now.options, sleep_s=300)
        got = outcome(cluster, jobid)
        cluster.end([jobid, *(one for ids in held.values() for one in ids)])
        if said is None:
            declined.append(seed)
        elif not agrees(said, got):
            wrong.append((seed, now, said, got))
            print(f"wrong in state {seed}: {now}\n  try said {said}\n  the job got {got}")
    print(f"{len(seeds)} states: {len(wrong)} wrong, {len(declined)} declined")
    assert len(wrong) <= WRONG * len(seeds), wrong
    assert len(declined) <= DECLINED * len(seeds), declined


@pytest.mark.long("eight states, each with a job of its own")
def test_try_tells_what_the_job_then_gets_in_a_few_states(cluster):
    compared(cluster, FEW)


@pytest.mark.timeout(900)
@pytest.mark.long("two hundred states, each with a job of its own")
@pytest.mark.parametrize("seeds", MANY, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_try_tells_what_the_job_then_gets(cluster, seeds):
    compared(cluster, seeds)


@pytest.mark.long("a job of its own, and unit tests say which variables count")
def test_sbatchs_variables_count_as_in_a_submit(cluster):
    env = {"SBATCH_PARTITION": "dgx", "SBATCH_GPUS_PER_NODE": "3", "SBATCH_TIMELIMIT": "5"}
    done = cluster.run("ctl", "gputopo try --json -N2", user="alice", env=env)
    argv = ["sbatch", "--parsable", "-o", "/dev/null", "-N2", "--wrap", "sleep 60"]
    job = cluster.wait_running(int(cluster.run("ctl", argv, user="alice", env=env).out))
    assert {node: set(some) for node, some in json.loads(done.out)["gpus"].items()} == {
        node: set(some) for node, some in job.gpus.items()
    }
    assert job.gpus.keys() == {"dgx1", "dgx2"}


def test_nothing_is_submitted_and_what_is_not_understood_is_said(cluster):
    before = cluster.run("ctl", "squeue -h -a").out
    assert told(cluster, ["--gres=gpu:2"])
    assert cluster.run("ctl", "squeue -h -a").out == before
    done = cluster.run("ctl", "gputopo try --burst-buffer=x --gpus=1", user="alice", check=False)
    assert done.code == 2
    assert "options that are not understood are not guessed at" in done.err


@pytest.mark.parametrize("option", ["--begin=now+60", "--contiguous", "--switches=1", "-H"])
def test_of_what_is_not_judged_slurms_word_is_shown(cluster, option):
    """And the engine keeps no GPUs for the test, as it would for a submit in the slots mode."""
    before = cluster.run("ctl", "squeue -h -a").out
    said = cluster.run("ctl", f"gputopo try -p dgx --gres=gpu:2 {option}", user="alice").out
    name = option.partition("=")[0].replace("-H", "--hold")
    begins = {
        "--begin": "It would not start now, as Slurm says: Job ",
        "--contiguous": "It would start now, as Slurm says; on which nodes and GPUs is not known",
    }
    unknown = f"Whether it would start now is not known here: {name} is not judged."
    assert said.startswith(begins.get(name, unknown))
    assert "to start at" in said
    assert cluster.run("ctl", "squeue -h -a").out == before
    assert told(cluster, ["-p", "dgx", "-N2", "--gres=gpu:8"])["starts_now"]
    refused = cluster.run("ctl", f"gputopo try -p nowhere --gpus=1 {option}", user="alice").out
    assert "invalid partition" in refused.lower()


def test_of_what_slurmctld_dies_of_it_is_not_asked(cluster):
    """24.11.5: --spread-job with GPUs for each task."""
    argv = "gputopo try -p dgx --spread-job --gpus-per-task=2 -n3"
    said = cluster.run("ctl", argv, user="alice").out
    assert "--spread-job is not judged" in said
    assert "Slurm says" not in said


#: Forms in which Slurm goes by more than GPUs and an even share of CPUs.
FORMS = (
    "-p gpu -n70 --gres=gpu:1", "-p fed --gpus=3", "-p fed --gres=gpu:2", "-p fed -c2 --gpus=9",
    "-p gpu --cpus-per-gpu=6 --gpus=3", "-p gpu --mem-per-gpu=1500 --gpus=3",
    "-p gpu --gpus-per-task=1 -n6 -c6", "-p gpu --mem=0 --gres=gpu:2", "-p dgx --gpus=9",
    "-p dgx -w dgx1,dgx2 --gpus=2", "-p dgx,gpu --gres=gpu:2", "-p dgx -N2 -n1 --gres=gpu:1",
    "-p dgx -N2 --gpus=5", "-p dgx --requeue --gpu-bind=closest --gres=gpu:2", "-p dgx --gpus=17",
    "-p dgx -N2 --gpus=3 -c9", "-p dgx -n20 --gpus=2", "-p whole --gpus=1",
    "-p narrow -c4 --gpus=1", "-p narrow -n6 --gpus=1", "-p dgx -c17 --gpus=1",
    "-p dgx --mem=5000 --gpus=1",
    "-p dgx -n20", "-p dgx -n5 -c5", "-p dgx -N2 -n17", "-p dgx -n33", "-p narrow -n6",
    "-p dgx -N3 --gres=gpu:1", "-p dgx --gres=gpu:9", "-p dgx --gres=gpu:p100:1",
)  # fmt: skip
#: Of them those with GPUs that cannot be the same number on each node.
NOT_JUDGED = ["-p dgx -N2 --gpus=5", "-p dgx -N2 --gpus=3 -c9"]
PARTITIONS = (
    "PartitionName=fed Nodes=dgx[1-2] DefCpuPerGPU=6 DefMemPerGPU=300 DefaultTime=10 State=UP\n"
    "PartitionName=whole Nodes=dgx[1-2] OverSubscribe=EXCLUSIVE DefaultTime=10 State=UP\n"
    "PartitionName=narrow Nodes=dgx[1-2] MaxCPUsPerNode=4 DefaultTime=10 State=UP\n"
)


#: A Slurm whose partitions give more, or less, than is asked.
many_partitions = at_home(slurm_conf=PARTITIONS)


def starts_soon(cluster: Cluster, jobid: int) -> bool:
    """Whether a job starts within ten seconds: Slurm may still be cleaning up the one before."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if cluster.job(jobid).state == "RUNNING":
            return True
        time.sleep(0.5)
    return False


@pytest.mark.long("fifty jobs")
@pytest.mark.parametrize("busy", [[], [0, 1, 4]], ids=["nothing runs", "dgx1 is half full"])
def test_never_and_now_are_never_false(many_partitions, cluster, busy):
    """Of forms that are not all understood: what is said to start starts, what never, does not."""
    cluster.occupy_nodes({"dgx1": busy})
    wrong, missed, declined = [], [], []
    for form in FORMS:
        argv = ["gputopo", "try", "--json", "-t", "5", *form.split()]
        said = json.loads(cluster.run("ctl", argv, user="alice").out)
        words = ["sbatch", "--parsable", "-o/dev/null", "-t", "5", *form.split(), "--wrap=sleep 99"]
        job = cluster.run("ctl", words, user="alice", check=False)
        starts, became = False, job.err.strip()
        if not job.code:
            starts = starts_soon(cluster, int(job.out))
            became = became or str(cluster.job(int(job.out)))
            cluster.cancel(int(job.out))
        until(lambda: not cluster.run("ctl", "squeue -h -u alice").out, "the job is over", 60)
        if said["starts_now"] is None:
            declined.append(form)
            continue
        told = (form, said["sentence"], became)
        # What Slurm takes may start one day.
        if (said["starts_now"] and not starts) or (said["never"] and not job.code):
            wrong.append(told)
        elif said["starts_now"] != starts:
            missed.append(told)
    assert not wrong
    assert not missed
    assert declined == [form for form in FORMS if form in NOT_JUDGED]


#: A Slurm that holds users to limits and to their QOS.
limited = at_home(slurm_conf=LINES)


@pytest.mark.long("a Slurm with limits; unit tests have each rule")
def test_the_users_own_qos_and_groups_count_as_in_a_submit(limited, cluster):
    ask = ("-p", "dgx", "-t", "10", "--gres=gpu:3")
    add = "sacctmgr -i add qos small set MaxTRESPerUser=gres/gpu=2"
    account = "sacctmgr -i modify account research set"
    add += f" && {account} qos=normal,small defaultqos=small"
    drop = f"scancel -u alice; {account} qos=normal defaultqos=-1"
    with cluster.temporarily(add, f"{drop} && sacctmgr -i delete qos small"):
        done = cluster.run("ctl", ["gputopo", "try", *ask], user="alice")
        assert "because user alice in QOS small may use 2 GPUs at a time" in done.out
        job = cluster.sbatch(*ask)
        until(lambda: cluster.job(job).reason not in ("None", "BeginTime"), "Slurm looked at it")
        assert (cluster.job(job).fields["QOS"], cluster.job(job).state) == ("small", "PENDING")
        said = said_of(cluster, [*ask, "-q", "normal"])
        assert said["starts_now"], said
    update = "scontrol update partitionname=dgx allowgroups="
    with cluster.temporarily(f"{update}root", f"{update}ALL"):
        done = cluster.run("ctl", ["gputopo", "try", *ask], user="alice")
        assert "partition dgx is for group root alone, and user alice is not in it" in done.out
        said = said_of(cluster, [*ask[2:], "-p", "dgx,off"])
        assert said["starts_now"], said
        # Slurm takes it, unless EnforcePartLimits says otherwise, and does not start it.
        assert not outcome(cluster, cluster.sbatch(*ask))["starts_now"]
    cluster.run("ctl", "scancel -u alice")
    until(lambda: not cluster.run("ctl", "squeue -h").out.strip(), "the queue is empty")
    assert told(cluster, list(ask))["starts_now"]
