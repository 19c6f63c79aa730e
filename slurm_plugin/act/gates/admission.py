"""Releases a gated job: gives it slots of what is free, unless that would delay others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from slurm_plugin.act.gates import change
from slurm_plugin.act.gates.plan import Choose, GateContext, GatePlan, JobRelease, Unit, Want
from slurm_plugin.act.lending.admission import LoanAdmission
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.protocol import Pass, WaitFor
from slurm_plugin.queue.candidates import Group, Need, as_slurms, is_even, open_groups
from slurm_plugin.queue.capacity import Hold, end_of
from slurm_plugin.queue.slurms_choice import are_apart, spread_hold
from slurm_plugin.slurm.interface import QueuedJob

PREEMPTS = "the partition may preempt others"
APART = "no set of GPUs is free on all of its nodes"
SPREAD = "no node has room for all of it, and Slurm spreads it over several at once"
UNEVEN = "the best GPUs do not lie evenly on the sockets"


@dataclass(slots=True)
class Admission:
    """Releases units into a plan, one after the other in Slurm's order."""

    made: GatePlan
    context: GateContext
    choose: Choose
    borrowers: LoanAdmission
    #: May others have to wait for a job that fits nowhere?
    has_place: Callable[[QueuedJob, Need], bool]
    # What is free only gets less while a plan is made: what did not fit once never will. By the
    # object's id, as ten thousand needs take long to hash; what is kept has its id for itself.
    _unplaced: dict[int, Need] = field(default_factory=dict)
    # The job that had no room in the last admission, and what it needs; or nothing.
    _lacking: list[tuple[QueuedJob, Need]] = field(default_factory=list)
    # The needs (by id) for which a place in line was asked, and by whose jobs.
    _looked_at: set[tuple[int, int]] = field(default_factory=set)
    # From which end on a job like these delays one in line, while nothing changes.
    _delaying: dict[tuple[object, ...], float] = field(default_factory=dict)
    # Where these would have gone, which holds as long: the policy is not asked for each limit.
    _chosen: dict[tuple[object, ...], tuple[Group, int]] = field(default_factory=dict)
    # Is it the last turn of the unit that is admitted?
    _is_last: bool = True
    #: The jobs in line for whose sake others that have room stay behind their gates.
    waited_for: set[int] = field(default_factory=set)

    def fits_nowhere(self, want: Want) -> bool:
        """Did a job with the same need find no node in this plan?"""
        return id(want.need) in self._unplaced

    def changed(self) -> None:
        """Others took some of what is free."""
        self._delaying.clear()
        self._chosen.clear()

    def waits(self, job: QueuedJob, need: Need) -> None:
        """A job that cannot start now: those after it must not delay it."""
        made = self.made
        whose = job.job_id, job.uid
        made.line = made.line.with_job(need, made.nodes, made.holds, self.context.now, *whose)

    def admit(self, names: Sequence[str], unit: Unit) -> str | None:
        """Release all members of the unit, or none. Updates call them by these names.

        None where it is released; else why it is left to Slurm, '' if it stays behind its gate.
        """
        made = self.made
        nodes, line, count, added = made.nodes, made.line, len(made.holds), len(made.added)
        parts, named = list[change.ReleasedPart](), unit.nodes_of_others or ()
        self._lacking.clear()
        self._is_last = unit.is_last
        for name, (job, want) in zip(names, unit.members, strict=True):
            # Slurm gives each component of a heterogeneous job nodes of its own.
            used = {*named, *(node for part in parts for node in part.group.names)}
            part = self._part(name, job, want, used, is_first=not parts)
            if isinstance(part, str):
                if parts:
                    made.nodes, made.line = nodes, line
                    del made.holds[count:]
                    del made.added[added:]
                    self.changed()
                for job, need in self._lacking:
                    self.waits(job, need)
                return part
            parts.append(part)
        jobs = {part.name: part.job for part in parts}
        steps = change.release(parts, self.context.now, unit.others)
        holds, undo = tuple(made.added[added:]), change.asked_again(parts)
        made.releases.append(JobRelease(jobs, steps, holds, undo))
        return None

    def _part(
        self, name: str, job: QueuedJob, want: Want, used: Collection[str], is_first: bool
    ) -> change.ReleasedPart | str:
        """Take the slots for one job, on none of the nodes `used`; else what `admit` returns."""
        made, need, now = self.made, want.need, self.context.now
        assert need is not None
        if used:
            need = replace(need, exc_nodes=need.exc_nodes.union(used))
        end, like, candidates = end_of(job, now), _alike(job, want), list[Group]()
        if like in self._delaying and self._delaying[like] <= end:
            return ""
        if id(need) not in self._unplaced:
            first = self.context.settings.first_of(job.partition, need.partitions)
            candidates, why = open_groups(need, made.nodes, self.context.reserved, now, end, first)
            if why:
                return why
        if not candidates:
            if id(need) not in self._unplaced and self._is_last:
                hold = spread_hold(need, as_slurms(made.nodes), end)
                if hold is not None:
                    return self._left_to_spread(job, hold, like)
            if is_first:
                self._unplaced[id(need)] = need
            if are_apart(need, made.nodes):
                return APART
            if self._is_last:
                self.borrowers.fits_nowhere(job, need)
            # Each user has places of her own: what another one's job did not get hers may.
            whose = id(want.need), job.uid
            if whose not in self._looked_at and self.has_place(job, need):
                self._looked_at.add(whose)
                self._lacking.append((job, need))
            return ""
        if like in self._chosen:
            group, taken = self._chosen[like]
            if self._delays(need.hold(group.names, taken, end), like):
                return ""
        choice = self.choose(name, job, want, candidates)
        if isinstance(choice, Pass):
            return choice.note
        if isinstance(choice, WaitFor):
            if not job.het_id and self._is_last:
                # Slurm would copy the AdminComment of a first component to all components.
                self._write_note(job, want, choice.note)
            return ""
        group, mask = choice.group, choice.mask
        if not is_even(need, made.nodes[group.own], mask):
            return UNEVEN
        taken = made.nodes[group.own].all_gpus if need.exclusive else mask
        hold = need.hold(group.names, taken, end)
        if self._delays(hold, like):
            self._chosen[like] = group, taken
            return ""
        made.take(hold)
        self.changed()
        return change.ReleasedPart(name, job, want.kept, need, group, mask, choice.note)

    def _left_to_spread(self, job: QueuedJob, hold: Hold, like: tuple[object, ...]) -> str:
        """Leave the job to Slurm, which gives it this, and nobody else; '': it would delay one."""
        if self._delays(hold, like):
            return ""
        if not job.het_id:
            self.made.take(hold)
            self.changed()
        return SPREAD

    def _delays(self, hold: Hold, like: tuple[object, ...]) -> bool:
        """Would a job like these delay one in line if it held this?"""
        delayed = self.made.line.delayed_by(hold)
        if delayed is None:
            return False
        self.waited_for.add(delayed.job)
        self._delaying[like] = min(hold.end, self._delaying.get(like, hold.end))
        return True

    def _write_note(self, job: QueuedJob, want: Want, note: str) -> None:
        """Write why the policy lets the job wait, unless only the figures in the reason are new."""
        since = want.kept.since
        # Where the wait begins in the future, the clock was set back.
        is_written = 0 < since <= self.context.now
        if not is_written or not hints.has_note(job.admin_comment, note):
            update = change.waiting(job, want.kept, self.context.now, note)
            self.made.updates.append((job.name, update))


def _alike(job: QueuedJob, want: Want) -> tuple[object, ...]:
    """Equal for jobs that a policy gives the same: asking it ten thousand times takes seconds."""
    hint = hints.hint_in(job.admin_comment)
    return id(want.need), job.uid, job.account, job.partition, hint, want.kept.since
