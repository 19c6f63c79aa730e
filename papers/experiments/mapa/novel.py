"""mapa-torus16 and mapa-cubemesh16: section 5.3, effective bandwidth on two novel machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gres_topology import NodeTopology
from gres_topology.catalog import load as machine
from papers.experiments import Result
from papers.experiments.mapa.dgx1v import BASELINE, MACHINE, POLICIES, records_of
from papers.experiments.mapa.graphs import as_in_their_code, renumbered
from papers.experiments.mapa.readings import READINGS, averaged, effbw_figures
from papers.experiments.mapa.reconstruction import JOBS
from policies.registry import registry
from simulation.core.jobs import SimJob
from simulation.core.steps import each
from simulation.models.placing import Simulator


def timed_jobs(seed: int, curve: str = "figure-2b", jobs: int = JOBS) -> list[SimJob]:
    """The job file with the times it had on the DGX-1V under Baseline (section 5.1)."""
    records = records_of(BASELINE, machine(MACHINE), seed, curve, jobs)
    timed = [replace(r.job, duration_s=r.end_s - r.start_s) for r in records]
    return sorted(timed, key=lambda job: job.job_id)


def compare(
    topologies: Mapping[int, NodeTopology], curve: str = "figure-2b", jobs: int = JOBS
) -> dict[str, dict[str, float]]:
    """Every policy on the same jobs, a machine for each seed, averaged over the seeds."""
    by_policy: dict[str, list[dict[str, float]]] = {name: [] for name in POLICIES}
    for seed, topology in each(topologies.items()):
        timed = timed_jobs(seed, curve, jobs)
        for name in each(POLICIES):
            run = Simulator({topology.name: topology}, registry.get(name)).run(timed)
            by_policy[name].append(effbw_figures(run.records, topology))
    return {name: averaged(rows) for name, rows in by_policy.items()}


def _result(name: str, graph: str, seeds: Sequence[int], jobs: int) -> Result:
    topology = machine(graph)
    measured: dict[str, Mapping[str, float | None]] = {}
    same = dict.fromkeys(seeds, topology)
    ways = {
        "": (same, "figure-2b"),
        "their code's graph": (dict.fromkeys(seeds, as_in_their_code(topology)), "figure-2b"),
        "renumbered": ({s: renumbered(topology, s) for s in seeds}, "figure-2b"),
        "low curve": (same, "low"),
    }
    varied = {how: compare(*way, jobs) for how, way in each(ways.items())}
    measured |= varied.pop("")
    for how, rows in varied.items():
        for policy in (BASELINE, "mapa-greedy", "mapa-preserve"):
            row = rows[policy]
            kept = {key: row[key] for key in row if key.startswith("sensitive_")}
            measured[f"{policy}, {how}"] = kept
    notes = (*_NOTES, *_relations(graph, measured))
    return Result(name, tuple(seeds), measured, {}, notes)


def torus16(seeds: Sequence[int], jobs: int = JOBS) -> Result:
    """Figure 18a."""
    return _result("mapa-torus16", "torus-16", seeds, jobs)


def cubemesh16(seeds: Sequence[int], jobs: int = JOBS) -> Result:
    """Figure 18b."""
    return _result("mapa-cubemesh16", "cubemesh-16", seeds, jobs)


_NOTES = (
    "Figure 18 has no numbers, so nothing stands beside ours; what the text says of it is compared"
    " below. 300 jobs of 1-5 GPUs per seed as in mapa-dgx1v, first in, first out; ..._sd is the"
    " standard deviation over the seeds.",
    "Each job takes the time it took on the DGX-1V under Baseline in mapa-dgx1v, wherever it is"
    " placed (section 5.1).",
    "Figure 17 is drawn, not printed: the graphs are the catalog's, made from the authors' code"
    " with the repairs that the catalog names. `their code's graph` undoes the repairs; "
    "`renumbered` gives every seed its own numbering, on which lowest ids depend.",
    "Effective bandwidth by eq. 2, which was fitted on a DGX-1V, in three readings (mapa-dgx1v says"
    " more): `effbw` of the set's best ring, without jobs of one GPU; `effbw1` with them, at 12.34"
    " GB/s; `logged` as the authors' code writes its log.",
)


def _relations(graph: str, measured: Mapping[str, Mapping[str, float | None]]) -> tuple[str, ...]:
    """The text's sentences about Figure 18 with our numbers, in each reading."""
    others = POLICIES[:3]

    def of(names: Sequence[str], word: str, reading: str) -> str:
        values = (measured[name].get(f"sensitive_{reading}_{word}_gbps") for name in names)
        return ", ".join("-" if value is None else f"{value:.1f}" for value in values)

    def each(ours: str, *theirs: tuple[Sequence[str], str]) -> str:
        """Preserve's quantile against the others' in every reading."""
        return "; ".join(
            f"{reading} {of(('mapa-preserve',), ours, reading)} against "
            + " and ".join(of(names, word, reading) for names, word in theirs)
            for reading in READINGS
        )

    lowest = (
        "The paper: Preserve's minimum is equivalent to the others' 25th percentile"
        f" ({', '.join(others)}). Ours, GB/s: {each('min', (others, 'p25'))}."
    )
    if graph == "torus-16":
        second = (
            "The paper: Preserve's 25th percentile is better than the median of Baseline and"
            f" Topo-aware. Ours: {each('p25', (others[:2], 'p50'))}."
        )
    else:
        second = (
            "The paper: Preserve's median is near Greedy's 75th percentile and the maximum of"
            " Baseline and Topo-aware. Ours:"
            f" {each('p50', (others[2:], 'p75'), (others[:2], 'max'))}."
        )
    return lowest, second
