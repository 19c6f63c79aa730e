"""Which forms of jobs borrow in a live Slurm, and what the users of all others read."""

import re
import time

import pytest
from lending_harness import (
    ASKS,
    ECHO,
    HOLD,
    SLURM_CONF,
    donors,
    echoed,
    nothing_is_left,
    settings_of,
)
from prometheus_process import PORT, metrics_in

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.slurm_text import Job

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes, pytest.mark.enforced]


def borrows(cluster: Cluster, *args: str, partition: str = "dgx", script: str = HOLD) -> Job:
    """A job of alice's that runs on two GPUs of its own and two lent ones."""
    job = cluster.started("-p", partition, ASKS, *args, script=script, timeout_s=60)
    assert echoed(cluster, job.id)[-1] == "exit 0"
    [donor] = donors(cluster)
    [(own, gpus)], [(other, lent)] = job.gpus.items(), donor.gpus.items()
    assert (len(gpus), len(lent)) == (2, 2)
    assert own != other
    return cluster.job(job.id)


def has_for_four(job: Job) -> None:
    """CPUs and memory for four GPUs, on two of its own."""
    assert job.fields["NumCPUs"] == "8", job.fields
    assert "mem=200M" in job.fields["AllocTRES"], job.fields


def given_back(cluster: Cluster, jobid: int) -> list[str]:
    """The bytes that explain tells of the donors that ended."""
    told = cluster.run("ctl", ["gputopo", "explain", str(jobid)]).out
    return re.findall(r"2 GPUs of dgx1 by job \d+ for \d+ s; ([\d,]+) bytes to it in \d", told)


@pytest.mark.long("two minutes until Slurm starts a requeued job")
def test_what_a_job_asks_for_with_each_gpu_and_the_node_it_names_count_with_a_loan(lending):
    """It has all of its CPUs and memory, on its own node; its steps do not ask again."""
    each = ("--gres=gpu:4", "--cpus-per-gpu=2", "--mem-per-gpu=50", "-w", "dgx2", "--requeue")
    steps = f"srun true && {HOLD}"
    job = borrows(lending, *each, script=steps)
    assert list(job.gpus) == ["dgx2"]
    has_for_four(job)
    lending.run("ctl", f"rm /home/alice/echo.{job.id}")
    lending.run("ctl", ["scontrol", "requeue", str(job.id)])
    lending.wait_running(job.id, timeout_s=180)
    assert echoed(lending, job.id)[-1] == "exit 0"
    has_for_four(lending.job(job.id))
    lending.cancel(job.id)
    nothing_is_left(lending)
    # Both of its donors said how much passed before they ended.
    until(lambda: len(given_back(lending, job.id)) == 2, "both loans are told of", 30)
    assert all(int(count.replace(",", "")) > 0 for count in given_back(lending, job.id))


#: The engine's metrics, as its own host reads them.
SCRAPE = "from urllib.request import urlopen as u; print(u('http://127.0.0.1:{}').read().decode())"


@pytest.mark.long("slurmctld is restarted twice; explain is in every run")
def test_what_was_lent_is_in_slurms_books_the_report_and_the_metrics(lending):
    """To whom, how long, how many GPUs, bytes and packets."""
    pytest.importorskip("prometheus_client", reason="the extra `metrics` is not installed")
    try:
        lending.configure_extra(f"{SLURM_CONF}\nAccountingStoreFlags=job_comment")
        with metrics_in(lending):
            job = borrows(lending, "--gres=gpu:4", "--mem=200")
            [donor] = donors(lending)
            lending.cancel(job.id)
            nothing_is_left(lending)
            asked = f"sacct -n -P -X -j {donor.id} -o JobName,User,AllocTRES,Comment"
            word = rf"gpu-donor ready of={job.id} port=\d+ in=[1-9]\d* out=[1-9]\d* packets=[1-9]"
            line = re.compile(rf"gpu-donor\|alice\|\S*gres/gpu=2\S*\|{word}")

            def books() -> str:
                return lending.run("ctl", asked).out

            until(lambda: line.match(books()), lambda: f"sacct knows it: {books()}", 30)

            def told(kind: str) -> float:
                text = lending.run("ctl", ["python3", "-c", SCRAPE.format(f"{PORT}/metrics")]).out
                found = re.findall(rf"^gputopo_lent_{re.escape(kind)} (\S+)$", text, re.MULTILINE)
                return float(found[0]) if found else 0.0

            kinds = ("gpu_seconds_total", 'bytes_total{direction="to"}', "packets_total")
            for kind in kinds:
                until(lambda kind=kind: told(kind) > 0, f"the metrics have {kind}", 30)
            said = lending.run("ctl", ["gputopo", "report"]).out
            assert re.search(r"lent to jobs of other nodes: [\d.]+ GPU hours by [1-9]", said), said
    finally:
        lending.configure_extra(SLURM_CONF)


def test_gpus_of_one_task_are_lent(lending):
    job = borrows(
        lending, "--gpus-per-task=4", "-n1", "-N1", "--mem=200", script=f"srun -n1 true; {HOLD}"
    )
    lending.cancel(job.id)
    nothing_is_left(lending)


def test_the_tasks_of_an_array_borrow_one_after_the_other(lending):
    """Its last task has the array's own id: nothing that ends it may end the others."""
    args = ("-p", "dgx", "--gres=gpu:4", "--mem=200", "--array=3-5", ASKS)
    array = lending.sbatch(*args, script=f"{ECHO}; sleep 2")
    lent, tasks = set(), list[Job]()

    def is_over() -> bool:
        lent.update(donor.id for donor in donors(lending))
        tasks[:] = lending.jobs(array)
        return all(job.state == "COMPLETED" for job in tasks)

    until(is_over, "all tasks ran", 120)
    assert sorted(job.fields["ArrayTaskId"] for job in tasks) == ["3", "4", "5"]
    assert [echoed(lending, job.id)[-1] for job in tasks] == ["exit 0"] * 3
    assert len(lent) == 3
    nothing_is_left(lending)


NOT_LENT = "GPUs of other nodes are not lent to this job: "


def test_a_begin_time_holds_though_an_update_took_the_jobs_reason_away(lending):
    """Slurm gives none after an update, until it looks at the job; a requeued job is one of these.

    Started before its time, that one would end: its node refuses what it has just revoked.
    """
    later = lending.sbatch("-p", "dgx", "--gres=gpu:4", "--mem=200", ASKS, "--begin=now+1hour")
    eligible = lending.job(later).fields["EligibleTime"]
    for priority in range(10_000, 10_020):
        lending.run("ctl", f"scontrol update jobid={later} priority={priority}")
        time.sleep(0.2)
        assert not donors(lending)
    job = lending.job(later)
    assert (job.state, job.fields["EligibleTime"]) == ("PENDING", eligible)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("sbatch -N2 --gres=gpu:4 --wrap=true", "donors are met on one node"),
        ("sbatch --gres=gpu:4 --wrap=true : --gres=gpu:1", "the components of a heterogeneous job"),
        ("salloc -I1 --gres=gpu:4 true", "the batch step meets the donors"),
        ("srun -I1 --gres=gpu:4 true", "the batch step meets the donors"),
    ],
)
def test_who_asks_in_vain_is_told_at_once(lending, command, why):
    words = command.split()
    at = [words[0], "-p", "dgx", ASKS.replace(" ", "\\ ")]
    done = lending.run("ctl", " ".join([*at, *words[1:]]), user="alice", check=False)
    assert f"gpu-topo: {NOT_LENT}{why}" in " ".join(done.err.split()), done


#: Told at the submit, or by the queue: in AdminComment and `gputopo explain`.
IN_VAIN = {
    "--gres=gpu:4 --exclusive": "an exclusive job gets all GPUs of a node",
    # Slurm may start it on one socket: with three GPUs of it no node has room for that either.
    "--gpus-per-socket=3 --sockets-per-node=2 -N1": "with --gpus-per-socket its GPUs are to be",
    "--gpus-per-task=2 -n2 -N1": "each of its tasks wants GPUs of its own",
    "-w dgx1,dgx2 --gres=gpu:4": "donors are met on one node",
    "--gres=gpu:1 -w dgx1": "at least one of its GPUs is local",
}


@pytest.mark.long("each a detail of what a shorter test shows")
def test_every_form_that_borrows_nothing_has_a_line_for_its_user(lending):
    told = dict[str, str]()
    jobs = dict[str, int]()
    for args in IN_VAIN:
        command = f"sbatch --parsable -p dgx --mem=100 {ASKS.replace(' ', chr(92) + ' ')} {args}"
        done = lending.run("ctl", f"{command} --wrap='sleep 600'", user="alice")
        told[args], jobs[args] = done.err, int(done.out)

    def untold() -> list[str]:
        for args, job in jobs.items():
            told[args] += lending.job(job).admin_comment
        words = {args: " ".join(text.split()) for args, text in told.items()}
        return [args for args, why in IN_VAIN.items() if f"{NOT_LENT}{why}" not in words[args]]

    until(lambda: not untold(), lambda: f"no line for {untold()}", 60)
    assert not donors(lending)
    lending.cancel(*jobs.values())


@pytest.mark.long("three donors in place of one")
def test_a_job_of_six_gpus_borrows_of_two_nodes(lending):
    """Each donor is a job of its own; all are there before the first line, and end with it."""
    spare = lending.sbatch("-p", "gpu", "-w", "minsky1", "--gres=gpu:2", script="sleep 600")
    lending.wait_running(spare)
    with settings_of(lending, "equal_models: [v100/p100]"):
        args = ("-p", "gpu", "--gres=gpu:v100:6", "--mem=300", ASKS)
        job = lending.started(*args, script=HOLD, timeout_s=60)
        assert echoed(lending, job.id)[-1] == "exit 0"
        assert [len(gpus) for gpus in job.gpus.values()] == [2]
        lent = [len(gpus) for donor in donors(lending) for gpus in donor.gpus.values()]
        assert lent == [2, 2]
        assert len(echoed(lending, job.id)) == 3
        lending.cancel(job.id, spare)
        nothing_is_left(lending)


@pytest.mark.long("a detail of what a shorter test shows")
def test_a_model_that_the_site_calls_equal_lends(lending):
    """dgx2 has nothing left for a job that names V100s: a P100 node lends to it."""
    taken = lending.sbatch("-p", "dgx", "-w", "dgx2", "--gres=gpu:2", script="sleep 600")
    lending.wait_running(taken)
    with settings_of(lending, "equal_models: [v100/p100]"):
        job = borrows(lending, "--gres=gpu:v100:4", "--mem=200", partition="gpu")
        assert list(job.gpus) == ["dgx1"]
        assert [list(donor.gpus) for donor in donors(lending)] == [["minsky1"]]
        lending.cancel(job.id, taken)
        nothing_is_left(lending)


@pytest.mark.long("two minutes; who is taken from is tested without a cluster")
def test_lent_gpus_are_taken_back_once_where_site_and_user_allow_it(lending):
    """The first job that waits for local GPUs gets those of the borrower, which comes back."""
    small = ("-p", "dgx", "--gres=gpu:2", "--mem=100")
    with settings_of(lending, "take_back: requeue, take_back_s: 0"):
        asks = ("--comment=gpu-topo: remote=allow,movable", "--requeue", "--mem=200")
        job = borrows(lending, "--gres=gpu:4", *asks)
        local = lending.started(*small, script="sleep 600", timeout_s=90)
        until(lambda: not donors(lending), "the donor is gone", 60)
        waits = lending.job(job.id)
        assert (waits.state, waits.fields["Restarts"]) == ("PENDING", "1")
        told = lending.run("ctl", ["gputopo", "explain", str(job.id)]).out
        assert f"its GPUs were taken back for job {local.id}; it was requeued" in told
        lending.run("ctl", f"rm -f /home/alice/echo.{job.id}")
        lending.cancel(local.id)
        lending.wait_running(job.id, timeout_s=180)
        assert echoed(lending, job.id)[-1] == "exit 0"
        again = lending.sbatch(*small, script="sleep 600")
        for _ in range(3):
            lending.wait_reconciled()
        assert lending.job(again).state == "PENDING"
        assert (lending.job(job.id).state, len(donors(lending))) == ("RUNNING", 1)
        lending.cancel(again, job.id)
        nothing_is_left(lending)
