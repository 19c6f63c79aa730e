"""ahead: a question under `horizon` beside the same one under `mapa`, with 1,000 jobs waiting.

The engine's own code from the line of a question to that of its answer, in process: the recorded
jobs are asked about on dgx1v nodes of which 90 % of the GPUs are in use; ten nodes change between
two questions, of which the select plugin's notices tell. Processor time of the thread that answers;
both policies have the same questions in the same states, each in an engine of its own.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from pathlib import Path

from bench.engine_process import configuration
from bench.kept.cluster import KeptCluster, NodeKind
from bench.kept.replay import BUSY, CHANGED, QUESTIONS, SEED, readable
from bench.measure import Figure, at_most, conditions, quantile
from bench.questions import read
from bench.request_lines import encode_request
from policies.contract.bits import gpus_of
from slurm_plugin.base.protocol import Notice, Place, split
from slurm_plugin.decide.decision_log import DecisionLog
from slurm_plugin.queue.coming import Coming
from slurm_plugin.serve import setup
from slurm_plugin.serve.service import Engine
from slurm_plugin.slurm.interface import QueuedJob

NODES, WAITING = (50, 1000), 1000
#: Of mapa's processor time, median over median.
MOST_TIMES = 2.0
LIMITS_S = (600, 3600, 14_400, 86_400)
#: A waiting job's number is above those that run.
FIRST_WAITING = 10**6


class Followed(KeptCluster):
    """A cluster whose jobs have numbers, and the notices of what changed."""

    def __init__(self, kinds: list[NodeKind], seed: int) -> None:
        self.ids: list[int] = []
        self.last = 0
        self.told: list[Notice] = []
        super().__init__(kinds, BUSY, seed)

    def start(self, gpus: list[tuple[int, int]]) -> None:
        """A job holds these GPUs now."""
        super().start(gpus)
        self.last += 1
        self.ids.append(self.last)
        self.told.append(Notice("started", self.last, 0, self._named(gpus)))

    def _named(self, gpus: list[tuple[int, int]]) -> dict[str, int]:
        return {self.names[at]: mask for at, mask in gpus}

    def _end_one(self) -> None:
        at = self.draw.randrange(len(self.held))
        for some in (self.held, self.ids):
            some[at], some[-1] = some[-1], some[at]
        self.told.append(Notice("ended", self.ids.pop(), 0, {}))
        for node, mask in self.held.pop():
            self._set(node, self.free[node] | mask)

    def queue(self, now: float, partition: str) -> Iterator[QueuedJob]:
        """All jobs as Slurm tells of them."""
        for job, gpus in zip(self.ids, self.held, strict=True):
            start, limit_s = now - self.draw.uniform(0, 600), self.draw.choice(LIMITS_S)
            names = {name: gpus_of(mask) for name, mask in self._named(gpus).items()}
            yield QueuedJob(
                job,
                state="RUNNING",
                start=int(start),
                end=int(start + limit_s),
                time_limit_s=limit_s,
                gpus=names,
            )
        for job in range(FIRST_WAITING, FIRST_WAITING + WAITING):
            yield QueuedJob(
                job,
                state="PENDING",
                partition=partition,
                priority=self.draw.randint(1, 10**6),
                submit=job,
                min_nodes=1,
                time_limit_s=self.draw.choice(LIMITS_S),
                tres_per_node=f"gres/gpu:{self.draw.randint(1, 8)}",
            )


class Side:
    """An engine of its own for one policy, beside a cluster that changes as the others' do."""

    def __init__(self, folder: Path, nodes: int, policy: str) -> None:
        kind = NodeKind("v", nodes, 8, "dgx1v")
        self.policy, self.partition = policy, f"in-{policy}"
        self.cluster = Followed([kind], SEED)
        folder.mkdir()
        first = setup.load(configuration(folder, {kind.hosts: kind.machine}, [policy]))
        self.engine = Engine(first, DecisionLog(first.config.decision_log), setup.load)
        for part in self.cluster.table():
            later = self.engine.answer(encode_request(part)).later
            if later is not None:
                asyncio.run(_awaited(later))
        neighbours, now = first.neighbours, time.time()
        neighbours.is_wanted = True
        jobs = list(self.cluster.queue(now, self.partition))
        # Nobody reads the queue here: it is to stay young for the whole run.
        neighbours.take(neighbours.running_in(jobs), neighbours.clock() + 3600, Coming(jobs, now))
        self.cluster.told.clear()
        self.took_ms: list[float] = []

    def ask(self, job: Place, number: int) -> None:
        """One question, where the job could start."""
        self.cluster.change(CHANGED)
        for notice in self.cluster.told:
            self.engine.setup.neighbours.notice(notice)
        self.cluster.told.clear()
        job = replace(job, hint=readable(job.hint, self.policy))
        question = self.cluster.question(job, number, self.partition)
        if question is None:
            return
        line = encode_request(question)
        began = time.thread_time()
        answer = self.engine.answer(line)
        self.took_ms.append(1e3 * (time.thread_time() - began))
        assert answer.reply is not None
        # Under horizon some are to wait for better GPUs.
        assert split(answer.reply)[0] in ("use", "wait"), answer.reply
        # What the engine does between questions.
        while answer.after is not None and answer.after():
            pass


async def _awaited(later: Awaitable[bytes]) -> bytes:
    return await later


def took_ms(nodes: int) -> dict[str, list[float]]:
    """Milliseconds of processor time of each question but the first quarter, by policy."""
    jobs = read()
    with tempfile.TemporaryDirectory(prefix="gputopo-bench-") as folder:
        sides = [Side(Path(folder, policy), nodes, policy) for policy in ("mapa", "horizon")]
        for number in range(1, 20 * QUESTIONS):
            for side in sides:
                side.ask(jobs[number % len(jobs)], number)
            if len(sides[0].took_ms) == QUESTIONS:
                for side in sides:
                    side.engine.log.close()
                return {side.policy: side.took_ms[QUESTIONS // 4 :] for side in sides}
    raise AssertionError(f"not {QUESTIONS} of the recorded jobs could start")


def run() -> Iterator[Figure]:
    """The median of `horizon` over that of `mapa`."""
    for nodes in NODES:
        took = took_ms(nodes)
        detail: dict[str, object] = {
            f"{policy}_median_p99_ms": [round(quantile(some, q), 3) for q in (0.5, 0.99)]
            for policy, some in took.items()
        }
        times = quantile(took["horizon"], 0.5) / quantile(took["mapa"], 0.5)
        detail |= {"waiting": WAITING, "seed": SEED, **conditions()}
        yield at_most(f"ahead.{nodes}_nodes", times, "times mapa", MOST_TIMES, detail=detail)
