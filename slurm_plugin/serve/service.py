"""Answers lines: one in, one LineAnswer out, counted and written down."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import Any

from slurm_plugin import version
from slurm_plugin.base.node_lines import NodesPart, TableChanges
from slurm_plugin.base.protocol import (
    MAX_REPLY_BYTES,
    Admin,
    Error,
    Message,
    Notice,
    Ok,
    Pass,
    Place,
    Refuse,
    Reply,
    Submit,
    SubmitReply,
    decode,
)
from slurm_plugin.config.settings import Config
from slurm_plugin.decide.decision_log import DecisionLog
from slurm_plugin.decide.kept_nodes import KeptTables, ToldNodes
from slurm_plugin.decide.machines import are_same
from slurm_plugin.decide.record import Build, started
from slurm_plugin.errors import PluginError, ProtocolError
from slurm_plugin.queue.slow_users import SlowUsers
from slurm_plugin.serve import amiss, replies
from slurm_plugin.serve.counters import Counters
from slurm_plugin.serve.server import LineAnswer
from slurm_plugin.serve.setup import LOOK_OVER_S, Setup, look_over, warm_masks, warm_patterns

logger = logging.getLogger(__name__)

#: The event that what listeners remember may be wrong: the clock was set, or another engine acted.
ANEW = "anew"
#: Ends the reply to a question that meant another state of the nodes than we have.
RESYNC = b" resync=1\n"
#: Only after so many seconds without a question is anything computed ahead.
QUIET_S = 0.1
#: A job without GPUs that wants its shape chosen cannot be left to Slurm.
SWITCHED_OFF = "gpu-topo: no shapes are chosen at present; ask for GPUs yourself (--gpus, --gres)"
NOT_HERE = "gpu-topo: policy: genie shapes no jobs here; ask for GPUs (--gpus, --gres)"
#: Nodes left to Slurm that `status` names; the rest is counted.
MAX_PROBLEMS = 100
#: Longest reason shown: all of it has to fit into one reply line.
MAX_PROBLEM_CHARS = 200


class Engine:
    """Answers lines with the present Setup; `reload` swaps it as a whole."""

    def __init__(self, setup: Setup, log: DecisionLog, load: Callable[..., Setup]) -> None:
        self.setup = setup
        self.log = log
        self.counters = Counters(setup.config.deadline_ms / 1e3)
        self.slow = SlowUsers("answers about jobs", "his get Slurm's own choice")
        self._load = load
        #: The nodes of each slurmctld that asks.
        self.tables = KeptTables()
        self._reloading = asyncio.Lock()
        self._looking_on: set[asyncio.Task[None]] = set()
        #: When the last question came, and what computes ahead between questions.
        self._asked_at = -QUIET_S
        self._warming: threading.Thread | None = None
        #: When the configuration in force was read (epoch), and why the last reload failed.
        self.read_at, self.reload_error = time.time(), ""
        # The nodes that are left to Slurm, behind what that was found of. Replaced as one: the
        # metrics' thread asks, too.
        self._left: tuple[tuple[object, ...], dict[str, str]] = ((None, None, None), {})
        #: Folders of the configuration in which the engine may not write.
        self.not_writable: list[str] = []
        #: Why what the site wants to listen beside the socket does not.
        self.not_listening: list[str] = []
        self._heard: list[Callable[[str], None]] = []
        self._tell: list[Callable[[], dict[str, Any]]] = []
        #: Has slurmctld start at once what was let go; else it looks once a second or less.
        self.ask_for_pass: Callable[[], None] = lambda: None
        #: Held while Slurm's queue is read and changed: one after the other.
        self.turn = asyncio.Lock()

    def listen(self, heard: Callable[[str], None], status: Callable[[], dict[str, Any]]) -> None:
        """Call `heard` with the verb of each event: a submit that was not refused, a job's end, a
        reload, a step of the clock. `status` adds to what `gputopo status` shows.
        """
        self._heard.append(heard)
        self._tell.append(status)

    def say(self, verb: str) -> None:
        """Tell all listeners of an event."""
        for heard in self._heard:
            heard(verb)

    def answer(self, line: bytes) -> LineAnswer:
        """The answer to one line. A malformed one is answered `error`, and hung up."""
        began = time.perf_counter()
        try:
            message = decode(line)
        except ProtocolError as error:
            self.counters.answered("malformed", "error", time.perf_counter() - began)
            return LineAnswer(Error(str(error)).encode(error.message_id), close=True)
        if isinstance(message, Notice):
            took_s = time.perf_counter() - began
            self.counters.answered(message.kind, "none", took_s)
            if message.kind == "ended":
                self.say("ended")
            if message.kind == "started" and self.setup.shaping is not None:
                self.setup.shaping.on_start(message)
            self.setup.neighbours.notice(message)
            if message.kind != "started" or self.setup.config.kill_switch.exists():
                return LineAnswer(None)
            return LineAnswer(None, after=self._after(partial(started, message), took_s))
        if isinstance(message, Admin) and message.verb == "reload":
            return LineAnswer(None, later=self._answer_reload(message.id))
        if isinstance(message, NodesPart):
            return self._take_nodes(message, began)
        verb, busy_s = type(message).__name__.lower(), time.thread_time()
        if not isinstance(message, Admin):
            self._asked_at = began
        is_lost = False
        try:
            if isinstance(message, Place) and message.changes is not None:
                message, is_lost = self._with_others(message, message.changes)
            reply, record = self._reply(message)
            encoded = reply.encode(message.id)
        except Exception:
            logger.exception("a %s could not be answered; pass", verb)
            reply, record = Pass(), None
            encoded = reply.encode(message.id)
        if len(encoded) > MAX_REPLY_BYTES:
            logger.error("a reply of %d bytes is over the limit; pass", len(encoded))
            reply = Pass()
            encoded = reply.encode(message.id)
        if is_lost:
            encoded = encoded[:-1] + RESYNC
        took_s = time.perf_counter() - began
        self.counters.answered(verb, type(reply).__name__.lower(), took_s)
        if took_s > self.counters.deadline_s and not isinstance(message, Admin):
            # A machine that is busy with something else is nobody's fault.
            self.slow.late(message.uid, time.thread_time() - busy_s)
        if record is None:
            return LineAnswer(encoded)
        return LineAnswer(encoded, after=self._then_ahead(self._after(record, took_s)))

    def _then_ahead(self, write: Callable[[], None]) -> Callable[[], bool]:
        """Write, then rank nodes that changed ahead of the next question, step by step."""
        left = [write]

        def step() -> bool:
            if left:
                left.pop()()
                return True
            return self.tables.catch_up()

        return step

    def _with_others(self, asked: Place, changes: TableChanges) -> tuple[Place, bool]:
        """The question with the other nodes it means; whether the plugin has to tell them anew."""
        machines = self.setup.machines
        others = self.tables.others(changes, asked.candidates, asked.type, machines)
        return (replace(asked, others=others) if others else asked), others is None

    def _take_nodes(self, part: NodesPart, began: float) -> LineAnswer:
        try:
            told = self.tables.add(part)
        except ProtocolError as error:
            self.counters.answered("nodes", "error", time.perf_counter() - began)
            return LineAnswer(Error(str(error)).encode(part.id))
        self.counters.answered("nodes", "ok", time.perf_counter() - began)
        if told is None:
            return LineAnswer(Ok().encode(part.id), hears=part.hears)
        return LineAnswer(None, later=self._keep_nodes(part, told), hears=part.hears)

    async def _keep_nodes(self, part: NodesPart, told: ToldNodes) -> bytes:
        ahead = partial(look_over, self.setup, limit_s=LOOK_OVER_S)
        kept = await self.tables.keep(part.table, told, self.setup.machines, ahead)
        logger.info("%d nodes, %d left to Slurm", len(told.names), len(kept.excluded))
        if not kept.is_looked_over:
            looking_on = asyncio.create_task(self._look_on(part.table))
            self._looking_on.add(looking_on)
            looking_on.add_done_callback(self._looking_on.discard)
        return Ok({"digest": f"{kept.digest:x}"}).encode(part.id)

    async def _look_on(self, table: int) -> None:
        """Look over the rest of a table that is in use: on another one, which takes its place."""
        async with self._reloading:
            setup = self.setup
            ahead = partial(look_over, setup, may_go_on=partial(self._is_quiet, setup))
            use = await self.tables.rebuilt(setup.machines, ahead, {table})
            use()

    def _reply(self, message: Message) -> tuple[Reply, Build | None]:
        if isinstance(message, Submit):
            self.counters.budget_out = message.budget_out
        if isinstance(message, Place | Submit) and (why := self._why_unasked(message.uid)):
            self.counters.passed(why)
            is_shape = isinstance(message, Submit) and message.shape
            return (Refuse(SWITCHED_OFF) if is_shape else Pass()), None
        if isinstance(message, Place):
            asked = (message.job, message.array, message.uid)
            if not message.hint and (hint := self.setup.keeper.store.hint_of(*asked)):
                message = replace(message, hint=hint)
            self.setup.neighbours.asked(message)
            decision = self.setup.enforcement.on_place(message)
            if isinstance(decision.reply, Pass):
                self.counters.passed(decision.reason)
            return replies.placed(self.setup, message, decision.reply), decision.record
        if isinstance(message, Submit):
            answered: SubmitReply
            if message.shape and self.setup.shaping is None:
                answered = Refuse(NOT_HERE) if "policy=genie" in message.hint else Pass()
            else:
                answered = self.setup.enforcement.on_submit(message)
            answered = replies.submitted(self.setup, message, answered)
            if not isinstance(answered, Refuse):
                self.say("submit")
            return answered, None
        assert isinstance(message, Admin)
        if message.verb == "status":
            return Ok({"json": json.dumps(self.status())}), None
        return Ok(), None

    def _why_unasked(self, uid: int) -> str:
        """Why a user's job gets Slurm's own choice whatever it is; '' where it does not."""
        if self.setup.config.kill_switch.exists():
            return "kill switch"
        return "answers about this user's jobs take too long" if self.slow.is_one(uid) else ""

    async def _answer_reload(self, message_id: int) -> bytes:
        error = await self.reload()
        return (Ok() if error is None else Error(error)).encode(message_id)

    async def reload(self, config: Config | None = None) -> str | None:
        """Read the configuration again, in a thread; None, or why the old one stays.

        With a `config`, the one in force, what stands beside it is read again (marks, topologies),
        unless another one has come into force since: that has been read with all of it.
        """
        async with self._reloading:
            if config is not None and self.setup.config is not config:
                return None
            try:
                beside = {} if config is None else {"config": config}
                read = partial(self._load, self.setup.config.path, **beside)
                setup = await asyncio.to_thread(read)
            except PluginError as error:
                logger.error("reload: %s; the old configuration stays", error)
                return self._not_reloaded(str(error), config)
            except Exception as error:
                logger.exception("reload failed; the old configuration stays")
                text = f"{type(error).__name__}: {error}; the old configuration stays"
                return self._not_reloaded(text, config)
            use_tables = await self._tables_for(setup)
            former, self.setup = self.setup, setup
            use_tables()
            if config is None:
                self.read_at, self.reload_error = time.time(), ""
            old = former.config
            self.counters.deadline_s = setup.config.deadline_ms / 1e3
            self.log.config = setup.config.decision_log
            if setup.config.socket != old.socket:
                logger.warning("reload: a new socket path needs a restart; still %s", old.socket)
            logger.info("reloaded %s", setup.config.path)
            self.warm()
            self.say("reload")
            return None

    def _not_reloaded(self, why: str, config: Config | None) -> str:
        if config is None:
            self.reload_error = why
        return why

    async def _tables_for(self, setup: Setup) -> Callable[[], None]:
        """Make the tables ready for this setup; call what is returned to use them with it."""
        old, new = self.setup, setup
        is_same = await asyncio.to_thread(are_same, old.machines, new.machines)
        if is_same and [p.name for p in old.policies()] == [p.name for p in new.policies()]:
            return partial(self.tables.use_with, new.machines)
        return await self.tables.rebuilt(new.machines, partial(look_over, new))

    def warm(self) -> None:
        """Compute ahead what questions may need, whenever none came for a while."""
        setup = self.setup
        may_go_on = partial(self._is_quiet, setup)

        def warm() -> None:
            warm_patterns(setup, may_go_on)
            warm_masks(setup, may_go_on)

        self._warming = threading.Thread(target=warm, name="warm-up", daemon=True)
        self._warming.start()

    def _is_quiet(self, setup: Setup, end: float = inf) -> bool:
        """Wait, in a thread, until no question came for a while; False where it is for nothing.

        It is where the setup is in force no longer, or at `end` (of the clock that nobody sets).
        """
        while self.setup is setup and time.perf_counter() - self._asked_at < QUIET_S:
            if time.monotonic() > end:
                return False
            time.sleep(QUIET_S)
        return self.setup is setup

    def write(self, build: Build) -> None:
        """Write a line of the decision log that belongs to no question."""
        self._after(build, 0.0)()

    def _after(self, build: Build, took_s: float) -> Callable[[], None]:
        now = datetime.now(UTC)

        def write() -> None:
            try:
                line = build()
                line.time = now.isoformat(timespec="milliseconds")
                line.took_ms = round(took_s * 1e3, 3)
                self.log.append(line)
            except Exception:
                logger.exception("a decision could not be written down")

        return write

    def said_by_loops(self) -> dict[str, Any]:
        """What the loops add to `gputopo status`; only the event loop may ask."""
        return {key: value for tell in self._tell for key, value in tell().items()}

    def left_to_slurm(self) -> dict[str, str]:
        """The nodes on which no GPUs are chosen, and why."""
        setup, told = self.setup, self.tables.latest
        seen = setup.watcher.newest_of_nodes
        made_of = (setup.machines, told, None if told else seen)
        found_of, left = self._left
        if any(one is not other for one, other in zip(found_of, made_of, strict=True)):
            left = amiss.left_to_slurm(setup.machines, amiss.gpus_of_nodes(told, seen))
            self._left = made_of, left
        return left

    def status(self) -> dict[str, Any]:
        """What `gputopo status` shows."""
        setup, config, problems = self.setup, self.setup.config, self.left_to_slurm()
        return {
            "version": version(),
            "config": str(config.path),
            "config_digest": config.digest,
            "config_read_at": round(self.read_at, 3),
            "reload_error": self.reload_error[:MAX_PROBLEM_CHARS],
            "not_writable": self.not_writable,
            "not_listening": self.not_listening,
            "enforcement": config.enforcement,
            "killed": config.kill_switch.exists(),
            "partitions": {
                name: {"mode": rule.mode, "policy": rule.policy}
                for name, rule in list(config.partitions.items())[:MAX_PROBLEMS]
            },
            "nodes": len(setup.machines),
            "nodes_left_to_slurm": {
                name: why[:MAX_PROBLEM_CHARS] for name, why in [*problems.items()][:MAX_PROBLEMS]
            },
            "nodes_left_to_slurm_count": len(problems),
            "marks": setup.marks.shown(MAX_PROBLEMS),
            "tables_bytes": setup.tables_bytes(),
            "slurm_nodes": self.tables.told,
            "computing_ahead": bool(self._looking_on)
            or (self._warming is not None and self._warming.is_alive()),
            "neighbours": setup.neighbours.status(),
            "decisions_written": self.log.written,
            "decisions_lost": self.log.dropped,
            **self.counters.snapshot(),
            **self.said_by_loops(),
        }
