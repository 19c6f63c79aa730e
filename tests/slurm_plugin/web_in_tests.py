"""A site of two DGX-1V and three users, as the page's sources tell it, and the page of it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jobs_in_tests
import msgspec
from aiohttp import ClientSession, TCPConnector
from aiohttp.test_utils import TestServer
from jobs_in_tests import waits

from gres_topology import catalog
from gres_topology.slurm_files import topology_conf
from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.decide import decision_log
from slurm_plugin.decide.machines import Machine
from slurm_plugin.errors import SlurmError
from slurm_plugin.queue.watcher import Watcher
from slurm_plugin.slurm.interface import QueuedJob, SlurmNode, SlurmPartition
from slurm_plugin.tell.explain import search
from slurm_plugin.tell.web.decisions import DecisionTail
from slurm_plugin.tell.web.feed import Feed
from slurm_plugin.tell.web.identity import Identities
from slurm_plugin.tell.web.server import Page, application
from slurm_plugin.tell.web.sources import EngineState, Sources
from slurm_plugin.tell.why.state import Extras

ALICE, BOB = 2001, 2002
NOW = 1_800_000_000.0
#: A user's own text that would be a script if any page took it for markup.
SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"
RECORD = {
    "time": "2026-11-21T03:19:43.918+00:00", "job": 7, "array": 0, "uid": BOB, "partition": "gpu",
    "mode": "enforce", "decision": "use", "applied": True, "policy": "mapa", "pattern": "ring",
    "reason": "ring: 39.1 GB/s, 100 % of the ideal", "gpus_per_node": [2], "took_ms": 0.4,
    "chosen": {"gpus": {"dgx1": [3, 0]}, "effbw_gbps": 39.1, "score": 1.0, "utility": 1.0,
               "agg_gbps": 50.0, "preserved_gbps": 400.0, "pcie_hops": 0},
    "slurm": {"gpus": {"dgx1": [0, 1]}, "effbw_gbps": 21.6, "score": 0.6, "agg_gbps": 25.0,
              "preserved_gbps": 397.0, "pcie_hops": 0},
    "candidates": [{"gpus": {"dgx1": [0, 3]}, "score": 1.0, "effbw_gbps": 39.1,
                    "agg_gbps": 50.0, "preserved_gbps": 400.0}],
}  # fmt: skip


def node(name: str, used: tuple[int, ...] = (), **more: Any) -> SlurmNode:
    usual = {"partitions": ("gpu",), "cpus": 40, "alloc_cpus": len(used)}
    return jobs_in_tests.node(name, used, **{**usual, **more})


def job(number: int, uid: int, **more: Any) -> QueuedJob:
    user = {ALICE: "alice", BOB: "bob"}[uid]
    usual = {"user": user, "uid": uid, "account": f"{user}s", "partition": "gpu", "priority": 10}
    return waits(number, 0, **{**usual, "submit": int(NOW) - 60, "ntasks": 0, **more})


def running(number: int, uid: int, gpus: dict[str, tuple[int, ...]], **more: Any) -> QueuedJob:
    values = {"state": "RUNNING", "reason": "None", "nodes": tuple(gpus), "gpus": gpus, **more}
    count = max(map(len, gpus.values()))
    return job(number, uid, tres_per_node=f"gres/gpu:{count}", start=int(NOW) - 30, **values)


@dataclass
class PlayedSlurm:
    """What Slurm says, as long as it says anything; counts how often it is asked."""

    jobs: list[QueuedJob]
    nodes_: list[SlurmNode]
    problem: str = ""
    asked: int = 0

    def queue(self) -> list[QueuedJob]:
        self.asked += 1
        if self.problem:
            raise SlurmError(self.problem)
        return list(self.jobs)

    def nodes(self) -> list[SlurmNode]:
        return list(self.nodes_)

    def partitions(self) -> list[SlurmPartition]:
        return [SlurmPartition("gpu", tuple(one.name for one in self.nodes_), True)]

    def config(self) -> dict[str, str]:
        return {"SLURM_VERSION": "24.11.5"}


def played() -> PlayedSlurm:
    """Bob has two GPUs of dgx1, alice five of dgx2; both wait for eight."""
    mine = running(8, ALICE, {"dgx2": (0, 1, 2, 3, 4)}, comment=SCRIPT)
    return PlayedSlurm(
        [
            running(7, BOB, {"dgx1": (0, 3)}, comment="bobs-secret", job_name="bobs-secret"),
            mine,
            job(9, ALICE, tres_per_node="gres/gpu:8", priority=5, comment=SCRIPT),
            job(10, BOB, tres_per_node="gres/gpu:8", priority=50, comment="bobs-secret-comment"),
        ],
        [node("dgx1", (0, 3)), node("dgx2", (0, 1, 2, 3, 4))],
    )


ENGINE = EngineState(True, "", {"place": {"p50": 0.2, "p99": 0.9, "max": 2.0}})
WHO = Identities(frozenset((0,)), "X-Remote-User")


@dataclass
class Site:
    """A page and what it shows."""

    folder: Path
    slurm: PlayedSlurm = field(default_factory=played)
    engine: EngineState = ENGINE
    who: Identities = WHO
    period_s: float = 0.05

    def __post_init__(self) -> None:
        self.log = DecisionLogConfig(self.folder / "decisions.jsonl")
        if not self.log.path.exists():
            self.log.path.write_bytes(msgspec.json.encode(RECORD) + b"\n")
        machine = Machine(catalog.load("dgx1v"))
        self.sources = Sources(
            Watcher(self.slurm, wall_clock=lambda: NOW),  # type: ignore[arg-type]
            lambda snapshot: Extras(),
            lambda: self.engine,
            DecisionTail(self.log),
            {"dgx1": machine, "dgx2": machine},
            topology_conf.parse(
                "SwitchName=leaf1 Nodes=dgx[1-2]\nSwitchName=spine Switches=leaf1\n", "a test"
            ),
            records_of=search.LogIndex(self.log).find,
            all_records=lambda: decision_log.read(self.log),
            operators=self.who.operators,
        )
        self.page = Page(Feed(self.sources, self.period_s), self.who)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[TestServer]:
        """The page on a port of 127.0.0.1, which reads while somebody looks."""
        server = TestServer(application(self.page))
        await server.start_server()
        reader = asyncio.create_task(self.page.feed.run())
        try:
            yield server
        finally:
            reader.cancel()
            await server.close()

    def as_user(self, uid: int | None) -> "Site":
        """The same where every connection of this host is this user's."""
        who = Identities(self.who.operators, owner=lambda peer, own: uid)
        return replace(self, who=who)


def asked(site: Site, *paths: str, **options: Any) -> list[tuple[int, str, Any]]:
    """Status, text and headers of each path, asked one after the other by one client."""

    async def ask() -> list[tuple[int, str, Any]]:
        async with site.served() as server, ClientSession(connector=TCPConnector()) as client:
            found = []
            for path in paths:
                url = server.make_url(path)
                async with client.request(
                    options.get("method", "GET"), url, headers=options.get("headers", {})
                ) as reply:
                    found.append((reply.status, await reply.text(), reply.headers))
            return found

    return asyncio.run(ask())


def seen(site: Site, uid: int | None, path: str = "/api/state") -> Any:
    """The JSON that one user of this host gets."""
    [(status, text, _)] = asked(site.as_user(uid), path)
    assert status == 200, text
    return json.loads(text)
