"""GPUs of other nodes in a live Slurm: two nodes with two free GPUs each serve a job of four."""

import json
import random
import re
import time

import pytest
from lending_harness import (
    ASKS,
    BUSY,
    ECHO,
    FOLDER,
    FOUR,
    HOLD,
    MISSING,
    PROGRAM,
    SLURM_CONF,
    TAKES_PORTS,
    borrower,
    donors,
    echoed,
    nothing_is_left,
    settings_of,
)

from slurm_cluster.hosts import ClusterError, until

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes, pytest.mark.enforced]
#: About the nodes' side alone, or long: in one of the two ways of enforcing is enough.
once = pytest.mark.slots


@pytest.mark.both_modes("short")
def test_stock_slurm_lets_the_job_wait_and_ours_starts_it_on_two_and_two(lending):
    """The same job twice: without asking it waits as in stock Slurm; asking, it starts."""
    waits = lending.sbatch(*FOUR, script=HOLD)
    job = borrower(lending)
    assert lending.job(waits).state == "PENDING"
    [(host, local)] = job.gpus.items()
    other = "dgx2" if host == "dgx1" else "dgx1"
    free = {node: tuple(sorted(set(range(8)) - set(gpus))) for node, gpus in BUSY.items()}
    assert local == free[host]
    [donor] = donors(lending)
    assert donor.gpus == {other: free[other]}
    assert donor.fields["UserId"] == job.fields["UserId"]
    assert donor.fields["Account"] == job.fields["Account"] == "research"
    remote = ",".join(map(str, free[other]))
    assert echoed(lending, job.id) == [f"{other} {remote}", "exit 0"]
    assert "over the network" in job.fields["AdminComment"]
    environment = lending.env_of(job.id)
    assert environment["GPUTOPO_REMOTE_GPUS"] == f"{other}:2"
    assert environment["CUDA_VISIBLE_DEVICES"] == ",".join(map(str, local))


def test_steps_of_the_job_reach_its_donors_too(lending):
    script = (
        f"f=$HOME/echo.$SLURM_JOB_ID; srun -n2 {PROGRAM} echo >$f.tmp 2>&1; mv $f.tmp $f; sleep 600"
    )
    job = borrower(lending, "-n2", script=script)
    [donor] = donors(lending)
    [(node, gpus)] = donor.gpus.items()
    line = f"{node} {','.join(map(str, gpus))}"
    assert sorted(echoed(lending, job.id)) == [line, line]


def test_strangers_are_refused(lending):
    """Another user: at the donor's door, at the job's own end of the relay, with echo's words."""
    job = borrower(lending)
    [donor] = donors(lending)
    [node] = donor.gpus
    port = donor.fields["Comment"].rpartition("=")[2]
    address = lending.env_of(job.id)["GPUTOPO_ECHO_SERVERS"]
    assert address.startswith("127.0.0.1:")
    host = next(iter(job.gpus))
    mine = lending.run(host, [PROGRAM, "echo", address], user="alice")
    assert mine.out.split()[0] == node
    for where, target in ((host, address), (host, f"{node}:{port}"), ("ctl", f"{node}:{port}")):
        for user in ("bob", "root"):
            done = lending.run(where, [PROGRAM, "echo", target], user=user, check=False)
            assert done.code == 1, (where, target, user, done)
            assert "no answer" in done.err
    # Whoever is on the donor's node knows the server's own port, too.
    behind = re.search(r"--port (\d+)", lending.run(node, "pgrep -u alice -af echo-server").out)
    for user in ("bob", "alice"):
        words = [PROGRAM, "echo", f"127.0.0.1:{behind[1]}"]
        done = lending.run(node, words, user=user, check=False)
        assert (done.code, "no answer" in done.err) == (1, True), (user, done)
    shown = lending.run("ctl", f"scontrol show job {job.id}; scontrol show job {donor.id}").out
    assert "MUNGE" not in shown
    # Nor does any process of either node carry a key; its own environment only its user may read.
    for where in (host, node):
        words = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline"
        kept = lending.run(where, words, user="alice", check=False).out
        assert f"SLURM_JOB_ID={job.id if where == host else donor.id}" in kept
        assert "MUNGE:" not in kept


def test_under_horizon_a_loan_is_taken_where_it_ends_the_job_sooner_than_waiting(lending):
    """With local GPUs expected in nine minutes the job waits for them; in five hours it borrows."""
    folder = f"{FOLDER}/profiles"
    lending.run("ctl", ["mkdir", "-p", folder])
    # A million calls: 3471 s of latency on remote GPUs, 990 s on local ones.
    lending.put(
        "ctl", f"{folder}/md.yaml", "profile: md\nremote: {run_s: 1000, gpu_calls: 1000000}"
    )
    horizon = f"topo_aware: {{profiles: {folder}}}\nusers: {{alice: {{policy: horizon}}}}\n"
    auto = "--comment=gpu-topo: remote=auto,profile=md"
    held = ",".join(lending.run("ctl", "squeue -h -t R -u bob -o %A").out.split())

    def others_end(when: str) -> None:
        for word in ("timelimit=600", f"endtime={when}"):
            lending.run("ctl", f"scontrol update jobid={held} {word}")
        lending.wait_reconciled()

    with settings_of(lending, "decider: r-queue", horizon):
        others_end("now+9minutes")
        job = lending.sbatch(*FOUR, auto, "-t", "120", script=HOLD)
        refused = "remote GPUs would end it in 3481 s, waiting for local ones in 1"
        until(lambda: refused in lending.job(job).admin_comment, "the loan is refused", 60)
        assert not donors(lending)
        others_end("now+5hours")
        lending.wait_running(job, timeout_s=60)
        assert echoed(lending, job)[-1] == "exit 0"
        assert "ends in 3481 s instead of 1" in lending.job(job).admin_comment
        lending.cancel(job)
        nothing_is_left(lending)


@once
@pytest.mark.long("a detail of what a shorter test shows")
def test_middleware_that_authenticates_by_itself_is_reached_directly(lending):
    with settings_of(lending, "preset: echo-own"):
        job = borrower(lending)
        [donor] = donors(lending)
        [(node, gpus)] = donor.gpus.items()
        assert echoed(lending, job.id) == [f"{node} {','.join(map(str, gpus))}", "exit 0"]
        address = lending.env_of(job.id)["GPUTOPO_ECHO_SERVERS"]
        assert address.startswith(f"{node}:")
        subject = {"GPUTOPO_ECHO_SERVERS": address, "GPUTOPO_ECHO_SUBJECTS": f"{job.id}/{donor.id}"}
        for user, code in (("alice", 0), ("bob", 1), ("root", 1)):
            output = lending.run("ctl", [PROGRAM, "echo"], user=user, env=subject, check=False)
            assert output.code == code, output
        lending.cancel(job.id)
        nothing_is_left(lending)


WIRED = (
    "name: wired\nserver: ['{program}', echo-server, --bind, '{bind}', --port, '{port}']\n"
    "environment: {GPUTOPO_ECHO_SERVERS: '{servers}', LD_PRELOAD: '{wire}'}"
)
#: A task that says whom its connection goes to, and what it hears there.
PEER = """python3 -c "
import os, socket
host, port = os.environ['GPUTOPO_ECHO_SERVERS'].split(':')
sock = socket.create_connection((host, int(port)), 20)
sock.sendall(b'list\\n')
print(*sock.getpeername(), sock.recv(999).decode())
" >$HOME/peer.$SLURM_JOB_ID 2>&1"""


def test_a_preset_may_load_the_library_into_tasks_and_nothing_of_ours_is_between(lending):
    """The task connects to loopback, and has the donor's port at the other end."""
    lending.put("ctl", "/etc/slurm/wired.yaml", WIRED)
    with settings_of(lending, "preset: wired.yaml"):
        job = borrower(lending, script=f"{PEER}; {HOLD}")
        [donor] = donors(lending)
        [(node, gpus)] = donor.gpus.items()
        said = lending.run("ctl", f"cat /home/alice/peer.{job.id}").out.split(maxsplit=2)
        assert said[0] == lending.run("ctl", f"getent hosts {node}").out.split()[0]
        assert said[1] == donor.fields["Comment"].rpartition("=")[2]
        assert json.loads(said[2]) == {"host": node, "devices": [str(gpu) for gpu in gpus]}
        # Nobody else gets this far with the job's own variables.
        variables = lending.env_of(job.id)
        wanted = {name: variables[name] for name in ("GPUTOPO_WIRE", "LD_PRELOAD")}
        words = [PROGRAM, "echo", variables["GPUTOPO_ECHO_SERVERS"]]
        [host] = job.gpus
        for user, code in (("alice", 0), ("bob", 1), ("root", 1)):
            done = lending.run(host, words, user=user, env=wanted, check=False)
            assert done.code == code, (user, done)
        lending.cancel(job.id)
        nothing_is_left(lending)


#: A server that ends once this file is there, and has not listened until then.
ENDS = "/cluster/remote/ends"
SLOW = (
    f"name: slow\nserver: [sh, -c, until test -e {ENDS}; do sleep 0.2; done,"
    " '{bind}', '{port}']\nenvironment: {X: '{servers}'}"
)


@pytest.mark.long("20 s of waiting")
def test_while_donors_get_ready_nobody_else_gets_the_jobs_own_gpus(lending):
    """A server that never listens: the job that came later starts when the loan is given up."""
    lending.put("ctl", "/etc/slurm/slow.yaml", SLOW)
    with settings_of(lending, "preset: slow.yaml"):
        loan = "get ready, to serve it beside 2 GPUs of dgx1"
        would = lending.run("ctl", ["gputopo", "try", *FOUR, ASKS], user="alice").out
        assert f"2 GPUs of dgx2 would {loan}; it starts when they are" in would
        jobid = lending.sbatch(*FOUR, ASKS, script=HOLD)
        until(lambda: [job.state for job in donors(lending)] == ["RUNNING"], "a donor runs", 30)
        why = lending.run("ctl", f"gputopo why {jobid}", user="alice").out
        assert f"Job {jobid} waits for its loan: 2 GPUs of dgx2 {loan}." in why
        would = lending.run("ctl", "gputopo try -p dgx --gres=gpu:1", user="bob").out
        assert would.startswith("It would not start now: it waits for 1 free GPU: none of 16"), (
            would
        )
        assert f"kept          2 GPUs of dgx1 for job {jobid}, which meets its donors" in would
        small = lending.sbatch("-p", "dgx", "--gres=gpu:1", script=HOLD)
        for _ in range(10):
            is_small_first = lending.job(small).state == "RUNNING"
            assert not is_small_first or not donors(lending)
            time.sleep(0.3)
        lending.put("ctl", ENDS, "")
        until(
            lambda: "before it listened" in lending.job(jobid).admin_comment,
            "the loan is given up",
            120,
        )
        lending.wait_running(small, timeout_s=60)
        lending.cancel(jobid, small)
    lending.run("ctl", f"rm {ENDS}")


def test_donors_end_when_the_job_ends_or_fails(lending):
    for code in (0, 3):
        jobid = lending.sbatch(*FOUR, ASKS, script=f"{ECHO}; exit {code}")
        lending.wait_finished(jobid)
        assert echoed(lending, jobid)[-1] == "exit 0"
        nothing_is_left(lending)


@once
@pytest.mark.long("Slurm counts time limits in minutes")
def test_donors_end_with_the_jobs_time(lending):
    job = borrower(lending, "-t", "1")
    lending.wait_state(job.id, "TIMEOUT", timeout_s=150)
    nothing_is_left(lending)


@pytest.mark.long("two minutes until Slurm starts a requeued job")
def test_a_requeued_job_gets_donors_anew(lending):
    job = borrower(lending, "--requeue")
    [before] = donors(lending)
    lending.run("ctl", f"rm /home/alice/echo.{job.id}; scontrol requeue {job.id}")
    lending.wait_running(job.id, timeout_s=180)
    assert echoed(lending, job.id)[-1] == "exit 0"
    [after] = donors(lending)
    assert after.id != before.id


def test_a_job_that_loses_its_donor_does_not_go_on(lending):
    job = borrower(lending, "--requeue")
    [donor] = donors(lending)
    lending.cancel(donor.id)
    until(lambda: lending.job(job.id).state != "RUNNING", "the job is put back", 30)


def test_a_restarted_slurmctld_knows_borrower_and_donor(lending):
    job = borrower(lending)
    [donor] = donors(lending)
    lending.restart_slurmctld()
    lending.wait_reconciled()
    assert [result.id for result in donors(lending)] == [donor.id]
    assert lending.job(job.id).state == "RUNNING"


@once
@pytest.mark.long("half a minute of waiting")
def test_without_an_engine_donors_end_by_themselves(lending):
    job = borrower(lending)
    lending.engine("kill")
    lending.cancel(job.id)
    until(lambda: not donors(lending), "no donor is left", 60)
    lending.engine("start")


@pytest.mark.parametrize(
    ("jobs", "kills", "within_s"),
    [
        # Less than the test's own time, which would end it without a word on what it waits for.
        (2, 1, 240),
        pytest.param(
            *(50, 10, 800),
            marks=[pytest.mark.long("50 borrowers, five minutes"), pytest.mark.timeout(900)],
        ),
    ],
)
def test_kills_of_the_engine_while_many_jobs_borrow_leak_no_donor(lending, jobs, kills, within_s):
    dice = random.Random(8)
    script = f"{ECHO}; sleep 0.5"
    ids = [lending.sbatch(*FOUR, ASKS, "-t", "5", script=script) for _ in range(jobs)]
    for _ in range(kills):
        time.sleep(dice.uniform(0.2, 6))
        lending.engine("kill")
        time.sleep(dice.uniform(0, 2))
        lending.engine("start")
    listed = f"squeue -h -j {','.join(map(str, ids))} -o %A 2>/dev/null"
    until(lambda: not lending.run("ctl", listed, check=False).out.strip(), "all are over", within_s)
    states = {job.id: job.state for job in lending.jobs() if job.id in ids}
    assert set(states.values()) <= {"COMPLETED"}, states
    output = [echoed(lending, jobid)[-1] for jobid in ids]
    assert set(output) == {"exit 0"}
    nothing_is_left(lending)


@pytest.mark.select_plugin
def test_a_loan_starts_at_once_however_seldom_slurm_looks_at_its_queue(lending):
    """Here it does so every half a minute, and both a donor and its borrower are to be started."""
    seldom = "batch_sched_delay=30,sched_interval=600,bf_interval=600"
    try:
        lending.configure_extra(f"{SLURM_CONF}\nSchedulerParameters={seldom}")
        jobid = lending.sbatch(*FOUR, ASKS, script=HOLD)
        lending.wait_running(jobid, timeout_s=20)
        assert echoed(lending, jobid)[-1] == "exit 0"
        lending.cancel(jobid)
    finally:
        lending.configure_extra(SLURM_CONF)


@pytest.mark.select_plugin
@pytest.mark.long("two minutes until Slurm starts a requeued job")
def test_a_job_on_fewer_gpus_does_not_run_without_its_donors(lending):
    """No engine, and a donor that is no more: TaskProlog alone puts the job back."""
    script = f"echo ran >>$HOME/ran.$SLURM_JOB_ID; {ECHO}; sleep 600"
    jobid = lending.sbatch(*FOUR, ASKS, "-H", "--requeue", script=script)
    lending.engine("stop")
    loan = f"dgx1/c0,dgx2/3/{jobid + 100000}/50000"
    said = f"[gpu-topo: remote=allow] [gpu-loan: starts remote=1 tpn=gres/gpu:4 loan={loan} at=1]"
    words = ["gres=gpu:2", "ReqNodeList=dgx1", f"AdminComment={said}"]
    lending.run("ctl", ["scontrol", "update", f"jobid={jobid}", *words])
    lending.run("ctl", ["scontrol", "release", str(jobid)])
    until(lambda: int(lending.job(jobid).fields["Restarts"]) > 0, "the job is put back", 60)
    assert lending.run("ctl", f"cat /home/alice/ran.{jobid}", check=False).code
    lending.engine("start")
    lending.wait_running(jobid, timeout_s=180)
    assert echoed(lending, jobid)[-1] == "exit 0"
    assert lending.run("ctl", f"cat /home/alice/ran.{jobid}").out.split() == ["ran"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        pytest.param("preset: missing.yaml", "rkudad: no such program", id="missing program"),
        pytest.param(
            *("ports: 50000-50001", "no free port in 50000-50001"),
            marks=pytest.mark.long("another reason for the same"),
            id="ports used up",
        ),
    ],
)
def test_a_job_whose_donors_cannot_serve_waits_and_says_why(lending, settings, says):
    """It starts on local GPUs as soon as there are enough."""
    lending.put("ctl", "/etc/slurm/missing.yaml", MISSING)
    wide = [("-p", "off", "-w", node) for node in BUSY]
    holders = [lending.sbatch(*args, script=TAKES_PORTS, user="bob") for args in wide]
    for holder in holders:
        lending.wait_running(holder)
    with settings_of(lending, settings):
        jobid = lending.sbatch(*FOUR, ASKS, script=HOLD)
        until(lambda: says in lending.job(jobid).admin_comment, says, 60)
        assert "waits for GPUs of one node" in lending.job(jobid).admin_comment
        assert lending.job(jobid).state == "PENDING"
        until(lambda: not donors(lending), "no donor is left", 30)
        lending.cancel(jobid, *holders)


def test_a_site_may_refuse_such_a_job(lending):
    lending.put("ctl", "/etc/slurm/missing.yaml", MISSING)
    with settings_of(lending, "preset: missing.yaml, unservable: refuse"):
        jobid = lending.sbatch(*FOUR, ASKS, script=HOLD)
        lending.wait_state(jobid, "CANCELLED", timeout_s=60)
        assert "rkudad: no such program; refused" in lending.job(jobid).admin_comment


def test_where_nothing_is_lent_asking_is_refused_in_one_line(lending):
    with (
        settings_of(lending, "allow: no"),
        pytest.raises(ClusterError, match="remote: GPUs of other nodes are not lent here"),
    ):
        lending.sbatch(*FOUR, ASKS, script=HOLD)


def test_an_r_queue_lends_without_being_asked(lending):
    with settings_of(lending, "r_queues: [dgx]"):
        jobid = lending.started(*FOUR, script=HOLD, timeout_s=60).id
        assert echoed(lending, jobid)[-1] == "exit 0"
        lending.cancel(jobid)
        nothing_is_left(lending)


# Last, since it takes the site away.
@once
@pytest.mark.long("about stock Slurm")
def test_stock_slurm_keeps_the_job_waiting(cluster):
    """The same nodes and the same job, with nothing of ours."""
    with cluster.variant_as("stock"):
        for node, gpus in BUSY.items():
            cluster.occupy(node, gpus)
        jobid = cluster.sbatch(*FOUR, script=HOLD)
        until(lambda: cluster.job(jobid).reason == "Resources", "Slurm finds no room for it", 60)
        cluster.wait_running(cluster.sbatch("-p", "dgx", "--gres=gpu:1", "-t1", script=HOLD))
        assert cluster.job(jobid).state == "PENDING"
        # No job may run while the GPUs get other types.
        cluster.cancel(*(job.id for job in cluster.jobs()))
        cluster.wait_idle()
