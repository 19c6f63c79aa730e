"""Whose jobs one may ask about, and how they are called."""

import time
from datetime import datetime

import pytest
from fake_slurm import FakeRunner, tool

from slurm_plugin.slurm.interface import Limit, QueuedJob
from slurm_plugin.tell.explain.answer import NotShown
from slurm_plugin.tell.why.read import NotWaiting, SbatchSays, own_job, read_site, sbatch_says

ALICE, BOB = 1000, 1001
QUEUE = (
    QueuedJob(7, "7", uid=ALICE, state="PENDING"),
    QueuedJob(8, "8", uid=ALICE, state="RUNNING", nodes=("dgx1",)),
    QueuedJob(9, "9_[4-6]", array_id=9, task="4-6", uid=ALICE, state="PENDING"),
    QueuedJob(10, "9_3", array_id=9, task="3", uid=ALICE, state="RUNNING", nodes=("dgx2",)),
    QueuedJob(11, "11", uid=BOB, state="PENDING"),
)


@pytest.mark.parametrize(("text", "job"), [("7", 7), ("9", 9), ("9_5", 9)])
def test_a_job_is_found_by_its_number_its_array_or_its_task(text, job):
    assert own_job(text, QUEUE, ALICE, sees_all=False).job_id == job


def test_another_users_job_is_like_none():
    for text in ("11", "12", "11_1"):
        with pytest.raises(NotShown) as error:
            own_job(text, QUEUE, ALICE, sees_all=False)
        assert str(error.value) == f"job {text}: no job of yours with this number is in the queue"
    assert own_job("11", QUEUE, ALICE, sees_all=True).uid == BOB


@pytest.mark.parametrize(("text", "node"), [("8", "dgx1"), ("9_3", "dgx2")])
def test_a_job_that_runs_does_not_wait(text, node):
    with pytest.raises(NotWaiting, match=f"job {text} does not wait: it is RUNNING on {node}"):
        own_job(text, QUEUE, ALICE, sees_all=False)


def test_slurms_own_test_is_asked_and_nothing_is_submitted(tmp_path):
    tool(tmp_path, "sbatch", 'printf "sbatch: tested %s\\n" "$*" >&2')
    says = sbatch_says(["--gpus=2"], has_script=False, bin_dir=tmp_path)
    assert says == ("tested --test-only --gpus=2 --wrap true", True, None)
    tool(tmp_path, "sbatch", 'printf "sbatch: error: never %s\n" "$*" >&2; exit 1')
    says = sbatch_says(["--gpus=2", "job.sh", "-x"], has_script=True, bin_dir=tmp_path)
    assert says == ("error: never --test-only --gpus=2 job.sh -x", False, None)
    assert sbatch_says([], has_script=False, bin_dir=tmp_path / "nowhere") == SbatchSays()


@pytest.mark.parametrize(
    ("options", "has_script", "argv"),
    [
        (["-N2"], False, "--test-only -N2 --comment=gpu-topo: off --wrap true"),
        (["-N2", "--comment=mine"], False, "-N2 --comment=mine --comment=gpu-topo: off --wrap"),
        (["-N", "2", "job.sh", "-x"], True, "-N 2 --comment=gpu-topo: off job.sh -x"),
        (["-N2", "--", "job.sh"], True, "-N2 --comment=gpu-topo: off -- job.sh"),
    ],
)
def test_with_slots_a_test_leaves_the_engine_alone(tmp_path, options, has_script, argv):
    """Its hint comes last, before the script; where a site refuses it nothing is known."""
    tool(tmp_path, "sbatch", 'printf "sbatch: tested %s\\n" "$*" >&2')
    says = sbatch_says(options, has_script, tmp_path, past_engine=True)
    assert argv in says.words
    assert says.would_start
    tool(tmp_path, "sbatch", 'echo "sbatch: error: gpu-topo: off is not yours to set" >&2; exit 1')
    assert sbatch_says(options, has_script, tmp_path, past_engine=True) == SbatchSays()


@pytest.mark.parametrize(
    ("ahead_s", "is_later"), [(0, False), (5, False), (-9, False), (120, True), (None, None)]
)
def test_a_start_that_slurms_test_puts_off_is_later(tmp_path, monkeypatch, ahead_s, is_later):
    """Whatever form of times the user has set."""
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    at = "soon"
    if ahead_s is not None:
        at = datetime.fromtimestamp(time.time() + ahead_s).strftime("%Y-%m-%dT%H:%M:%S")
    said = f"sbatch: Job 4 to start at {at} using 1 processors on nodes dgx1 in partition gpu"
    tool(tmp_path, "sbatch", f'test -z "$SLURM_TIME_FORMAT" && echo "{said}" >&2')
    says = sbatch_says(["--gpus=2"], has_script=False, bin_dir=tmp_path)
    assert (says.words, says.would_start) == (said.removeprefix("sbatch: "), True)
    assert says.is_later is is_later


def test_a_start_that_ends_other_jobs_first_is_not_known(tmp_path):
    """slurm_job_will_run names them in a line behind the one with the start, which says now."""
    at = datetime.fromtimestamp(time.time()).strftime("%Y-%m-%dT%H:%M:%S")
    said = f"Job 4 to start at {at} using 1 processors on nodes dgx1 in partition gpu"
    lines = f"sbatch: {said}\nsbatch:   Preempts: 3"
    tool(tmp_path, "sbatch", f'printf "{lines}\\n" >&2')
    assert sbatch_says([], has_script=False, bin_dir=tmp_path) == SbatchSays(said, True)


@pytest.mark.parametrize(
    ("why", "would_start"),
    [
        ("Unable to contact slurm controller (connect failure)", None),
        ("Socket timed out on send/recv operation", None),
        ("Zero Bytes were transmitted or received", None),
        ("Resource temporarily unavailable", None),
        ("Requested node configuration is not available", False),
        ("Invalid partition name specified", False),
    ],
)
def test_an_error_that_is_no_answer_says_nothing_of_the_job(tmp_path, why, would_start):
    tool(tmp_path, "sbatch", f'echo "allocation failure: {why}" >&2; exit 1')
    says = sbatch_says([], has_script=False, bin_dir=tmp_path)
    assert says == SbatchSays(f"allocation failure: {why}", would_start)


OF_ACCOUNTS = "AccountingStorageType = accounting_storage/slurmdbd"
SITE = {
    "scontrol --version": "slurm 24.11.5",
    "scontrol show nodes": '{"nodes": []}',
    "squeue": "",
    "scontrol -d show jobs": '{"jobs": []}',
    "scontrol show config": f"SLURM_VERSION = 24.11.5\n{OF_ACCOUNTS}\n",
    "scontrol --oneliner show": "PartitionName=dgx Default=YES\n",
    "scontrol show assoc_mgr users=alice": "UserName=alice(1) DefAccount=research\n",
    "sacctmgr -nP show associations user=alice": "research||normal,long|\nphysics||long|long\n"
    "physics|dgx|short|short\n",
}


@pytest.mark.parametrize(
    ("config", "account", "parents"),
    [
        ("AccountingStorageType = accounting_storage/none", "", {}),
        (OF_ACCOUNTS, "research", {}),
        (f"{OF_ACCOUNTS}\nAccountingStorageEnforce = associations", "research",
         {"research": "root"}),
    ],
)  # fmt: skip
def test_accounts_are_read_where_slurm_keeps_them(config, account, parents):
    """Limits are, too, where they are enforced; here they are not."""
    tree = "ClusterName=c Account=research UserName=\n  ParentAccount=root(1)\n  MaxJobs=1(0)\n"
    run = FakeRunner({
        **SITE,
        "scontrol show config": f"SLURM_VERSION = 24.11.5\n{config}\n",
        "scontrol show assoc_mgr flags=assoc,qos": tree,
    })  # fmt: skip
    site = read_site(run, "alice", {})
    assert (site.job.account, site.extras.parents, site.extras.limits) == (account, parents, ())


@pytest.mark.parametrize(
    ("options", "qos"),
    [
        ({}, "normal"),
        ({"qos": "short"}, "short"),
        ({"account": "physics", "partition": "cpu"}, "long"),
        ({"account": "physics"}, "short"),
    ],
)
def test_a_job_that_names_no_qos_has_that_of_its_account(options, qos):
    assert read_site(FakeRunner(SITE), "alice", options).job.qos == qos


def test_what_the_qos_of_the_partition_allows_who_has_used_nothing_yet_is_read_too():
    config = f"SLURM_VERSION = 24.11.5\n{OF_ACCOUNTS}\n"
    run = FakeRunner({
        **SITE,
        "scontrol show config": f"{config}AccountingStorageEnforce = associations,limits\n",
        "scontrol --oneliner show": "PartitionName=dgx Default=YES QoS=part\n",
        "scontrol show assoc_mgr flags=assoc,qos": "",
        "sacctmgr -nP show qos part": "gres/gpu=2|||\n",
    })  # fmt: skip
    [limit] = read_site(run, "alice", {}).extras.limits
    assert limit == Limit("user alice in QOS part", "MaxTRESPU", "gres/gpu", 2, 0)


def test_without_slurms_database_the_qos_is_not_known():
    without = {line: said for line, said in SITE.items() if not line.startswith("sacctmgr")}
    site = read_site(FakeRunner(without), "alice", {})
    assert (site.job.account, site.job.qos) == ("research", "")
