"""reload: how soon the engine answers after its start, and what a reload does to the answers.

An engine with 12,500 nodes of four machines, as `replay` has it. One client asks without a pause,
as no scheduler would, while another has the configuration read again: the same one, and one that
names other machines, so that everything is built anew. An answer's processor time is that of all
the engine's threads until it came: what it takes on a machine that does nothing else.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.engine_process import Client, configuration, engine
from bench.kept.replay import START_S, Replay, Took, mixes
from bench.measure import Figure, at_most, conditions, quantile
from bench.questions import read
from bench.request_lines import encode_request

NODES, RELOADS = 12_500, 5
POLICIES = ("mapa", "topo-aware")
#: What slurmctld waits for an answer at most.
DEADLINE_MS = 50.0


class Asking:
    """Questions one after the other, each about a job that could start."""

    def __init__(self, replay: Replay) -> None:
        self._replay, self.jobs, self.number = replay, read(), 0

    def until(self, done: Callable[[], bool]) -> list[Took]:
        """What each answer took; the last question was asked before it was done."""
        took = []
        while not done():
            self.number += 1
            self._replay.cluster.change(1)
            job = self.jobs[self.number % len(self.jobs)]
            policy = POLICIES[self.number % len(POLICIES)]
            question = self._replay.cluster.question(job, self.number, f"in-{policy}")
            if question is not None:
                _, took_s = self._replay.client.ask(encode_request(question))
                took.append(Took(1e3 * took_s, 1e3 * self._replay.client.cpu_s))
        return took


def during_reload(asking: Asking, socket: Path) -> tuple[list[Took], float]:
    """The answers while the configuration is read again, and the seconds of that."""
    other = Client(socket)
    replies: list[tuple[bytes, float]] = []
    reloading = threading.Thread(target=lambda: replies.append(other.ask(b"reload id=1\n")))
    reloading.start()
    took = asking.until(lambda: bool(replies))
    reloading.join()
    other.close()
    assert replies[0][0].startswith(b"ok"), replies
    return took, replies[0][1]


def in_words(took: list[Took]) -> dict[str, object]:
    """Median, p99 and longest, by the clock and of processor time."""
    columns = {"clock": [t.wall_ms for t in took], "processor": [t.cpu_ms for t in took]}
    rows = {
        f"{name}_ms": [round(quantile(column, q), 2) for q in (0.5, 0.99, 1.0)]
        for name, column in columns.items()
    }
    return {"answers": len(took), **rows}


def run() -> Iterator[Figure]:
    """The start, then answers without a reload, and while there is one."""
    kinds = mixes(NODES)["mixed"]
    hosts = {kind.hosts: kind.machine for kind in kinds}
    renamed = dict(zip(hosts, [*list(hosts.values())[1:], kinds[0].machine], strict=True))
    with (
        tempfile.TemporaryDirectory(prefix="gputopo-bench-") as name,
        engine(Path(name), hosts, POLICIES) as client,
    ):
        folder = Path(name)
        detail = {"nodes": NODES, **conditions()}
        yield at_most("reload.start", client.started_s, "s", START_S, detail=detail)
        asking = Asking(Replay(client, kinds))
        # Until every kind of job has been asked about: what that takes is another figure.
        asking.until(lambda: asking.number >= 2 * len(asking.jobs))
        ends = time.monotonic() + 5.0
        none = in_words(asking.until(lambda: time.monotonic() > ends))
        for label, machines in (("same", [hosts]), ("other_machines", [renamed, hosts])):
            took, seconds = list[Took](), []
            for number in range(RELOADS):
                configuration(folder, machines[number % len(machines)], POLICIES)
                some, took_s = during_reload(asking, folder / "engine.sock")
                took += some
                seconds.append(round(took_s, 2))
            detail = {**in_words(took), "without": none, "reload_s": seconds, **conditions()}
            longest = max(one.cpu_ms for one in took)
            yield at_most(f"reload.longest.{label}", longest, "ms", DEADLINE_MS, detail=detail)
