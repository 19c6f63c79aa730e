"""Configurations and jobs of every kind, by seed."""

from __future__ import annotations

import random
import shlex
from dataclasses import dataclass, replace

GPUS = (
    "--gres=gpu:{}",
    "-N1 --gpus={}",
    "-N1 --gpus-per-node={}",
    "-N1 -n{} --gpus-per-task=1",
    "--gpus={}",
    "--gpus={} --ntasks-per-gpu=1",
    "-N1-2 --gpus={}",
    "-N2 --gres=gpu:1",
    "-N2 --ntasks-per-node=2 --gpus-per-node=2",
    "-N1 -n2 --gpus-per-socket=1 --sockets-per-node=2 --ntasks-per-socket=1",
    "-N1 -n4 --gres=gpu:{}",
    "-p dgx2 --gres=gpu:v100:{}",
)
OTHERS = (
    *("", "", ""),
    *("--cpus-per-gpu=2", "--mem-per-gpu=20", "-c2", "--mem=300", "--mem-per-cpu=20"),
    *("--ntasks-per-core=1", "--threads-per-core=1", "--overcommit", "-S1", "--hint=nomultithread"),
    *("--exclusive", "--exclusive=user", "--exclusive=mcs", "--oversubscribe"),
    *("--gres-flags=enforce-binding", "--gres-flags=disable-binding"),
    *("-C a", "-C a|b", "-C [a|b]", "-C a&b", "--prefer=b", "-C [a*1]"),
    # Not --spread-job: with --gpus it ends the slurmctld of 24.11.5, with or without us.
    *("-w dgx1", "-x dgx1", "-x dgx[1-2]", "--contiguous", "--use-min-nodes"),
    *("--switches=1@0:01", "--deadline=now+2hours", "-t5", "-t45", "--nice=50", "-L lic:1"),
    *("--distribution=cyclic", "--distribution=block:cyclic", "--distribution=plane=2", "-B1"),
    *("--reservation=mine", "--core-spec=2", "--mem=0", "--cpus-per-gpu=1 --mem-per-gpu=10"),
)
USERS = ("alice", "bob")


@dataclass(frozen=True)
class Site:
    """One configuration, as a seed has it."""

    slurm_conf: str
    commands: tuple[str, ...]
    partitions: tuple[str, ...]


def site_of(seed: int, release: tuple[int, int]) -> Site:
    """Lines of slurm.conf, and commands for root once it runs."""
    chance = random.Random(seed)
    unit = chance.choice(("CR_Core", "CR_CPU", "CR_Core"))
    memory = chance.choice(("", "_Memory"))
    types = [f"{unit}{memory}", *chance.choice(((), ("CR_LLN",), ("CR_Pack_Nodes",), ()))]
    if unit == "CR_Core" and chance.random() < 0.3:
        types.append("CR_ONE_TASK_PER_CORE")
    lines = [f"SelectTypeParameters={','.join(types)}", "Licenses=lic:3"]
    preempts = chance.choice(("", "", "REQUEUE", "CANCEL", "SUSPEND,GANG"))
    if preempts:
        lines += ["PreemptType=preempt/partition_prio", f"PreemptMode={preempts}"]
    if chance.random() < 0.2:
        lines.append("DefCpuPerGPU=2")
    names = ("one", "two", "three")[: chance.choice((1, 3))]
    for place, name in enumerate(names):
        options = [
            chance.choice(("", "OverSubscribe=YES:2", "OverSubscribe=FORCE:2", "")),
            chance.choice(("", "", "", "ExclusiveUser=YES")),
            chance.choice(("", "", "", "LLN=YES")),
            chance.choice(("", "", "", "MaxCPUsPerNode=6")),
            chance.choice(("", "", "", "MaxCPUsPerSocket=4")),
            chance.choice(("", "", "", "DefMemPerGPU=30")),
            f"PriorityTier={place + 1}" if preempts else "",
        ]
        lines.append(f"PartitionName={name} Nodes=ALL DefaultTime=10 {' '.join(options)}")
    lines.append("PartitionName=dgx2 Nodes=dgx[1-2] DefaultTime=10")
    commands = [
        "scontrol update nodename=dgx1,amd1 availablefeatures=a,b activefeatures=a,b",
        "scontrol update nodename=dgx2 availablefeatures=a activefeatures=a",
        "scontrol update nodename=bridged1 availablefeatures=b activefeatures=b",
        "scontrol create reservation reservationname=mine users=alice,root starttime=now"
        f" duration=60 nodes={chance.choice(('dgx1', 'amd1', 'dgx2,bridged1'))}",
    ]
    if chance.random() < 0.4:
        commands.append(f"scontrol update nodename=dgx1 weight={chance.choice((5, 9))}")
    if chance.random() < 0.4:
        commands.append(
            "scontrol create reservation reservationname=maint users=root flags=maint"
            " starttime=now+30minutes duration=60 nodes=dgx2,minsky1"
        )
    return Site("\n".join(lines), tuple(commands), names)


def request_of(
    chance: random.Random, site: Site, without: tuple[str, ...] = ()
) -> tuple[str, list[str]]:
    """A user, and what she asks for: GPUs in some form, two things besides."""
    gpus = chance.choice(GPUS).format(chance.choice((1, 1, 2, 2, 3, 4)))
    others = " ".join(chance.sample([one for one in OTHERS if one not in without], 2))
    partition = "" if "-p " in gpus else f"-p {chance.choice(site.partitions)}"
    return chance.choice(USERS), shlex.split(f"{partition} {gpus} {others}")


@dataclass(frozen=True)
class Life:
    """What becomes of a job: options of its submit, then what root does, looked at after each step.

    Of the commands {job}, {node} and {partition} are the job, a node and a partition of the site.
    """

    options: str = ""
    steps: tuple[str, ...] = ()
    before: str = ""
    #: Heterogeneous jobs have more.
    parts: int = 1


PLAIN = Life()
RELEASE = "scontrol release {job}"
UPDATE = "scontrol update jobid={job} "
LIVES = (
    *(PLAIN, PLAIN),
    Life("--array=0-2"),
    Life("--array=1-4%2"),
    Life(parts=2),
    Life("--hold", (RELEASE,)),
    Life("--hold", (UPDATE + "timelimit=3", UPDATE + "partition={partition}", RELEASE)),
    Life("--hold", (UPDATE + "features=a", RELEASE)),
    Life("--hold", (UPDATE + "excnodelist={node}", RELEASE)),
    Life("--hold", (UPDATE + "numnodes=1 numtasks=2", RELEASE)),
    Life("--begin=now+3", ("sleep 4",)),
    Life("--begin=now+1hour", (UPDATE + "starttime=now",)),
    Life("--dependency=singleton --job-name=one"),
    Life(steps=("scontrol suspend {job}", "scontrol resume {job}")),
    Life("--requeue", ("scontrol requeue {job}", UPDATE + "starttime=now")),
    Life("--requeue", ("scontrol requeuehold {job}", UPDATE + "timelimit=4", RELEASE)),
    Life(steps=("cd /tmp; " + UPDATE + "numnodes=1", UPDATE + "timelimit=20")),
    Life(
        before="scontrol update nodename={node} state=drain reason=soup",
        steps=("scontrol update nodename={node} state=resume",),
    ),
    Life(steps=("scontrol update nodename={node} state=drain reason=soup",)),
)
NODES = ("dgx1", "dgx2", "bridged1", "minsky1", "amd1")


@dataclass(frozen=True)
class Asked:
    """A job that is tried: whose it is, the options of its components, and its life."""

    user: str
    parts: tuple[tuple[str, ...], ...]
    life: Life = PLAIN
    node: str = NODES[0]
    partition: str = ""

    def __str__(self) -> str:
        steps = "; ".join((self.life.before, *self.life.steps)).format_map(self.places)
        asked = f"{self.user}: {shlex.join(self.words(()))}"
        return f"{asked} then {steps}" if self.life.steps else asked

    @property
    def places(self) -> dict[str, str]:
        """What stands for the names in commands of a life that nobody lives."""
        return {"job": "N", "node": self.node, "partition": self.partition}

    def words(self, hint: tuple[str, ...]) -> list[str]:
        """Options of sbatch, with these in each component."""
        more = (*self.life.options.split(), *hint)
        first, *rest = [[*part, *more] for part in self.parts]
        return [*first, *(word for part in rest for word in (":", *part))]

    def on(self, nodes: tuple[str, ...]) -> Asked:
        """The same for these nodes alone."""
        [part] = self.parts
        return replace(self, parts=((*part, f"-w{','.join(nodes)}"),))


def asked_of(
    chance: random.Random, site: Site, lives: tuple[Life, ...], without: tuple[str, ...]
) -> Asked:
    """The next job, which asks for nothing of `without`."""
    if len(lives) == 1:
        user, first = request_of(chance, site, without)
        return Asked(user, (tuple(first),), *lives)
    life, node = chance.choice(lives), chance.choice(NODES)
    user, first = request_of(chance, site, without)
    more = [request_of(chance, site, without)[1] for _ in range(life.parts - 1)]
    partition = chance.choice(site.partitions)
    return Asked(user, tuple(map(tuple, (first, *more))), life, node, partition)
