"""The loop around the plan: read Slurm, decide, act; woken by submits, ended jobs and a poll.

Reading, planning and acting run in a thread, one after the other; what submits see changes in
the event loop alone. All state is Slurm's: the first look after a start is like any other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from policies.best_fit import domains
from policies.performance import Shape
from slurm_plugin.decide.decide import Decider
from slurm_plugin.decide.machines import mask_of
from slurm_plugin.decide.neighbours import Neighbours
from slurm_plugin.decide.record import Build
from slurm_plugin.errors import SlurmError
from slurm_plugin.gates.capacity_cache import CapacityCache
from slurm_plugin.gates.give_back import give_back
from slurm_plugin.gates.plan import Choice, GateContext, GatePlan, JobRelease, Want
from slurm_plugin.gates.planning import plan
from slurm_plugin.gates.question import ask
from slurm_plugin.gates.released import about_to_run
from slurm_plugin.gates.slot_request import gpus_by_slot
from slurm_plugin.gates.want import Wants
from slurm_plugin.gates.watch import Watch, of_job
from slurm_plugin.job_notes import hints
from slurm_plugin.job_notes.records import GateRecord
from slurm_plugin.job_profiles import Remote
from slurm_plugin.lending.borrowing import gpus_of
from slurm_plugin.lending.donors import SlurmLoans
from slurm_plugin.lending.matcher import LoanMatcher
from slurm_plugin.question import PlacementQuestion
from slurm_plugin.queue.candidates import Group
from slurm_plugin.queue.capacity import Hold, emptied, held_by, nodes_of, with_hold
from slurm_plugin.queue.snapshot import Settings, Snapshot
from slurm_plugin.slurm.interface import (
    JobUpdate,
    QueuedJob,
    SlurmClient,
)

logger = logging.getLogger(__name__)

#: How long a refused update is not tried again; doubled each time, up to LONGEST_REFUSED_S.
REFUSED_S = 2.0
LONGEST_REFUSED_S = 300.0
#: Why a job of this shape is not to go now; empty where it may.
WhyNot = Callable[[PlacementQuestion, Shape], str]


class GateReconciler:
    """One look after the other at one Slurm; times in seconds.

    `write` takes what becomes a line of the decision log; `why_not` may hold jobs back that would
    fit, for as long as it says. Not for two threads at once, but for
    what submits do to the cache meanwhile.
    """

    def __init__(
        self,
        client: SlurmClient,
        decider: Decider,
        cache: CapacityCache,
        write: Callable[[Build], None],
        *,
        lease_s: int,
        grace_s: int,
        neighbours: Neighbours | None = None,
        lending: SlurmLoans | None = None,
        profiles: Mapping[str, Remote] | None = None,
        why_not: WhyNot | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._decider = decider
        self._cache = cache
        self._write = write
        self._lease_s = lease_s
        self._grace_s = grace_s
        self._clock = clock
        self._neighbours = neighbours
        self._matcher: LoanMatcher | None = None
        if lending is not None:
            self._matcher = LoanMatcher(
                lending, decider.rule, decider.waiting, write, clock, profiles or {}
            )
        self._why_not = why_not
        self._wants = Wants()
        self._sockets: dict[str, tuple[int, ...]] = {}
        self._watch = Watch(write)
        self._settings: Settings | None = None
        self._preempts = False
        self._holds_until: dict[int, float] = {}
        self._refused: dict[str, tuple[float, float]] = {}
        # Decisions by the name of the job or task, of the look under way.
        self._decided: dict[str, Build] = {}
        self.counts: Counter[str] = Counter()
        self.waiting: dict[str, int] = {}

    async def look(self, seen: Snapshot, known: int) -> GatePlan:
        """Decide and act. `known` jobs had been seen to end when the snapshot was asked for."""
        await asyncio.to_thread(self._read_settings, seen.settings)
        if self._neighbours is not None:
            # Policies look at who runs where: what is decided now is about this very queue.
            about = map(about_to_run, seen.jobs)
            running = await asyncio.to_thread(self._neighbours.running_in, about)
            self._neighbours.take(running, seen.began, starts=True)
        self._meet(seen.jobs)
        self._cache.forget(seen.at)
        promised = dict(self._cache.promises)
        made = await asyncio.to_thread(self._plan, seen, [p.hold for p in promised.values()])
        # Submits were answered meanwhile: what they were promised is not to be released.
        newer = [p.hold for token, p in self._cache.promises.items() if token not in promised]
        self._drop(made, newer)
        self._post(made, seen, known)
        await asyncio.to_thread(self._act, made, seen)
        return made

    def close(self) -> None:
        """End what runs beside the engine."""
        if self._matcher is not None:
            self._matcher.close()

    async def give_all_back(self) -> int:
        """Leave every waiting job to Slurm; how many were told."""
        return await asyncio.to_thread(give_back, self._client)

    async def look_after_donors(self, seen: Snapshot) -> None:
        """While nothing else is done: no donor outlives its borrower."""
        if self._matcher is not None:
            await asyncio.to_thread(self._matcher.lending.tidy, seen.jobs)

    def _read_settings(self, settings: Settings) -> None:
        if settings is not self._settings:
            self._settings = settings
            self._preempts = "partition_prio" in settings.config.get("PreemptType", "")
            if self._matcher is not None:
                self._matcher.read(settings.config)

    def _meet(self, queue: Sequence[QueuedJob]) -> None:
        """Promises to jobs that Slurm shows are the jobs' own now."""
        for build in self._cache.observed:
            self._write(build)
        self._cache.observed.clear()
        cache = self._cache
        for job in queue if cache.promises or cache.gated else ():
            kept = GateRecord.read_from(job.admin_comment)
            promise = cache.met(kept.token) if kept else None
            if promise is not None and promise.build is not None:
                self._write(of_job(promise.build, job))

    def _plan(self, seen: Snapshot, promised: Sequence[Hold]) -> GatePlan:
        now = int(self._clock())
        running = [job for job in seen.jobs if job.state != "PENDING"]
        room = nodes_of(seen.nodes, running, gpus_by_slot, self._machine)
        wants = self._wants.read(seen.jobs, emptied(room))
        paused = {name: until for name, (until, _) in self._refused.items()}
        context = GateContext(
            now, self._lease_s, self._grace_s, seen.settings.tiers, paused, self._holds_until
        )
        matcher = self._matcher if self._matcher is not None and self._matcher.is_open else None
        if matcher is not None:
            context = replace(context, ready_s=matcher.lending.settings.ready_s)
            matcher.watch_network(seen.jobs)
        self._decided = {}
        made = plan(
            seen.jobs, wants, room, context, self._choose, promised, matcher, self._is_held_back
        )
        # Promises stay beside the room: the cache adds them for as long as they last.
        made.room = room
        self._watch.look(seen.jobs, made)
        return made

    def _machine(self, name: str) -> tuple[str, tuple[int, ...]]:
        """The kind of a node, and its slots by socket."""
        machine = self._decider.machines.get(name)
        if machine is None or machine.topology is None:
            return "", ()
        kind = f"{machine.topology.shape} {machine.order}"
        if kind not in self._sockets:
            is_known = None not in machine.topology.numa
            masks = domains(machine.topology) if is_known else []
            gpus = [[i for i in range(mask.bit_length()) if mask >> i & 1] for mask in masks]
            self._sockets[kind] = tuple(mask_of(machine.to_slurm(some)) for some in gpus)
        return kind, self._sockets[kind]

    @staticmethod
    def _drop(made: GatePlan, promised: Sequence[Hold]) -> None:
        """Releases that would take what a submit was promised during the look wait for the next."""
        taken: Counter[str] = Counter()
        for hold in promised:
            for name, mask in hold.gpus.items():
                taken[name] |= mask
        if not taken:
            return
        kept: list[JobRelease] = []
        for release in made.releases:
            if any(taken[name] & mask for name, mask in gpus_of(release.holds)):
                for hold in release.holds:
                    made.added.remove(hold)
                made.again = True
            else:
                kept.append(release)
        made.releases = kept
        for item in list(made.offers):
            if any(taken[name] & mask for name, mask in gpus_of(item[2].holds)):
                for hold in item[2].holds:
                    made.added.remove(hold)
                made.offers.remove(item)
                made.again = True

    def _post(self, made: GatePlan, seen: Snapshot, known: int) -> None:
        """What submits see from now on."""
        room, cache = made.room, self._cache
        for hold in made.added:
            room = with_hold(room, hold)
        now = self._clock()
        holds = [held_by(job, now) for job in seen.jobs if job.state != "PENDING"] + made.added
        cache.default_partition = next(
            (p.name for p in seen.settings.partitions if p.is_default), ""
        )
        lowest = min((p.priority_tier for p in seen.settings.partitions), default=1)
        cache.preempting = frozenset(
            p.name for p in seen.settings.partitions if self._preempts and p.priority_tier > lowest
        )
        cache.look(room, tuple(holds), made.first, seen.at, known)
        self.waiting = {state: made.seen[state] for state in GateRecord.STATES}

    def _choose(self, name: str, job: QueuedJob, want: Want, found: Sequence[Group]) -> Choice:
        assert want.need is not None
        choice, self._decided[name] = ask(
            self._decider, self._question(job, want), want.need, found
        )
        return choice

    def _question(self, job: QueuedJob, want: Want) -> PlacementQuestion:
        """What is asked about a job, but for its candidates."""
        now = int(self._clock())
        since = want.kept.since or now
        waited = max(0, now - since)
        return PlacementQuestion(
            job=job.job_id,
            array=job.array_id,
            uid=job.uid,
            postponed=waited // max(1, self._decider.waiting.step_s),
            waited_s=waited,
            candidates=(),
            account=job.account,
            partition=job.partition,
            hint=hints.hint_in(job.admin_comment),
        )

    def _is_held_back(self, job: QueuedJob, want: Want) -> bool:
        if self._why_not is None or want.need is None:
            return False
        shape = Shape(want.need.nodes, want.need.gpus)
        return bool(self._why_not(self._question(job, want), shape))

    def _act(self, made: GatePlan, seen: Snapshot) -> None:
        """Releases first: they are what people wait for."""
        self.counts["regated"] += made.seen["regated"]
        for release in made.releases:
            if all(self._update([name], step) for name, step in release.steps):
                self.counts["released"] += len(release.jobs)
                for name, job in release.jobs.items():
                    self._watch.released(name, job, self._decided.get(name))
            else:
                for name, change in release.undo:
                    self._update([name], change, quiet=True)
        for name, change in made.updates:
            if self._update([name], change) and (build := self._decided.get(name)):
                self._write(build)
        if self._matcher is not None:
            until = self._clock() + REFUSED_S
            refused = self._matcher.act(made, seen.jobs)
            self._refused |= dict.fromkeys(refused, (until, REFUSED_S))
        if made.renew:
            until = int(self._clock()) + self._lease_s
            # What ended since refuses; the others are done.
            self._update(made.renew, JobUpdate(begin_time=until), quiet=True)
            self._holds_until |= dict.fromkeys(made.renewed, float(until))
        self._tidy()

    def _update(self, names: Sequence[str], change: JobUpdate, quiet: bool = False) -> bool:
        """One update; one that Slurm refused is not tried again for a while."""
        try:
            self._client.update(names, change)
        except SlurmError as error:
            told = logger.debug if quiet else logger.warning
            told("slots: %s: %s", ", ".join(names[:5]), error)
            if not quiet:
                self.counts["refused"] += 1
                pause = min(2 * self._refused.get(names[0], (0, REFUSED_S / 2))[1], 300.0)
                self._refused[names[0]] = (self._clock() + pause, pause)
            return False
        if not quiet:
            self._refused.pop(names[0], None)
        return True

    def _tidy(self) -> None:
        """Forget what is long over."""
        now = self._clock()
        self._holds_until = {job: until for job, until in self._holds_until.items() if until > now}
        self._refused = {
            name: (until, pause)
            for name, (until, pause) in self._refused.items()
            if until + LONGEST_REFUSED_S > now
        }

    def status(self) -> dict[str, Any]:
        """What `gputopo status` shows of the slots mode."""
        looked = self._cache.looked
        return {
            "looked_s_ago": round(self._clock() - looked, 3) if looked > 0 else None,
            "promised": len(self._cache.promises),
            **self.waiting,
            **{key: self.counts[key] for key in ("released", "regated", "refused")},
            "mismatched": self._watch.mismatched,
            **({"loans": dict(self._matcher.lending.counts)} if self._matcher else {}),
        }
