"""`gputopo profile run` on a live Slurm: measures, gives way, and goes on when it was killed."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from papers.experiments.pollux import runs_of
from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes]

HOME = "/home/alice"
FOLDER = f"{HOME}/work"
DATABASE = f"{HOME}/performance.db"
#: Seconds of the runs' iterations, and how much faster than the measured job they are.
ITERATIONS, FASTER = 10, 10
#: What the model may be off on shapes that never ran.
ERROR = 0.10
#: (nodes, GPUs per node, samples per GPU) -> seconds per iteration of bert, as measured.
BERT = {
    (run.nodes, run.gpus // run.nodes, run.local_batch): run.step_s
    for run in runs_of("bert")
    if run.gpus % run.nodes == 0 and run.nodes <= 2
}
HELD_OUT = [key for key in BERT if key[0] == 2 and key[1] > 1]
HEAD = "#!/bin/sh\n#SBATCH --mem=100\n"
#: Finds its seconds by Slurm's own variables, sleeps so long and prints them; fails otherwise.
SLEEPS = """
[ "$SLURM_NTASKS" = $((SLURM_NNODES * SLURM_GPUS_ON_NODE)) ] || exit 4
[ "$GPUTOPO_BATCH" = $((SLURM_NTASKS * GPUTOPO_LOCAL_BATCH)) ] || exit 5
case "$SLURM_NNODES $SLURM_GPUS_ON_NODE $GPUTOPO_LOCAL_BATCH" in
%s
*) exit 3 ;;
esac
all=$((us * GPUTOPO_ITERATIONS))
sleep $((all / 1000000)).$(printf %%06d $((all %% 1000000)))
printf 'gputopo: step_s=%%d.%%06d\\n' $((us / 1000000)) $((us %% 1000000))
"""


@pytest.fixture
def home(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with nothing of an earlier profile in alice's home, and the script there."""
    clear(cluster)
    rows = [
        f'"{nodes} {gpus} {batch}") us={round(1e6 * step_s / FASTER)} ;;'
        for (nodes, gpus, batch), step_s in BERT.items()
    ]
    write(cluster, "bert.sh", HEAD + SLEEPS % "\n".join(rows))
    yield cluster
    clear(cluster)


def clear(cluster: Cluster) -> None:
    """Ends the commands that were started, and removes what they leave."""
    cluster.run("ctl", f"xargs -r kill <{HOME}/started", check=False)
    cluster.run("ctl", f"rm -rf {FOLDER} {DATABASE} {HOME}/*.sh {HOME}/said {HOME}/started")


def write(cluster: Cluster, name: str, text: str) -> None:
    """A file in alice's home."""
    cluster.put("ctl", f"{HOME}/{name}", text, user="alice")


def command(*options: str, script: str = "bert.sh") -> list[str]:
    """A profile run on the two nodes of one kind that looks often."""
    return [
        "gputopo", "profile", "run", "--database", DATABASE, "--folder", FOLDER, "--poll", "0.5",
        "--iterations", str(ITERATIONS), *options, "--", "sbatch", script,
    ]  # fmt: skip


def start(cluster: Cluster, *options: str, script: str = "bert.sh") -> int:
    """The command in a shell of its own; its process id."""
    line = " ".join(command(*options, script=script))
    line = f"nohup {line} >{HOME}/said 2>&1 & echo $! | tee -a {HOME}/started"
    return int(cluster.run("ctl", line, user="alice").out)


def said(cluster: Cluster) -> str:
    """What the command that was started has printed."""
    return cluster.run("ctl", ["cat", f"{HOME}/said"]).out


def ended(cluster: Cluster, pid: int) -> bool:
    return cluster.run("ctl", ["test", "-d", f"/proc/{pid}"], check=False).code != 0


def progress(cluster: Cluster) -> dict[str, Any]:
    text = cluster.run("ctl", ["cat", f"{FOLDER}/progress.json"]).out
    result: dict[str, Any] = json.loads(text)
    return result


def states(cluster: Cluster) -> list[str]:
    return [run["state"] for run in progress(cluster)["runs"]]


def submitted(cluster: Cluster) -> list[str]:
    """The names of all jobs that Slurm got of this profile, whatever became of them."""
    token = progress(cluster)["token"]
    named = f" JobName=gputopo-bert-{token}[^ ]*"  # 26.05 repeats sbatch's whole line besides
    text = cluster.run("ctl", f"scontrol show jobs -o | grep -o '{named}' | cut -d= -f2").out
    return sorted(text.split())


@pytest.mark.long("half a minute of runs")
def test_a_model_from_few_runs_knows_shapes_that_never_ran(home):
    """Eight runs as bert was measured; two nodes of two and four GPUs follow within 10 %."""
    sizes = sorted({batch for _, _, batch in BERT})
    shapes = ("--gpus-per-node", "1,2,4", "--at-once", "2", "--on", "dgx[1-2]")
    done = home.run(
        "ctl", command("--batches", ",".join(map(str, sizes)), *shapes), user="alice", timeout_s=90
    )
    assert f"bert: {len(sizes) + 3} runs of 10 iterations on 2 nodes of 8 v100" in done.out
    assert states(home) == ["done"] * (len(sizes) + 3)
    off = {}
    for nodes, gpus, batch in HELD_OUT:
        show = ["gputopo", "profile", "show", "ber", "--database", DATABASE, "--json",
                "--batch", str(batch * nodes * gpus)]  # fmt: skip
        output = json.loads(home.run("ctl", show, user="alice").out)
        row = next(row for row in output["rows"] if row["shape"] == f"{nodes}x{gpus}")
        off[nodes, gpus, batch] = row["step_s"] * FASTER / BERT[nodes, gpus, batch] - 1
    assert max(map(abs, off.values())) < ERROR, off


@pytest.mark.long("half a minute of runs")
def test_killed_in_the_middle_it_goes_on_and_submits_nothing_twice(home):
    """Once while a job runs, once before its id was noted; Slurm has one job for each run."""
    few = ("--iterations", "40", "--batches", "4,8", "--nodes", "1", "--gpus-per-node", "1,2")
    pid = start(home, *few)
    until(lambda: "job" in said(home), "the first run is submitted")
    home.run("ctl", ["kill", "-9", str(pid)])
    assert states(home) == ["submitted", "waiting"]
    again = start(home, *few)
    until(lambda: "run 2 " in said(home), "the second run is submitted")
    home.run("ctl", ["kill", "-9", str(again)])
    assert states(home) == ["done", "submitted"]
    # The state after a kill between the submit and writing down the job id.
    lost = r's/"submitted"/"submitting"/; s/"job": [0-9]*/"job": 0/'
    home.run("ctl", ["sed", "-i", lost, f"{FOLDER}/progress.json"])
    home.wait_idle()
    done = home.run("ctl", command(*few), user="alice")
    assert "is taken up again" in done.out
    assert states(home) == ["done"] * 3
    names = submitted(home)
    assert len(names) == len(set(names)) == 3
    script = (
        "from slurm_plugin.act.profiling.measure import from_accounting as look;"
        "from slurm_plugin.slurm.runner import ProcessRunner;"
        f"print(look(ProcessRunner(), '{names[0]}', 1000000000))"
    )
    python = ["/opt/gputopo/bin/python", "-c", script]
    until(
        lambda: "'COMPLETED'" in home.run("ctl", python, user="alice").out,
        "the accounting knows the job by its name",
    )


@pytest.mark.long("a detail of what a shorter test shows")
def test_another_users_waiting_job_holds_it_back_and_interrupts_it(home):
    """Nothing is submitted while bob waits; when he comes later, it cancels its run."""
    # A quarter of a minute: bob's job holds it back once it has waited for five seconds.
    slow = ("--iterations", str(30 * ITERATIONS), "--batches", "4", "--nodes", "1")
    whole = ("-w", "dgx1", "--gres=gpu:8", "-n1")
    runs, waits = (home.sbatch(*whole, user="bob", script="sleep 300") for _ in range(2))
    home.wait_running(runs)
    pid = start(home, *slow, "--gpus-per-node", "1", "--on", "dgx1")
    until(lambda: f"waiting: job {waits} of bob waits for GPUs" in said(home), "it says so")
    assert states(home) == ["waiting"]
    home.cancel(waits)
    until(lambda: "idle GPUs are needed on dgx1" in said(home), "it waits for GPUs")
    home.cancel(runs)
    until(lambda: states(home) == ["submitted"], "it submits")
    first = home.wait_running(int(said(home).split()[-1])).id
    late = home.started(*whole, user="bob", script="sleep 2").id
    assert home.job(first).state == "CANCELLED"
    assert f"job {first} is cancelled: job {late} of bob waits" in said(home)
    until(lambda: ended(home, pid), "the run is done after bob's job", 40)
    assert states(home) == ["done"]
    assert len(submitted(home)) == 2


def test_without_a_line_the_run_time_counts_and_a_failing_shape_is_named(home):
    """GPUs asked in the script's own forms; one GPU takes 3 s for 10 iterations, two fail."""
    text = "#SBATCH --gpus=4 --gpus-per-task=1 -N4\n[ $SLURM_NTASKS = 1 ] && exec sleep 3\n"
    write(home, "quiet.sh", f"{HEAD}{text}echo no second GPU; exit 1\n")
    few = ("--batches", "4", "--nodes", "1", "--gpus-per-node", "1,2", "--on", "dgx1")
    done = home.run(
        "ctl", command(*few, "--tries", "1", script="quiet.sh"), user="alice", check=False
    )
    assert done.code == 1
    assert "ms per iteration, by its run time with all start-up" in done.out
    assert "FAILED, last line: no second GPU (see /home/alice/work/" in done.out
    assert "without 1x2, 4 per GPU: failed" in done.err
    rows = home.run("ctl", ["cat", f"{FOLDER}/runs.csv"]).out.splitlines()
    assert len(rows) == 2
    [ran] = [run["job"] for run in progress(home)["runs"] if run["state"] == "done"]
    took_s = home.time_of(ran, "EndTime") - home.time_of(ran, "StartTime")
    assert took_s >= 3
    assert abs(ITERATIONS * float(rows[1].split(",")[3]) - took_s) <= 1
