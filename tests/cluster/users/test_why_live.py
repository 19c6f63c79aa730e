"""`gputopo why` in scripted states of a live queue: each has its exact sentence.

GPUTOPO_RECORD_STATES=FILE writes each state down, as in tests/slurm_plugin/tell/why/states.jsonl.
"""

import json
import os
from pathlib import Path

import pytest
from live_harness import at_home
from modes import enforcement

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import CommandResult, until
from tests.cluster.users.waiting_states import LINES, STATES, waiting
from tests.slurm_plugin.tell.why.sentences import SENTENCES, said

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes]
#: The others take six seconds each, and are recorded as unit tests, too.
SHORT = ("fragmentation", "backfill would delay the first", "GPUs of a user in a QOS")
OTHERS = pytest.mark.long("a state of its own each, and there is a recording of it")
PYTHON = "/opt/gputopo/bin/python3"
READ = "/cluster/read_state.py"
GONE = ("-w", "dgx1", "--gres=gpu:1", "-t", "10")


#: A Slurm with a licence, limits and small partitions.
limited = at_home(slurm_conf=LINES)


@pytest.fixture
def site(limited: Cluster, cluster: Cluster) -> Cluster:
    """A clean cluster with all that."""
    return cluster


def why(cluster: Cluster, user: str, *args: str) -> CommandResult:
    return cluster.run("ctl", ["gputopo", "why", *args], user=user, check=False)


def record(cluster: Cluster, name: str, numbers: dict[str, int]) -> None:
    """Writes down what the user's own Slurm commands tell in this moment."""
    target = os.environ.get("GPUTOPO_RECORD_STATES")
    if not target:
        return
    source = Path(__file__).parents[2] / "slurm_plugin" / "tell" / "why" / "read_state.py"
    cluster.put("ctl", READ, source.read_text())
    state = json.loads(cluster.run("ctl", [PYTHON, READ, str(numbers["job"])], user="alice").out)
    line = {"name": name, "mode": enforcement(), "numbers": numbers, "state": state}
    with Path(target).open("a") as file:
        file.write(f"{json.dumps(line)}\n")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SHORT else OTHERS) for name in STATES]
)
def test_each_state_has_its_sentence(site, name):
    if enforcement() not in STATES[name].modes:
        modes = " and ".join(sorted(STATES[name].modes))
        pytest.skip(f"with enforcement: {modes} alone")
    with waiting(site, name) as numbers:
        job = str(numbers["job"])
        done = why(site, "alice", job)
        assert said(done.out, job) == SENTENCES[name].format(**numbers), done
        # The terminal's view and the page have it from the same functions.
        words = why(site, "root", job).out.splitlines()[0]
        shown = " ".join(site.run("ctl", ["gputopo", "top"]).out.split())
        assert words in shown, shown
        record(site, name, numbers)


def test_a_stranger_is_told_nothing_and_root_all(site):
    job = str(site.sbatch("-w", "dgx1", "--gres=gpu:1", "--hold"))
    strangers, nobodys = why(site, "bob", job), why(site, "bob", "999999")
    assert strangers.code == nobodys.code == 2
    assert strangers.err.replace(job, "N") == nobodys.err.replace("999999", "N")
    assert said(why(site, "root", job).out, job) == SENTENCES["held by its user"]


def test_a_job_that_runs_is_told_to_run(site):
    job = str(site.started("-w", "dgx1", "--gres=gpu:1", sleep_s=60).id)
    done = why(site, "alice", job)
    assert done.code == 2
    assert f"job {job} does not wait: it is RUNNING on dgx1" in done.err


def test_others_that_slurm_hides_are_not_named(site):
    site.configure_extra("PrivateData=jobs")
    site.occupy_nodes({"dgx1": range(3, 8), "dgx2": range(3, 8)})
    site.sbatch("-p", "dgx", "--gres=gpu:4", user="bob")
    job = str(site.sbatch("-p", "dgx", "--gres=gpu:4"))
    site.wait_reconciled()
    out = why(site, "alice", job).out
    assert "6 are free, but never 4 on one node (dgx1 3, dgx2 3)" in out
    assert "bob" not in out


@pytest.mark.long("Slurm looks at reservations every half minute")
def test_a_job_whose_reservation_is_over_is_told_to_be_held(site):
    """Slurm holds it then, and its nodes have nothing to do with it."""
    how = "reservationname=gone starttime=now endtime=now+5 users=alice nodes=dgx1"
    site.run("ctl", ["scontrol", "create", *how.split()])
    job = str(site.sbatch(*GONE, "--reservation=gone", "--begin=now+1hour"))
    until(lambda: "deleted" in reason(site, job), f"job {job}: reservation deleted", timeout_s=60)
    says = "is held by Slurm, for its reservation is gone; once released it runs without one."
    assert said(why(site, "alice", job).out, job) == says


def reason(cluster: Cluster, job: str) -> str:
    return cluster.run("ctl", ["squeue", "-h", "-j", job, "-O", "Reason:60"]).out
