"""Who is lent to in a live Slurm: by prediction, by DRMaestro, beside full CPUs, in bad moments."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from lending_harness import (
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


def says(cluster: Cluster, jobid: int, text: str) -> None:
    """Waits until the job's AdminComment has this text."""
    until(lambda: text in cluster.job(jobid).admin_comment, text, 60)


def others_end(cluster: Cluster, when: str) -> None:
    """When the jobs that occupy the two nodes will end by their time limits."""
    ids = ",".join(cluster.run("ctl", "squeue -h -t R -u bob -o %A").out.split())
    # An end can be set only of a job that has a limit.
    for word in ("timelimit=600", f"endtime={when}"):
        cluster.run("ctl", f"scontrol update jobid={ids} {word}")
    cluster.wait_reconciled()


@pytest.mark.long("half a minute; what decides is tested without a cluster")
def test_remote_auto_lends_when_waiting_would_take_longer(lending):
    """The running jobs are to end within ten minutes; then they get five hours more."""
    with site_of(lending, "decider: r-queue"):
        others_end(lending, "now+9minutes")
        waits = lending.sbatch(*FOUR, AUTO, "-t", "120", script=HOLD)
        says(lending, waits, "remote GPUs would end it in 3481 s, waiting for local ones in 1")
        assert lending.job(waits).state == "PENDING"
        assert not donors(lending)
        for user in ("root", "alice"):
            output = told_of(lending, waits, user)
            assert "not lent" in output, output
            assert "remote GPUs would end it in 3481 s" in output
        unknown = lending.sbatch(*FOUR, "--comment=gpu-topo: remote=auto", script=HOLD)
        says(lending, unknown, "no profile of the job says how long it runs")
        short = lending.sbatch(*FOUR, AUTO, "-t", "30", script=HOLD)
        says(lending, short, "its time limit is 1800 s")
        others_end(lending, "now+5hours")
        lending.wait_running(waits, timeout_s=60)
        assert echoed(lending, waits)[-1] == "exit 0"
        [donor] = donors(lending)
        assert "ends in 3481 s instead of 1" in lending.job(waits).admin_comment
        for user in ("root", "alice"):
            output = told_of(lending, waits, user)
            assert f"by job {donor.id}" in output
            assert "lent because  r-queue-auto: " in output
        assert f"lends to      job {waits}" in told_of(lending, donor.id, "alice")
        states = {lending.job(other).state for other in (unknown, short)}
        assert states == {"PENDING"}
        lending.cancel(waits, unknown, short)
        nothing_is_left(lending)


def solvers(cluster: Cluster) -> list[str]:
    """DRMaestro's processes beside the engine."""
    output = cluster.run("ctl", "pgrep -f lending[.]choice[.]solve_process", check=False)
    return output.out.split()


def borrows_by(cluster: Cluster, decider: str) -> int:
    """A job that borrows, by the word of this decider; its id."""
    job = borrower(cluster)
    assert f"by {decider}: " in cluster.job(job.id).admin_comment
    return job.id


def gives_back(cluster: Cluster, jobid: int) -> None:
    """The job ends, and nothing is left of its loan."""
    cluster.cancel(jobid)
    nothing_is_left(cluster)


def test_drmaestro_decides_in_a_process_of_its_own(lending):
    with settings_of(lending, "decider: drmaestro, solve_s: 20"):
        jobid = borrows_by(lending, "drmaestro")
        assert "lent because  drmaestro: " in told_of(lending, jobid)
        assert len(solvers(lending)) == 1
        gives_back(lending, jobid)
    until(lambda: not solvers(lending), "another decider has no solver", 30)


@pytest.mark.long("half a minute; who decides, and where, is in every run")
def test_without_drmaestros_answer_the_r_queue_decides(lending):
    """Neither the engine's end nor the solver's own is missed."""
    with settings_of(lending, "decider: drmaestro, solve_s: 20"):
        gives_back(lending, borrows_by(lending, "drmaestro"))
        [before] = solvers(lending)
        lending.engine("kill")
        until(lambda: not solvers(lending), "the solver ends with the engine", 30)
        lending.engine("start")
        lending.wait_reconciled()
        gives_back(lending, borrows_by(lending, "drmaestro"))
        [after] = solvers(lending)
        assert after != before
    with settings_of(lending, "decider: drmaestro, solve_s: 1"):
        gives_back(lending, borrower(lending).id)
        lending.run("ctl", f"kill -STOP {' '.join(solvers(lending))}", check=False)
        gives_back(lending, borrows_by(lending, "r-queue"))


@pytest.mark.long("half a minute of transfers")
def test_a_busy_network_holds_a_job_back_for_a_bounded_time(lending):
    """The first loan fills nine tenths of both networks; three rounds of two seconds follow."""
    lines = "waiting: {step_s: 2, max_postponements: 3}"
    with site_of(lending, "decider: drmaestro, solve_s: 20", lines):
        first = lending.sbatch("-p", "dgx", "--gres=gpu:3", "--mem=200", TALKS, script=HOLD)
        lending.wait_running(first, timeout_s=90)
        echoed(lending, first)
        [host] = lending.job(first).gpus
        # One GPU of its node comes free, and one of the other is still: two for the next job.
        output = lending.run("ctl", f"squeue -h -u bob -w {host} -o %A").out.split()
        lending.cancel(int(output[0]))
        second = lending.sbatch("-p", "dgx", "--gres=gpu:2", "--mem=200", TALKS, script=HOLD)
        says(lending, second, "the network is too loaded for its remote GPUs")
        assert lending.job(second).state == "PENDING"
        lending.wait_running(second, timeout_s=60)
        assert echoed(lending, second)[-1] == "exit 0"
        lending.cancel(first, second, *map(int, output))
        until(lambda: not donors(lending), "no donor is left", 60)
        until(lambda: not lending.gres_used()[host], f"{host} is idle", 60)
        lending.occupy(host, BUSY[host])
        nothing_is_left(lending)


CPU_JOBS = "cpujobs"


@pytest.mark.long("a detail of what a shorter test shows")
def test_a_node_whose_cpus_are_taken_lends_nothing_unless_some_are_kept_free(lending):
    """Each donor's GPU needs a CPU: MaxCPUsPerNode keeps two of dgx2's ten free ones for them.

    The GPU jobs' partition goes first, or backfill would keep the node for CPU jobs that wait.
    """
    settings = "nodes=dgx2 defaulttime=10 prioritytier=0 state=up"
    lending.run("ctl", f"scontrol create partitionname={CPU_JOBS} {settings}")
    many = ("-p", CPU_JOBS, "-n1", "--mem=10", "--array=1-12")

    def fills(cpus: int) -> int:
        array = lending.sbatch(*many, script="sleep 600", user="bob")
        count = f"squeue -h -p {CPU_JOBS} -t R -o %A | wc -l"
        until(lambda: int(lending.run("ctl", count).out) == cpus, f"{cpus} CPUs are taken", 60)
        lending.wait_reconciled()
        return array

    try:
        array = fills(10)
        waits = lending.sbatch(*FOUR, ASKS, script=HOLD)
        says(lending, waits, "GPUs are free, but not the CPUs or the memory")
        assert lending.job(waits).state == "PENDING"
        assert not donors(lending)
        assert "not lent" in told_of(lending, waits)
        lending.cancel(waits, array)
        lending.run("ctl", f"scontrol update partitionname={CPU_JOBS} maxcpuspernode=8")
        array = fills(8)
        job = borrower(lending)
        assert echoed(lending, job.id)[-1] == "exit 0"
        assert list(job.gpus) == ["dgx1"]
        lending.cancel(job.id, array)
        nothing_is_left(lending)
    finally:
        lending.run("ctl", f"scancel -p {CPU_JOBS}", check=False)
        delete = f"scontrol delete partitionname={CPU_JOBS}"
        until(lambda: not lending.run("ctl", delete, check=False).code, "the partition is gone", 30)


@pytest.mark.long("a detail of what a shorter test shows")
def test_gpus_counted_for_the_whole_job_are_lent_to_a_job_of_one_node(lending):
    """Its steps do not ask for all four again."""
    script = f"f=$HOME/echo.$SLURM_JOB_ID; srun {PROGRAM} echo >$f.tmp 2>&1; mv $f.tmp $f; sleep 60"
    job = lending.sbatch("-p", "dgx", "-N1", "--gpus=4", "--mem=200", ASKS, script=script)
    lending.wait_running(job, timeout_s=60)
    [donor] = donors(lending)
    [(node, gpus)] = donor.gpus.items()
    assert echoed(lending, job) == [f"{node} {','.join(map(str, gpus))}"]
    lending.cancel(job)


def has_donor(cluster: Cluster, jobid: int) -> bool:
    return bool(donors(cluster))


def has_loan(cluster: Cluster, jobid: int) -> bool:
    return "loan=" in cluster.job(jobid).admin_comment


def has_running_donor(cluster: Cluster, jobid: int) -> bool:
    """The donor runs; the job does not yet, or has just begun."""
    return any(donor.state == "RUNNING" for donor in donors(cluster))


@pytest.mark.parametrize(
    "moment", [has_donor, has_loan, has_running_donor], ids=lambda one: one.__name__
)
@pytest.mark.long("slurmctld is killed at three moments of a loan")
def test_slurmctld_killed_while_a_loan_is_made_leaves_nothing_half_started(lending, moment):
    """SIGKILL: it knows no more than what it saved, and donors may run that it has forgotten."""
    script = f"echo begun >>$HOME/job.$SLURM_JOB_ID.begun; {ECHO}; sleep 600"
    jobid = lending.sbatch(*FOUR, ASKS, "-H", script=script)
    lending.saved()
    lending.run("ctl", f"scontrol release {jobid}")
    until(lambda: moment(lending, jobid), moment.__name__, 60)
    lending.slurmctld("kill")
    lending.slurmctld("start")
    lending.run("ctl", f"scontrol release {jobid}", check=False)
    lending.wait_running(jobid, timeout_s=180)
    # Every start met all of its donors.
    assert echoed(lending, jobid, timeout_s=60)[-1] == "exit 0"
    assert len(donors(lending)) == 1
    lending.cancel(jobid)
    nothing_is_left(lending)


def test_who_was_passed_before_the_first_look_is_offered_a_loan_before_it_is_slurms_own(lending):
    """Released from a hold, as others' jobs start; else it would wait for two GPUs of one node."""
    job = lending.sbatch("-p", "dgx", "-H", "--gres=gpu:2", "--mem=100", ASKS, script=HOLD)
    lending.wait_reconciled()
    with lending.temporarily("clusterctl engine pause", "clusterctl engine resume"):
        lending.run("ctl", ["scontrol", "release", str(job)], user="alice")
        # They never end, so that it has no start for which Slurm could keep room.
        passing = [("-p", "off", "-w", node, "-t", "UNLIMITED", "--gres=gpu:1") for node in BUSY]
        lending.running_gpus(lending.submit_many(passing, user="mallory"))
        assert lending.job(job).state == "PENDING"
    lending.wait_running(job, timeout_s=60)
    assert echoed(lending, job)[-1] == "exit 0"
    [donor] = donors(lending)
    assert sum(map(len, donor.gpus.values())) == 1
