"""The select plugin in a live slurmctld: jobs get exactly the advised GPUs."""

import pytest
from live_harness import GPUS
from select_harness import OURS, PREFER, all_running

from slurm_cluster.hosts import until

pytestmark = [pytest.mark.cluster, pytest.mark.select_plugin]


def test_two_gpus_of_an_empty_dgx1_are_the_advised_pair(cluster, engine):
    """Slurm takes 0,1 (one NVLink); the job gets 0,3 (two), in Slurm's books and inside."""
    engine.rule(do="use", nodes={"dgx1": [0, 3]}, note="dgx1:0,3 mapa")
    job = cluster.started("-w", "dgx1", "--gres=gpu:2", sleep_s=30)
    assert job.gpus == {"dgx1": (0, 3)}
    assert cluster.visible_gpus(job.id) == (0, 3)
    assert cluster.gres_used()["dgx1"] == (0, 3)
    assert engine.questions(job.id)[0]["node"][0].startswith("dgx1/8/ff/")
    assert job.fields["AdminComment"] == "[gpu-topo: | dgx1:0,3 mapa]"


FORMS = [
    ("--gres with the type", ("--gres=gpu:v100:3",), 3),
    (
        "--gpus-per-socket=1 on two sockets",
        ("--sockets-per-node=2", "--gpus-per-socket=1", "-n2", "-c2"),
        2,
    ),
    ("--cpus-per-gpu=2", ("--gpus-per-node=3", "--cpus-per-gpu=2"), 3),
    ("--ntasks-per-gpu=1", ("-N1", "--gpus=3", "--ntasks-per-gpu=1"), 3),
    ("--mem-per-gpu=100", ("--gres=gpu:3", "--mem-per-gpu=100"), 3),
    ("every core of the node", ("-N1", "--gres=gpu:3", "-n16"), 3),
    ("more tasks than cores", ("--gres=gpu:3", "-n32", "--overcommit"), 3),
]


@pytest.mark.parametrize(("args", "count"), [f[1:] for f in FORMS], ids=[f[0] for f in FORMS])
def test_every_form_of_request_is_advised(cluster, engine, args, count):
    order = [6, 3, 2, 7] if "socket" in args[0] else OURS
    engine.rule(do="prefer", order=order)
    jobid = cluster.sbatch("-w", "dgx1", *args, sleep_s=30)
    assert cluster.wait_running(jobid).gpus == {"dgx1": tuple(sorted(order[:count]))}
    assert sorted(cluster.visible_gpus(jobid)) == sorted(order[:count])


def test_another_node_than_slurms(cluster, engine):
    """All nodes of equal Weight are in the question; the advice may take any of them."""
    engine.rule(do="use", nodes={"amd1": [2, 5]})
    jobid = cluster.sbatch("--gres=gpu:2", sleep_s=30)
    assert cluster.wait_running(jobid).gpus == {"amd1": (2, 5)}
    assert sorted(engine.asked_nodes(jobid)) == sorted(GPUS)


def test_a_typed_request_offers_nodes_of_that_type(cluster, engine):
    """Only nodes with GPUs of the type are candidates, and the engine is told the type."""
    engine.rule(do="use", nodes={"dgx2": [4, 7]})
    jobid = cluster.sbatch("--gres=gpu:v100:2", sleep_s=30)
    assert cluster.wait_running(jobid).gpus == {"dgx2": (4, 7)}
    assert sorted(engine.asked_nodes(jobid)) == ["dgx1", "dgx2"]
    assert engine.questions(jobid)[0]["type"] == ["v100"]


def test_each_task_of_an_array_is_advised(cluster, engine):
    """Four tasks share a node, no GPU given twice; each notice has the task's own id."""
    engine.rule(**PREFER)
    jobid = cluster.sbatch("-w", "dgx1", "--array=0-3", "--gres=gpu:2", script="sleep 30")
    until(lambda: all_running(cluster, jobid, 4), "four tasks run")
    got = {int(j.fields["ArrayTaskId"]): j.gpus["dgx1"] for j in cluster.jobs(jobid)}
    assert got == {0: (3, 6), 1: (0, 5), 2: (2, 7), 3: (1, 4)}
    output = {line.split()[1] for line in engine.lines("started")}
    assert output == {f"job={job.id}" for job in cluster.jobs(jobid)}


def test_a_fragmented_node_offers_its_free_gpus_only(cluster, engine):
    cluster.occupy("dgx1", [0, 3, 6])
    engine.rule(**PREFER)
    jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=30)
    assert cluster.wait_running(jobid).gpus == {"dgx1": (5, 7)}
    assert engine.questions(jobid)[0]["node"][0].startswith("dgx1/8/b6/")


def test_start_and_end_are_told(cluster, engine):
    """One notice with the GPUs at the start, one at the end."""
    engine.rule(**PREFER)
    jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2")
    cluster.wait_finished(jobid)
    assert f"started job={jobid} array=0 node=dgx1/48" in engine.lines("started")
    until(lambda: f"ended job={jobid} array=0" in engine.lines("ended"), "the end is told")


def test_the_hint_reaches_the_engine(cluster, engine):
    """HINT comes from the bracket in AdminComment; what the site wrote around it stays."""
    engine.rule(**PREFER)
    jobid = cluster.sbatch("-H", "-w", "dgx1", "--gres=gpu:2", sleep_s=30)
    comment = "ticket 7 [gpu-topo: pattern=tree | old] by ops"
    cluster.run("ctl", ["scontrol", "update", f"jobid={jobid}", f"AdminComment={comment}"])
    cluster.run("ctl", ["scontrol", "release", str(jobid)])
    job = cluster.wait_running(jobid)
    assert engine.questions(jobid)[0]["hint"] == ["pattern=tree"]
    kept = "ticket 7 [gpu-topo: pattern=tree | by preference] by ops"
    assert job.fields["AdminComment"] == kept


def test_a_hint_with_control_characters_is_encoded(cluster, engine):
    """Quotes, percent signs and control bytes of a comment arrive encoded, in one line."""
    engine.rule(**PREFER)
    cluster.switch("stock")
    comment = '--comment=gpu-topo: a="1"\tb=50%\x01]'
    jobid = cluster.sbatch("-H", "-w", "dgx1", "--gres=gpu:2", comment, sleep_s=30)
    cluster.switch("gputopo")
    cluster.run("ctl", ["scontrol", "release", str(jobid)])
    assert cluster.wait_running(jobid).gpus == {"dgx1": (3, 6)}
    assert engine.questions(jobid)[0]["hint"] == ['a="1"%09b=50%25%01]']
