"""The launch in a live Slurm: what each task sees, and where it runs, beside the rule.

The machine has two CPUs and one NUMA node: masks and policies of larger machines are compared where
the plugin hands them to the kernel (record=, pretend=), one of each mode is read back in the task.
"""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from live_harness import CONFIG
from modes import enforcement

from gres_topology import catalog
from slurm_cluster.cluster import Cluster, image
from slurm_cluster.hosts import until
from slurm_cluster.slurm_text import parse_indices
from slurm_plugin.node.launch import machine_of
from tests.cluster.users.launched import (
    DUMP,
    DUMP_FILE,
    MACHINES,
    PLUGIN,
    RECORDED,
    check,
    launch,
    launching,
    srun,
    steps,
    task_of,
    with_launch,
)

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes]

ASSETS = Path(__file__).parents[1] / "assets"


@pytest.fixture(scope="module", autouse=True)
def with_plugin(session_cluster: Cluster) -> Iterator[None]:
    with with_launch(session_cluster):
        yield


SHAPES = [
    ("two tasks share two GPUs", ("-n2", "--gres=gpu:2")),
    ("four tasks share four GPUs", ("-n4", "--gres=gpu:4")),
    ("two tasks of two GPUs", ("-n2", "--gpus-per-task=2")),
    ("four tasks of one GPU", ("-n4", "--gpus-per-task=1")),
    ("three GPUs and two CPUs each", ("-n3", "--gpus-per-task=1", "--cpus-per-task=2")),
]
WHOLE = [
    ("eight tasks share the whole node", ("-n8", "--gres=gpu:8", "--exclusive")),
    ("eight tasks of one GPU", ("-n8", "--gpus-per-task=1", "--exclusive")),
    ("a pattern by hint", ("-n8", "--gpus-per-task=1", "--gpu-topo=pattern=tree")),
]


@pytest.mark.parametrize("node", MACHINES)
def test_tasks_on_each_machine(cluster, node):
    """Two to eight tasks, whole and parted sets, with and without --cpus-per-task."""
    machine = MACHINES[node]
    whole = WHOLE if machine.gpus == 8 else []
    if enforcement() == "slots" and cluster.release < (23, 2):
        # The step of an exclusive job with GPUs of several types may ask for one of them only.
        whole = [shape for shape in whole if "--gres=gpu:8" not in shape[1]]
    with launching(cluster, RECORDED):
        for _, args in SHAPES + whole:
            pattern = "tree" if "pattern=tree" in args[-1] else "ring"
            check(machine, srun(cluster, "-w", node, *args), pattern)


def test_a_shared_node(cluster):
    """Beside other jobs only the free GPUs are named, in their own rank order."""
    with launching(cluster, RECORDED):
        cluster.occupy("dgx1", [0, 2, 5])
        result = srun(cluster, "-w", "dgx1", "-n5", "--gres=gpu:5")
        assert result[0].env["SLURM_STEP_GPUS"] == "1,3,4,6,7"
        check(MACHINES["dgx1"], result)


#: Eight GPUs that are all alike, on a rail each.
RAILED = "/etc/slurm/rail-node.yaml"


def test_tasks_of_equal_rank_on_their_nodes_are_on_one_rail(cluster):
    """Half of dgx2 is in use: both nodes give the other half, and count it alike."""
    with launching(cluster, RECORDED):
        cluster.put("ctl", RAILED, "like: dgx-h100\nname: rail-node\n")
        for node in ("dgx1", "dgx2"):
            table = f"gputopo launch-table {RAILED} >/cluster/launch/{node}.table"
            cluster.run("ctl", table)
        config = cluster.read("ctl", CONFIG)
        assert "topology: dgx1v" in config
        cluster.put("ctl", CONFIG, config.replace("topology: dgx1v", f"topology: {RAILED}"))
        cluster.engine("restart")
        cluster.occupy("dgx2", [0, 2, 5, 7])
        shape = ("-N2", "-w", "dgx1,dgx2", "-n8", "--ntasks-per-node=4", "--gres=gpu:4")
        result = srun(cluster, *shape)
        cluster.run("ctl", ["rm", RAILED])
    # All tasks of a node see its GPUs in rank order; each takes that of its own local rank.
    on: dict[str, dict[int, int]] = {"dgx1": {}, "dgx2": {}}
    for seen in result.values():
        rank = int(seen.env["SLURM_LOCALID"])
        on[seen.env["SLURMD_NODENAME"]][rank] = seen.visible[rank]
    assert sorted(on["dgx2"].values()) == [1, 3, 4, 6]
    assert on["dgx1"] == on["dgx2"]


STAR = ("-w", "dgx1", "-n4", "--gres=gpu:4", "--gpu-topo=pattern=star")


def test_batch_array_and_salloc_without_the_engine(cluster):
    """The hint holds for the batch script and for the steps that a job starts."""
    machine = MACHINES["dgx1"]
    with launching(cluster, RECORDED):
        cluster.engine("stop")
        script = f"sh {DUMP_FILE}; srun -n4 --gpus-per-task=1 sh {DUMP_FILE}"
        cluster.sbatch("--array=0-1", *STAR, script=script)
        cluster.wait_idle()
        cluster.run("ctl", ["salloc", *STAR, "srun", "sh", DUMP_FILE], user="alice")
        result = steps(cluster)
    batches = [tasks[0] for name, tasks in result.items() if name.endswith(".batch")]
    started = [tasks for name, tasks in result.items() if name.endswith(".0")]
    assert (len(batches), len(started)) == (2, 3)
    for seen in batches:
        gpus = parse_indices(seen.env["SLURM_JOB_GPUS"])
        assert seen.visible == machine.order("star", gpus)
        assert seen.env["GPUTOPO_HINT"] == "pattern=star"
    for tasks in started:
        assert len(tasks) == 4
        check(machine, tasks, "star")


@pytest.mark.long("waits until Slurm starts a requeued job")
def test_a_requeued_job_is_launched_alike(cluster):
    """The second start has the hint too, and again the order of its GPUs."""
    with launching(cluster, RECORDED):
        script = f"sh {DUMP_FILE}; sleep 30"
        job = cluster.started("--requeue", *STAR, script=script).id
        cluster.run("ctl", ["scontrol", "requeue", str(job)])
        cluster.wait_state(job, "PENDING")
        if enforcement() == "slots":
            # Its gate is shut again once its end is over, which would write over the next update.
            until(lambda: " gated " in cluster.job(job).admin_comment, "it is gated again")
        # Slurm holds a requeued job back for two minutes; in the very second of the requeue
        # slurmd would still refuse it ("Job credential revoked").
        cluster.run("ctl", ["scontrol", "update", f"jobid={job}", "StartTime=now+3"])
        cluster.wait_running(job)
        again = f"until grep -q SLURM_RESTART_COUNT=1 launch/{job}.batch.0.env; do sleep 0.2; done"
        cluster.run("ctl", again, user="alice")
        seen = steps(cluster)[f"{job}.batch"][0]
    gpus = parse_indices(seen.env["SLURM_JOB_GPUS"])
    assert seen.visible == MACHINES["dgx1"].order("star", gpus)


def gpu_map(cluster: Cluster, gpus: str) -> str:
    """The option that names each task's GPU, as this release writes it."""
    return f"--gpu-bind={'map_gpu' if cluster.release < (23, 2) else 'map'}:{gpus}"


def test_an_explicit_gpu_bind_stands(cluster):
    """map: gives each task what the user wrote; single: what Slurm gave."""
    with launching(cluster, RECORDED):
        result = srun(cluster, "-w", "dgx1", "-n4", "--gres=gpu:4", gpu_map(cluster, "3,2,1,0"))
        assert [result[rank].visible for rank in range(4)] == [(3,), (2,), (1,), (0,)]
        # The same GPUs: srun is back a moment before they are free.
        cluster.wait_idle()
        result = srun(cluster, "-w", "dgx1", "-n4", "--gres=gpu:4", "--gpu-bind=single:2")
        assert [result[rank].visible for rank in range(4)] == [(0,), (0,), (1,), (1,)]


def test_explicit_cpu_and_memory_binds_stand(cluster):
    """Devices in rank order all the same, but no mask and no policy."""
    with launching(cluster, RECORDED):
        binds = ("--cpu-bind=none", "--mem-bind=local")
        result = srun(cluster, "-w", "dgx1", "-n1", "--gres=gpu:2", *binds)
        assert result[0].asked.startswith("task_us=")


def test_a_hint_of_off_leaves_the_task_to_slurm(cluster):
    """No CUDA_DEVICE_ORDER, and the list as Slurm writes it."""
    with launching(cluster, RECORDED):
        seen = srun(cluster, "-w", "dgx1", "-n1", "--gres=gpu:2", "--gpu-topo=off")[0]
        assert "CUDA_DEVICE_ORDER" not in seen.env
        assert seen.cuda == seen.env["SLURM_STEP_GPUS"]


@pytest.mark.parametrize("args", [("-n2", "--gres=gpu:4"), ("-n1", "--gres=gpu:3")])
@pytest.mark.long("compiles a plugin that writes such numbers")
def test_relative_numbers_of_constrained_devices(cluster, tmp_path, args):
    """With the numbers Slurm writes under ConstrainDevices=yes: the same order, counted anew."""
    source = ASSETS / "constrained.c"
    build = ["docker", "run", "--rm", "-v", f"{source.parent}:/src:ro", "-v", f"{tmp_path}:/out"]
    command = f"gcc -shared -fPIC -O2 -Wall -Werror -o /out/constrained.so /src/{source.name}"
    subprocess.run([*build, image("builder", cluster.suite), "sh", "-c", command], check=True)
    stand_in = "required /cluster/launch/constrained.so"
    with launching(cluster, stand_in, RECORDED + " numbering=relative"):
        target = f"{cluster.container('ctl').id}:/cluster/launch/constrained.so"
        subprocess.run(["docker", "cp", "-q", tmp_path / "constrained.so", target], check=True)
        cluster.occupy("dgx1", [0, 3, 5])
        for rank, seen in srun(cluster, "-w", "dgx1", *args).items():
            task = task_of(seen, rank, 1)
            rule = launch(MACHINES["dgx1"], replace(task, is_relative=True))
            assert seen.visible == rule.visible
            assert sorted(seen.visible) == list(range(len(task.gpus)))


@pytest.mark.long("a detail of what a shorter test shows")
def test_minors_that_differ_from_the_drivers_order(cluster):
    """Slurm's GPUs 0..3 are the driver's 2, 0, 3, 1: the task gets the driver's numbers."""
    machine = machine_of(catalog.load("minsky"), (2, 0, 3, 1))
    with launching(cluster, RECORDED):
        table = "gputopo launch-table minsky --slurm-index 2,0,3,1 >/cluster/launch/minsky1.table"
        cluster.run("ctl", table)
        for args in (("-n2", "--gpus-per-task=2"), ("-n1", "--gres=gpu:3")):
            check(machine, srun(cluster, "-w", "minsky1", *args))
        bound = ("--gres=gpu:4", gpu_map(cluster, "0,1,2,3"))
        result = srun(cluster, "-w", "minsky1", "-n4", *bound)
        assert [result[rank].visible for rank in range(4)] == [(2,), (0,), (3,), (1,)]


TROUBLES = [
    ("missing", "rm /cluster/launch/dgx1.table", "No such file or directory"),
    ("cut", "sed -i '$d' /cluster/launch/dgx1.table", "is cut or damaged"),
    (
        "another machine's",
        "cp /cluster/launch/minsky1.table /cluster/launch/dgx1.table",
        "another machine",
    ),
]


@pytest.mark.parametrize(
    ("break_it", "words"), [row[1:] for row in TROUBLES], ids=[row[0] for row in TROUBLES]
)
def test_without_a_good_table_the_job_runs_as_slurm_alone(cluster, break_it, words):
    """Eight tasks, one line in slurmd's log."""
    with launching(cluster, PLUGIN):
        cluster.run("ctl", break_it)
        cluster.run("dgx1", ": >/home/slurmd.dgx1.log")
        result = srun(cluster, "-w", "dgx1", "-n8", "--gres=gpu:8")
        assert {seen.cuda for seen in result.values()} == {"0,1,2,3,4,5,6,7"}
        assert not any("CUDA_DEVICE_ORDER" in seen.env for seen in result.values())
        log = cluster.run("dgx1", "grep 'gputopo:' /home/slurmd.dgx1.log").out
        assert len(log.splitlines()) == 1
        assert words in log


#: One NUMA node with one of the two CPUs: what this machine can really apply.
REAL = """\
name: one-cpu
source: a machine that is here
rates: {nvlink: 2, pcie: 3}
gpus: 8
other_links: SYS
numa: [0, 0, 0, 0, 0, 0, 0, 0]
numa_nodes: {0: "0"}
"""


@pytest.mark.parametrize("mode", ["preferred", "bind", "interleave", "none"])
def test_one_real_mask_and_policy_of_each_mode(cluster, mode):
    """Read back in the task by numactl (sched_getaffinity and get_mempolicy)."""
    with launching(cluster, PLUGIN + f" mem={mode}"):
        cluster.put("ctl", "/tmp/m.yaml", REAL + "\n")
        cluster.run("ctl", "gputopo launch-table /tmp/m.yaml >/cluster/launch/dgx1.table")
        args = ["srun", "-w", "dgx1", "--gres=gpu:2", "--mem=100"]
        shown = cluster.run("ctl", [*args, "numactl", "--show"], user="alice").out
        policy = "default" if mode == "none" else mode
        assert shown.splitlines()[0] == f"policy: {policy}"
        assert re.search(r"^physcpubind: 0 *$", shown, re.M)
        off = cluster.run("ctl", [*args, "--gpu-topo=bind=none", "numactl", "--show"], user="alice")
        assert off.out.startswith("policy: default\n")
        assert re.search(r"^physcpubind: 0 1 *$", off.out, re.M)


#: What a process may use; of the job's shell, and of a step that it starts.
SHOW = "numactl --show"
SHELL = f"{SHOW} >launch/shell; srun --overlap -n1 {SHOW} >launch/step; exit"


def shown(cluster: Cluster, name: str) -> tuple[str, str]:
    """Policy and CPUs that numactl told there."""
    path = f"/home/alice/launch/{name}"
    until(lambda: "bind" in cluster.run("ctl", ["cat", path], check=False).out, path)
    output = cluster.run("ctl", ["cat", path]).out
    cluster.run("ctl", ["rm", path])
    cpus = re.search(r"^physcpubind: ([0-9 ]*)$", output, re.M)
    assert cpus is not None
    return output.splitlines()[0].removeprefix("policy: "), cpus[1].strip()


@pytest.mark.parametrize("start", ["sbatch", "salloc"])
def test_what_holds_the_whole_job_keeps_all_its_cpus_and_its_memory(cluster, start):
    """The batch script and salloc's shell, where mpirun may start a rank on every CPU.

    A hint that names bind=numa binds them, too; steps of srun are bound in any case.
    """
    with launching(cluster, PLUGIN):
        cluster.put("ctl", "/tmp/m.yaml", REAL + "\n")
        cluster.run("ctl", "gputopo launch-table /tmp/m.yaml >/cluster/launch/dgx1.table")
        for hint, shell in (("", ("default", "0 1")), ("bind=numa", ("preferred", "0"))):
            option = [f"--gpu-topo={hint}"] * bool(hint)
            args = ["-w", "dgx1", "--gres=gpu:1", "--mem=100", *option]
            if start == "sbatch":
                cluster.sbatch(*args, script=SHELL)
            else:
                lines = f"echo '{SHELL}' | script -qec 'salloc {' '.join(args)}' /dev/null"
                cluster.run("ctl", lines, user="alice", env={"SHELL": "/bin/sh"})
            assert shown(cluster, "shell") == shell
            assert shown(cluster, "step") == ("preferred", "0")
            cluster.wait_idle()


@pytest.mark.long("a detail of what a shorter test shows")
def test_what_a_job_exports_decides_neither_table_nor_binding(cluster):
    """A job sent from another node carries that node's name and words of that step's binding."""
    others = {
        "SLURMD_NODENAME": "minsky1",
        "SLURMD_TRES_BIND": "gres/gpu:map:0",
        "SLURM_CPU_BIND_TYPE": "mask_cpu:",
        "SLURM_MEM_BIND_TYPE": "prefer:",
    }
    words = ",".join(f"{name}={value}" for name, value in others.items())
    with launching(cluster, RECORDED):
        # Devices as no machine here has them: read by mistake, they are another job's.
        table = "gputopo launch-table dgx1v --slurm-index 7,6,5,4,3,2,1,0"
        cluster.run("ctl", f"{table} >/cluster/launch/minsky1.table")
        check(MACHINES["dgx1"], srun(cluster, "-w", "dgx1", "-n2", "--gres=gpu:2"))
        result = srun(cluster, "-w", "dgx1", "-n2", "--gres=gpu:2", f"--export=ALL,{words}")
        check(MACHINES["dgx1"], result)
        # sbatch --export would ask slurmd for a login shell, which it cannot start here.
        batch_of = ["sbatch", "-o", "/dev/null", "-w", "dgx1", "--gres=gpu:2", DUMP_FILE]
        cluster.put("ctl", DUMP_FILE, f"#!/bin/sh\n{DUMP}\n")
        cluster.run("ctl", batch_of, user="alice", env=others)
        cluster.wait_idle()
        (batch,) = (tasks for name, tasks in steps(cluster).items() if name.endswith(".batch"))
        gpus = parse_indices(batch[0].env["SLURM_JOB_GPUS"])
        assert batch[0].visible == MACHINES["dgx1"].order("ring", gpus)


@pytest.mark.long("a detail of what a shorter test shows")
def test_each_node_of_a_job_reads_its_own_table(cluster):
    """The batch script exports its own node's name to the tasks on the other."""
    with launching(cluster, RECORDED):
        table = "gputopo launch-table dgx1v --slurm-index 7,6,5,4,3,2,1,0"
        cluster.run("ctl", f"{table} >/cluster/launch/dgx2.table")
        cluster.sbatch(
            "-N2", "-w", "dgx1,dgx2", "-n2", "--gres=gpu:2", script=f"srun -n2 sh {DUMP_FILE}"
        )
        cluster.wait_idle()
        (tasks,) = (tasks for name, tasks in steps(cluster).items() if name.endswith(".0"))
        machines = {
            "dgx1": MACHINES["dgx1"],
            "dgx2": machine_of(catalog.load("dgx1v"), (7, 6, 5, 4, 3, 2, 1, 0)),
        }
        assert {seen.env["SLURMD_NODENAME"] for seen in tasks.values()} == machines.keys()
        for seen in tasks.values():
            check(machines[seen.env["SLURMD_NODENAME"]], {0: seen})


@pytest.mark.parametrize("node", ["dgx1", "amd1"])
@pytest.mark.long("slurm.conf changes for it")
def test_the_task_prolog_gives_the_same_environment(cluster, node):
    """The way without C: devices in rank order, and a real mask."""
    with launching(cluster):
        cluster.configure_extra("TaskProlog=/cluster/launch/task-prolog")
        table = "table=/cluster/launch/%n.table\n"
        cluster.put("ctl", "/cluster/launch/task-prolog.conf", table)
        cluster.put("ctl", "/cluster/plugstack.conf", "\n")
        cluster.reconfigure()
        for args in (("-n4", "--gres=gpu:4"), ("-n4", "--gpus-per-task=1")):
            for rank, seen in srun(cluster, "-w", node, *args).items():
                task = task_of(seen, rank, 4)
                assert seen.visible == launch(MACHINES[node], task).visible


def test_switching_back_leaves_nothing(cluster):
    """No file on the shared volume, and no option in srun."""
    with launching(cluster, PLUGIN):
        assert "--gpu-topo" in cluster.run("ctl", ["srun", "--help"]).out
        there = set(cluster.run("dgx1", "ls /cluster").out.split())
        assert {"launch", "plugstack.conf"} <= there
    cluster.switch("gputopo")
    left = set(cluster.run("dgx1", "ls /cluster").out.split())
    assert not left & {"launch", "plugstack.conf"}
    assert "--gpu-topo" not in cluster.run("ctl", ["srun", "--help"]).out
