"""Configurations of Slurm, and jobs of every kind, as seeds have them."""

import random
import shlex
from dataclasses import dataclass

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
#: Jobs of several records: arrays, and heterogeneous ones.
SEVERAL = (
    *("--array=0-2%2 --gres=gpu:1", "--array=1,3 --gres=gpu:2", "--array=0-3 -N1 --gpus=1"),
    *("--gres=gpu:1 : --gres=gpu:2", "-n1 : --gres=gpu:2", "--gres=gpu:2 -N1 : -n2 : --gpus=1"),
)
#: What may happen to a job once Slurm has looked at it; root does that.
ACTS = (
    *("suspend {0}; resume {0}", "hold {0}; release {0}", "update jobid={0} timelimit=3"),
    *("update jobid={0} nice=20", "update jobid={0} partition={1}", "update jobid={0} name=x"),
    "requeue {0}; update jobid={0} starttime=now",
    "requeuehold {0}; release {0}; update jobid={0} starttime=now",
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
    # Not CR_Socket yet: there GPUs of two sockets take the cores of both, and a node of other cores
    # than Slurm's own choice is not refused for that.
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


def life_of(chance: random.Random, site: Site, asks: list[str]) -> tuple[list[str], list[str]]:
    """What a job asks for, now and then as several; and what happens to it, mostly nothing."""
    if chance.random() < 0.35:
        several = chance.choice(SEVERAL)
        asks = shlex.split(f"-p {chance.choice(site.partitions)} {several}")
    acts = [chance.choice(ACTS)] if chance.random() < 0.6 else []
    return asks, [act.format("{0}", chance.choice(site.partitions)) for act in acts]
