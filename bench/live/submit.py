"""submit: what the Lua bridge costs a submit, beside a job_submit.lua that does nothing.

In one slurmctld, no-op and bridge take turns (slurmctld loads a changed script again) as no-op,
bridge, bridge, no-op, and the next round the other way, so that the growing queue costs both alike.
The jobs are held GPU jobs, every second one with a hint.
Two kinds of load: `sbatch` processes, which share the machine's cores with slurmctld, and
`submit_client`, which submits through libslurm without a fork per job. The time in the hook is
taken inside slurmctld by a wrapper around slurm_job_submit on both sides, the rates without it.
Processor time per submit, of slurmctld and the engine, is disturbed less by other work.

Beside slow engines: sixteen loops of sbatch, none of whose answers may be used again, beside the
no-op and beside the bridge with an engine that answers after 0.2, 10, 38 ms (within the deadline)
and 60 ms (beyond it), all in turns in one slurmctld. Meanwhile a client updates a node again and
again, for which slurmctld needs the lock that the hook keeps from it.

PARTS (sbatch, api, slow) names some of these.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from bench.live.cluster import ASSETS, BENCH_DIR, BenchCluster, build_client, clean
from bench.measure import Figure, at_least, at_most, conditions, quantile

BLOCK_S = 2
#: Odd, so that the median is a round and not the lower one of two.
RATE_ROUNDS = 15
HOOK_ROUNDS = 3
BAR_P99_MS = 2.0
BAR_RATE = 0.95
HINT = "gpu-topo: pattern=ring"

SLOW_BLOCK_S = 4
#: Over thirty seconds for each side; odd, as above.
SLOW_ROUNDS = 9
SLOW_CLIENTS = 16
NODE = "dgx1"
SETTINGS = "/etc/slurm/gputopo-bridge.conf"
#: Milliseconds of an answer -> the least share of the no-op's rate.
BARS_SLOW = {"0.2": 0.95, "10": 0.9, "38": 0.9, "60": 0.9}
#: Of the submits beside the fastest of them, how many are asked about.
BAR_ASKED = 0.95
#: An update may take so many times as long as beside the no-op, or so long.
BAR_TIMES, BAR_UPDATE_MS = 2.0, 60.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

JOB_SUBMIT = "/etc/slurm/job_submit.lua"
TIMES = "/var/log/slurm/hook_times"
SIDES = {
    "noop": "/usr/local/share/cluster/noop_job_submit.lua",
    "bridge": "/opt/gputopo/lib/python3*/site-packages/lua_bridge/job_submit.lua",
}
PLAIN = """\
dofile("{inner}")
return slurm.SUCCESS
"""
#: Writes microseconds, one per line, after the clock was read.
TIMED = """\
dofile("{inner}")
local gettime = require("socket").gettime
local inner, out = slurm_job_submit, io.open("{times}.{side}", "a")
function slurm_job_submit(job_desc, part_list, submit_uid)
  local start = gettime()
  local result = inner(job_desc, part_list, submit_uid)
  local took_s = gettime() - start
  out:write(string.format("%.1f\\n", took_s * 1e6))
  out:flush()
  return result
end
return slurm.SUCCESS
"""
_COUNTED = re.compile(r"submitted=(\d+) failed=(\d+) seconds=([\d.]+)")


class Load(NamedTuple):
    """A program that saturates, and how many clients it runs."""

    name: str
    program: str
    clients: int
    doc: str


LOADS = (
    Load("sbatch", "sbatch_clients.sh", 4, "sbatch processes; they share the cores with slurmctld"),
    Load("api", "submit_client", 2, "libslurm clients without fork and exec: slurmctld-bound"),
)


def install(
    cluster: BenchCluster, side: str, template: str, *, is_marked: bool | None = None
) -> None:
    """Make `side` the script in force; raises RuntimeError when slurmctld did not take it.

    `is_marked`: whether its answers mark jobs; None: as the engine's do.
    """
    inner = cluster.sh(f"echo {SIDES[side]}").strip()
    # slurmctld compares whole seconds: a file written in the second of the last load is not new.
    time.sleep(1.1)
    cluster.put("ctl", JOB_SUBMIT, template.format(inner=inner, side=side, times=TIMES))
    probe = cluster.sbatch("-H", "--gres=gpu:1", f"--comment={HINT}", script="true")
    marked = "[gpu-topo:" in cluster.job(probe).fields.get("AdminComment", "")
    if marked != (side == "bridge" if is_marked is None else is_marked):
        raise RuntimeError(f"{side} is not in force: AdminComment marked is {marked}")


@dataclass(frozen=True, slots=True)
class Block:
    """What one side did in one block: submits, wall-clock and processor seconds."""

    submits: int
    wall_s: float
    cpu_s: float


def cpu_s(cluster: BenchCluster) -> float:
    """Processor seconds of slurmctld and the engine so far (user and system)."""
    pids = cluster.sh("clusterctl slurmctld pid; clusterctl engine pid").split()
    stats = cluster.sh("cat " + " ".join(f"/proc/{pid}/stat" for pid in pids)).splitlines()
    # Fields 14 and 15 of proc(5), counted after the name, which may hold spaces.
    fields = [line.rpartition(")")[2].split() for line in stats]
    return sum(int(field[11]) + int(field[12]) for field in fields) / TICKS_PER_S


def block(cluster: BenchCluster, load: Load, kind: str = "") -> Block:
    """One block of submits, equal ones or of another `kind`; RuntimeError when some failed."""
    program = f"{BENCH_DIR}/{load.program}"
    before_s = cpu_s(cluster)
    command = f"{program} {load.clients} {BLOCK_S} gres/gpu:2 '{HINT}' gpu {kind}"
    counted = _COUNTED.search(said := cluster.sh(command, user="alice"))
    if not counted or int(counted[2]):
        raise RuntimeError(f"{load.program}: {said.strip()}: expected failed=0")
    return Block(int(counted[1]), float(counted[3]), cpu_s(cluster) - before_s)


def rounds(
    cluster: BenchCluster, load: Load, template: str, count: int
) -> Iterator[dict[str, Block]]:
    """Both sides, round by round; every round starts without the jobs of the last."""
    for i in range(count):
        cluster.restart_clean()
        first, second = SIDES if i % 2 == 0 else reversed(SIDES)
        blocks: dict[str, list[Block]] = {side: [] for side in SIDES}
        for previous, side in pairwise(("", first, second, second, first)):
            if side != previous:
                install(cluster, side, template)
            blocks[side].append(block(cluster, load))
        yield {side: total(side_blocks) for side, side_blocks in blocks.items()}


def total(blocks: Sequence[Block]) -> Block:
    """Several blocks as one."""
    return Block(
        sum(one.submits for one in blocks),
        sum(one.wall_s for one in blocks),
        sum(one.cpu_s for one in blocks),
    )


def rate(cluster: BenchCluster, load: Load) -> Figure:
    """The bridge's rate over the no-op's: the median of the rounds."""
    measured = list(rounds(cluster, load, PLAIN, RATE_ROUNDS))
    ratios = [
        (one["bridge"].submits / one["bridge"].wall_s) / (one["noop"].submits / one["noop"].wall_s)
        for one in measured
    ]
    sums = {side: total([one[side] for one in measured]) for side in SIDES}
    cpu_us = {side: round(1e6 * one.cpu_s / one.submits) for side, one in sums.items()}
    per_s = {side: round(one.submits / one.wall_s, 1) for side, one in sums.items()}
    return at_least(
        f"submit.rate.{load.name}",
        quantile(ratios, 0.5),
        "of the no-op's rate",
        BAR_RATE,
        compared_with=f"no-op job_submit.lua: {per_s['noop']}/s",
        detail={
            "per_s": per_s,
            "cpu_us_per_submit": cpu_us,
            "quartiles": [round(quantile(ratios, q), 3) for q in (0.25, 0.75)],
            "rounds": [round(ratio, 3) for ratio in ratios],
            "block_s": BLOCK_S,
            "clients": load.clients,
            "load": load.doc,
            **conditions(),
        },
    )


def hook(cluster: BenchCluster, load: Load) -> Iterator[Figure]:
    """Time in the hook under load, both sides."""
    cluster.sh(f"rm -f {TIMES}.*")
    for _ in rounds(cluster, load, TIMED, HOOK_ROUNDS):
        pass
    times = {}
    for side in SIDES:
        text = cluster.run("ctl", ["cat", f"{TIMES}.{side}"]).out
        times[side] = [float(line) / 1e3 for line in text.split()]
    noop, bridge = times["noop"], times["bridge"]
    detail = {"submits": len(bridge), "load": load.doc, "clients": load.clients, **conditions()}
    detail["max_ms"] = round(max(bridge), 3)
    for word, q, bar in (("p50", 0.5, None), ("p99", 0.99, BAR_P99_MS)):
        name, value = f"submit.hook_{word}.{load.name}", quantile(bridge, q)
        beside = f"no-op job_submit.lua: {quantile(noop, q):.4f} ms"
        yield at_most(name, value, "ms", bar, compared_with=beside, detail=detail)


# -- beside slow engines -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SlowBlock:
    """What came of one side in one block beside slow engines."""

    per_s: float
    submits: int
    asked: int
    updates_ms: list[float]


def _socket(side: str) -> str:
    return f"/run/bench-{side}.sock"


def _asked(cluster: BenchCluster, side: str) -> int:
    return 0 if side == "noop" else int(cluster.sh(f"cat {_socket(side)}.asked") or 0)


def _slow_block(cluster: BenchCluster, other: BenchCluster, side: str) -> SlowBlock:
    """One block of a side whose script is in force; RuntimeError when a submit failed."""
    before = _asked(cluster, side)
    # On a real site they are on other hosts: here slurmctld shall not wait for them.
    clients = f"nice -n 19 {BENCH_DIR}/sbatch_clients.sh {SLOW_CLIENTS} {SLOW_BLOCK_S}"
    load = f"{clients} gres/gpu:2 'gpu-topo: pattern=ring' gpu unlike"
    with ThreadPoolExecutor(1) as pool:
        update = f"{BENCH_DIR}/update_node {SLOW_BLOCK_S} {NODE}"
        updates = pool.submit(other.sh, update)
        said = cluster.sh(load, user="alice")
        updates_ms = [float(line) for line in updates.result().split()]
    counted = _COUNTED.search(said)
    if not counted or int(counted[2]):
        raise RuntimeError(f"sbatch_clients.sh: {said.strip()}: expected failed=0")
    submits = int(counted[1])
    return SlowBlock(
        submits / float(counted[3]), submits, _asked(cluster, side) - before, updates_ms
    )


@contextmanager
def _engines(cluster: BenchCluster) -> Iterator[None]:
    """A stub for each time that an answer takes."""
    for side in BARS_SLOW:
        # As niced as gputopo.service.
        stub = f"nice -n -5 python3 {BENCH_DIR}/slow_engine.py {_socket(side)} {side}"
        cluster.sh(
            f"rm -f {_socket(side)}*; setsid {stub} >/dev/null 2>&1 & echo $! >>/run/bench.pids"
        )
    try:
        yield
    finally:
        cluster.sh(f"xargs -r kill </run/bench.pids; rm -f /run/bench* {SETTINGS}")


def _slow_blocks(cluster: BenchCluster, other: BenchCluster) -> dict[str, list[SlowBlock]]:
    """The blocks of each side, round by round; before and after each is one of the no-op's."""
    blocks: dict[str, list[SlowBlock]] = {side: [] for side in ("noop", *BARS_SLOW)}
    for i in range(SLOW_ROUNDS):
        cluster.restart_clean()
        order = ["noop", *(one for side in BARS_SLOW for one in (side, "noop"))]
        for side in order if i % 2 == 0 else reversed(order):
            if side != "noop":
                cluster.put("ctl", SETTINGS, f"socket = {_socket(side)}\n")
            install(cluster, "noop" if side == "noop" else "bridge", PLAIN, is_marked=False)
            blocks[side].append(_slow_block(cluster, other, side))
    return blocks


def slow(cluster: BenchCluster) -> Iterator[Figure]:
    """Rate, share of submits asked about, and updates of a node beside each engine."""
    other = BenchCluster(cluster.project, cluster.description, cluster.enforcement)
    with _engines(cluster):
        blocks = _slow_blocks(cluster, other)
    noop = blocks.pop("noop")
    noop_ms = [ms for one in noop for ms in one.updates_ms]
    for at, (side, made) in enumerate(blocks.items()):
        ratios = [one.per_s / _beside(noop, i, at) for i, one in enumerate(made)]
        yield from _slow_figures(side, made, ratios, noop, noop_ms)


def _beside(noop: Sequence[SlowBlock], i: int, at: int) -> float:
    """The no-op's rate just before and just after the block of a side in round i."""
    first = i * (len(BARS_SLOW) + 1) + (at if i % 2 == 0 else len(BARS_SLOW) - 1 - at)
    return (noop[first].per_s + noop[first + 1].per_s) / 2


def _slow_figures(
    side: str,
    made: list[SlowBlock],
    ratios: list[float],
    noop: list[SlowBlock],
    noop_ms: list[float],
) -> Iterator[Figure]:
    per_s = round(quantile([one.per_s for one in noop], 0.5), 1)
    shape = {"clients": SLOW_CLIENTS, "over_s": SLOW_BLOCK_S * SLOW_ROUNDS, **conditions()}
    yield at_least(
        f"submit.slow.rate.{side}_ms",
        quantile(ratios, 0.5),
        "of the no-op's rate",
        BARS_SLOW[side],
        compared_with=f"no-op job_submit.lua: {per_s}/s",
        detail={
            "rounds": [round(ratio, 3) for ratio in ratios],
            "quartiles": [round(quantile(ratios, q), 3) for q in (0.25, 0.75)],
            **shape,
        },
    )
    asked, submits = sum(one.asked for one in made), sum(one.submits for one in made)
    yield at_least(
        f"submit.slow.asked.{side}_ms",
        asked / submits,
        "of the submits",
        BAR_ASKED if side == "0.2" else None,
        detail={
            "asked": asked,
            "submits": submits,
            "asked_per_s": round(asked / (SLOW_BLOCK_S * SLOW_ROUNDS), 1),
            **shape,
        },
    )
    times = [ms for one in made for ms in one.updates_ms]
    beside = {q: quantile(noop_ms, q) for q in (0.5, 1.0)}
    yield at_most(
        f"submit.slow.update_p50.{side}_ms",
        quantile(times, 0.5),
        "ms",
        max(BAR_TIMES * beside[0.5], BAR_UPDATE_MS),
        compared_with=f"no-op job_submit.lua: {beside[0.5]:.1f} ms, at worst {beside[1.0]:.1f}",
        detail={"worst_ms": max(times), "p99_ms": quantile(times, 0.99), "n": len(times), **shape},
    )
    yield at_most(
        f"submit.slow.update_max.{side}_ms",
        max(times),
        "ms",
        max(BAR_TIMES * beside[1.0], BAR_UPDATE_MS),
        compared_with=f"no-op job_submit.lua: {beside[1.0]:.1f} ms",
        detail={"n": len(times), **shape},
    )


def run() -> Iterator[Figure]:
    """Hook time and rate under both loads, then what slow engines do to slurmctld."""
    with clean() as cluster, tempfile.TemporaryDirectory(prefix="gputopo-bench-") as folder:
        for source in ("submit_client.c", "update_node.c"):
            build_client(ASSETS / source, Path(folder))
        cluster.put_folder("ctl", BENCH_DIR, Path(folder))
        cluster.put_folder("ctl", BENCH_DIR, ASSETS)
        cluster.sh(f"chmod -R a+rX,a+x {BENCH_DIR}")
        parts = os.environ.get("PARTS", "sbatch,api,slow").split(",")
        for load in LOADS:
            if load.name in parts:
                yield from hook(cluster, load)
                yield rate(cluster, load)
        if "slow" in parts:
            yield from slow(cluster)
