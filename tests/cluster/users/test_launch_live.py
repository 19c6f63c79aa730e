"""The launch in a live Slurm: what each task sees, and where it runs, beside the rule.

The machine has two CPUs and one NUMA node, so masks and policies of larger machines are
compared where the plugin hands them to the kernel (record=, with pretend= for the CPUs), and
one real mask and policy of each mode is read back in the task.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from modes import enforcement, variant

from gres_topology import catalog
from gres_topology.cpulist import format_list
from slurm_cluster.cluster import Cluster, image
from slurm_cluster.hosts import until
from slurm_cluster.slurm_text import parse_indices
from slurm_plugin.launch import LaunchMachine, machine_of

sys.path.append(str(Path(__file__).parents[2] / "spank"))
from launch_rule import Task, launch

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.both_modes,
    pytest.mark.long("the same in the other mode", "slots"),
]

ASSETS = Path(__file__).parents[1] / "assets"
PLUGIN = "optional /cluster/launch/gputopo.so table=/cluster/launch/%n.table devices=/dev/fakegpu"
RECORD = " record=/home/alice/launch"
PRETEND = " pretend=0-159 nic=trust"
MACHINES = {
    "dgx1": machine_of(catalog.load("dgx1v")),
    "minsky1": machine_of(catalog.load("minsky")),
    "bridged1": machine_of(catalog.load("a100-pcie-bridged")),
    "amd1": machine_of(catalog.load("mi250x")),
}
#: Every task leaves its environment in one step, named by job, step and rank.
DUMP = (
    # The batch script is the step -5 since 26.05, and has no number before.
    "s=${SLURM_STEP_ID:-batch}; [ $s != -5 ] || s=batch;"
    " f=$HOME/launch/$SLURM_JOB_ID.$s.$SLURM_PROCID;"
    " env >$f.tmp && mv $f.tmp $f.env"
)
DUMP_FILE = "/home/alice/dump"


@dataclass(frozen=True)
class Seen:
    """One task: its environment and what the plugin asked of the kernel ("" without record)."""

    env: dict[str, str]
    asked: str

    @property
    def visible(self) -> tuple[int, ...]:
        """The device list of the task, in its order."""
        name = "ROCR" if "ROCR_VISIBLE_DEVICES" in self.env and not self.cuda else "CUDA"
        return parse_indices(self.env[f"{name}_VISIBLE_DEVICES"])

    @property
    def cuda(self) -> str:
        """CUDA_VISIBLE_DEVICES, "" where it is not set."""
        return self.env.get("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture(scope="module", autouse=True)
def with_plugin(session_cluster: Cluster) -> Iterator[None]:
    """A reset leads to the variant with the plugin; its tables are kept beside."""
    with session_cluster.at_home(variant=f"{variant()}-launch"):
        session_cluster.run("ctl", "rm -rf /tmp/launch && cp -a /cluster/launch /tmp/launch")
        yield


@contextmanager
def launching(cluster: Cluster, *lines: str) -> Iterator[None]:
    """The tables as they should be; `lines` are plugstack.conf."""
    cluster.run(
        "ctl",
        "rm -rf /cluster/launch /home/alice/launch; cp -a /tmp/launch /cluster/launch;"
        " install -d -o alice -g alice /home/alice/launch",
    )
    cluster.put("ctl", DUMP_FILE, DUMP + "\n")
    cluster.put("ctl", "/cluster/plugstack.conf", "\n".join(lines) + "\n")
    yield


def steps(cluster: Cluster) -> dict[str, dict[int, Seen]]:
    """What was left, by job.step and rank."""
    script = 'cd /home/alice/launch && for f in $(ls); do echo "== $f"; cat "$f"; done'
    texts = dict(
        part.split("\n", 1)
        for part in re.split(r"^== ", cluster.run("ctl", script).out, flags=re.M)
        if "\n" in part
    )
    found: dict[str, dict[int, Seen]] = {}
    for name in (name for name in texts if name.endswith(".env")):
        job, step, rank, _ = name.split(".")
        env = dict(line.split("=", 1) for line in texts[name].splitlines() if "=" in line)
        number = "4294967291" if step == "batch" else step
        asked = texts.get(f"{job}.{number}.{rank}", "")
        found.setdefault(f"{job}.{step}", {})[int(rank)] = Seen(env, asked)
    return found


def srun(cluster: Cluster, *args: str) -> dict[int, Seen]:
    """One srun of alice's that dumps every task; its tasks by rank."""
    before = set(steps(cluster))
    cluster.run("ctl", ["srun", "-t1", *args, "sh", DUMP_FILE], user="alice")
    (new,) = set(left := steps(cluster)) - before
    return left[new]


def task_of(seen: Seen, rank: int, tasks: int) -> Task:
    """The task as Slurm's environment describes it (whole set, or --gpus-per-task)."""
    gpus = parse_indices(seen.env["SLURM_STEP_GPUS"])
    per_task = re.search(r"per_task:(\d+)", seen.env.get("SLURMD_TRES_BIND", ""))
    return Task(
        gpus=gpus,
        own=gpus,
        tasks=tasks,
        local_rank=rank,
        gpus_per_task=int(per_task[1]) if per_task else 0,
        cpus=tuple(range(160)),
        cpus_per_task=int(seen.env.get("SLURM_CPUS_PER_TASK", 0)),
    )


def check(machine: LaunchMachine, found: dict[int, Seen], pattern: str = "ring") -> None:
    """Every task has the rule's devices, NICs, mask and policy."""
    for rank, seen in found.items():
        rule = launch(machine, task_of(seen, rank, len(found)), pattern)
        assert seen.visible == rule.visible
        if machine.is_amd:
            assert not {"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"} & seen.env.keys()
        else:
            assert seen.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        expected = []
        if rule.cpus is not None:
            expected.append(f"sched_setaffinity cpus={format_list(rule.cpus)}")
        if rule.numa is not None:
            nodes = sum(1 << node for node in rule.numa)
            expected.append(f"set_mempolicy mode={rule.memory} nodes={nodes:#x}")
        assert seen.asked.splitlines()[:-1] == expected
        assert seen.env.get("UCX_NET_DEVICES", "") == ",".join(f"{n}:1" for n in rule.nics)
        assert seen.env.get("NCCL_IB_HCA", "=").removeprefix("=") == ",".join(rule.nics)


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
def test_tasks_on_each_machine(cluster: Cluster, node: str) -> None:
    """Two to eight tasks, whole and parted sets, with and without --cpus-per-task."""
    machine = MACHINES[node]
    whole = WHOLE if machine.gpus == 8 else []
    if enforcement() == "slots" and cluster.release < (23, 2):
        # The step of an exclusive job with GPUs of several types may ask for one of them only.
        whole = [shape for shape in whole if "--gres=gpu:8" not in shape[1]]
    with launching(cluster, PLUGIN + RECORD + PRETEND):
        for _, args in SHAPES + whole:
            pattern = "tree" if "pattern=tree" in args[-1] else "ring"
            check(machine, srun(cluster, "-w", node, *args), pattern)


def test_a_shared_node(cluster: Cluster) -> None:
    """Beside other jobs only the free GPUs are named, in their own rank order."""
    with launching(cluster, PLUGIN + RECORD + PRETEND):
        cluster.occupy("dgx1", [0, 2, 5])
        found = srun(cluster, "-w", "dgx1", "-n5", "--gres=gpu:5")
        assert found[0].env["SLURM_STEP_GPUS"] == "1,3,4,6,7"
        check(MACHINES["dgx1"], found)


STAR = ("-w", "dgx1", "-n4", "--gres=gpu:4", "--gpu-topo=pattern=star")


def test_batch_array_and_salloc_without_the_engine(cluster: Cluster) -> None:
    """The hint holds for the batch script and for the steps that a job starts."""
    machine = MACHINES["dgx1"]
    with launching(cluster, PLUGIN + RECORD + PRETEND):
        cluster.engine("stop")
        script = f"sh {DUMP_FILE}; srun -n4 --gpus-per-task=1 sh {DUMP_FILE}"
        cluster.sbatch("--array=0-1", *STAR, script=script)
        cluster.wait_idle()
        cluster.run("ctl", ["salloc", *STAR, "srun", "sh", DUMP_FILE], user="alice")
        found = steps(cluster)
    batches = [tasks[0] for name, tasks in found.items() if name.endswith(".batch")]
    started = [tasks for name, tasks in found.items() if name.endswith(".0")]
    assert (len(batches), len(started)) == (2, 3)
    for seen in batches:
        gpus = parse_indices(seen.env["SLURM_JOB_GPUS"])
        assert seen.visible == machine.order("star", gpus)
        assert seen.env["GPUTOPO_HINT"] == "pattern=star"
    for tasks in started:
        assert len(tasks) == 4
        check(machine, tasks, "star")


@pytest.mark.long("waits until Slurm starts a requeued job")
def test_a_requeued_job_is_launched_alike(cluster: Cluster) -> None:
    """The second start has the hint too, and again the order of its GPUs."""
    with launching(cluster, PLUGIN + RECORD + PRETEND):
        script = f"sh {DUMP_FILE}; sleep 30"
        job = cluster.sbatch("--requeue", *STAR, script=script)
        cluster.wait_running(job)
        cluster.run("ctl", ["scontrol", "requeue", str(job)])
        cluster.wait_state(job, "PENDING")
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


def test_an_explicit_gpu_bind_stands(cluster: Cluster) -> None:
    """map: gives each task what the user wrote; single: what Slurm gave."""
    with launching(cluster, PLUGIN + RECORD + PRETEND):
        found = srun(cluster, "-w", "dgx1", "-n4", "--gres=gpu:4", gpu_map(cluster, "3,2,1,0"))
        assert [found[rank].visible for rank in range(4)] == [(3,), (2,), (1,), (0,)]
        found = srun(cluster, "-w", "dgx1", "-n4", "--gres=gpu:4", "--gpu-bind=single:2")
        assert [found[rank].visible for rank in range(4)] == [(0,), (0,), (1,), (1,)]


def test_explicit_cpu_and_memory_binds_stand(cluster: Cluster) -> None:
    """Devices in rank order all the same, but no mask and no policy."""
    with launching(cluster, PLUGIN + RECORD + PRETEND):
        binds = ("--cpu-bind=none", "--mem-bind=local")
        found = srun(cluster, "-w", "dgx1", "-n1", "--gres=gpu:2", *binds)
        assert found[0].asked.startswith("task_us=")


def test_a_hint_of_off_leaves_the_task_to_slurm(cluster: Cluster) -> None:
    """No CUDA_DEVICE_ORDER, and the list as Slurm writes it."""
    with launching(cluster, PLUGIN + RECORD + PRETEND):
        seen = srun(cluster, "-w", "dgx1", "-n1", "--gres=gpu:2", "--gpu-topo=off")[0]
        assert "CUDA_DEVICE_ORDER" not in seen.env
        assert seen.cuda == seen.env["SLURM_STEP_GPUS"]


@pytest.mark.parametrize("args", [("-n2", "--gres=gpu:4"), ("-n1", "--gres=gpu:3")])
@pytest.mark.long("compiles a plugin that writes such numbers")
def test_relative_numbers_of_constrained_devices(
    cluster: Cluster, tmp_path: Path, args: tuple[str, ...]
) -> None:
    """With the numbers Slurm writes under ConstrainDevices=yes: the same order, counted anew."""
    source = ASSETS / "constrained.c"
    build = ["docker", "run", "--rm", "-v", f"{source.parent}:/src:ro", "-v", f"{tmp_path}:/out"]
    command = f"gcc -shared -fPIC -O2 -Wall -Werror -o /out/constrained.so /src/{source.name}"
    subprocess.run([*build, image("builder", cluster.suite), "sh", "-c", command], check=True)
    stand_in = "required /cluster/launch/constrained.so"
    with launching(cluster, stand_in, PLUGIN + RECORD + PRETEND + " numbering=relative"):
        target = f"{cluster.container('ctl').id}:/cluster/launch/constrained.so"
        subprocess.run(["docker", "cp", "-q", tmp_path / "constrained.so", target], check=True)
        cluster.occupy("dgx1", [0, 3, 5])
        for rank, seen in srun(cluster, "-w", "dgx1", *args).items():
            task = task_of(seen, rank, 1)
            rule = launch(MACHINES["dgx1"], replace(task, is_relative=True))
            assert seen.visible == rule.visible
            assert sorted(seen.visible) == list(range(len(task.gpus)))


@pytest.mark.long("a detail of what a shorter test shows")
def test_minors_that_differ_from_the_drivers_order(cluster: Cluster) -> None:
    """Slurm's GPUs 0..3 are the driver's 2, 0, 3, 1: the task gets the driver's numbers."""
    machine = machine_of(catalog.load("minsky"), (2, 0, 3, 1))
    with launching(cluster, PLUGIN + RECORD + PRETEND):
        table = "gputopo launch-table minsky --slurm-index 2,0,3,1 >/cluster/launch/minsky1.table"
        cluster.run("ctl", table)
        for args in (("-n2", "--gpus-per-task=2"), ("-n1", "--gres=gpu:3")):
            check(machine, srun(cluster, "-w", "minsky1", *args))
        bound = ("--gres=gpu:4", gpu_map(cluster, "0,1,2,3"))
        found = srun(cluster, "-w", "minsky1", "-n4", *bound)
        assert [found[rank].visible for rank in range(4)] == [(2,), (0,), (3,), (1,)]


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
def test_without_a_good_table_the_job_runs_as_slurm_alone(
    cluster: Cluster, break_it: str, words: str
) -> None:
    """Eight tasks, one line in slurmd's log."""
    with launching(cluster, PLUGIN):
        cluster.run("ctl", break_it)
        cluster.run("dgx1", ": >/home/slurmd.dgx1.log")
        found = srun(cluster, "-w", "dgx1", "-n8", "--gres=gpu:8")
        assert {seen.cuda for seen in found.values()} == {"0,1,2,3,4,5,6,7"}
        assert not any("CUDA_DEVICE_ORDER" in seen.env for seen in found.values())
        log = cluster.run("dgx1", "grep 'gputopo:' /home/slurmd.dgx1.log").out
        assert len(log.splitlines()) == 1
        assert words in log


@pytest.mark.long("a detail of what a shorter test shows")
def test_a_wrong_argument_leaves_every_task_to_slurm(cluster: Cluster) -> None:
    """And the log names the key."""
    with launching(cluster, PLUGIN + " memory=bind"):
        cluster.run("dgx1", ": >/home/slurmd.dgx1.log")
        assert "CUDA_DEVICE_ORDER" not in srun(cluster, "-w", "dgx1", "--gres=gpu:1")[0].env
        log = cluster.run("dgx1", "grep 'gputopo:' /home/slurmd.dgx1.log").out
        assert 'argument "memory": no such key' in log


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
def test_one_real_mask_and_policy_of_each_mode(cluster: Cluster, mode: str) -> None:
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
    told = cluster.run("ctl", ["cat", path]).out
    cluster.run("ctl", ["rm", path])
    cpus = re.search(r"^physcpubind: ([0-9 ]*)$", told, re.M)
    assert cpus is not None
    return told.splitlines()[0].removeprefix("policy: "), cpus[1].strip()


@pytest.mark.parametrize("start", ["sbatch", "salloc"])
def test_what_holds_the_whole_job_keeps_all_its_cpus_and_its_memory(
    cluster: Cluster, start: str
) -> None:
    """The batch script and salloc's shell, where mpirun may start a rank on every CPU.

    A hint that names bind=numa binds them, too; steps of srun are bound in any case.
    """
    with launching(cluster, PLUGIN):
        cluster.put("ctl", "/tmp/m.yaml", REAL + "\n")
        cluster.run("ctl", "gputopo launch-table /tmp/m.yaml >/cluster/launch/dgx1.table")
        for hint, shell in (("", ("default", "0 1")), ("bind=numa", ("preferred", "0"))):
            args = [
                "-w",
                "dgx1",
                "--gres=gpu:1",
                "--mem=100",
                *([f"--gpu-topo={hint}"] * bool(hint)),
            ]
            if start == "sbatch":
                cluster.sbatch(*args, script=SHELL)
            else:
                lines = f"echo '{SHELL}' | script -qec 'salloc {' '.join(args)}' /dev/null"
                cluster.run("ctl", lines, user="alice", env={"SHELL": "/bin/sh"})
            assert shown(cluster, "shell") == shell
            assert shown(cluster, "step") == ("preferred", "0")
            cluster.wait_idle()


@pytest.mark.long("a detail of what a shorter test shows")
def test_what_a_job_exports_decides_neither_table_nor_binding(cluster: Cluster) -> None:
    """A job sent from another node carries that node's name and words of that step's binding."""
    others = {
        "SLURMD_NODENAME": "minsky1",
        "SLURMD_TRES_BIND": "gres/gpu:map:0",
        "SLURM_CPU_BIND_TYPE": "mask_cpu:",
        "SLURM_MEM_BIND_TYPE": "prefer:",
    }
    words = ",".join(f"{name}={value}" for name, value in others.items())
    with launching(cluster, PLUGIN + RECORD + PRETEND):
        # Devices as no machine here has them: read by mistake, they are another job's.
        table = "gputopo launch-table dgx1v --slurm-index 7,6,5,4,3,2,1,0"
        cluster.run("ctl", f"{table} >/cluster/launch/minsky1.table")
        check(MACHINES["dgx1"], srun(cluster, "-w", "dgx1", "-n2", "--gres=gpu:2"))
        found = srun(cluster, "-w", "dgx1", "-n2", "--gres=gpu:2", f"--export=ALL,{words}")
        check(MACHINES["dgx1"], found)
        # sbatch --export would ask slurmd for a login shell, which it cannot start here.
        batch_of = ["sbatch", "-o", "/dev/null", "-w", "dgx1", "--gres=gpu:2", DUMP_FILE]
        cluster.put("ctl", DUMP_FILE, f"#!/bin/sh\n{DUMP}\n")
        cluster.run("ctl", batch_of, user="alice", env=others)
        cluster.wait_idle()
        (batch,) = (tasks for name, tasks in steps(cluster).items() if name.endswith(".batch"))
        gpus = parse_indices(batch[0].env["SLURM_JOB_GPUS"])
        assert batch[0].visible == MACHINES["dgx1"].order("ring", gpus)


@pytest.mark.long("a detail of what a shorter test shows")
def test_each_node_of_a_job_reads_its_own_table(cluster: Cluster) -> None:
    """The batch script exports its own node's name to the tasks on the other."""
    with launching(cluster, PLUGIN + RECORD + PRETEND):
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
def test_the_task_prolog_gives_the_same_environment(cluster: Cluster, node: str) -> None:
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


def test_switching_back_leaves_nothing(cluster: Cluster) -> None:
    """No file on the shared volume, and no option in srun."""
    with launching(cluster, PLUGIN):
        assert "--gpu-topo" in cluster.run("ctl", ["srun", "--help"]).out
        there = set(cluster.run("dgx1", "ls /cluster").out.split())
        assert {"launch", "plugstack.conf"} <= there
    cluster.switch("gputopo")
    left = set(cluster.run("dgx1", "ls /cluster").out.split())
    assert not left & {"launch", "plugstack.conf"}
    assert "--gpu-topo" not in cluster.run("ctl", ["srun", "--help"]).out


@pytest.mark.parametrize("command", ["srun", "sbatch", "salloc"])
def test_a_hint_that_cannot_be_carried_is_one_line(cluster: Cluster, command: str) -> None:
    """Too long, or with a tab: refused before anything is submitted."""
    with launching(cluster, PLUGIN):
        script = ["--wrap", "true"] if command == "sbatch" else ["true"]
        for hint, words in (("a" * 1025, "longer than 1024"), ("a\tb", "control character")):
            done = cluster.run(
                "ctl", [command, f"--gpu-topo={hint}", "--gres=gpu:1", *script],
                user="alice", check=False,
            )  # fmt: skip
            assert done.code == 1
            (line,) = done.err.splitlines()
            assert words in line
