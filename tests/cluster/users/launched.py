"""What each task of a job saw and where it ran, and what the rule of tests/launch_rule.py says."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from launch_rule import Task, launch
from modes import variant

from gres_topology import catalog
from gres_topology.cpulist import format_list
from slurm_cluster.cluster import Cluster
from slurm_cluster.slurm_text import parse_indices
from slurm_plugin.node.launch import LaunchMachine, machine_of

#: Every task leaves its environment in one step, named by job, step and rank.
DUMP = (
    # The batch script is the step -5 since 26.05, and has no number before.
    "s=${SLURM_STEP_ID:-batch}; [ $s != -5 ] || s=batch;"
    " f=$HOME/launch/$SLURM_JOB_ID.$s.$SLURM_PROCID;"
    " env >$f.tmp && mv $f.tmp $f.env"
)
DUMP_FILE = "/home/alice/dump"
PLUGIN = "optional /cluster/launch/gputopo.so table=/cluster/launch/%n.table devices=/dev/fakegpu"
RECORD = " record=/home/alice/launch"
PRETEND = " pretend=0-159 nic=trust"
RECORDED = PLUGIN + RECORD + PRETEND
MACHINES = {
    "dgx1": machine_of(catalog.load("dgx1v")),
    "minsky1": machine_of(catalog.load("minsky")),
    "bridged1": machine_of(catalog.load("a100-pcie-bridged")),
    "amd1": machine_of(catalog.load("mi250x")),
}


@contextmanager
def with_launch(cluster: Cluster) -> Iterator[None]:
    """A reset leads to the variant with the plugin; its tables are kept beside."""
    with cluster.at_home(variant=f"{variant()}-launch"):
        cluster.run("ctl", "rm -rf /tmp/launch && cp -a /cluster/launch /tmp/launch")
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


def steps(cluster: Cluster) -> dict[str, dict[int, Seen]]:
    """What was left, by job.step and rank."""
    script = 'cd /home/alice/launch && for f in $(ls); do echo "== $f"; cat "$f"; done'
    texts = dict(
        part.split("\n", 1)
        for part in re.split(r"^== ", cluster.run("ctl", script).out, flags=re.M)
        if "\n" in part
    )
    result: dict[str, dict[int, Seen]] = {}
    for name in (name for name in texts if name.endswith(".env")):
        job, step, rank, _ = name.split(".")
        env = dict(line.split("=", 1) for line in texts[name].splitlines() if "=" in line)
        number = "4294967291" if step == "batch" else step
        asked = texts.get(f"{job}.{number}.{rank}", "")
        result.setdefault(f"{job}.{step}", {})[int(rank)] = Seen(env, asked)
    return result


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


def check(machine: LaunchMachine, result: dict[int, Seen], pattern: str = "ring") -> None:
    """Every task has the rule's devices, NICs, mask and policy."""
    for rank, seen in result.items():
        rule = launch(machine, task_of(seen, rank, len(result)), pattern)
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
