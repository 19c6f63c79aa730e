"""Records the day that `gputopo web --demo` shows.

    PYTHONPATH=.:tests/slurm_plugin python tests/slurm_plugin/tell/web/record_demo.py

A simulated site of ten DGX-1V and four nodes of MI250X, with made-up users; the decisions are the
engine's own, beside what the model of stock Slurm would have taken. The same seed gives the same
file.
"""

import gzip
import random
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from machines_in_tests import decider_of

from gres_topology import catalog
from policies import Cluster, LooksAt, Placement, Policy, Request, Wait, mask_of
from simulation.core.jobs import SimJob
from simulation.models.placing import Simulator
from simulation.stock import policy_named
from slurm_plugin.base.log_lines import plain
from slurm_plugin.base.placement import CandidateNode, PlacementQuestion
from slurm_plugin.base.protocol import WaitFor
from slurm_plugin.config.settings import load_policies, parse

TARGET = Path(__file__).parents[4] / "slurm_plugin" / "tell" / "web" / "demo_day" / "day.json.gz"
SEED, DAY_S, WARM_UP_S = 20_261_123, 86_400.0, 43_200.0
USERS = ("ada", "blaise", "carl", "dorothy", "emmy", "felix", "grace", "hedy")
ACCOUNTS = ("physics", "language", "vision")
#: Partition -> machine, nodes, share of the GPU time that is asked for.
PARTS = {
    "gpu": ("dgx1v", [f"dgx{i}" for i in range(1, 11)], 1.0),
    "amd": ("mi250x", [f"amd{i}" for i in range(1, 5)], 0.85),
}
SHAPES = (((1,), 40), ((2,), 22), ((3,), 4), ((4,), 20), ((8,), 10), ((8, 8), 4))
HINTS = (("", 70), ("min-utility=0.9", 15), ("pattern=tree", 10), ("pattern=all-to-all", 5))
KEPT = ("decision", "why", "note", "reason", "policy", "pattern", "gpus_per_node", "candidates",
        "chosen", "slurm", "candidate_nodes", "mode", "applied", "hint", "wait_s", "postponed",
        "waited_s")  # fmt: skip
SCORED = ("gpus", "score", "effbw_gbps", "agg_gbps", "preserved_gbps", "pcie_hops", "utility")


@dataclass
class Recorder(Policy):
    """Asks the engine's decider as the select plugin does, and keeps what it says."""

    partition: str
    decider: Any
    jobs: dict[int, SimJob]
    clock: Any = None
    records: list[dict[str, Any]] = field(default_factory=list)
    asked: dict[int, list[float]] = field(default_factory=dict)
    name = "recorder"
    #: The site's default policy does.
    looks_at = frozenset({LooksAt.QUEUE})

    def place(self, request: Request, cluster: Cluster) -> Placement | Wait:
        stock = policy_named("stock").place(request, cluster)
        assert isinstance(stock, Placement)
        own = {name: mask_of(gpus) for name, gpus in stock.gpus.items()}
        candidates = tuple(
            CandidateNode(n.name, n.topology.gpus, n.free, own.get(n.name, 0), 1)
            for n in cluster.nodes.values()
        )
        number = request.job_id or 0
        job, now, before = self.jobs[number], self.clock(), self.asked.setdefault(number, [])
        question = PlacementQuestion(
            number,
            0,
            uid_of(job.user),
            len(before),
            int(now - before[0]) if before else 0,
            candidates,
            account_of(job.user),
            self.partition,
            job.hint,
        )
        decision = replace(self.decider, ahead=lambda asked: cluster.ahead).decide(question)
        self._keep(number, now, plain(decision.record()))
        if isinstance(decision.reply, WaitFor):
            before.append(now)
            return Wait(decision.reply.note, float(decision.reply.seconds), stock)
        return decision.placement or stock

    def _keep(self, number: int, now: float, record: dict[str, Any]) -> None:
        line = {"at": round(now), "job": number, **{k: record[k] for k in KEPT if k in record}}
        for key in ("chosen", "slurm"):
            if key in line:
                line[key] = slim(line[key])
        line["candidates"] = [slim(one) for one in line.get("candidates", ())[:3]]
        self.records.append(line)


def slim(choice: dict[str, Any]) -> dict[str, Any]:
    kept = {key: choice[key] for key in SCORED if key in choice}
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in kept.items()}


def uid_of(user: str) -> int:
    return 3000 + USERS.index(user)


def account_of(user: str) -> str:
    return ACCOUNTS[USERS.index(user) % len(ACCOUNTS)]


def workload(draw: random.Random, gpus: int, load: float, first: int) -> Iterable[SimJob]:
    """Jobs until they ask for that share of the GPU time; more of them by day than by night."""
    left = gpus * (DAY_S + WARM_UP_S) * load
    while left > 0:
        [shape] = draw.choices(*zip(*SHAPES, strict=True))
        [hint] = draw.choices(*zip(*HINTS, strict=True))
        duration = min(8 * 3600.0, max(300.0, draw.lognormvariate(7.9, 1.0)))
        submit = draw.uniform(0, DAY_S + WARM_UP_S)
        # The warm-up begins at noon of the day before.
        if draw.random() > (1.0 if 8 <= ((submit / 3600 + 12) % 24) < 19 else 0.45):
            continue
        [user] = draw.choices(USERS, [1 / (i + 1) for i in range(len(USERS))])
        limit = 600 * round(duration * draw.uniform(1.2, 3.0) / 600 + 0.5)
        hint = hint if shape != (1,) else ""
        yield SimJob(first, shape, duration, submit, hint, float(limit), user)
        first, left = first + 1, left - sum(shape) * duration


def recorded(seed: int = SEED) -> dict[str, Any]:
    """The nodes, the jobs and the decisions; times are seconds from the day's midnight."""
    load_policies()
    draw = random.Random(seed)
    found: dict[str, Any] = {
        "users": {user: uid_of(user) for user in USERS},
        "nodes": [],
        "jobs": [],
        "records": [],
    }
    for partition, (machine, names, load) in PARTS.items():
        topology = catalog.load(machine)
        found["nodes"] += [{"name": n, "machine": machine, "partition": partition} for n in names]
        first = 1 + 10_000 * list(PARTS).index(partition)
        jobs = list(workload(draw, topology.gpus * len(names), load, first))
        jobs = numbered(jobs, first)
        text = f"nodes: [{{nodes: '{','.join(names)}', topology: {machine}}}]\n" + (
            f"partitions: {{{partition}: {{mode: enforce}}}}\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            decider = decider_of(parse(text, Path(folder) / "gputopo.yaml"))
        recorder = Recorder(partition, decider, {job.job_id: job for job in jobs})
        simulator = Simulator(dict.fromkeys(names, topology), recorder, easy=True)
        recorder.clock = lambda simulator=simulator: simulator.clock.now_s
        run = simulator.run(jobs)
        found["jobs"] += [
            job_row(record, partition) for record in run.records if is_of_the_day(record)
        ]
        kept = {row["id"] for row in found["jobs"]}
        found["records"] += [
            {**line, "at": line["at"] - WARM_UP_S}
            for line in recorder.records
            if line["job"] in kept
        ]
    found["records"].sort(key=lambda line: (line["at"], line["job"]))
    return found


def numbered(jobs: list[SimJob], first: int) -> list[SimJob]:
    """In the order of their submits, as Slurm gives ids."""
    ordered = sorted(jobs, key=lambda job: job.submit_s)
    return [replace(job, job_id=number) for number, job in enumerate(ordered, first)]


def is_of_the_day(record: Any) -> bool:
    return bool(record.end_s > WARM_UP_S and record.job.submit_s < WARM_UP_S + DAY_S)


def job_row(record: Any, partition: str) -> dict[str, Any]:
    job = record.job
    return {
        "id": job.job_id,
        "user": job.user,
        "account": account_of(job.user),
        "partition": partition,
        "asks": list(job.gpus_per_node),
        "hint": job.hint,
        "limit_s": int(job.walltime_s),
        "submit": round(job.submit_s - WARM_UP_S),
        "start": round(record.start_s - WARM_UP_S),
        "end": round(record.end_s - WARM_UP_S),
        "gpus": {name: sorted(some) for name, some in record.placement.gpus.items()},
    }


def packed(day: dict[str, Any]) -> bytes:
    """The same bytes for the same day."""
    return gzip.compress(msgspec.json.encode(day), 9, mtime=0)


if __name__ == "__main__":
    day = recorded()
    TARGET.write_bytes(packed(day))
    print(
        f"{TARGET}: {len(day['jobs'])} jobs, {len(day['records'])} decisions, "
        f"{TARGET.stat().st_size} bytes"
    )
