"""simulate: how long whole simulated runs take for each policy, and in how much memory.

Each policy in a process of its own, so that memory is its own. Philly: the trace that comes
with the project on 552 nodes, as recorded and with arrivals so close that the queue is
long. Scenario 2 of TOPO-AWARE's paper: 10,000 jobs on 1,000 machines, as printed and at 95 %.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

from bench.measure import Figure, at_most, conditions
from papers.experiments import philly
from papers.experiments.sc17 import MACHINE, loaded, scenarios
from papers.experiments.sc17.profile import Profiled
from policies.registry import registry
from simulation.core.jobs import at_load
from simulation.core.record import SimulatedRun
from simulation.models.placing import Simulator
from simulation.report.metrics import summary

BAR_S = 120.0
BAR_MIB = 1024.0
CASES = ("philly", "philly-95", "scenario2", "scenario2-95")
#: What the figure tells of the run besides its time.
TOLD = ("jobs", "wait_mean_s", "slowdown_mean", "busy_while_arriving", "waits", "forced",
        "decision_median_s", "decision_max_s")  # fmt: skip


def simulated(case: str, name: str) -> tuple[SimulatedRun, dict[str, float | None]]:
    """One run and its figures."""
    from gres_topology import catalog

    policy = registry.get(name)
    if case.startswith("philly"):
        cluster, jobs = philly.cluster(), philly.trace().jobs
        if case != "philly":
            jobs = at_load(jobs, sum(kind.gpus for kind in cluster.values()), 0.95)
        run = Simulator(cluster, policy, easy=True).run(jobs)
    else:
        cluster = {f"minsky{n:04}": catalog.load(MACHINE) for n in range(1000)}
        jobs = scenarios.jobs_of("workloads-10000", 1000, "95" if "-95" in case else "printed")
        speed = Profiled(loaded("prof_from_experiments_full"))
        run = Simulator(cluster, policy, speed).run(jobs)
    return run, summary(run, cluster)


def child(case: str, name: str) -> None:
    """What the process of one run prints."""
    began = time.perf_counter()
    _, numbers = simulated(case, name)
    row = {key: numbers[key] for key in TOLD}
    row["seconds"] = time.perf_counter() - began
    row["mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(row))


def run() -> Iterator[Figure]:
    """The slowest and the largest policy of every case, each policy in the detail."""
    for case in CASES:
        by_policy: dict[str, dict[str, float]] = {}
        for name in registry.names():
            command = [sys.executable, "-m", "bench.simulated.simulate", case, name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            by_policy[name] = json.loads(done.stdout)
        slowest = max(by_policy, key=lambda name: by_policy[name]["seconds"])
        largest = max(by_policy, key=lambda name: by_policy[name]["mib"])
        detail = {
            "slowest": slowest,
            "policies": {
                name: {key: value and round(value, 6) for key, value in row.items()}
                for name, row in by_policy.items()
            },
            **conditions(),
        }
        seconds = by_policy[slowest]["seconds"]
        yield at_most(f"simulate.{case}.seconds", seconds, "s", BAR_S, detail=detail)
        yield at_most(f"simulate.{case}.memory", by_policy[largest]["mib"], "MiB", BAR_MIB)


if __name__ == "__main__":
    child(*sys.argv[1:])
