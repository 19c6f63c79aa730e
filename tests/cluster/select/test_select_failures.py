"""The select plugin with an engine that is broken, gone or wrong: Slurm's own choice."""

import re
import time
from collections.abc import Sequence
from typing import Any

import pytest
from select_harness import PREFER, SETTINGS, FakeEngine, assert_no_overlap, clear, stock_pair

from bench.live import shim_log
from slurm_cluster.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.select_plugin]


@pytest.fixture
def engine(cluster: Cluster, scripted: FakeEngine) -> FakeEngine:
    """The scripted engine, and a breaker that is closed and takes its usual time."""
    scripted.fresh(closed=True, breaker_s=5)
    return scripted


LATE = "no answer within the deadline"
FAILURES = [
    ("silence", {"do": "silence"}, LATE),
    ("half a line", {"do": "half"}, LATE),
    ("too slow an answer", {"do": "slow", "ms": 900, "then": PREFER}, LATE),
    ("garbage", {"do": "garbage"}, "a reply without our id"),
    ("ten megabytes", {"do": "huge"}, "a reply over 65536 bytes"),
    ("a closed connection", {"do": "close"}, "connection lost"),
    (
        "a mask that is none",
        {"do": "raw", "text": "use id=%ID% node=dgx1/xyz\n"},
        "a mask that is empty",
    ),
    ("an unknown verb", {"do": "raw", "text": "take id=%ID% node=dgx1/9\n"}, "an unknown verb"),
]


SHORT = ("silence", "garbage", "a closed connection", "busy GPUs", "an unknown node")
ANOTHER = pytest.mark.long("another reply of no use; all of them without a cluster in every run")


def cases(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """A test per row, named by its first column."""
    return [
        pytest.param(*row[1:], id=row[0], marks=() if row[0] in SHORT else ANOTHER) for row in rows
    ]


@pytest.mark.parametrize(("rule", "said"), cases(FAILURES))
def test_a_broken_engine_costs_one_log_line(cluster, engine, rule, said):
    """Both jobs start on Slurm's own GPUs; the breaker spares the second the question."""
    if cluster.release < (23, 11):
        # its reconfigure is no restart, so the breaker of the case before is still open
        cluster.restart_slurmctld()
    engine.rule(**rule)
    with cluster.slurmctld_log_of() as log:
        first = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=30)
        second = cluster.sbatch("-w", "dgx2", "--gres=gpu:2", sleep_s=30)
        assert cluster.wait_running(first).gpus == stock_pair(cluster)
        assert cluster.wait_running(second).gpus == stock_pair(cluster, "dgx2")
    output = [line for line in log if "error: gputopo: engine:" in line]
    assert len(output) == 1
    assert said in output[0]
    assert any(f"job={second} " in line and "result=breaker" in line for line in log)


def test_an_answer_to_an_earlier_question_is_skipped(cluster, engine):
    """A reply with an earlier id is skipped, and the right one after it is used."""
    engine.rule(do="own")
    cluster.wait_running(cluster.sbatch("-w", "dgx2", "--gres=gpu:1", sleep_s=30))
    engine.rule(do="late")
    with cluster.slurmctld_log_of() as log:
        jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=30)
        assert cluster.wait_running(jobid).gpus == stock_pair(cluster)
    assert any(f"job={jobid} " in line and "result=used" in line for line in log)


NOT_FREE, NOT_ASKED = "GPUs that are not free", "a node that was not asked about"
BAD_ADVICE: list[tuple[str, dict[str, list[int]], str]] = [
    ("busy GPUs", {"dgx1": [6, 7]}, NOT_FREE),
    ("GPUs the node has not", {"dgx1": [8, 9]}, NOT_FREE),
    ("an unknown node", {"nowhere": [0, 1]}, NOT_ASKED),
    ("a node outside the request", {"dgx2": [0, 1]}, NOT_ASKED),
    ("too many GPUs", {"dgx1": [0, 1, 2]}, "another number of GPUs"),
    ("too few GPUs", {"dgx1": [2]}, "another number of GPUs"),
    ("too many nodes", {"dgx1": [0], "dgx2": [1]}, "another number of nodes"),
]


@pytest.mark.parametrize(("nodes", "said"), cases(BAD_ADVICE))
def test_impossible_advice_is_ignored(cluster, engine, nodes, said):
    """The job starts on what Slurm chose, and the log says once what was wrong."""
    cluster.occupy("dgx1", [7])
    engine.rule(do="use", nodes=nodes)
    with cluster.slurmctld_log_of() as log:
        job = cluster.started("-w", "dgx1", "--gres=gpu:2", sleep_s=30)
    own = int(engine.questions(job.id)[0]["node"][0].split("/")[3], 16)
    assert sum(1 << gpu for gpu in job.gpus["dgx1"]) == own
    assert len([line for line in log if "error: gputopo:" in line and said in line]) == 1
    assert_no_overlap(cluster)


def fill_memory(cluster: Cluster, node: str) -> None:
    """A job without GPUs leaves 100 MB of a node: Slurm offers it still, cons_tres refuses it."""
    cluster.wait_running(cluster.sbatch("-w", node, "--mem=3900", script="sleep 300"))


def test_advice_without_memory_falls_back_to_slurms_nodes(cluster, engine):
    """`node` names a node with too little memory: the job gets `alt`, on Slurm's own node."""
    fill_memory(cluster, "dgx2")
    engine.rule(do="use", nodes={"dgx2": [0, 3]}, alts={"dgx1": [2, 6]})
    with cluster.slurmctld_log_of() as log:
        job = cluster.started("-p", "dgx", "-n4", "--mem=500", "-N1", "--gres=gpu:2", sleep_s=30)
    assert job.gpus == {"dgx1": (2, 6)}
    assert any(f"job={job.id} " in line and "result=alt" in line for line in log)
    assert job.fields["AdminComment"] == "[gpu-topo: | dgx1:2,6 within Slurm's own nodes]"


REQUESTS = [
    ("-N1", "--gres=gpu:1", "-n2", "--mem=300"),
    ("-N1", "--gres=gpu:3", "-n4", "--mem-per-cpu=60"),
    ("-N1", "--gpus=4", "--cpus-per-gpu=1", "--mem=300"),
    ("-N1", "-n2", "--gpus-per-task=2", "--mem-per-gpu=80"),
    ("-N1", "--gres=gpu:2", "--gres-flags=enforce-binding", "-n3", "--mem=300"),
    ("-N1", "--gres=gpu:2", "-n8", "--overcommit", "--mem=300"),
]
COUNTS = ("NumNodes", "NumCPUs", "NumTasks", "CPUs/Task", "MinMemoryNode", "MinMemoryCPU")


@pytest.mark.long("half a minute: the same jobs on stock Slurm")
def test_failed_advice_leaves_exactly_the_stock_placement(cluster, engine):
    """Kinds of request on equal states: GPUs, cores, memory and counts are stock Slurm's."""

    def placements() -> list[Any]:
        result = []
        for args in REQUESTS:
            job = cluster.started("-p", "dgx", *args, script="sleep 60")
            listing = cluster.run("ctl", ["scontrol", "show", "job", "-d", str(job.id)]).out
            detail = [line.strip() for line in listing.splitlines() if " CPU_IDs=" in line]
            result.append((args, detail, [job.fields.get(key) for key in COUNTS]))
            if len(result) > 1:  # the first stays, so that the node is never empty
                cluster.cancel(job.id)
                cluster.wait_finished(job.id)
        return result

    # too little memory on dgx2 for each of them: the second selection fails
    fill_memory(cluster, "dgx2")
    engine.rule(do="elsewhere")
    with cluster.slurmctld_log_of() as log:
        ours = placements()
    results = [one.result for one in shim_log.read(log)]
    assert results == ["infeasible"] * len(REQUESTS)
    clear(cluster)
    cluster.switch("stock")
    fill_memory(cluster, "dgx2")
    assert ours == placements()


def test_a_bad_setting_is_named_and_only_forwards(cluster, engine):
    """An unknown key: one line names it, and jobs keep Slurm's own GPUs."""
    engine.rule(**PREFER)
    with cluster.slurmctld_log_of() as log:
        engine.settle(told=False, deadline=50)
        assert cluster.started("-w", "dgx1", "--gres=gpu:2", sleep_s=30).gpus == stock_pair(cluster)
    assert any(f'{SETTINGS} line 4: unknown key "deadline"' in line for line in log)


@pytest.mark.long("a detail of what a shorter test shows")
def test_a_partition_update_does_not_read_the_settings(cluster, engine):
    """A file that is being edited matters to nobody until slurmctld is reconfigured."""
    engine.rule(**PREFER)
    engine.put(SETTINGS, "deadline_ms=450\nmax_wai")
    with cluster.slurmctld_log_of() as log:
        cluster.run("ctl", "scontrol update partitionname=off priorityjobfactor=1")
        cluster.run("ctl", "scontrol setdebugflags +priority; scontrol setdebugflags -priority")
        assert cluster.started("-w", "dgx1", "--gres=gpu:2", sleep_s=30).gpus == {"dgx1": (3, 6)}
    assert not [line for line in log if "expected key=value" in line]


@pytest.mark.long("a detail of what a shorter test shows")
def test_a_copy_of_the_plugin_is_not_taken_for_the_stock_one(cluster, engine):
    """A backup of the file in another directory of PluginDir: passed over, one question a job."""
    output = cluster.run("ctl", "scontrol show config | sed -n 's/^PluginDir *= //p'").out
    ours, stock = output.strip().split(":")
    copies = "/usr/local/sbin"
    undo = f"rm {copies}/select_cons_tres.so /cluster/extra.conf; clusterctl switch gputopo"
    with cluster.temporarily(f"cp {ours}/select_cons_tres.so {copies}/", undo):
        cluster.configure_extra(f"PluginDir={ours}:{copies}:{stock}")
        engine.rule(**PREFER)
        jobid = cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=30)
        assert cluster.wait_running(jobid).gpus == {"dgx1": (3, 6)}
        assert len(engine.questions(jobid)) == 1


def test_a_stopped_engine_is_noticed_and_found_again(cluster, engine):
    """SIGSTOP, then no engine: stock choice; a new process: advice, slurmctld untouched."""
    engine.settle(breaker_s=1)
    engine.rule(**PREFER)
    engine.signal("STOP")
    assert cluster.started("-w", "dgx1", "--gres=gpu:2", sleep_s=30).gpus == stock_pair(cluster)
    engine.stop()
    time.sleep(1.1)
    second = cluster.sbatch("-w", "dgx2", "--gres=gpu:2", sleep_s=30)
    assert cluster.wait_running(second).gpus == stock_pair(cluster, "dgx2")
    engine.start()
    time.sleep(1.1)
    third = cluster.sbatch("-w", "bridged1", "--gres=gpu:2", sleep_s=30)
    assert cluster.wait_running(third).gpus == {"bridged1": (3, 6)}


def test_a_restarted_engine_is_asked_without_a_miss(cluster, engine):
    """The kept connection is stale after a restart; the question goes out again on a new one."""
    engine.rule(**PREFER)
    cluster.started("-w", "dgx1", "--gres=gpu:2", sleep_s=30)
    engine.stop()
    engine.start()
    assert cluster.started("-w", "dgx2", "--gres=gpu:2", sleep_s=30).gpus == {"dgx2": (3, 6)}


def test_slow_answers_have_a_budget(cluster, engine):
    """Sixteen jobs, 100 ms each, 600 ms allowed: some are asked about, the others just start."""
    engine.settle(pass_budget_ms=600)
    engine.rule(do="slow", ms=100, then=PREFER)
    nodes = ("dgx1", "dgx2") * 8
    ids = [cluster.sbatch("-H", "-w", n, "--gres=gpu:1", script="sleep 60") for n in nodes]
    with cluster.slurmctld_log_of() as log:
        cluster.run("ctl", ["scontrol", "release", ",".join(map(str, ids))])
        for jobid in ids:
            cluster.wait_running(jobid)
    output = [re.search(r"added_us=(\d+) result=(\w+)", line) for line in log]
    results = [result[2] for result in output if result]
    assert len(results) == 16
    assert results[:3] == ["used", "used", "budget_out"]
    assert_no_overlap(cluster)


@pytest.mark.long("a detail of what a shorter test shows")
def test_counters_are_written_when_slurmctld_ends(cluster, engine):
    """One question is fewer than a line is for, and yet not lost with the process."""
    if cluster.release >= (25, 5):
        pytest.skip("from 25.05 on slurmctld does not tell its plugins that it ends")
    engine.rule(**PREFER)
    cluster.wait_running(cluster.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=30))
    with cluster.slurmctld_log_of() as log:
        cluster.restart_slurmctld()
    (line,) = [line for line in log if "gputopo: stats " in line]
    assert re.search(r"asked=1 used=1 .* added_us_median=\d+ added_us_max=\d+", line)
