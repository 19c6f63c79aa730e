"""Who is lent to in a live Slurm: by prediction, by DRMaestro, beside full CPUs, in bad moments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from live_harness import admin_comment
from remote_harness import (
    ASKS,
    BUSY,
    ECHO,
    FOLDER,
    FOUR,
    HOLD,
    PROGRAM,
    borrower,
    donors,
    echoed,
    nothing_is_left,
    settings_of,
)

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [pytest.mark.cluster, pytest.mark.slots]

#: A million calls: 3471 s of latency on remote GPUs, 990 s on local ones.
PROFILES = {
    "md": "profile: md\nremote: {run_s: 1000, gpu_calls: 1000000}",
    "talks": "profile: talks\nremote: {sensitivity: 0.9, network_share: 0.9}",
}
AUTO = "--comment=gpu-topo: remote=auto,profile=md"
TALKS = "--comment=gpu-topo: remote=allow,profile=talks"


@contextmanager
def site_of(cluster: Cluster, settings: str, lines: str = "") -> Iterator[None]:
    """The engine with profiles, these settings of `remote` and these lines besides."""
    folder = f"{FOLDER}/profiles"
    cluster.run("ctl", ["mkdir", "-p", folder])
    for name, text in PROFILES.items():
        cluster.put("ctl", f"{folder}/{name}.yaml", text)
    with settings_of(cluster, settings, f"topo_aware: {{profiles: {folder}}}\n{lines}\n"):
        yield


def told_of(cluster: Cluster, jobid: int, user: str = "root") -> str:
    """What `gputopo explain` tells."""
    return cluster.run("ctl", ["gputopo", "explain", str(jobid)], user=user).out


def says(cluster: Cluster, jobid: int, text: str, timeout_s: float = 60) -> None:
    """Waits until the job's AdminComment has this text."""
    until(lambda: text in admin_comment(cluster, jobid), text, timeout_s)


# -- remote=auto --------------------------------------------------------------


def others_end(cluster: Cluster, when: str) -> None:
    """When the jobs that occupy the two nodes will end by their time limits."""
    ids = ",".join(cluster.run("ctl", "squeue -h -u bob -o %A").out.split())
    # An end can be set only of a job that has a limit.
    for word in ("timelimit=600", f"endtime={when}"):
        cluster.run("ctl", f"scontrol update jobid={ids} {word}")
    cluster.look()


def test_remote_auto_lends_when_waiting_would_take_longer(lends: Cluster) -> None:
    """The running jobs are to end within ten minutes; then they get five hours more."""
    with site_of(lends, "decider: r-queue"):
        others_end(lends, "now+9minutes")
        waits = lends.sbatch(*FOUR, AUTO, "-t", "120", script=HOLD)
        says(lends, waits, "remote GPUs would end it in 3481 s, waiting for local ones in 1")
        assert lends.job(waits).state == "PENDING"
        assert not donors(lends)
        for user in ("root", "alice"):
            output = told_of(lends, waits, user)
            assert "not lent" in output, output
            assert "remote GPUs would end it in 3481 s" in output
        unknown = lends.sbatch(*FOUR, "--comment=gpu-topo: remote=auto", script=HOLD)
        says(lends, unknown, "no profile of the job says how long it runs")
        short = lends.sbatch(*FOUR, AUTO, "-t", "30", script=HOLD)
        says(lends, short, "its time limit is 1800 s")
        others_end(lends, "now+5hours")
        lends.wait_running(waits, timeout_s=60)
        assert echoed(lends, waits)[-1] == "exit 0"
        [donor] = donors(lends)
        assert "ends in 3481 s instead of 1" in admin_comment(lends, waits)
        for user in ("root", "alice"):
            output = told_of(lends, waits, user)
            assert f"by job {donor.id}" in output
            assert "lent because  r-queue-auto: " in output
        assert f"lends to      job {waits}" in told_of(lends, donor.id, "alice")
        states = {lends.job(other).state for other in (unknown, short)}
        assert states == {"PENDING"}
        lends.cancel(waits, unknown, short)
        nothing_is_left(lends)


# -- DRMaestro ----------------------------------------------------------------


def solvers(cluster: Cluster) -> list[str]:
    """DRMaestro's processes beside the engine."""
    output = cluster.run("ctl", "pgrep -f lending[.]solve_process", check=False)
    return output.out.split()


def borrows_by(cluster: Cluster, decider: str) -> int:
    """A job that borrows, by the word of this decider; its id."""
    job = borrower(cluster)
    assert f"by {decider}: " in admin_comment(cluster, job.id)
    return job.id


def gives_back(cluster: Cluster, jobid: int) -> None:
    """The job ends, and nothing is left of its loan."""
    cluster.cancel(jobid)
    nothing_is_left(cluster)


def test_drmaestro_decides_in_a_process_of_its_own(lends: Cluster) -> None:
    """Which is there as long as this decider is."""
    with settings_of(lends, "decider: drmaestro, solve_s: 20"):
        jobid = borrows_by(lends, "drmaestro")
        assert "lent because  drmaestro: " in told_of(lends, jobid)
        assert len(solvers(lends)) == 1
        gives_back(lends, jobid)
    until(lambda: not solvers(lends), "another decider has no solver", 30)


@pytest.mark.long("half a minute; who decides, and where, is in every run")
def test_without_drmaestros_answer_the_r_queue_decides(lends: Cluster) -> None:
    """Neither the engine's end nor the solver's own is missed."""
    with settings_of(lends, "decider: drmaestro, solve_s: 20"):
        gives_back(lends, borrows_by(lends, "drmaestro"))
        [before] = solvers(lends)
        lends.engine("kill")
        until(lambda: not solvers(lends), "the solver ends with the engine", 30)
        lends.engine("start")
        lends.look()
        gives_back(lends, borrows_by(lends, "drmaestro"))
        [after] = solvers(lends)
        assert after != before
    with settings_of(lends, "decider: drmaestro, solve_s: 1"):
        gives_back(lends, borrower(lends).id)
        lends.run("ctl", f"kill -STOP {' '.join(solvers(lends))}", check=False)
        gives_back(lends, borrows_by(lends, "r-queue"))


@pytest.mark.long("half a minute of transfers")
def test_a_busy_network_holds_a_job_back_for_a_bounded_time(lends: Cluster) -> None:
    """The first loan fills nine tenths of both networks; three rounds of two seconds follow."""
    lines = "waiting: {step_s: 2, max_postponements: 3}"
    with site_of(lends, "decider: drmaestro, solve_s: 20", lines):
        first = lends.sbatch("-p", "dgx", "--gres=gpu:3", "--mem=200", TALKS, script=HOLD)
        lends.wait_running(first, timeout_s=90)
        echoed(lends, first)
        [host] = lends.job(first).gpus
        # One GPU of its node comes free, and one of the other is still: two for the next job.
        output = lends.run("ctl", f"squeue -h -u bob -w {host} -o %A").out.split()
        lends.cancel(int(output[0]))
        second = lends.sbatch("-p", "dgx", "--gres=gpu:2", "--mem=200", TALKS, script=HOLD)
        says(lends, second, "the network is too loaded for its remote GPUs")
        assert lends.job(second).state == "PENDING"
        lends.wait_running(second, timeout_s=60)
        assert echoed(lends, second)[-1] == "exit 0"
        lends.cancel(first, second, *map(int, output))
        until(lambda: not donors(lends), "no donor is left", 60)
        until(lambda: not lends.gres_used()[host], f"{host} is idle", 60)
        lends.occupy(host, BUSY[host])
        nothing_is_left(lends)


# -- full CPUs ----------------------------------------------------------------

CPU_JOBS = "cpujobs"


@pytest.mark.long("a detail of what a shorter test shows")
def test_a_node_whose_cpus_are_taken_lends_nothing_unless_some_are_kept_free(
    lends: Cluster,
) -> None:
    """Each donor's GPU needs a CPU: MaxCPUsPerNode keeps two of dgx2's ten free ones for them.

    The GPU jobs' partition goes first, or backfill would keep the node for CPU jobs that wait.
    """
    settings = "nodes=dgx2 defaulttime=10 prioritytier=0 state=up"
    lends.run("ctl", f"scontrol create partitionname={CPU_JOBS} {settings}")
    many = ("-p", CPU_JOBS, "-n1", "--mem=10", "--array=1-12")

    def fills(cpus: int) -> int:
        array = lends.sbatch(*many, script="sleep 600", user="bob")
        count = f"squeue -h -p {CPU_JOBS} -t R -o %A | wc -l"
        until(lambda: int(lends.run("ctl", count).out) == cpus, f"{cpus} CPUs are taken", 60)
        lends.look()
        return array

    try:
        array = fills(10)
        waits = lends.sbatch(*FOUR, ASKS, script=HOLD)
        says(lends, waits, "GPUs are free, but not the CPUs or the memory")
        assert lends.job(waits).state == "PENDING"
        assert not donors(lends)
        assert "not lent" in told_of(lends, waits)
        lends.cancel(waits, array)
        lends.run("ctl", f"scontrol update partitionname={CPU_JOBS} maxcpuspernode=8")
        array = fills(8)
        job = borrower(lends)
        assert echoed(lends, job.id)[-1] == "exit 0"
        assert list(job.gpus) == ["dgx1"]
        lends.cancel(job.id, array)
        nothing_is_left(lends)
    finally:
        lends.run("ctl", f"scancel -p {CPU_JOBS}", check=False)
        delete = f"scontrol delete partitionname={CPU_JOBS}"
        until(lambda: not lends.run("ctl", delete, check=False).code, "the partition is gone", 30)


# -- other forms --------------------------------------------------------------


@pytest.mark.long("a detail of what a shorter test shows")
def test_gpus_counted_for_the_whole_job_are_lent_to_a_job_of_one_node(lends: Cluster) -> None:
    """Its steps do not ask for all four again."""
    script = f"f=$HOME/echo.$SLURM_JOB_ID; srun {PROGRAM} echo >$f.tmp 2>&1; mv $f.tmp $f; sleep 60"
    job = lends.sbatch("-p", "dgx", "-N1", "--gpus=4", "--mem=200", ASKS, script=script)
    lends.wait_running(job, timeout_s=60)
    [donor] = donors(lends)
    [(node, gpus)] = donor.gpus.items()
    assert echoed(lends, job) == [f"{node} {','.join(map(str, gpus))}"]
    lends.cancel(job)


# -- slurmctld dies while a loan is being made ---------------------------------


def has_donor(cluster: Cluster, jobid: int) -> bool:
    """Its donor was submitted."""
    return bool(donors(cluster))


def has_loan(cluster: Cluster, jobid: int) -> bool:
    """The loan is written down."""
    return "loan=" in admin_comment(cluster, jobid)


def has_running_donor(cluster: Cluster, jobid: int) -> bool:
    """The donor runs; the job does not yet, or has just begun."""
    return any(donor.state == "RUNNING" for donor in donors(cluster))


@pytest.mark.parametrize(
    "moment", [has_donor, has_loan, has_running_donor], ids=lambda one: one.__name__
)
@pytest.mark.long("slurmctld is killed at three moments of a loan")
def test_slurmctld_killed_while_a_loan_is_made_leaves_nothing_half_started(
    lends: Cluster, moment: Callable[[Cluster, int], bool]
) -> None:
    """SIGKILL: it knows no more than what it saved, and donors may run that it has forgotten."""
    script = f"echo begun >>$HOME/job.$SLURM_JOB_ID.begun; {ECHO}; sleep 600"
    jobid = lends.sbatch(*FOUR, ASKS, "-H", script=script)
    lends.saved()
    lends.run("ctl", f"scontrol release {jobid}")
    until(lambda: moment(lends, jobid), moment.__name__, 60)
    lends.slurmctld("kill")
    lends.slurmctld("start")
    lends.run("ctl", f"scontrol release {jobid}", check=False)
    lends.wait_running(jobid, timeout_s=180)
    # Every start met all of its donors.
    assert echoed(lends, jobid, timeout_s=60)[-1] == "exit 0"
    assert len(donors(lends)) == 1
    lends.cancel(jobid)
    nothing_is_left(lends)
