"""The simulator with what slurm.conf says: CPUs, memory, partitions, limits, scheduling intervals.

Two schedulers go over the queue, as in slurmctld. The main one starts jobs strictly in order, when
jobs are submitted and when they end: whoever does not fit closes the nodes of the partition to all
behind. Backfill comes at its interval, plans a start for every job (`backfill`), and starts those
whose time is now.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice

from gres_topology import Network, NodeTopology
from policies import Placement, Policy
from simulation.core.jobs import SimJob
from simulation.core.record import Running, SimulatedRun
from simulation.core.slurm_site import NodeRoom, SlurmSite, in_order
from simulation.errors import SimulationError
from simulation.models.backfill import KeptStart, Plan, fits
from simulation.models.placing import Postponing, Simulator
from simulation.models.speed import Delayed, Speed

#: slurmctld's background loop looks once a second whether a pass was asked for.
LOOP_S = 1.0
#: It looks for jobs over their limits this often (PERIODIC_TIMEOUT in slurmctld.h).
LIMIT_CHECK_S = 30.0


class SlurmSimulator(Simulator):
    """One policy on one cluster under one slurm.conf."""

    def __init__(
        self,
        cluster: Mapping[str, NodeTopology],
        policy: Policy,
        site: SlurmSite,
        speed: Speed | None = None,
        *,
        bounds: Postponing | None = None,
        network: Network | None = None,
    ) -> None:
        self.site, self._how = site, site.scheduling
        around_s = self._how.launch_s + self._how.complete_s
        speed = Delayed(speed or Speed(), around_s) if around_s else speed or Speed()
        Simulator.__init__(
            self, cluster, policy, speed, self._how.backfill, bounds or Postponing(), network
        )
        self._left = {name: site.rooms.get(name, NodeRoom()) for name in cluster}
        self._empty = dict(self._left)
        every = frozenset(cluster)
        self._members = {
            id(part): every if part.nodes is None else every & part.nodes
            for part in site.partitions.values()
        }
        self._last_main_s = self._last_backfill_s = -math.inf
        #: When the next pass of each kind comes, and those that are due now.
        self._next: dict[str, float] = {}
        self._due: set[str] = set()

    def run(self, jobs: Collection[SimJob]) -> SimulatedRun:
        """Run every job once; SimulationError names a job that could never start, and why."""
        gpus = {name: topology.gpus for name, topology in self.cluster.items()}
        for job in jobs:
            part = self.site.partition_of(job)
            if part.state != "UP":
                raise SimulationError(
                    f"job {job.called}: its partition has State={part.state}, and nothing starts"
                )
            if part.most_s is not None and (job.walltime_s or 0) > part.most_s:
                raise SimulationError(
                    f"job {job.called} asks for {job.walltime_s:g} s; its partition's MaxTime is"
                    f" {part.most_s:g} s"
                )
            if not fits(job, gpus, self._empty, self._members_of(job)):
                raise SimulationError(
                    f"job {job.called} asks for {'+'.join(map(str, job.gpus_per_node))} GPUs, each"
                    f" node with {job.cpus} CPUs and {job.memory_mb} MB; its partition has no such"
                    " nodes"
                )
        return Simulator.run(self, jobs)

    # -- when Slurm looks at the queue --------------------------------------

    def _submit(self, job: SimJob) -> None:
        if job.walltime_s is None:
            job = replace(job, walltime_s=self.site.partition_of(job).planned_s)
        is_first = not any(map(self._may_ask, self._before(job)))
        Simulator._submit(self, job)
        if is_first and not self._how.defer:
            self._start_if_it_fits(job)
        self._ask_for_main()
        self._expect_backfill()

    def _before(self, job: SimJob) -> Iterator[SimJob]:
        """Who waits for some of the same nodes and goes first, or came first."""
        members, tier = self._members_of(job), self.site.partition_of(job).tier
        for other in self.queue.values():
            place = (self.site.partition_of(other).tier, other.priority)
            if place >= (tier, job.priority) and not members.isdisjoint(self._members_of(other)):
                yield other

    def _ask_for_main(self) -> None:
        """A pass of the background loop, once enough time passed since the last one."""
        delay = max(self._how.batch_sched_delay_s, self._how.sched_min_interval_s)
        at_s = max(self.clock.now_s, self._last_main_s + delay)
        self._expect("main", LOOP_S * math.ceil(at_s / LOOP_S))

    def _expect_backfill(self) -> None:
        """Something changed: backfill looks once a second, and rests for bf_interval."""
        if self._how.backfill:
            at_s = max(self.clock.now_s, self._last_backfill_s + self._how.bf_interval_s)
            self._expect("backfill", LOOP_S * math.ceil(at_s / LOOP_S))

    def _expect(self, kind: str, at_s: float) -> None:
        """One pass of a kind is to come at most, the earliest one."""

        def is_due() -> None:
            if self._next.get(kind) == at_s:
                del self._next[kind]
                self._due.add(kind)

        if at_s < self._next.get(kind, math.inf):
            self._next[kind] = at_s
            self.clock.at(at_s, is_due, 1)

    def _schedule(self) -> None:
        """The passes that are due at this moment."""
        due, self._due = self._due, set()
        if due & {"main", "full", "ended"}:
            self._main(len(self.queue) if "full" in due else self._how.default_queue_depth)
        if "backfill" in due:
            self._backfill()
        if self.queue:
            interval_s = self._how.sched_interval_s
            self._expect("full", interval_s * (math.floor(self.clock.now_s / interval_s) + 1))

    # -- the two schedulers -------------------------------------------------

    def _main(self, depth: int) -> None:
        self._last_main_s = self.clock.now_s
        closed: frozenset[str] = frozenset()
        for job in islice(in_order(self.queue.values(), self.site), depth):
            members = self._members_of(job)
            if members <= closed or not self._may_ask(job):
                continue
            if not self._start_if_it_fits(job, closed):
                closed |= members

    def _backfill(self) -> None:
        self._last_backfill_s = self.clock.now_s
        plan = self._plan([])
        for job in islice(in_order(self.queue.values(), self.site), self._how.bf_max_job_test):
            if not self._may_ask(job):
                continue
            lasts_s = self._planned_s(job)
            at_s = plan.earliest_s(job, self._members_of(job), lasts_s)
            if at_s == self.clock.now_s:
                self._start_if_it_fits(job, plan.kept_from(at_s, at_s + lasts_s))
                plan = self._plan(plan.kept)

    def _plan(self, kept: list[KeptStart]) -> Plan:
        return Plan(
            self.clock.now_s,
            self._how,
            self.occupancy.free,
            self._left,
            tuple(self.running.values()),
            kept,
        )

    def _start_if_it_fits(self, job: SimJob, closed: frozenset[str] = frozenset()) -> bool:
        """Ask the policy on the nodes that are open; False where the job has no room on them."""
        usable = {name for name in self._members_of(job) - closed if self._left[name].holds(job)}
        if not fits(job, self.occupancy.free, self._left, usable):
            return False
        self._try_start(job, self.cluster.keys() - usable)
        return True

    def _members_of(self, job: SimJob) -> frozenset[str]:
        return self._members[id(self.site.partition_of(job))]

    def _seen_by(self, job: SimJob) -> Iterable[SimJob]:
        own = self.site.partition_of(job)
        same = (one for one in self.queue.values() if self.site.partition_of(one) is own)
        return in_order(same, self.site)

    # -- jobs that run ------------------------------------------------------

    def _start(self, job: SimJob, placement: Placement, *, is_forced: bool = False) -> None:
        Simulator._start(self, job, placement, is_forced=is_forced)
        run = self.running[job.job_id]
        for name in run.masks:
            self._left[name] = self._left[name].less(job)
        self._expect_backfill()
        over_s = run.start_s + self._planned_s(job) + self._how.over_time_limit_s
        checked_s = LIMIT_CHECK_S * math.ceil(over_s / LIMIT_CHECK_S)
        if self.speed.has_neighbours or run.end_s() > checked_s:
            self.clock.at(checked_s, partial(self._kill, run))

    def _kill(self, run: Running) -> None:
        if not run.has_ended:
            run.has_ended = run.is_killed = True
            self._end(run)

    def _end(self, run: Running) -> None:
        Simulator._end(self, run)
        for name in run.masks:
            self._left[name] = self._left[name].less(run.job, -1)
        self._expect_backfill()
        if self._how.defer:
            self._ask_for_main()
        else:
            self._due.add("ended")
