"""AdminComment beside jobstats: its epilog writes the field, reportseff reads it.

jobstats (PrincetonUniversity/jobstats) has this line in its EpilogSlurmctld, with a summary of the
job in base64; short jobs get none. reportseff, from PyPI, takes a field that begins with `JS1:`,
and fails where it cannot decode the rest.
"""

import base64
import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from live_harness import at_home, explained
from modes import enforcement

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import ClusterError, until
from slurm_cluster.pytest_plugin import in_ci

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes("short"), pytest.mark.enforced]

FOLDER = "/cluster/jobstats"
SUMMARY: dict[str, Any] = {
    "gpus": 2, "total_time": 10, "nodes": {"dgx1": {
        "total_time": 9.5, "cpus": 1, "gpu_utilization": {"0": 80, "3": 60},
        "gpu_used_memory": {"0": 4, "3": 8}, "gpu_total_memory": {"0": 16, "3": 16}}},
}  # fmt: skip
JS1 = "JS1:" + base64.b64encode(gzip.compress(json.dumps(SUMMARY).encode(), mtime=0)).decode()
EPILOG = f"""\
#!/bin/sh
PATH=/usr/local/bin:/usr/bin:/bin
/opt/gputopo/lib/python3*/site-packages/lua_bridge/epilog-slurmctld 2>/dev/null
[ "$SLURM_JOB_NAME" != short ] || exit 0
sacctmgr -i update job where jobid=$SLURM_JOB_ID set AdminComment={JS1} >/dev/null 2>&1
exit 0
"""
PAIR = ("-p", "dgx", "--gres=gpu:2")


@pytest.fixture(scope="module")
def jobstats(session_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with jobstats' epilog line, where users may ask the engine."""
    session_cluster.run("ctl", f"mkdir -p {FOLDER}")
    session_cluster.put("ctl", f"{FOLDER}/epilog", EPILOG)
    session_cluster.run("ctl", f"chmod 755 {FOLDER} {FOLDER}/epilog")
    yield session_cluster
    session_cluster.run("ctl", f"rm -rf {FOLDER}")


@pytest.fixture(scope="module")
def usual(jobstats: Cluster) -> Iterator[Cluster]:
    with jobstats.at_home(slurm_conf=f"EpilogSlurmctld={FOLDER}/epilog"):
        yield jobstats


quiet = at_home(yaml="notes: engine\nexplain_listen: ctl:9402\n")


def booked(cluster: Cluster, jobid: int) -> str:
    """The job's AdminComment in sacct."""
    argv = ["sacct", "-X", "-n", "-P", "-j", str(jobid), "-o", "AdminComment"]
    return cluster.run("ctl", argv).out.rstrip("\n")


def saved(cluster: Cluster, jobid: int) -> str:
    """The job's entries in the engine's file; earlier jobs there may have the same ones."""
    rows = json.loads(cluster.run("ctl", "cat /var/lib/gputopo/job-entries.json || echo []").out)
    return next((" ".join(row["ours"].values()) for row in rows if row["job"] == jobid), "")


def as_reportseff(comment: str) -> dict[str, Any]:
    """What reportseff 2.10.3 makes of a field that begins with `JS`."""
    assert comment[:3] == "JS1"
    decoded: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(comment[4:])))
    return decoded


@pytest.mark.long("the same in the other mode", "slots")
def test_our_notes_do_not_keep_jobstats_from_writing(usual, cluster):
    job = cluster.started(*PAIR, sleep_s=2)
    assert "[gpu-topo: | dgx" in cluster.job(job.id).admin_comment
    cluster.wait_finished(job.id)
    until(lambda: booked(cluster, job.id) == JS1, "jobstats has written its summary", 30)
    assert as_reportseff(booked(cluster, job.id)) == SUMMARY
    told = explained(cluster, job.id)
    assert told["decision"] == "use"
    assert told["started"]["gpus"] == {node: list(gpus) for node, gpus in job.gpus.items()}


@pytest.mark.long("reportseff is fetched from PyPI")
def test_reportseff_reads_jobstats_and_passes_over_ours(usual, cluster):
    """The real one, on the real sacct: of a job each with jobstats' summary, our note, neither."""
    try:
        python = cluster.install("reportseff")
    except ClusterError as error:
        why = str(error).strip().splitlines()[-1]
        (pytest.fail if in_ci() else pytest.skip)(f"reportseff cannot be fetched: {why}")
    short, alone = ["-J", "short", *PAIR], ["-J", "short", "-p", "off", "--gres=gpu:2"]
    theirs, ours, neither = cluster.submit_many([[*PAIR], short, alone], script="true")
    cluster.wait_idle()
    until(lambda: booked(cluster, theirs) == JS1, "jobstats has written its summary", 30)
    until(lambda: "[gpu-topo: | dgx" in booked(cluster, ours), "our note is booked")
    columns = ["--format", "JobID,State,GPUEff,GPUMem"]
    asked = [python.replace("/python", "/reportseff"), "-p", *columns]
    ids = [str(job) for job in (theirs, ours, neither)]
    output = cluster.run("ctl", [*asked, *ids], user="alice").out
    assert output.splitlines()[1:] == [
        f"{theirs}|COMPLETED|70.0|37.5",
        f"{ours}|COMPLETED|---|---",
        f"{neither}|COMPLETED|---|---",
    ]


def test_sacct_has_nothing_of_ours_where_the_engine_keeps_the_notes(quiet, cluster):
    """Of jobs of all kinds, which end at once."""
    hinted = "--comment=gpu-topo: pattern=tree"
    lines = (PAIR, (*PAIR, hinted), (*PAIR, "--array=0-1"), (*PAIR, "--comment=gpu-topo: off"),
             ("-p", "off", "--gres=gpu:2"), ("-p", "dgx", "-N2", "--gpus-per-node=1"))  # fmt: skip
    ids = cluster.submit_many([list(line) for line in lines], script="true")
    cluster.wait_idle()
    assert {jobid: booked(cluster, jobid).strip() for jobid in ids} == dict.fromkeys(ids, "")


def test_users_are_told_why_without_admin_comment(quiet, cluster):
    """While it waits, while it runs, after its end; by an engine that was killed in between."""
    cluster.occupy("dgx1", range(7))
    jobid = cluster.sbatch("-w", "dgx1", *PAIR, "--comment=gpu-topo: pattern=tree", sleep_s=300)
    if enforcement() == "slots":
        until(lambda: "[gpu-slots: gated" in cluster.job(jobid).admin_comment, "it is gated")
        shown = cluster.job(jobid).admin_comment
        assert shown.startswith("[gpu-topo: pattern=tree] [gpu-slots: gated ")
        cluster.wait_reconciled()
        told = explained(cluster, jobid, "alice")
        assert told["note"] == "waits for 2 free GPUs on one node"
        assert told["source"] == "the engine's notes"
        # They are written to disk every two seconds at most; what is newer goes with a kill.
        until(lambda: told["note"] in saved(cluster, jobid), "it is on disk")
        cluster.engine("kill")
        cluster.engine("start")
        cluster.wait_reconciled()
        assert explained(cluster, jobid, "alice")["note"] == told["note"]
    cluster.cancel(
        *(job.id for job in cluster.jobs() if job.id != jobid and job.state == "RUNNING")
    )
    job = cluster.wait_running(jobid)
    assert cluster.job(jobid).admin_comment == ""
    told = explained(cluster, jobid, "alice")
    assert told["decision"] == "use"
    assert told["hint"] == "pattern=tree"
    assert {node: tuple(sorted(gpus)) for node, gpus in told["chosen"]["gpus"].items()} == job.gpus
    cluster.cancel(jobid)
    cluster.wait_finished(jobid)
    assert explained(cluster, jobid, "alice")["decision"] == "use"
    assert booked(cluster, jobid) == ""
