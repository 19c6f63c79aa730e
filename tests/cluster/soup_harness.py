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

from soup_sites import Site, life_of, request_of, site_of

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

SEED = int(os.environ.get("GPUTOPO_SEED", "1"))


# -- what is seen ------------------------------------------------------------


@dataclass(frozen=True)
class Books:
    """What Slurm shows at one moment."""

    jobs: dict[int, Job]
    #: Nodes that one user or label alone may use now.
    closed: int = 0

    def states(self) -> dict[int, tuple[str, str]]:
        """State and reason by job."""
        return {jobid: (job.state, job.reason) for jobid, job in self.jobs.items()}


def records_of(now: Books, jobid: int) -> list[Job]:
    """Those of a job: of an array's tasks or a heterogeneous job's components, several."""
    keys = ("ArrayJobId", "HetJobId")
    every = now.jobs.values()
    return [job for job in every if jobid in (job.id, *(int(job.fields.get(k, 0)) for k in keys))]


def books(cluster: Cluster) -> Books:
    shown = cluster.run("ctl", "scontrol show job -d; echo; echo ==; scontrol -o show node").out
    jobs, _, nodes = shown.partition("\n==\n")
    marks = re.findall(r" Owner=(\S+) MCS_label=(\S+)", nodes)
    closed = sum(any(mark not in ("N/A", "(null)") for mark in both) for both in marks)
    return Books({job.id: job for job in parse_jobs(jobs)}, closed)


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
    own = {job.id for job in records_of(now, jobid)}
    return {
        other.id: (other.state, other.nodes, other.gpus, other.cores)
        for other in now.jobs.values()
        if other.id not in own and other.state in LIVES
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
    one, two = records_of(alone, own), records_of(advised, ours)
    found = [f"held twice: {text}" for text in twice(advised)]
    states = [Counter(job.state for job in jobs) for jobs in (one, two)]
    late = [job for job in two if job.state != "RUNNING"]
    if states[0]["RUNNING"] > states[1]["RUNNING"] and not any(map(is_told_to_wait, two)):
        told = " ".join(f"{job.state} ({job.reason}) {job.admin_comment}" for job in late)
        found.append(f"does not start: {told}".strip())
    elif ended := [job for job in two if job.state not in (*states[0], *LIVES)]:
        found.append(f"ended: {ended[0].state} ({ended[0].reason})")
    if any(job.fields.get("Priority") == "0" for job in two) and not any(
        job.fields.get("Priority") == "0" for job in one
    ):
        found.append("held")
    # Who waited may have started meanwhile.
    before, now = (others(seen, job) for seen, job in ((alone, own), (advised, ours)))
    if lost := {j: has for j, has in before.items() if has[0] != "PENDING" and now.get(j) != has}:
        found.append(f"others: {[(has, now.get(j)) for j, has in lost.items()]}")
    if shared_cores(advised) > shared_cores(alone):
        found.append("cores of others")
    if advised.closed > alone.closed:
        found.append(f"{advised.closed} nodes closed, with Slurm {alone.closed}")
    return found


def running(now: Books, jobid: int) -> int:
    """How many of a job's records run."""
    return sum(job.state == "RUNNING" for job in records_of(now, jobid))


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
    #: Are there jobs of several records, and does something happen to jobs and nodes?
    lives: bool = False
    found: list[str] = field(default_factory=list)
    #: How many jobs were refused, waited, ran; how many ran elsewhere than with Slurm alone.
    seen: Counter[str] = field(default_factory=Counter)
    kept: list[int] = field(default_factory=list)

    def submit(self, user: str, asks: list[str], hint: tuple[str, ...]) -> int | str:
        """The job's id, or Slurm's words."""
        # Each component of a heterogeneous job has its own options.
        mine = [part for word in asks for part in ((*hint, ":") if word == ":" else (word,))]
        words = ["sbatch", "--parsable", "-o/dev/null", *mine, *hint, "--wrap=exec sleep 600"]
        done = self.cluster.run("ctl", words, user=user, check=False)
        return int(done.out.split(";")[0]) if not done.code else done.err.strip()

    def end(self, jobid: int) -> None:
        """The job is over, and nothing of it is left."""
        self.cluster.cancel(jobid)
        settled(self.cluster, jobid)

    def tries(self) -> Iterator[str]:
        """One job, twice; what it or another one had to suffer."""
        user, asks = request_of(self.chance, self.site, self.without)
        asks, acts = life_of(self.chance, self.site, asks) if self.lives else (asks, [])
        base = books(self.cluster)
        own = self.submit(user, asks, (OFF,))
        if isinstance(own, str):
            ours = self.submit(user, asks, self.hint)
            if not isinstance(ours, str):
                self.end(ours)
            self.seen["refused"] += 1
            return
        before = self.lived(own, acts)
        self.end(own)
        if others(base, own) != others(before, own):
            # It preempts: there Slurm is not to be advised, and there is no state to try again.
            self.seen["disturbs others"] += 1
            return
        ours = self.submit(user, asks, self.hint)
        asked = f"{user}: {shlex.join(asks)} {'; '.join(acts)}".strip()
        if isinstance(ours, str):
            yield f"{asked}: refused: {ours}"
            return
        if acts:
            settled(self.cluster, ours)
            self.act(ours, acts)
        after = self.after(before, own, ours)
        if found := harms(before, own, after, ours):
            ours, after = self.varied(user, asks, acts, found, before, own, after, ours)
        yield from (f"{asked}: {text}" for text in found)
        self.count(before.jobs[own], after.jobs[ours])
        one, two = before.jobs[own], after.jobs[ours]
        is_one = len(records_of(before, own)) == 1
        runs, has = is_one and one.state == two.state == "RUNNING", of_job(two, self.ignored)
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

    def act(self, jobid: int, acts: list[str]) -> None:
        """Have this happen to the job. What Slurm refuses, it refuses in both tries."""
        for step in "; ".join(acts).split("; ") if acts else ():
            line = f"scontrol {step.format(jobid)}"
            self.cluster.run("ctl", line, check=False)
            settled(self.cluster, jobid)

    def lived(self, jobid: int, acts: list[str]) -> Books:
        """The books once all this has happened to a job that is left to Slurm."""
        found = settled(self.cluster, jobid)
        if acts:
            was_running = any(job.state == "RUNNING" for job in records_of(found, jobid))
            self.act(jobid, acts)
            until_s = time.monotonic() + LATE_S
            found = settled(self.cluster, jobid)
            while was_running and running(found, jobid) == 0 and time.monotonic() < until_s:
                time.sleep(LOOK_S)
                found = settled(self.cluster, jobid)
        return found

    def after(self, before: Books, own: int, ours: int) -> Books:
        """The books with the advised job; one that Slurm started has time to do the same."""
        until_s = time.monotonic() + LATE_S
        after, wanted = settled(self.cluster, ours), running(before, own)
        if not wanted:
            return after
        self.seen["waited"] += running(after, ours) < wanted
        while running(after, ours) < wanted and time.monotonic() < until_s:
            if any(map(is_told_to_wait, records_of(after, ours))) and not self.waits_end:
                break
            time.sleep(LOOK_S)
            after = settled(self.cluster, ours)
        return after

    def varied(
        self, user: str, asks: list[str], acts: list[str], found: list[str],
        before: Books, own: int, after: Books, ours: int,
    ) -> tuple[int, Books]:  # fmt: skip
        """Takes out of `found` what Slurm by itself does differently from one time to the next.

        The job that now stands for the second try, and the books with it.
        """
        for _ in range(VARIES):
            self.end(ours)
            ours = self.submit(user, asks, (OFF,))
            assert isinstance(ours, int), ours
            after = self.lived(ours, acts)
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

    def drain_or_resume(self) -> None:
        """Now and then a node drains, or serves again."""
        if self.chance.random() < 0.2:
            node = self.chance.choice(("dgx1", "dgx2", "amd1", "bridged1"))
            state = self.chance.choice(("drain reason=test", "resume"))
            self.cluster.run("ctl", f"scontrol update nodename={node} state={state}", check=False)

    def cook(self, jobs: int, enough: str = "") -> None:
        """So many jobs; fewer where three harms were found, or one with these words in it."""
        print(f"GPUTOPO_SEED={SEED}", self.site)  # shown where the test fails
        self.cluster.configure_extra(self.site.slurm_conf)
        for command in self.site.commands:
            self.cluster.run("ctl", command)
        for _ in range(jobs):
            if self.lives:
                self.drain_or_resume()
            self.found += self.tries()
            is_found = enough and any(enough in text for text in self.found)
            if is_found or (not enough and len(self.found) >= 3):
                break
        print(dict(self.seen))


def soup_of(cluster: Cluster, seed: int, *hint: str, **more: Any) -> Soup:
    """The site and the jobs of this seed; the second try of each has these options besides."""
    return Soup(cluster, site_of(seed, cluster.release), random.Random(seed), hint, **more)
