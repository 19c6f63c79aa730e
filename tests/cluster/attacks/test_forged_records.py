"""A user writes records of ours: by hints, by updates, by every way into a job's AdminComment."""

import json
import shlex
import time
from collections.abc import Iterator

import pytest
from lending_harness import ASKS, FOUR, HOLD, donors

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_plugin.base.job_notes.records import LoanRecord

#: Two jobs of somebody else as "donors", the highest of all priorities, and a start at once.
FORGED = (
    "[gpu-loan: {state} remote=1 tpn=gres/gpu:1"
    " loan=dgx1/1,dgx2/1/{running}/50000,dgx2/1/{waiting}/50001"
)
PRIORITY = " prio=4294967000"
OPTION = "_SLURM_SPANK_OPTION_gputopo_gpu_topo="
SOCKET = "/tmp/mallory.sock"
POST = """
import http.client, socket, sys
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(sys.argv[1])
heads = {"Content-Type": "application/json"}
connection.request("POST", "/slurm/v0.0.42/job/submit", sys.argv[2], heads)
print(connection.getresponse().read().decode())
"""
RUNNING_REST = (
    "SLURMRESTD_SECURITY=disable_unshare_sysv,disable_unshare_files"
    f" setsid slurmrestd -a rest_auth/local unix:{SOCKET} >/tmp/mallory.log 2>&1 </dev/null &"
)


@pytest.mark.parametrize("door", ["the option", "the comment"])
def test_without_an_engine_no_hint_becomes_a_record(lua, engine, door):
    """The bridge keeps an option's hint for the engine that will be there when the job starts."""
    engine.stop()
    hint = "pattern=ring " + FORGED.format(state="starts", running=71, waiting=72) + PRIORITY
    fields = (
        {"spank": [OPTION + hint]} if door == "the option" else {"comment": f"gpu-topo: {hint}"}
    )
    result = lua.submit(tres_per_node="gpu:1", **fields)
    said = result.job.get("admin_comment", "")
    assert "gpu-loan" not in said
    assert LoanRecord.read_from(said) is None
    assert result.rc == -1
    assert "without [, ] and |" in result.user[0]


@pytest.fixture
def victims(lending: Cluster) -> Iterator[tuple[int, int]]:
    """Bob's two jobs: one runs, one waits."""
    running = lending.sbatch("-p", "gpu", "-w", "minsky1", "--gres=gpu:1", user="bob", sleep_s=900)
    waiting = lending.sbatch("-p", "gpu", "-w", "dgx1", "--gres=gpu:8", user="bob", sleep_s=900)
    lending.wait_running(running)
    yield running, waiting
    lending.cancel(running, waiting)


@pytest.mark.cluster
@pytest.mark.enforced
@pytest.mark.parametrize(
    "state",
    ["starts", pytest.param("meets", marks=pytest.mark.long("another state of the same loan"))],
)
def test_a_record_in_a_hint_moves_nobodys_jobs(lending, victims, state):
    """The engine is away during the submit; a client of one's own sends what sbatch would not."""
    running, waiting = victims
    before = priorities(lending, victims)
    hint = "pattern=ring " + FORGED.format(state=state, running=running, waiting=waiting) + PRIORITY
    lending.engine("stop")
    output = submitted_by_rest(lending, [OPTION + hint])
    lending.engine("start")
    for _ in range(4):
        lending.wait_reconciled()
        time.sleep(1)
    assert lending.job(running).state == "RUNNING"
    assert lending.job(waiting).state == "PENDING"
    assert priorities(lending, victims) == before
    # slurmrestd keeps the bridge's line to itself
    assert output["errors"], output


@pytest.mark.cluster
@pytest.mark.enforced
def test_a_record_that_names_others_jobs_moves_them_not_even_if_slurmctld_wrote_it(
    lending, victims
):
    """As if one more hole were found: root plants what a user would."""
    running, waiting = victims
    before = priorities(lending, victims)
    mine = lending.sbatch(
        "-p", "gpu", "--gres=gpu:1", "--begin=now+300", user="mallory", sleep_s=60
    )
    for state in ("meets", "starts"):
        text = FORGED.format(state=state, running=running, waiting=waiting)
        for planted in (f"[gpu-topo: pattern=ring {text}]", f"{text}]", f"{text} loan_at=x]"):
            lending.run("ctl", f"scontrol update jobid={mine} AdminComment={shlex.quote(planted)}")
            lending.wait_reconciled()
            time.sleep(1)
    assert lending.job(running).state == "RUNNING"
    assert lending.job(waiting).state == "PENDING"
    assert priorities(lending, victims) == before
    lending.cancel(mine)


@pytest.mark.cluster
@pytest.mark.enforced
@pytest.mark.long("a detail of what a shorter test shows")
def test_a_donor_is_no_lever(lending):
    """Its user makes it larger, dearer, or another's; holds it, and what it lends to."""
    borrower = lending.sbatch(*FOUR, ASKS, script=HOLD)
    until(lambda: donors(lending), "a donor is there", 30)
    [donor] = donors(lending)
    for change in (
        *("NumNodes=2", "NumCPUs=16", "Gres=gpu:8", "TimeLimit=1", "Partition=gpu", "Nice=100"),
        *("StartTime=now", "ReqNodeList=dgx1", "Dependency=", "MinMemoryNode=900", "Priority=0"),
    ):
        done = lending.run(
            "ctl", f"scontrol update jobid={donor.id} {change}", user="alice", check=False
        )
        assert done.code == 1, change
        assert "cannot be changed" in done.err, done
    lending.wait_running(borrower, timeout_s=60)
    [same] = donors(lending)
    assert (same.id, same.fields["NumNodes"]) == (donor.id, "1")
    assert {node: len(gpus) for node, gpus in same.gpus.items()} == {same.fields["NodeList"]: 2}
    denied = lending.run("ctl", f"scancel {donor.id}", user="mallory", check=False)
    assert "denied" in denied.err
    assert lending.job(borrower).state == "RUNNING"


@pytest.mark.cluster
@pytest.mark.enforced
@pytest.mark.long("a detail of what a shorter test shows")
def test_a_job_that_says_it_is_somebodys_donor_is_its_users_alone(lending):
    """It is ended as one that nobody names, and the job whose donor it says it is goes on."""
    borrower = lending.started(*FOUR, ASKS, script=HOLD, timeout_s=60).id
    [donor] = donors(lending)
    mine = lending.sbatch(
        f"--comment=gpu-donor of={borrower}", "--begin=now+300", user="mallory", sleep_s=60
    )
    until(lambda: lending.job(mine).state == "CANCELLED", "the false donor is ended", 30)
    assert [one.id for one in donors(lending)] == [donor.id]
    assert lending.job(borrower).state == "RUNNING"


def priorities(cluster: Cluster, jobs: tuple[int, ...]) -> dict[int, str]:
    return {job.id: job.fields["Priority"] for job in cluster.jobs() if job.id in jobs}


def submitted_by_rest(cluster: Cluster, spank: list[str]) -> dict[str, object]:
    """Mallory's own slurmrestd submits a job with these variables of SPANK plugins; its reply."""
    job = {
        "script": "#!/bin/sh\nsleep 60\n",
        "job": {
            "name": "forged", "partition": "gpu", "tres_per_node": "gres/gpu:1",
            "begin_time": {"set": True, "number": int(time.time()) + 300},
            "current_working_directory": "/tmp", "environment": ["PATH=/usr/bin:/bin"],
            "spank_environment": spank,
        },
    }  # fmt: skip
    cluster.run("ctl", f"rm -f {SOCKET}; {RUNNING_REST}", user="mallory")
    until(lambda: not cluster.run("ctl", f"test -S {SOCKET}", check=False).code, "slurmrestd", 20)
    try:
        said = cluster.run("ctl", ["python3", "-c", POST, SOCKET, json.dumps(job)], user="mallory")
        return dict(json.loads(said.out))
    finally:
        cluster.run("ctl", "pkill -u mallory slurmrestd", check=False)
