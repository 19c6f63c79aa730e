"""The same job twice, from the same state: left to Slurm, then advised. Seeded, of every kind.

A state is what Slurm's books hold: the jobs, and of the nodes who alone may use them. What Slurm
does with a job in a state is the measure; advice may move it to other nodes and GPUs, and nothing
else: no job waits, is refused, held or disturbed, has other CPUs or memory, or keeps more nodes
closed.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import ClusterError
from slurm_cluster.slurm_text import Job, parse_jobs
from slurm_plugin.job_notes.hints import postponed_until

#: What Slurm calls a job that it has not looked at since something changed.
UNSEEN = ("None", "")
LIVES = ("PENDING", "RUNNING", "SUSPENDED")
#: From one look at the books to the next, and until a job that Slurm would start is late.
LOOK_S, LATE_S, SETTLED_S = 0.15, 15.0, 20.0
#: How often it is looked whether Slurm by itself does what seems a harm.
VARIES = 3
#: Left to Slurm.
OFF = "--comment=gpu-topo: off"

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
SEED = int(os.environ.get("GPUTOPO_SEED", "1"))


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


# -- what is seen ------------------------------------------------------------


@dataclass(frozen=True)
class Books:
    """What Slurm shows at one moment."""

    jobs: dict[int, Job]
    #: Nodes that one user or label alone may use now.
    closed: frozenset[str] = frozenset()

    def states(self) -> dict[int, tuple[str, str]]:
        """State and reason by job."""
        return {jobid: (job.state, job.reason) for jobid, job in self.jobs.items()}


def books(cluster: Cluster) -> Books:
    shown = cluster.run("ctl", "scontrol show job -d; echo; echo ==; scontrol -o show node").out
    jobs, _, nodes = shown.partition("\n==\n")
    marks = re.findall(r"^NodeName=(\S+) .* Owner=(\S+) MCS_label=(\S+)", nodes, re.MULTILINE)
    closed = [name for name, *both in marks if not {*both} <= {"N/A", "(null)"}]
    return Books({job.id: job for job in parse_jobs(jobs)}, frozenset(closed))


def settled(cluster: Cluster, jobid: int) -> Books:
    """The books once Slurm has looked at the job, and nothing changes any more."""
    before, until_s = None, time.monotonic() + SETTLED_S
    while time.monotonic() < until_s:
        now = books(cluster)
        busy = any(job.state in ("COMPLETING", "CONFIGURING") for job in now.jobs.values())
        job = now.jobs.get(jobid)
        is_seen = job is None or job.state != "PENDING" or job.reason not in UNSEEN
        if before is not None and is_seen and not busy and now.states() == before.states():
            return now
        before = now
        time.sleep(LOOK_S)
    raise ClusterError(f"the queue does not settle: {before and before.states()}")


def of_job(job: Job, ignored: tuple[str, ...] = ()) -> dict[str, object]:
    """What a job has, wherever it has it: the model of its GPUs is part of where."""
    every = ("NumNodes", "NumCPUs", "NumTasks", "CPUs/Task", "Requeue", "Restarts")
    kept = [key for key in every if key not in ignored]
    parts = job.fields.get("AllocTRES", "").split(",")
    tres = [part for part in parts if not part.startswith(("billing", "gres/gpu:"))]
    return {key: job.fields.get(key) for key in kept} | {"TRES": ",".join(tres)}


def others(now: Books, jobid: int) -> dict[int, tuple[object, ...]]:
    """All other jobs: state, and what each has where."""
    return {
        other.id: (other.state, other.nodes, other.gpus, other.cores)
        for other in now.jobs.values()
        if other.id != jobid and other.state in LIVES
    }


def twice(now: Books) -> list[str]:
    """GPUs that two jobs hold."""
    held = Counter(
        (node, gpu)
        for job in now.jobs.values()
        if job.state in ("RUNNING", "SUSPENDED")
        for node, gpus in job.gpus.items()
        for gpu in gpus
    )
    return [f"{node}: GPU {gpu}" for (node, gpu), count in held.items() if count > 1]


def shared_cores(now: Books) -> int:
    """Cores that more than one running job has."""
    held = Counter(
        (node, core)
        for job in now.jobs.values()
        if job.state == "RUNNING"
        for node, cores in job.cores.items()
        for core in cores
    )
    return sum(count > 1 for count in held.values())


def harms(alone: Books, own: int, advised: Books, ours: int) -> list[str]:
    """What the advised job, or another one, has to suffer that stock Slurm spared them."""
    one, two = alone.jobs[own], advised.jobs[ours]
    found = [f"held twice: {text}" for text in twice(advised)]
    if one.state == "RUNNING" and two.state != "RUNNING" and not is_told_to_wait(two):
        found.append(f"does not start: {two.state} ({two.reason}) {two.admin_comment}".strip())
    elif one.state == "PENDING" and two.state not in ("RUNNING", "PENDING"):
        found.append(f"ended: {two.state} ({two.reason})")
    if two.fields.get("Priority") == "0" and one.fields.get("Priority") != "0":
        found.append("held")
    # Who waited may have started meanwhile, and closes nodes of its own.
    before, now = (others(seen, job) for seen, job in ((alone, own), (advised, ours)))
    waited = {j for j, has in before.items() if has[0] == "PENDING"}
    if lost := {j: has for j, has in before.items() if j not in waited and now.get(j) != has}:
        found.append(f"others: {[(has, now.get(j)) for j, has in lost.items()]}")
    if shared_cores(advised) > shared_cores(alone):
        found.append("cores of others")
    closed = advised.closed - {node for j in waited & now.keys() for node in advised.jobs[j].nodes}
    if len(closed) > len(alone.closed):
        found.append(
            f"{len(closed)} nodes closed, with Slurm {len(alone.closed)}: {sorted(closed)}"
        )
    return found


def is_told_to_wait(job: Job) -> bool:
    """Does the job wait for better GPUs, and say so?"""
    return job.state == "PENDING" and bool(postponed_until(job.admin_comment))


# -- the soup ----------------------------------------------------------------


@dataclass
class Soup:
    """Jobs of a seed, one after the other, each tried twice; some stay as the next one's state."""

    cluster: Cluster
    site: Site
    chance: random.Random
    #: What the second try of a job has besides.
    hint: tuple[str, ...] = ()
    #: Fields that may differ.
    ignored: tuple[str, ...] = ()
    #: What no job asks for.
    without: tuple[str, ...] = ()
    #: Waits are over within seconds, and not what is looked at.
    waits_end: bool = True
    found: list[str] = field(default_factory=list)
    #: How many jobs were refused, waited, ran; how many ran elsewhere than with Slurm alone.
    seen: Counter[str] = field(default_factory=Counter)
    kept: list[int] = field(default_factory=list)

    def submit(self, user: str, asks: list[str], hint: tuple[str, ...]) -> int | str:
        """The job's id, or Slurm's words."""
        words = ["sbatch", "--parsable", "-o/dev/null", *asks, *hint, "--wrap=exec sleep 600"]
        done = self.cluster.run("ctl", words, user=user, check=False)
        return int(done.out.split(";")[0]) if not done.code else done.err.strip()

    def end(self, jobid: int) -> None:
        """The job is over, and nothing of it is left."""
        self.cluster.cancel(jobid)
        settled(self.cluster, jobid)

    def tries(self) -> Iterator[str]:
        """One job, twice; what it or another one had to suffer."""
        user, asks = request_of(self.chance, self.site, self.without)
        base = books(self.cluster)
        own = self.submit(user, asks, (OFF,))
        if isinstance(own, str):
            ours = self.submit(user, asks, self.hint)
            if not isinstance(ours, str):
                self.end(ours)
            self.seen["refused"] += 1
            return
        before = settled(self.cluster, own)
        self.end(own)
        if others(base, own) != others(before, own):
            # It preempts: there Slurm is not to be advised, and there is no state to try again.
            self.seen["disturbs others"] += 1
            return
        ours = self.submit(user, asks, self.hint)
        asked = f"{user}: {shlex.join(asks)}"
        if isinstance(ours, str):
            yield f"{asked}: refused: {ours}"
            return
        after = self.after(before, own, ours)
        if found := harms(before, own, after, ours):
            ours, after = self.varied(user, asks, found, before, own, after, ours)
        yield from (f"{asked}: {text}" for text in found)
        self.count(before.jobs[own], after.jobs[ours])
        one, two = before.jobs[own], after.jobs[ours]
        runs, has = one.state == two.state == "RUNNING", of_job(two, self.ignored)
        if runs and of_job(one, self.ignored) != has:
            ours, there = self.pinned(user, asks, two)
            gives = of_job(there, self.ignored)
            # By itself Slurm may not start it there at all.
            if there.state == "RUNNING" and gives != has:
                yield f"{asked}: on {','.join(two.nodes)} {has}, there Slurm gives {gives}"
        stays = 0.6 if two.state == "RUNNING" else 0.2
        if self.chance.random() < stays and len(self.kept) < 12:
            self.kept.append(ours)
        else:
            self.end(ours)
        if self.kept and self.chance.random() < 0.35:
            self.end(self.kept.pop(self.chance.randrange(len(self.kept))))

    def after(self, before: Books, own: int, ours: int) -> Books:
        """The books with the advised job; one that Slurm started has time to do the same."""
        after = settled(self.cluster, ours)
        if before.jobs[own].state != "RUNNING":
            return after
        self.seen["waited"] += after.jobs[ours].state != "RUNNING"
        return self.started(after, ours)

    def started(self, seen: Books, jobid: int) -> Books:
        """The books once the job runs, for which it has some time: behind others that wait Slurm
        does not look at a job when it comes."""
        until_s = time.monotonic() + LATE_S
        while seen.jobs[jobid].state != "RUNNING" and time.monotonic() < until_s:
            if is_told_to_wait(seen.jobs[jobid]) and not self.waits_end:
                break
            time.sleep(LOOK_S)
            seen = settled(self.cluster, jobid)
        return seen

    def varied(
        self, user: str, asks: list[str], found: list[str],
        before: Books, own: int, after: Books, ours: int,
    ) -> tuple[int, Books]:  # fmt: skip
        """Takes out of `found` what Slurm by itself does differently from one time to the next.

        The job that now stands for the second try, and the books with it.
        """
        runs = after.jobs[ours].state == "RUNNING"
        for _ in range(VARIES):
            self.end(ours)
            ours = self.submit(user, asks, (OFF,))
            assert isinstance(ours, int), ours
            after = settled(self.cluster, ours)
            if runs:
                after = self.started(after, ours)
            kinds = {text.split(":")[0] for text in harms(before, own, after, ours)}
            if kinds:
                found[:] = [text for text in found if text.split(":")[0] not in kinds]
                self.seen["Slurm varies"] += 1
                break
        return ours, after

    def pinned(self, user: str, asks: list[str], job: Job) -> tuple[int, Job]:
        """The same job in place of this one, left to Slurm on the same nodes; its id and record.

        Nodes differ in cores and threads, and so does what Slurm gives a job.
        """
        self.end(job.id)
        jobid = self.submit(user, [*asks, f"-w{','.join(job.nodes)}"], (OFF,))
        assert isinstance(jobid, int), jobid
        return jobid, settled(self.cluster, jobid).jobs[jobid]

    def count(self, alone: Job, advised: Job) -> None:
        self.seen[alone.state.lower()] += 1
        if alone.state == advised.state == "RUNNING":
            self.seen["elsewhere"] += alone.gpus != advised.gpus
            self.seen["on other nodes"] += alone.nodes != advised.nodes

    def cook(self, jobs: int, enough: str = "") -> None:
        """So many jobs; fewer where three harms were found, or one with these words in it."""
        print(f"GPUTOPO_SEED={SEED}", self.site)  # shown where the test fails
        self.cluster.configure_extra(self.site.slurm_conf)
        for command in self.site.commands:
            self.cluster.run("ctl", command)
        for _ in range(jobs):
            self.found += self.tries()
            is_found = enough and any(enough in text for text in self.found)
            if is_found or (not enough and len(self.found) >= 3):
                break
        print(dict(self.seen))


def soup_of(cluster: Cluster, seed: int, *hint: str, **more: Any) -> Soup:
    """The site and the jobs of this seed; the second try of each has these options besides."""
    return Soup(cluster, site_of(seed, cluster.release), random.Random(seed), hint, **more)
