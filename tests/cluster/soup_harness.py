"""The same job twice, from the same state: left to Slurm, then advised. Seeded, of every kind.

A state is what Slurm's books hold: the jobs, and of the nodes who alone may use them. What Slurm
does with a job in a state is the measure; advice may move it to other nodes and GPUs, and nothing
else: no job waits, is refused, held or disturbed, has other CPUs or memory, or keeps more nodes
closed.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from soup_books import (
    LOOK_S,
    Books,
    books,
    harms,
    is_told_to_wait,
    of_job,
    others,
    running,
    settled,
)
from soup_requests import PLAIN, Asked, Life, Site, asked_of, site_of

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.slurm_text import Job

#: Until a job that Slurm would start is late.
LATE_S = 15.0
#: How often it is looked whether Slurm by itself does what seems a harm.
VARIES = 3
#: Left to Slurm.
OFF = "--comment=gpu-topo: off"

SEED = int(os.environ.get("GPUTOPO_SEED", "1"))
#: Of the soups in which jobs are changed while they wait and run: configurations, jobs of each.
SITES = int(os.environ.get("GPUTOPO_SOUP_SITES", "2"))
JOBS = int(os.environ.get("GPUTOPO_SOUP_JOBS", "40"))


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
    #: What becomes of jobs.
    lives: tuple[Life, ...] = (PLAIN,)
    #: Jobs that wait stay, too. Slurm sees none that wait behind gates, and starts others first.
    keeps_waiting: bool = True
    #: Waits are over within seconds, and not what is looked at.
    waits_end: bool = True
    found: list[str] = field(default_factory=list)
    #: How many jobs were refused, waited, ran; how many ran elsewhere than with Slurm alone.
    seen: Counter[str] = field(default_factory=Counter)
    kept: list[int] = field(default_factory=list)

    def submit(self, asked: Asked, hint: tuple[str, ...]) -> int | str:
        """The job's id, or Slurm's words."""
        words = ["sbatch", "--parsable", "-o/dev/null", *asked.words(hint)]
        words.append("--wrap=exec sleep 600")
        done = self.cluster.run("ctl", words, user=asked.user, check=False)
        return int(done.out.split(";")[0]) if not done.code else done.err.strip()

    def lived(
        self, asked: Asked, hint: tuple[str, ...], like: Sequence[int] = ()
    ) -> tuple[int | str, list[Books]]:
        """The job's id, or Slurm's words; what the books show after its submit and after each step.

        `like`: how many of its records Slurm has started then, for which there is some time.
        """
        self.cluster.run("ctl", asked.life.before.format_map(asked.places))
        job = self.submit(asked, hint)
        if isinstance(job, str):
            self.undo(asked)
            return job, []
        pages = []
        for place, step in enumerate(("", *asked.life.steps)):
            self.cluster.run("ctl", step.format_map({**asked.places, "job": str(job)}), check=False)
            page = settled(self.cluster, job)
            if like:
                page = self.started(page, job, like[place])
            pages.append(page)
        return job, pages

    def end(self, jobid: int, asked: Asked | None = None) -> None:
        """The job is over, and nothing of it is left."""
        self.cluster.cancel(jobid)
        if asked is not None:
            self.undo(asked)
        settled(self.cluster, jobid)
        # A node on which a job still ends takes no other one, and counts as its user's.
        ends = "scontrol -o show node | grep -c ' State=[A-Z+]*COMPLETING'"
        until(lambda: self.cluster.run("ctl", ends, check=False).out.strip() == "0", "all is over")

    def undo(self, asked: Asked) -> None:
        """The node is as it was."""
        if "state=drain" in asked.life.before + "".join(asked.life.steps):
            resume = f"scontrol update nodename={asked.node} state=resume"
            self.cluster.run("ctl", resume, check=False)

    def tries(self) -> Iterator[str]:
        """One job, twice; what it or another one had to suffer."""
        asked = asked_of(self.chance, self.site, self.lives, self.without)
        base = books(self.cluster)
        own, before = self.lived(asked, (OFF,))
        if isinstance(own, str):
            ours = self.submit(asked, self.hint)
            if not isinstance(ours, str):
                self.end(ours)
            self.seen["refused"] += 1
            return
        self.end(own, asked)
        if any(others(base, own) != others(page, own) for page in before):
            # It preempts: there Slurm is not to be advised, and there is no state to try again.
            self.seen["disturbs others"] += 1
            return
        like = [running(page.of(own).values()) for page in before]
        ours, after = self.lived(asked, self.hint, like)
        if isinstance(ours, str):
            yield f"{asked}: refused: {ours}"
            return
        self.seen["waited"] += bool(like[0]) and not running(after[0].of(ours).values())
        if found := self.harms(before, own, after, ours):
            ours, after = self.varied(asked, found, before, own, after, ours)
        yield from (f"{asked}: {text}" for text in found)
        ours = yield from self.has_the_same(asked, before[-1], own, after[-1], ours)
        if self.chance.random() < self.stays(after[-1].of(ours).values()) and len(self.kept) < 12:
            self.undo(asked)
            self.kept.append(ours)
        else:
            self.end(ours, asked)
        if self.kept and self.chance.random() < 0.35:
            self.end(self.kept.pop(self.chance.randrange(len(self.kept))))

    def stays(self, jobs: Collection[Job]) -> float:
        """How likely it is one of the next job's state."""
        runs = running(jobs)
        if runs < len(jobs) and not self.keeps_waiting:
            return 0.0
        return 0.6 if runs else 0.2

    def harms(self, before: list[Books], own: int, after: list[Books], ours: int) -> list[str]:
        """Those of the first step at which there are some."""
        for one, two in zip(before, after, strict=True):
            if found := harms(one, own, two, ours):
                return found
        return []

    def has_the_same(
        self, asked: Asked, before: Books, own: int, after: Books, ours: int
    ) -> Generator[str, None, int]:
        """What the advised job has that Slurm does not give it there; returns who stands for it."""
        jobs, pairs = after.of(ours), before.of(own)
        for part in pairs.keys() & jobs.keys():
            one, two = pairs[part], jobs[part]
            self.count(one, two)
            has = of_job(two, self.ignored)
            if one.state != "RUNNING" or two.state != "RUNNING" or of_job(one, self.ignored) == has:
                continue
            # By itself Slurm may not start all of several there at all.
            if len(jobs) > 1 or len(pairs) > 1:
                self.seen["not compared"] += 1
                continue
            # Asked for nodes by name it gives some jobs other GPUs than there by its own choice.
            for again in (asked.on(two.nodes), asked, asked):
                self.end(ours, asked)
                there, pages = self.lived(again, (OFF,))
                if isinstance(there, str):
                    self.seen["not compared"] += 1
                    return ours
                ours = there
                [job] = pages[-1].of(ours).values()
                gives = of_job(job, self.ignored)
                if job.state != "RUNNING" or gives == has:
                    break
            else:
                yield f"{asked}: on {','.join(two.nodes)} {has}, there Slurm gives {gives}"
        return ours

    def started(self, seen: Books, jobid: int, like: int) -> Books:
        """The books once so many of its records run, for which there is some time: behind others
        that wait Slurm does not look at a job when it comes."""
        until_s = time.monotonic() + LATE_S
        while running(seen.of(jobid).values()) < like and time.monotonic() < until_s:
            if any(map(is_told_to_wait, seen.of(jobid).values())) and not self.waits_end:
                break
            time.sleep(LOOK_S)
            seen = settled(self.cluster, jobid)
        return seen

    def varied(
        self,
        asked: Asked,
        found: list[str],
        before: list[Books],
        own: int,
        after: list[Books],
        ours: int,
    ) -> tuple[int, list[Books]]:
        """Takes out of `found` what Slurm by itself does differently from one time to the next.

        The job that now stands for the second try, and the books with it.
        """
        like = [running(page.of(ours).values()) for page in after]
        for _ in range(VARIES):
            self.end(ours, asked)
            again, after = self.lived(asked, (OFF,), like)
            assert isinstance(again, int), again
            ours = again
            kinds = {text.split(":")[0] for text in self.harms(before, own, after, ours)}
            if kinds:
                found[:] = [text for text in found if text.split(":")[0] not in kinds]
                self.seen["Slurm varies"] += 1
                break
        return ours, after

    def count(self, alone: Job, advised: Job) -> None:
        self.seen[alone.state.lower()] += 1
        if alone.state == advised.state == "RUNNING":
            self.seen["elsewhere"] += alone.gpus != advised.gpus
            self.seen["on other nodes"] += alone.nodes != advised.nodes

    def cook(self, jobs: int, enough: str = "", elsewhere: int = 0) -> None:
        """So many jobs; fewer where three harms were found, or one with these words in it.

        And up to twice as many until so many got other GPUs than by Slurm's choice: what advice
        does is seen in these alone, and how many there are hangs on who is still running.
        """
        print(f"GPUTOPO_SEED={SEED}", self.site)  # shown where the test fails
        self.cluster.configure_extra(self.site.slurm_conf)
        for command in self.site.commands:
            self.cluster.run("ctl", command)
        for tried in range(2 * jobs):
            if tried >= jobs and self.seen["elsewhere"] >= elsewhere:
                break
            self.found += self.tries()
            is_found = enough and any(enough in text for text in self.found)
            if is_found or (not enough and len(self.found) >= 3):
                break
        print(dict(self.seen))


def soup_of(cluster: Cluster, seed: int, *hint: str, **more: Any) -> Soup:
    """The site and the jobs of this seed; the second try of each has these options besides."""
    return Soup(cluster, site_of(seed, cluster.release), random.Random(seed), hint, **more)
