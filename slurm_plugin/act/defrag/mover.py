"""Carries out one move at a time: requeue and hold, keep the new place, let go, see it start.

Each step is on disk before it is taken, so that an engine that starts anew goes on with it. A move
that fails leaves a job that waits like any other: nothing of Slurm's record of it was changed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from policies.contract.bits import lowest_bits
from slurm_plugin.act.defrag import record
from slurm_plugin.act.defrag.movable import movable_jobs, waiting_jobs
from slurm_plugin.act.defrag.plan import Gain, Planner
from slurm_plugin.act.defrag.record import ASKED, DONE, LET_GO, UNDONE, Moved, MovesFile
from slurm_plugin.act.defrag.sight import Sight, is_gated
from slurm_plugin.act.lending.at_start.reservations import LoanReservation, LoanReservations
from slurm_plugin.base.job_notes.hints import hint_in
from slurm_plugin.base.placement import CandidateNode, PlacementQuestion
from slurm_plugin.base.protocol import Use
from slurm_plugin.config.sections import DefragConfig
from slurm_plugin.decide.decide import Decider
from slurm_plugin.errors import PluginError, SlurmError
from slurm_plugin.queue.backfill import earliest_start
from slurm_plugin.queue.capacity import holds_in, nodes_of
from slurm_plugin.queue.snapshot import Snapshot
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import NOW, JobUpdate, QueuedJob

logger = logging.getLogger(__name__)

#: Slurm ends a job and puts it back within so many seconds, epilogs included.
ASKED_S = 300
#: No job is moved for one that waits for less: it may be about to start.
WAITED_S = 10
#: How long the place is kept beyond the time that the job has to start there, in seconds.
KEPT_S = 5


@dataclass(slots=True)
class Mover:
    """One snapshot after the other of one Slurm. Not for two threads at once."""

    path: Path
    client: SlurmClient
    decider: Decider
    reservations: LoanReservations
    config: DefragConfig
    #: Which jobs Slurm may requeue, and doing it: `slurm.requeue`.
    requeueable: Callable[[], set[int]]
    requeue_held: Callable[[str], None]
    sight: Sight = field(default_factory=Sight)
    clock: Callable[[], float] = time.time
    #: None until the file was read.
    moves: MovesFile | None = None
    #: Did this process send what the open move's state says?
    _is_sent: bool = False
    _is_damaged: bool = field(default=False, repr=False)

    def step(self, snapshot: Snapshot, may_begin: bool) -> bool:
        """Go on with the open move, or begin one; whether a move is under way."""
        if not self._read():
            return False
        assert self.moves is not None
        if self.moves.open is None:
            if not may_begin or not self._is_time(self.moves):
                return False
            self._begin(snapshot)
        else:
            self._go_on(self.moves.open, {job.job_id: job for job in snapshot.jobs})
        return self.moves.open is not None

    def _read(self) -> bool:
        if self.moves is None:
            try:
                self.moves = record.read(self.path)
            except PluginError as error:
                if not self._is_damaged:
                    logger.error("%s", error)
                self._is_damaged = True
                return False
            self._keep_place(self.moves.open)
        return True

    def _is_time(self, moves: MovesFile) -> bool:
        last = moves.past[-1].at if moves.past else 0
        return self.clock() >= last + self.config.every_s

    # -- beginning ------------------------------------------------------------

    def _begin(self, snapshot: Snapshot) -> None:
        gain = self._gain(snapshot)
        if gain is None:
            return
        move = gain.moves[0]
        job, now = move.of.job, self.clock()
        self._write(
            Moved(
                job=job.job_id,
                name=job.name or str(job.job_id),
                user=job.user,
                gpus=move.of.gpus,
                source=move.of.node,
                target=move.target,
                start=job.start,
                cost_gpu_s=round(move.of.cost_gpu_s(now)),
                waiting=gain.job,
                state=ASKED,
                at=int(now),
            )
        )
        logger.info(
            "job %s of %s is moved from %s to %s: %s; it costs %.2f GPU hours at most (%s)",
            job.name,
            job.user,
            move.of.node,
            move.target,
            gain.what,
            move.of.cost_gpu_s(now) / 3600,
            move.of.basis,
        )
        self._ask()

    def _gain(self, snapshot: Snapshot) -> Gain | None:
        """The moves for the first waiting job, if the site allows them and Slurm would."""
        assert self.moves is not None
        now = self.clock()
        nodes = self.sight.nodes(snapshot)
        first = next(waiting_jobs(snapshot, nodes, now, self.sight), None)
        if first is None:
            return None
        job, need = first
        mode = self.decider.rule(job.partition, job.account, job.uid).mode
        if mode != "enforce" or now < job.submit + WAITED_S:
            return None
        holds = holds_in(nodes, snapshot.active, now)
        if earliest_start(need, nodes, holds, now) <= now + self.config.start_s:
            # Others end soon enough by themselves.
            return None
        movable = movable_jobs(snapshot, nodes, self.decider.rule, self.moves.jobs, self.sight)
        allowed = self.requeueable() if movable else set()
        movable = [one for one in movable if one.job.job_id in allowed]
        gain = Planner(nodes, movable, now, self.config.most_moves).for_job(job, need)
        if gain is None or gain.cost_gpu_s > 3600 * self.config.max_gpu_hours:
            return None
        return gain

    # -- going on -------------------------------------------------------------

    def _go_on(self, move: Moved, jobs: dict[int, QueuedJob]) -> None:
        job = jobs.get(move.job)
        if job is None or (job.user and job.user != move.user):
            self._end(move, UNDONE, "it is over: it ended, or somebody cancelled it")
        elif move.state == ASKED:
            self._back(move, job, jobs.get(move.waiting))
        else:
            self._started(move, job)

    def _back(self, move: Moved, job: QueuedJob, waiting: QueuedJob | None) -> None:
        """Slurm was asked to put the job back."""
        if job.state == "PENDING" and self.sight.by_slots:
            self._let_through(move, job, waiting)
        elif job.state == "PENDING":
            self._let_go(move, job)
        elif job.state != "COMPLETING" and job.start != move.start:
            self._end(move, UNDONE, "it started again by itself")
        elif self.clock() > move.at + ASKED_S:
            self._end(move, UNDONE, f"Slurm did not put it back within {ASKED_S} s")
        elif not self._is_sent and job.state == "RUNNING":
            self._ask()

    def _ask(self) -> None:
        """Have Slurm put the job back; in the run that the record names this is the first time."""
        assert self.moves is not None
        assert self.moves.open is not None
        move = self.moves.open
        try:
            self.requeue_held(move.name)
            self._is_sent = True
        except SlurmError as error:
            self._end(move, UNDONE, f"Slurm refused: {error}"[:300])

    def _let_go(self, move: Moved, job: QueuedJob) -> None:
        """It waits, held: keep its new place, then let it start."""
        used = self._place(move, job)
        if used is None:
            self._release(job)
            self._end(move, UNDONE, f"{move.target} has no room left; it starts where there is")
            return
        until = int(self.clock()) + self.config.start_s
        note = f"{used.note}; moved from {move.source} for job {move.waiting}"
        mask = used.nodes[move.target]
        self._write(replace(move, state=LET_GO, until=until, mask=mask, note=note))
        self._is_sent = self._release(job)

    def _let_through(self, move: Moved, job: QueuedJob, waiting: QueuedJob | None) -> None:
        """Its gate is shut again, and the waiting job has its slots: the gates' own turn.

        They are opened in Slurm's order, in which this job may come first.
        """
        is_back = is_gated(job) and not (waiting is not None and is_gated(waiting))
        if is_back or self.clock() > move.at + self.config.start_s:
            self._write(replace(move, state=LET_GO, until=int(self.clock()) + self.config.start_s))
            self._is_sent = self._release(job)

    def _place(self, move: Moved, job: QueuedJob) -> Use | None:
        """The GPUs of its new node that a policy chooses for it; None without room."""
        # As the plan saw it: of a node where Slurm does not say which GPUs are in use none is free.
        node = nodes_of(self.client.nodes(), ()).get(move.target)
        if node is None or node.free.bit_count() < move.gpus:
            return None
        own = lowest_bits(node.free, move.gpus)
        target = CandidateNode(move.target, len(node.gpu_types), node.free, own, node.weight)
        asked = PlacementQuestion(
            job=job.job_id,
            array=job.array_id,
            uid=job.uid,
            postponed=0,
            waited_s=0,
            candidates=(target,),
            account=job.account,
            partition=job.partition.split(",")[0],
            hint=hint_in(job.admin_comment),
        )
        reply = self.decider.decide(asked).reply
        return reply if isinstance(reply, Use) and [*reply.nodes] == [move.target] else None

    def _release(self, job: QueuedJob) -> bool:
        """Let it start as soon as Slurm can; a requeued job would wait for two minutes."""
        begin = None if self.sight.by_slots else NOW
        try:
            self.client.update([job.name], JobUpdate(begin_time=begin, is_released=True))
        except SlurmError as error:
            logger.warning("job %s, which is moved: %s; trying again", job.name, error)
            return False
        return True

    def _started(self, move: Moved, job: QueuedJob) -> None:
        """It was let go: has it started, and where?"""
        late = self.clock() > move.until
        if job.state not in ("PENDING", "COMPLETING"):
            where = ",".join(job.nodes)
            if job.nodes == (move.target,):
                self._end(move, DONE, f"it runs on {where}")
            else:
                self._end(move, UNDONE, f"it started on {where} instead")
        elif late:
            if job.held and not self._is_sent:
                self._release(job)
            why = f"it did not start on {move.target} within {self.config.start_s} s"
            self._end(move, UNDONE, f"{why}; it starts where there is room")
        elif job.held and self._is_sent:
            self._end(move, UNDONE, "somebody holds it")
        elif not self._is_sent:
            self._is_sent = self._release(job)

    # -- the record -----------------------------------------------------------

    def _end(self, move: Moved, state: str, why: str) -> None:
        """The move is over, one way or the other."""
        assert self.moves is not None
        over = replace(move, state=state, at=int(self.clock()), why=why)
        self._put(MovesFile(None, (*self.moves.past, over)))
        log = logger.info if state == DONE else logger.warning
        log(
            "job %s: the move from %s to %s is %s: %s",
            move.name,
            move.source,
            move.target,
            state,
            why,
        )

    def _write(self, move: Moved) -> None:
        assert self.moves is not None
        self._put(MovesFile(move, self.moves.past))

    def _put(self, moves: MovesFile) -> None:
        """On disk first: what is not there is not done. Raises PluginError."""
        record.write(self.path, moves)
        self.moves, self._is_sent = moves, False
        self._keep_place(moves.open)

    def _keep_place(self, move: Moved | None) -> None:
        """Nobody else gets the new place of a job that was let go."""
        self.reservations.moved = {}
        if move is not None and move.state == LET_GO and move.mask:
            share = Use({move.target: move.mask}, {}, move.note)
            place = LoanReservation({move.job: share}, move.until + KEPT_S)
            self.reservations.moved = {move.job: place}
