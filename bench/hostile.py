"""What a hostile submit costs slurmctld and the engine, beside ordinary ones in the same run.

The shipped bridge in Lua 5.1, as slurmctld embeds it, and the real engine in the slots mode, which
hears most of a job; scripts stand for Slurm's commands. The time is that of the hook, during which
slurmctld holds its locks.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Figure, at_most, conditions, quantile

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cluster"))

from tests.cluster.engine_process import EngineProcess, engine  # noqa: E402
from tests.cluster.mallory import job_of  # noqa: E402
from tests.lua_bridge.conftest import BRIDGE, LuaSlurmctld  # noqa: E402

SEED, PAIRS = 11, 1500
ORDINARY = {
    "tres_per_node": "gres/gpu:2",
    "script": "#!/bin/sh",
    "comment": "gpu-topo: pattern=ring",
}
#: By which the engine may grow, MiB; one such text once took 2,300.
MOST_MEMORY_MB = 64


def run() -> Iterator[Figure]:
    """The times, the memory, and what was tried."""
    with tempfile.TemporaryDirectory() as name, engine(Path(name)) as running:
        lua = _bridge(Path(name), running)
        try:
            yield from _figures(lua, running)
        finally:
            lua.close()


def _bridge(folder: Path, running: EngineProcess) -> LuaSlurmctld:
    etc = folder / "etc"
    shutil.copytree(BRIDGE, etc, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    settings = f"socket = {running.path}\nenforcement = slots\ndeadline_ms = 50\nbudget_ms = 1000\n"
    (etc / "gputopo-bridge.conf").write_text(settings)
    return LuaSlurmctld(etc / "job_submit.lua")


def _figures(lua: LuaSlurmctld, running: EngineProcess) -> Iterator[Figure]:
    chance = random.Random(SEED)
    ordinary, hostile, tried, unanswered = [], [], 0, 0
    for i in range(20):
        lua.submit(**ORDINARY, min_nodes=1 + i % 3)
    before = running.memory_mb()
    for i in range(PAIRS):
        # Not twice the same within a second: the bridge would keep the answer.
        done = lua.submit(**ORDINARY, account=f"a{i}")
        ordinary.append(done.elapsed_s * 1e3)
        unanswered += any("no answer" in line for line in done.log)
        job = job_of(chance)
        tried += sum(len(str(value)) for value in job.values())
        done = lua.submit(script="#!/bin/sh", **job)
        hostile.append(done.elapsed_s * 1e3)
        unanswered += any("no answer" in line for line in done.log)
    detail = {"submits": PAIRS, "bytes": tried, "seed": SEED, **conditions()}
    for q, name in ((0.5, "p50"), (0.99, "p99"), (1.0, "worst")):
        plain = quantile(ordinary, q)
        value = quantile(hostile, q)
        yield Figure(
            f"hostile submit, {name}",
            round(value, 3),
            "ms",
            compared_with=f"an ordinary one {plain:.3f} ms, ratio {value / plain:.2f}",
            detail=detail,
        )
    yield at_most("submits the engine did not answer in 50 ms", unanswered, "", PAIRS * 2 * 0.01)
    grown = running.memory_mb() - before
    yield at_most("engine's memory, grown by", grown, "MiB", MOST_MEMORY_MB)
