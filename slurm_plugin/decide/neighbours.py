"""Which jobs run beside a job that is about to start, and who has shares of a GPU beside it.

The select plugin's notices keep this current; a snapshot of the queue every few seconds adds what
they missed, and fills it after a restart. Nothing of it is used once the last snapshot is old.
Which GPUs are free comes with the question.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from policies import Ahead, Request, RunningJob, mask_of
from policies.contract.hint_keys import BATCH, PROFILE
from policies.contract.interference import Interference
from policies.contract.running import RunningJobs
from policies.hints import to_running
from policies.horizon.usual import UsualCommunication
from policies.slices import Shares, SharesRoom
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.placement import PlacementQuestion
from slurm_plugin.base.protocol import Notice
from slurm_plugin.decide.learning import Teacher
from slurm_plugin.decide.machines import UNDECLARED, Machines

if TYPE_CHECKING:
    from slurm_plugin.queue.coming import Coming
    from slurm_plugin.slurm.interface import QueuedJob

#: Hints of jobs that were asked about and have not started yet.
MOST_HINTS = 20_000
_NOBODY = RunningJobs()
#: States in which a job holds its GPUs.
HOLDING = ("RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING")
#: Hint keys that tell jobs of shares apart.
SAYS_WHAT_IT_IS = {PROFILE.name, BATCH.name}


@dataclass(slots=True)
class Neighbours:
    """The jobs that run.

    Only the event loop's thread changes it; `jobs` and `running_in` may be called from any thread.
    """

    machines: Machines
    #: Nothing is used once the newest snapshot is older (seconds).
    max_age_s: float
    teacher: Teacher
    #: Who waits and which GPUs come free, by the newest snapshot.
    coming: Coming
    #: Seconds, by a clock that nobody sets.
    clock: Callable[[], float] = time.monotonic
    #: Run times of a user's jobs like one (`Coming`).
    took_s: Callable[[int], Sequence[float]] = lambda job: ()
    #: What jobs communicate that do not say; an engine's setups share it.
    usual: UsualCommunication = field(default_factory=UsualCommunication)
    #: Has anybody asked who runs where? Until then nothing is read or followed.
    is_wanted: bool = False

    #: Never changed, but replaced as a whole.
    _running: RunningJobs = field(default_factory=RunningJobs)
    #: The same by node.
    _on_node: dict[str, dict[int, RunningJob]] = field(default_factory=dict)
    #: The jobs of shares, whose neighbours are on the same GPU: by id, and by node.
    _sharing: dict[int, RunningJob] = field(default_factory=dict)
    _sharing_on: dict[str, dict[int, RunningJob]] = field(default_factory=dict)
    #: The hint and the user of jobs that were asked about and have not started yet.
    _asked: dict[int, tuple[str, int | None]] = field(default_factory=dict)
    #: When a notice about a job came.
    _noticed_at: dict[int, float] = field(default_factory=dict)
    _read_at: float | None = None

    def jobs(self) -> RunningJobs:
        """The jobs that run, in the topologies' GPU indices; none while that is not known."""
        self.is_wanted = True
        age = self.age_s()
        return _NOBODY if age is None or age > self.max_age_s else self._running

    def sharing(self, node: str) -> Collection[RunningJob]:
        """The jobs with shares of GPUs of this node; none while that is not known."""
        age = self.age_s()
        is_known = self.is_wanted and age is not None and age <= self.max_age_s
        return tuple(self._sharing_on.get(node, {}).values()) if is_known else ()

    def ahead(self, asked: PlacementQuestion) -> Ahead | None:
        """What a job finds that waits and comes free; None while that is not known."""
        running = self.jobs()
        if running is _NOBODY:
            return None
        return self.coming.ahead(asked, running, time.time(), self.usual.share)

    def age_s(self) -> float | None:
        """Seconds since the newest snapshot began; None before the first one."""
        return None if self._read_at is None else self.clock() - self._read_at

    def status(self) -> dict[str, float | int | None]:
        """Jobs known, the newest snapshot's age (seconds), what is learned: for status."""
        age = self.age_s()
        return {
            "jobs": len(self._running),
            "age_s": None if age is None else round(age, 1),
            "communication": self.usual.share,
        }

    def asked(self, question: PlacementQuestion) -> None:
        """Keep the hint of a job that may start soon."""
        if not self.is_wanted:
            return
        if len(self._asked) >= MOST_HINTS:
            self._asked.clear()
        self._asked[question.job] = (question.hint, question.uid)

    def notice(self, notice: Notice) -> None:
        """A job started or ended; ignored until somebody asks who runs."""
        if not self.is_wanted:
            return
        self._noticed_at[notice.job] = self.clock()
        if notice.kind == "ended":
            took = self.coming.ended(notice.job, time.time())
            self._learn(self._running.get(notice.job), took)
            self._remove({notice.job}, is_seen=True)
            return
        masks = self._to_topology(notice.gpus)
        if not notice.shared:
            # Slurm's queue shows no whole GPUs of the others, and their ends would be guessed.
            self.coming.started(notice.job, time.time(), notice.array)
        # Before a task of an array has an id of its own it was asked about by the array's.
        of_array = self._asked.get(notice.array, ("", None))
        hint, user = self._asked.pop(notice.job, of_array)
        values = hints.values_of(hint)
        job = to_running(values, notice.job, masks, user, shares=notice.shared)
        if job.shares:
            # How long it runs teaches nothing of jobs that have whole GPUs.
            self._share((), [job])
            return
        self._change((), [job])
        self.teacher.started(job, self._beside(job))

    def running_in(self, queue: Iterable[QueuedJob]) -> dict[int, RunningJob]:
        """The jobs of this queue that hold GPUs, by id."""
        held = ((job, job.gpus or job.shared_gpus) for job in queue if job.state in HOLDING)
        return {
            job.job_id: to_running(
                hints.values_of(hints.hint_of(job.admin_comment, job.comment)),
                job.job_id,
                self._to_topology({name: mask_of(gpus) for name, gpus in of_nodes.items()}),
                job.uid,
                shares=not job.gpus,
            )
            for job, of_nodes in held
            if of_nodes
        }

    def take(
        self,
        running: Mapping[int, RunningJob],
        began: float,
        coming: Coming | None = None,
        *,
        starts: bool = False,
    ) -> None:
        """Take what runs and what is coming in a snapshot that `began` then (by `clock`).

        `starts`: where no notices tell of starts, a job that is new in the snapshot starts now.
        """
        if self._read_at is not None and began < self._read_at:
            # Another one that is newer was taken meanwhile.
            return
        is_first = self._read_at is None
        gap_s = 0.0 if self._read_at is None else began - self._read_at
        # A notice that came since the snapshot began is newer than it.
        later = {job_id for job_id, at in self._noticed_at.items() if at >= began}
        shares = {job_id: job for job_id, job in running.items() if job.shares}
        self._share(
            self._sharing.keys() - shares.keys() - later,
            [job for job_id, job in shares.items() if job_id not in later],
        )
        running = {job_id: job for job_id, job in running.items() if not job.shares}
        before = {job.job_id: job for job in self._running}
        # When they ended is not known, so they teach nothing.
        self._remove(before.keys() - running.keys() - later, is_seen=False)
        # An equal job stays the same object: policies compare by identity.
        mended = [
            job
            for job_id, job in running.items()
            if job_id not in later and before.get(job_id) != job
        ]
        self._change((), mended)
        self._noticed_at = {job_id: at for job_id, at in self._noticed_at.items() if at >= began}
        self._read_at = began
        if coming is not None:
            ended = coming.follow(self.coming, later, self._running, time.time())
            # After a gap nobody knows when they ended.
            for job_id, took in ended if gap_s <= self.max_age_s else ():
                self._learn(before.get(job_id), took)
            self.coming = coming
        else:
            self.coming.outdate()
        if starts and not is_first:
            for job in mended:
                if job.job_id not in before:
                    self.teacher.started(job, self._beside(job))

    def _learn(self, job: RunningJob | None, took: tuple[float, float]) -> None:
        """The job ended, which ran so long of its limit (seconds); whose it is has to be known."""
        if job is None or job.user is None or not job.untold or len(job.gpus) != 1:
            return
        [(name, mask)] = job.gpus.items()
        machine = self.machines.get(name, UNDECLARED)
        if machine.topology is not None and not machine.problem:
            self.usual.ended(machine.topology, mask, job.untold, *took, job.user)

    def _share(self, gone: Collection[int], came: Collection[RunningJob]) -> None:
        """As `_change`, for jobs of shares."""
        for job_id in (*gone, *(job.job_id for job in came)):
            old = self._sharing.pop(job_id, None)
            for name in old.gpus if old else ():
                self._sharing_on[name].pop(job_id, None)
        for job in came:
            self._sharing[job.job_id] = job
            for name in job.gpus:
                self._sharing_on.setdefault(name, {})[job.job_id] = job

    def _remove(self, ended: AbstractSet[int], *, is_seen: bool) -> None:
        """These jobs run no more; `is_seen`: they end now."""
        self._share(ended & self._sharing.keys(), ())
        self._change(ended, ())
        for job_id in ended:
            if is_seen:
                self.teacher.ended(job_id)
            self.teacher.forget(job_id)

    def _change(self, gone: Collection[int], came: Collection[RunningJob]) -> None:
        for job_id in (*gone, *(job.job_id for job in came)):
            old = self._running.get(job_id)
            for name in old.gpus if old else ():
                self._on_node[name].pop(job_id, None)
        for job in came:
            for name in job.gpus:
                self._on_node.setdefault(name, {})[job.job_id] = job
        self._running = self._running.changed(gone, came)

    def _beside(self, job: RunningJob) -> Collection[RunningJob]:
        """The jobs on the nodes of this one, itself among them."""
        found: dict[int, RunningJob] = {}
        for name in job.gpus:
            found |= self._on_node.get(name, {})
        return found.values()

    def _to_topology(self, masks: Mapping[str, int]) -> dict[str, int]:
        get = self.machines.get
        known = {name: get(name, UNDECLARED) for name in masks}
        return {
            name: machine.to_topology(masks[name])
            for name, machine in known.items()
            if machine.topology is not None and not machine.problem
        }


@dataclass(frozen=True, slots=True)
class Sharing:
    """What the choice among shared GPUs (shards, MPS) goes by."""

    #: None: nobody is followed.
    neighbours: Neighbours | None = None
    #: How jobs slow each other.
    interference: Callable[[], Interference] = Interference

    def policy_for(self, request: Request, what: str, rooms: Mapping[str, SharesRoom]) -> Shares:
        """The policy for one question; `what` it asks for, in words: `4 shards`.

        Until a job says what it is nobody is followed: reading the queue costs Slurm something.
        """
        beside = self.neighbours
        if beside and SAYS_WHAT_IT_IS & request.options.keys():
            beside.is_wanted = True
        jobs_on = beside.sharing if beside else lambda name: ()
        return Shares(rooms, what, jobs_on, self.interference())


#: Where nobody is followed.
NOBODY_SHARES = Sharing()
