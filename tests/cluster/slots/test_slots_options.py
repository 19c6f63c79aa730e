"""Whatever else a user asks of sbatch: slots at once or from behind a gate, and as many GPUs."""

import shlex
from collections.abc import Sequence

import pytest
from live_harness import OLD, watched

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_plugin.act.gates.admission import APART, SPREAD
from slurm_plugin.act.gates.planning import OVERTAKEN
from slurm_plugin.act.gates.want import CHANGED
from slurm_plugin.queue.candidates import BESIDE_OTHERS, HALF_CLOSED
from tests.cluster.slots.gated import gated

pytestmark = [pytest.mark.cluster, pytest.mark.slots]

SOME_S = "sleep 1"
GATED = "[gpu-slots: gated "
#: GPUs of two sockets for one CPU; 24.05 gives those of its socket alone, stock too.
BOUND = "--gres=gpu:4 --gres-flags=enforce-binding -w amd1"
#: Options, the GPUs of the whole job (nodes that are the job's alone: 4 or more), and its nodes.
SLOTS = {
    "--gres=gpu": (1, 1),
    "--gres=gpu:v100": (1, 1),
    "--gres=gpu:a100:2": (2, 1),
    "--gpus=v100:2 --constraint=v100": (2, 1),
    "--gres=gpu:2 --constraint=v100|a100": (2, 1),
    "--gpus=3": (3, 1),
    "--gpus=2 -n4": (2, 1),
    "--gpus=3 -n2 -N1": (3, 1),
    "--gpus=1 --gres=gpu:1": (1, 1),
    "--gpus=4 --gpus-per-node=2": (4, 2),
    "--gpus=4 --gpus-per-task=1": (4, 1),
    "--gpus=4 -N2 -n2 --gpus-per-task=2": (4, 2),
    "--gpus=4 --ntasks-per-gpu=2": (4, 1),
    "--gpus=16 -N2 -p dgx": (16, 2),
    "--gpus=4 -N2 --ntasks-per-node=2 -p dgx": (4, 2),
    "--gpus-per-node=2 --cpus-per-gpu=3 -N2 -p dgx": (4, 2),
    "--gpus-per-node=2 --sockets-per-node=2": (2, 1),
    "--gpus-per-task=1 -n4 -N2 -p dgx": (4, 2),
    "--gpus-per-task=1 -n3 --cpus-per-gpu=2": (3, 1),
    "--gpus-per-socket=2 --sockets-per-node=1": (2, 1),
    "--gpus=3 --cpus-per-gpu=2 --mem-per-gpu=20": (3, 1),
    "--gres=gpu:2 -n3 -c2": (2, 1),
    "--gres=gpu:2 -n2 --ntasks-per-socket=1": (2, 1),
    "--gres=gpu:2 --ntasks-per-core=1": (2, 1),
    "--gres=gpu:2 --cores-per-socket=4": (2, 1),
    "--gres=gpu:2 --hint=nomultithread": (2, 1),
    "--gres=gpu:2 -B 2:4:1": (2, 1),
    # 26.05 itself holds a job with more of them than a socket of its GPUs has cores
    "--gres=gpu:2 --mincpus=4": (2, 1),
    "--gres=gpu:2 -m cyclic:cyclic -n4": (2, 1),
    "--gres=gpu:2 --gres-flags=disable-binding": (2, 1),
    "--gres=gpu:2 --gres-flags=enforce-binding": (2, 1),
    "--gres=gpu:2 --gpu-bind=closest -n2": (2, 1),
    "--gpus=2 --gpu-bind=per_task:1 -n2": (2, 1),
    "--gres=gpu:2 --mem-per-cpu=20 -c4": (2, 1),
    "--gres=gpu:2 --oversubscribe": (2, 1),
    "--gres=gpu:2 --exclusive -w dgx1": (8, 1),
    "--gres=gpu:2 --spread-job -N2 -p dgx": (4, 2),
    "--gres=gpu:2 --use-min-nodes -p dgx": (2, 1),
    "--gres=gpu:2 --switches=1@1": (2, 1),
    "--gres=gpu:2 -w dgx[1-2]": (4, 2),
    "--gres=gpu:2 -x dgx1": (2, 1),
    "--gres=gpu:2 --time-min=1 --time=5": (2, 1),
    "--gres=gpu:2 --deadline=now+1hour --time=5": (2, 1),
    "--gres=gpu:2 --nice=100": (2, 1),
}
#: The same of what slots cannot serve, or not on any set of GPUs.
OWN_CHOICE = {
    "--gpus=9 -p dgx": (9, 2),
    "--gpus=6 -N3 -n3": (6, 3),
    "--gres=gpu:2 --overcommit -n4": (2, 1),
    "--gres=gpu:2 --overcommit -n40": (2, 1),
    "--gres=gpu:2 --exclusive=user": (2, 1),
    "--gres=gpu:2 --mem=0": (2, 1),
    "--gres=gpu:2 --contiguous -N2 -p dgx": (4, 2),
    BOUND: (4, 1),
}
if not OLD:  # an option since 23.11
    SLOTS["--tres-per-task=cpu:2,gres/gpu:1 -n2"] = (2, 1)
ALL = {**SLOTS, **OWN_CHOICE}


def records(cluster: Cluster, ids: Sequence[int]) -> dict[str, dict[str, str]]:
    """Slurm's own record of each job, by its options."""
    jobs = {job.id: job.fields for job in cluster.jobs()}
    return {text: jobs[jobid] for text, jobid in zip(ALL, ids, strict=True)}


def ran(cluster: Cluster, ids: Sequence[int]) -> None:
    """Each job ran with as many GPUs and nodes as it asked for, on slots where it could."""
    cluster.wait_idle(timeout_s=150)
    jobs = records(cluster, ids)
    ends = {text: job["JobState"] for text, job in jobs.items()}
    assert set(ends.values()) == {"COMPLETED"}, ends
    until(lambda: all(map(any, accounted(cluster, ids).values())), "all jobs are accounted", 20)
    had = accounted(cluster, ids)
    expected = ALL | ({BOUND: (2, 1)} if cluster.release == (24, 5) else {})
    for text, job in jobs.items():
        words = job["AdminComment"]
        if any(why in words for why in (APART, OVERTAKEN, HALF_CLOSED, SPREAD, BESIDE_OTHERS)):
            # What was free on one of its nodes was not on the other, smaller jobs that are Slurm's
            # own took what it waited for, or the one with --exclusive=user has the node with room
            # to itself and its user, or there was room on several nodes alone, or beside others
            # whose cores Slurm alone knows: how many nodes it has is Slurm's choice, too.
            assert text in SLOTS, (text, words)
            assert ALL[text][1] > 1 or APART not in words, (text, words)
            continue
        kind = "Slurm's own choice: " if text in OWN_CHOICE else "[gpu-slots: placed "
        assert kind in words, (text, words)
        assert had[int(job["JobId"])] == expected[text], (text, words)


def accounted(cluster: Cluster, ids: Sequence[int]) -> dict[int, tuple[int, int]]:
    """The GPUs and nodes of each job that the accounting knows them of."""
    words = ["sacct", "-X", "-n", "-P", "-o", "JobIDRaw,AllocTRES", "-j", ",".join(map(str, ids))]
    result = {}
    for line in cluster.run("ctl", words).out.split():
        jobid, _, tres = line.partition("|")
        items = dict(item.split("=", 1) for item in tres.split(",") if item)
        result[int(jobid)] = int(items.get("gres/gpu", 0)), int(items.get("node", 0))
    return result


@pytest.mark.long("half a minute of jobs")
def test_every_option_starts_from_behind_a_gate(cluster):
    """All wait while no node is open; then each gets slots, or Slurm's own choice."""
    with watched(cluster):
        update = "scontrol update nodename=ALL state="
        with cluster.temporarily(f"{update}drain reason=test", f"{update}resume"):
            cluster.wait_reconciled()
            ids = cluster.submit_many(list(map(shlex.split, ALL)), script=SOME_S)
            jobs = records(cluster, ids)
            assert SLOTS.keys() == {text for text, job in jobs.items() if GATED in str(job)}
        ran(cluster, ids)


def test_every_option_starts_at_once(cluster):
    """One after the other, few at a time; Slurm refuses none with its slots."""
    with watched(cluster):
        ids = []
        for text in ALL:
            ids += cluster.submit_many([shlex.split(text)], script=SOME_S)
        ran(cluster, ids)


def test_no_wait_loses_the_time_before_a_reservation(cluster):
    """A job of five minutes waits for a better pair, until it has to start to be over in time."""
    cluster.occupy("dgx1", (2, 3, 4, 5, 7))
    picky = ("-w", "dgx1", "-t5", "--gres=gpu:2", "--comment=gpu-topo: min-utility=0.9")
    jobid = cluster.sbatch(*picky, sleep_s=60)
    until(lambda: "the job asks for" in cluster.job(jobid).fields["AdminComment"], "it waits")
    assert cluster.job(jobid).state == "PENDING"
    reserve = "reservationname=m starttime=now+500 duration=60 nodes=dgx1 users=root"
    cluster.run("ctl", f"scontrol create reservation {reserve} flags=maint,ignore_jobs")
    assert set(cluster.wait_running(jobid).gpus["dgx1"]) <= {0, 1, 6}


@pytest.mark.parametrize("option", ["--exclusive=user", "--exclusive=mcs"])
def test_a_job_that_closes_its_node_is_slurms(cluster, option):
    """Its user's next one goes to the same node, as without us."""
    first = cluster.started("-p", "dgx", option, "--gres=gpu:1", sleep_s=60)
    assert "closes its nodes to other users" in first.fields["AdminComment"]
    second = cluster.started("-p", "dgx", option, "--gres=gpu:2", sleep_s=60)
    assert list(second.gpus) == list(first.gpus)


def test_jobs_that_are_slurms_own_do_not_pass_a_gated_one_for_ever(cluster):
    """Once one has, the gated job is Slurm's own, too, and Slurm keeps room for it."""
    holders = cluster.occupy("dgx1", range(8))
    jobid = cluster.sbatch("-w", "dgx1", "-t5", "--gres=gpu:8", sleep_s=60)
    cluster.wait_postponed(jobid)
    passing = ("-p", "off", "-w", "dgx1", "-t60", "--gres=gpu:1")
    cluster.cancel(holders[0])
    passed = cluster.started(*passing, user="bob", sleep_s=60)
    until(lambda: OVERTAKEN in cluster.job(jobid).fields["AdminComment"], "the job is Slurm's own")
    cluster.cancel(*holders[1:])
    later = cluster.sbatch(*passing, user="bob", sleep_s=60)
    cluster.cancel(passed.id)
    assert len(cluster.wait_running(jobid).gpus["dgx1"]) == 8
    assert cluster.job(later).state == "PENDING"


@pytest.mark.parametrize(
    ("change", "has"),
    [
        ("gres=gpu:2", {"dgx1": 2}),
        ("ReqNodeList=dgx2", {"dgx2": 4}),
        ("NumNodes=2 ReqNodeList=dgx1,dgx2 NumTasks=2", {"dgx1": 4, "dgx2": 4}),
    ],
)
@pytest.mark.skipif(OLD, reason="22.05 adds to a request; the engine undoes it at the release")
def test_what_root_changes_of_a_gated_jobs_request_is_not_undone(cluster, change, has):
    holders = [*cluster.occupy("dgx1", range(8)), *cluster.occupy("dgx2", range(8))]
    jobid = gated(cluster, "-p", "dgx", "-w", "dgx1", "--gres=gpu:4")
    cluster.run("ctl", ["scontrol", "update", f"jobid={jobid}", *change.split()])
    until(lambda: CHANGED in cluster.job(jobid).fields["AdminComment"], "the job is Slurm's own")
    cluster.cancel(*holders)
    found = cluster.wait_running(jobid).gpus
    assert {node: len(gpus) for node, gpus in found.items()} == has
