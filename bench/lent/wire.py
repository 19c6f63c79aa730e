"""wire: a 64-byte call and a flow of bytes through what we put between a task and a server.

Beside the same client and server without us, in rounds that take turns.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.lent.ends import HOST, Site, site
from bench.measure import Figure, at_least, at_most, conditions
from slurm_plugin.node import program
from slurm_plugin.node.remote.door import Tools

SOURCE = Path(program.__file__).with_name("carry")
ROUNDS = 15
CALLS = 3000
MIB = 1024
STREAMS = (1, 8)
LONGER_US = 20
#: Way -> what lies between, and the share of the direct connection's throughput that it must reach.
WAYS: dict[str, tuple[str, float | None]] = {
    "direct": ("nothing", None),
    "none": ("nothing: server and task have the library", 0.9),
    "one": ("gputopo-carry on the task's node; the server has the library", 0.6),
    "two": ("gputopo-carry on both nodes", None),
}


def client(at: Site, way: str, *words: object) -> list[float]:
    """What a client of this way prints."""
    environment = dict(os.environ)
    if way == "none":
        environment |= {"LD_PRELOAD": at.found["library"], "GPUTOPO_WIRE": at.found["wire"]}
    port = at.found["one" if way == "none" else way]
    kind, *rest = map(str, words)
    command = [sys.executable, "-m", "bench.lent.load", kind, HOST, str(port), *rest]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=300
    )
    return [float(word) for word in done.stdout.split()]


def in_turns(number: int) -> list[str]:
    """The ways in the order of this round: nobody always comes first."""
    ways = list(WAYS)
    at = number % len(ways)
    return ways[at:] + ways[:at]


def calls(at: Site) -> Iterator[Figure]:
    """How much longer the median call is than that of the same round without us."""
    took: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(ROUNDS):
        for way in in_turns(number):
            took[way] += client(at, way, "call", CALLS)
    direct = statistics.median(took["direct"])
    for way, (between, _) in WAYS.items():
        if way == "direct":
            continue
        pairs = zip(took[way], took["direct"], strict=True)
        longer = [ours - theirs for ours, theirs in pairs]
        detail = {
            "between": between,
            "median_us": round(statistics.median(took[way]), 1),
            "rounds_us": [round(one, 1) for one in longer],
            **conditions(),
        }
        value, name = statistics.median(longer), f"wire.call.{way}"
        told = f"direct {direct:.1f} us"
        if way == "two":
            yield Figure(name, round(value, 1), "us longer", compared_with=told, detail=detail)
        else:
            yield at_most(name, value, "us longer", LONGER_US, compared_with=told, detail=detail)


def flows(at: Site, streams: int) -> Iterator[Figure]:
    """The share of the direct connection's throughput, and processor time beside it."""
    speed: dict[str, list[float]] = {way: [] for way in WAYS}
    busy: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(ROUNDS):
        for way in in_turns(number):
            before = at.carried_s()
            gib_s, ends_s = client(at, way, "flow", streams, MIB)
            speed[way].append(gib_s)
            busy[way].append((ends_s + at.carried_s() - before) / (MIB / 1024))
    for way, (between, bar) in WAYS.items():
        if way == "direct":
            continue
        pairs = zip(speed[way], speed["direct"], strict=True)
        shares = [ours / theirs for ours, theirs in pairs]
        detail = {
            "between": between,
            "gib_s": round(statistics.median(speed[way]), 2),
            "processor_s_per_gib": round(statistics.median(busy[way]), 3),
            "direct_processor_s_per_gib": round(statistics.median(busy["direct"]), 3),
            "rounds": [round(share, 2) for share in shares],
            **conditions(),
        }
        value, name = statistics.median(shares), f"wire.flow.{streams}.{way}"
        told = f"direct {statistics.median(speed['direct']):.2f} GiB/s"
        yield at_least(name, value, "share", bar, compared_with=told, detail=detail)


def built(folder: Path) -> Tools:
    """gputopo-carry and gputopo-wire.so, made in this folder."""
    command = ["make", "-s", "-C", str(SOURCE), f"OUT={folder}/build", f"TO={folder}"]
    subprocess.run(command, check=True)
    return Tools(folder)


def run() -> Iterator[Figure]:
    """Calls, then flows of one stream and of eight."""
    with ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory(prefix="gputopo-wire-"))
        at = held.enter_context(site(built(Path(folder)).folder))
        at.found["library"] = f"{folder}/gputopo-wire.so"
        yield from calls(at)
        for streams in STREAMS:
            yield from flows(at, streams)
