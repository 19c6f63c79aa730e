"""The right to act for users: who has it, who may ask for it, and what no child of it can do."""

import pwd
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from acting_harness import ASKED, COMMAND_S, NOBODY
from lending_harness import ASKS, FOUR, HOLD, borrower, donors

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def has_nothing(lines: list[str]) -> bool:
    """No capability in any set, and none to be had."""
    result = dict(line.split(":", 1) for line in lines if ":\t" in line)
    return all(int(result[one], 16) == 0 for one in SETS) and result["NoNewPrivs"].strip() == "1"


def test_no_child_inherits_the_right_or_can_regain_it(part):
    """Neither sbatch nor squeue: both run as the user."""
    assert part.ask(ASKED) == "ok 71"
    ids = f"\t{NOBODY.pw_uid}" * 4
    for name in ("sbatch", "squeue"):
        lines = part.noted(name)
        assert has_nothing(lines), lines
        for attempt in ("become", "root", "groups", "suid"):
            assert f"{attempt}: refused" in lines, lines
        assert {"core 0", "sockets 0", f"Uid:{ids}", "Groups:\t "} <= {*lines}
        assert not [line for line in lines if "SECRET" in line]


def test_what_is_submitted_is_our_own_program_and_nothing_else(part):
    assert part.ask(ASKED) == "ok 71"
    words = part.noted("words")
    assert {"--partition=batch", "--time=5:00", "--account=research", "--nodelist=dgx2"} <= {*words}
    assert words[-1].startswith('--wrap=exec /usr/local/bin/gputopo-node donor \'{"parent": 7,')


@pytest.mark.parametrize(
    ("uid", "record", "why"),
    [
        (NOBODY.pw_uid, f"8|{NOBODY.pw_uid}|RUNNING|batch|5:00|x", "it is RUNNING"),
        (NOBODY.pw_uid, "8|1000|PENDING|batch|5:00|x", "it is of uid 1000; expected"),
        (NOBODY.pw_uid, "", "expected one job that waits"),
        (NOBODY.pw_uid, f"8|0|PENDING|b|5:00|\n8|{NOBODY.pw_uid}|PENDING|b|5:00|", "one job"),
        (0, "8|0|PENDING|batch|5:00|x", "users below uid 1000"),
        (999, "8|999|PENDING|batch|5:00|x", "users below uid 1000"),
        (123456789, "8|123456789|PENDING|batch|5:00|x", "no such user on this host"),
        (9999999999, "8|9999999999|PENDING|batch|5:00|x", "no such user on this host"),
    ],
)
def test_a_job_that_may_not_borrow_costs_nothing(part, uid, record, why):
    part.record(8, record)
    answer = part.ask(f"donor 8 {uid} dgx2 2")
    assert answer.startswith("error ")
    assert why in answer
    assert part.noted("words") == []
    assert part.ask(ASKED) == "ok 71"


@pytest.mark.parametrize(
    "line",
    [
        *(f"{ASKED} --uid=0", ASKED.replace("dgx2", "/etc/shadow"), ASKED.replace("dgx2", "a,b")),
        *(ASKED.encode(), b"x" * 100_000, b"\n", f"{ASKED}\n{ASKED}\n".encode(), "submit /bin/sh"),
        *("donor 0 65534 dgx2 1", "donor 7 nobody dgx2 1", "donor 7 65534 $(id) 1", f"{ASKED}000"),
    ],
)
def test_a_bad_line_is_refused_in_one_line(part, line):
    answer = part.ask(line)
    assert answer.startswith("error ")
    assert "\n" not in answer
    assert part.noted("words") == []
    assert part.ask("ready") == "ok "


def test_nobody_but_the_engine_is_answered(part):
    daemon = pwd.getpwnam("daemon")
    assert part.ask("ready", daemon.pw_uid, daemon.pw_gid) == "ok "
    assert part.ask(ASKED, NOBODY.pw_uid, NOBODY.pw_gid) == "Permission denied"
    # Even one of the engine's group, who can connect.
    answer = part.ask(ASKED, NOBODY.pw_uid, daemon.pw_gid)
    assert answer == f"error uid {NOBODY.pw_uid} may not ask; only the engine does"
    assert part.noted("words") == []


def test_a_user_who_changes_what_sbatch_does_holds_up_nobody(part):
    """sbatch is the user's own process, who may make it say anything, or stop it."""
    for says in ("71\n71", "x", "", "0", "71 --", "-1"):
        part.script("sbatch", f'printf "%s\n" "{says}"')
        assert "is no job id" in part.ask(ASKED), says
    part.script("sbatch", "yes")
    assert "more than 8192 bytes" in part.ask(ASKED)
    part.script("sbatch", "kill -STOP $$; sleep 60")
    started = time.monotonic()
    assert part.ask(ASKED) == f"error sbatch: no answer within {COMMAND_S} s"
    assert time.monotonic() - started < 40
    part.script("sbatch", "echo '71;gputopo'")
    assert part.ask(ASKED) == "ok 71"


def test_whoever_connects_and_says_nothing_holds_nobody_up_for_long(part):
    silent = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    for peer in silent:
        peer.connect(str(part.folder / "socket"))
    assert part.ask("ready") == "ok "
    for peer in silent:
        peer.close()


def test_no_more_than_twenty_questions_a_second(part):
    """A floor under the time, which a slow machine only lengthens."""
    started = time.monotonic()
    assert {part.ask("ready") for _ in range(41)} == {"ok "}
    assert time.monotonic() - started >= 2


def test_a_configuration_that_others_may_write_lends_nothing(part):
    (part.folder / "gputopo.yaml").chmod(0o664)
    answer = part.ask(ASKED)
    assert "others than root may write" in answer
    assert part.noted("words") == []


SOCKET = "/run/gputopo-donors/socket"
BIN = "/cluster/acting-bin"
STATUS = f"grep -E '^(Cap|NoNewPrivs|Uid)' /proc/self/status >>{BIN}/told.$(basename $0)"


def asked(cluster: Cluster, line: str, *who: str) -> str:
    """What the process that submits donors says to somebody on the controller's host."""
    words = ["setpriv", *who] if who else []
    socat = ["sh", "-c", f"printf '{line}' | socat -t 5 - UNIX-CONNECT:{SOCKET} 2>&1"]
    return cluster.run("ctl", [*words, *socat], check=False).out.strip()


@contextmanager
def commands_of_ours(cluster: Cluster, sbatch: str) -> Iterator[None]:
    """A block in which Slurm's commands tell who runs them; sbatch does this besides."""
    lines = {"squeue": 'exec squeue "$@"', "sbatch": sbatch}
    cluster.run(
        "ctl", f"mkdir {BIN}; touch {BIN}/told.squeue {BIN}/told.sbatch; chmod 666 {BIN}/t*"
    )
    for name, line in lines.items():
        cluster.put("ctl", f"{BIN}/{name}", f"#!/bin/sh\n{STATUS}\n{line}\n")
    cluster.run("ctl", f"chmod 755 {BIN}/squeue {BIN}/sbatch")
    # The engine has read its own settings already; the other part reads them at each question.
    cluster.run("ctl", f"echo 'slurm: {{bin_dir: {BIN}}}' >>/etc/slurm/gputopo.yaml")
    try:
        yield
    finally:
        cluster.run("ctl", "sed -i '/^slurm: {bin_dir/d' /etc/slurm/gputopo.yaml")
        cluster.run("ctl", f"rm -rf {BIN}")


@pytest.mark.cluster
@pytest.mark.enforced
@pytest.mark.long("half a minute; every test that borrows passes through it")
def test_the_engine_itself_has_no_right_and_jobs_borrow(lending):
    status = lending.run("ctl", f"cat /proc/{lending.engine_pid()}/status").out.splitlines()
    assert has_nothing(status), status
    with commands_of_ours(lending, 'exec sbatch "$@"'):
        job = borrower(lending)
        statuses = {
            name: lending.run("ctl", f"cat {BIN}/told.{name}").out.splitlines()
            for name in ("squeue", "sbatch")
        }
    for status in statuses.values():
        assert has_nothing(status)
        assert "Uid:\t2001\t2001\t2001\t2001" in status
    [donor] = donors(lending)
    for key in ("UserId", "GroupId", "Account", "Partition", "TimeLimit"):
        assert donor.fields[key] == job.fields[key]


@pytest.mark.cluster
@pytest.mark.enforced
def test_nobody_else_on_the_host_can_have_a_donor_submitted(lending):
    mallory = ("--reuid=mallory", "--regid=mallory", "--clear-groups")
    assert "Permission denied" in asked(lending, "ready\\n", *mallory)
    answer = asked(
        lending, "donor 1 2001 dgx2 1\\n", "--reuid=mallory", "--regid=slurm", "--clear-groups"
    )
    assert answer == "error uid 2003 may not ask; only the engine does"


@pytest.mark.cluster
@pytest.mark.enforced
def test_even_the_engine_gets_donors_for_waiting_jobs_of_users_alone(lending):
    """What somebody could ask for who has taken over the engine."""
    engine = ("--reuid=slurm", "--regid=slurm", "--clear-groups")
    before = {job.id for job in lending.jobs()}
    roots = lending.sbatch("--hold", "-p", "off", user="root")
    bobs = lending.sbatch("--hold", "-p", "off", user="bob")
    runs = next(job for job in lending.jobs() if job.state == "RUNNING")
    uid = runs.fields["UserId"].partition("(")[2].rstrip(")")
    for line, why in (
        ("donor 999999 2001 dgx2 1", "Invalid job id"),
        (f"donor {roots} 0 dgx2 1", "users below uid 1000"),
        (f"donor {roots} 2001 dgx2 1", "it is of uid 0; expected 2001"),
        (f"donor {bobs} 2001 dgx2 1", "it is of uid 2002; expected 2001"),
        (f"donor {runs.id} {uid} dgx2 1", "expected one job that waits"),
        (f"donor {roots} 2001 dgx2 1 --uid=0", "expected ready, or donor JOBID UID NODE GPUS"),
        ("x" * 600, "expected one line"),
    ):
        answer = asked(lending, f"{line}\\n", *engine)
        assert answer.startswith("error ")
        assert why in answer
    assert {job.id for job in lending.jobs()} == {*before, roots, bobs}
    waits = lending.sbatch("--hold", "-p", "off", "-t", "7")
    answer = asked(lending, f"donor {waits} 2001 dgx2 1\\n", *engine)
    assert answer.startswith("ok ")
    made = lending.job(int(answer.split()[1]))
    assert (made.fields["JobName"], made.fields["TimeLimit"]) == ("gpu-donor", "00:07:00")
    assert made.fields["UserId"].startswith("alice(")
    # No loan names this donor, so the engine ends it.
    until(lambda: lending.job(made.id).state == "CANCELLED", "the donor is ended", 30)


@pytest.mark.cluster
@pytest.mark.enforced
@pytest.mark.long("40 s of kills")
def test_killed_while_it_submits_it_leaves_nothing_behind(lending):
    """The donor is in Slurm, but its id was not passed on."""
    seen = len([job for job in lending.jobs() if job.fields["JobName"] == "gpu-donor"])
    with commands_of_ours(lending, 'command sbatch "$@"; touch /tmp/submitted; sleep 20'):
        waits = lending.sbatch(*FOUR, ASKS, script=HOLD)
        until(lambda: not lending.run("ctl", "test -e /tmp/submitted", check=False).code, "sbatch")
        lending.run("ctl", "clusterctl donors kill; rm /tmp/submitted")
    assert len([job for job in lending.jobs() if job.fields["JobName"] == "gpu-donor"]) > seen
    until(lambda: not donors(lending), "the donor that nobody names is ended", 30)
    assert lending.job(waits).state == "PENDING"
    lending.run("ctl", "clusterctl donors start")
    lending.wait_running(waits, timeout_s=120)
