"""A daemon that Slurm or the engine needs is gone, or can open no more files."""

import time

import pytest
from live_harness import IN_BOTH_MODES, advised_again, by_policy

pytestmark = [*IN_BOTH_MODES, pytest.mark.long("half a minute"), pytest.mark.timeout(900)]

PAIR = ("-w", "dgx1", "--gres=gpu:2")


@pytest.mark.parametrize("host", ["ctl", "dgx1"])
def test_munged_is_gone(watch, cluster, host):
    """Nobody can talk to Slurm, the engine neither; a job that waited starts after it."""
    kept = cluster.sbatch("-w", "dgx1", "--gres=gpu:8", sleep_s=300)
    gpus = cluster.running_gpus([kept])
    waits = cluster.sbatch(*PAIR, sleep_s=300)
    pid = cluster.engine_pid()
    with cluster.without("munged", host):
        time.sleep(12)
    assert cluster.running_gpus([kept]) == gpus
    cluster.cancel(kept)
    cluster.wait_running(waits, timeout_s=120)
    cluster.end([waits])
    assert cluster.engine_pid() == pid
    advised_again(cluster)


@pytest.mark.parametrize("daemon", ["slurmdbd", "mariadbd"])
def test_accounting_is_gone(watch, cluster, daemon):
    """Placement has no need of it."""
    with cluster.without(daemon):
        jobid = cluster.sbatch(*PAIR, sleep_s=300)
        assert cluster.running_gpus([jobid]) == [by_policy({}, (2,), ("dgx1",))]
        cluster.end([jobid])
        output = cluster.run("ctl", ["gputopo", "explain", str(jobid)]).out
        assert "dgx1" in output
    advised_again(cluster)


@pytest.mark.parametrize("process", ["engine", "slurmctld"])
def test_descriptors_are_exhausted(watch, cluster, process):
    """The process lives, says little, and works again when it has some.

    No job may start while slurmctld has none: without a descriptor for the job's script it ends
    (`fatal: _build_launch_job_msg`), without one for the launch the job runs nowhere for minutes.
    """
    kept = cluster.sbatch("-w", "dgx2", "--gres=gpu:3", sleep_s=300)
    gpus = cluster.running_gpus([kept])
    pids = cluster.engine_pid(), cluster.slurmctld("pid")
    before = cluster.engine_log(100_000).count("\n")
    how = "sbatch --parsable" + (" --hold" if process == "slurmctld" else "")
    with cluster.few_descriptors(process):
        late = [
            cluster.run("ctl", f"timeout 5 {how} {args} --wrap 'sleep 1'", check=False)
            for args in ("-w dgx1 --gres=gpu:2", "-w minsky1 --gres=gpu:2")
        ]
        time.sleep(8)
    taken = [int(one.out.split()[0]) for one in late if not one.code and one.out.strip()]
    for jobid in taken:
        if process == "slurmctld":
            cluster.run("ctl", f"scontrol release {jobid}")
        assert cluster.wait_finished(jobid, timeout_s=120).state == "COMPLETED"
    assert (cluster.engine_pid(), cluster.slurmctld("pid")) == pids
    assert cluster.running_gpus([kept]) == gpus
    cluster.end([kept])
    advised_again(cluster)
    said = cluster.engine_log(100_000).count("\n") - before
    assert said < 60, cluster.engine_log(said)
