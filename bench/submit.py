"""submit: what the Lua bridge costs a submit, beside a job_submit.lua that does nothing.

Interleaved in one slurmctld: no-op and bridge take turns (a script whose mtime changes is
loaded again), first one first, then the other first, and each pair gives one ratio. The
jobs are held GPU jobs, every second one with a hint, so that scheduling costs both alike.
Two kinds of load: `sbatch` processes, which share the machine's cores with slurmctld, and
`submit_client`, which submits through libslurm without a fork and exec per job and so
keeps slurmctld itself busy. The time in the hook is taken inside slurmctld by a wrapper
around slurm_job_submit, the same for both sides; the rates are taken without it.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.cluster import ASSETS, BENCH_DIR, BenchCluster, build_client, clean
from bench.measure import Figure, at_least, at_most, conditions, quantile

BLOCK_S = 3
RATE_PAIRS = 12
HOOK_PAIRS = 4
BAR_P99_MS = 2.0
BAR_RATE = 0.95
HINT = "gpu-topo: pattern=ring"

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


@dataclass(frozen=True, slots=True)
class Load:
    """A program that saturates, and how many clients it runs."""

    name: str
    program: str
    clients: int
    doc: str


LOADS = (
    Load("sbatch", "sbatch_clients.sh", 4, "sbatch processes; they share the cores with slurmctld"),
    Load("api", "submit_client", 2, "libslurm clients without fork and exec: slurmctld-bound"),
)


def install(cluster: BenchCluster, side: str, template: str) -> None:
    """Make `side` the script in force; raises RuntimeError when slurmctld did not take it."""
    inner = cluster.sh(f"echo {SIDES[side]}").strip()
    # slurmctld compares whole seconds: a file written in the second of the last load is not new.
    time.sleep(1.1)
    cluster.put(template.format(inner=inner, side=side, times=TIMES), JOB_SUBMIT)
    probe = cluster.sbatch("-H", "--gres=gpu:1", f"--comment={HINT}", script="true")
    marked = "[gpu-topo:" in cluster.job(probe).fields.get("AdminComment", "")
    if marked != (side == "bridge"):
        raise RuntimeError(f"{side} is not in force: AdminComment marked is {marked}")


def block(cluster: BenchCluster, load: Load) -> float:
    """Submits per second over one block; raises RuntimeError when submits failed."""
    program = f"{BENCH_DIR}/{load.program}"
    command = f"{program} {load.clients} {BLOCK_S} gres/gpu:2 '{HINT}' gpu"
    counted = _COUNTED.search(said := cluster.sh(command, user="alice"))
    if not counted or int(counted[2]):
        raise RuntimeError(f"{load.program}: {said.strip()}: expected failed=0")
    return int(counted[1]) / float(counted[3])


def pairs(
    cluster: BenchCluster, load: Load, template: str, count: int
) -> Iterator[dict[str, float]]:
    """Rates of both sides, pair by pair; every pair starts without jobs of the last."""
    for i in range(count):
        cluster.restart_clean()
        rates = {}
        for side in ("noop", "bridge") if i % 2 == 0 else ("bridge", "noop"):
            install(cluster, side, template)
            rates[side] = block(cluster, load)
        yield rates


def rate(cluster: BenchCluster, load: Load) -> Figure:
    """The bridge's rate over the no-op's: the median of the pairs."""
    found = list(pairs(cluster, load, PLAIN, RATE_PAIRS))
    ratios = [one["bridge"] / one["noop"] for one in found]
    middle = {side: quantile([one[side] for one in found], 0.5) for side in SIDES}
    return at_least(
        f"submit.rate.{load.name}",
        quantile(ratios, 0.5),
        "of the no-op's rate",
        BAR_RATE,
        compared_with=f"no-op job_submit.lua: {middle['noop']:.0f}/s",
        detail={
            "quartiles": [round(quantile(ratios, q), 3) for q in (0.25, 0.75)],
            "pairs": [round(ratio, 3) for ratio in ratios],
            "bridge_per_s": round(middle["bridge"], 1),
            "block_s": BLOCK_S,
            "clients": load.clients,
            "load": load.doc,
            **conditions(),
        },
    )


def hook(cluster: BenchCluster, load: Load) -> Iterator[Figure]:
    """Time in the hook under load, both sides."""
    cluster.sh(f"rm -f {TIMES}.*")
    for _ in pairs(cluster, load, TIMED, HOOK_PAIRS):
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
        if bar is None:
            yield Figure(name, round(value, 4), "ms", compared_with=beside, detail=detail)
        else:
            yield at_most(name, value, "ms", bar, compared_with=beside, detail=detail)


def run() -> Iterator[Figure]:
    """Hook time and rate under both loads."""
    with clean() as cluster, tempfile.TemporaryDirectory(prefix="gputopo-bench-") as folder:
        build_client(ASSETS / "submit_client.c", Path(folder))
        cluster.put_folder(Path(folder), BENCH_DIR)
        cluster.put_folder(ASSETS, BENCH_DIR)
        cluster.sh(f"chmod -R a+rX,a+x {BENCH_DIR}")
        for load in LOADS:
            yield from hook(cluster, load)
            yield rate(cluster, load)
