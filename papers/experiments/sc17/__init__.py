"""TOPO-AWARE's experiments (Amaral et al., SC17, section 5) on the authors' own data.

The data beside this file are theirs (Apache-2.0, see NOTICE).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from gres_topology import NodeTopology
from gres_topology.catalog import load
from policies import Policy, Site
from policies.registry import registry
from policies.topo_aware.policy import TopoAware, TopoAwareP
from simulation.core.jobs import SimJob
from simulation.traces.tables import from_sc17

#: The paper's policies, by the names they have here.
POLICIES = ("fcfs", "best-fit", "topo-aware", "topo-aware-p")
#: The machine of section 3.1.
MACHINE = "minsky"


def loaded(name: str) -> Any:
    """One of the authors' files."""
    packed = resources.files(__package__).joinpath(f"{name}.json.gz").read_bytes()
    return json.loads(gzip.decompress(packed))


def workload(name: str) -> list[SimJob]:
    """One of the authors' workloads; durations come from their profile, not from it."""
    return from_sc17(name, loaded(name)).jobs


def cluster(machines: int) -> dict[str, NodeTopology]:
    """So many machines of section 3.1, by name."""
    return {f"minsky{number:04}": load(MACHINE) for number in range(1, machines + 1)}


def policies() -> Mapping[str, Policy]:
    """The four policies, in the paper's order; `mapa`; then the last two as other rows have them.

    The four know what the execution times are made of. `pessimistic` ones expect that single
    GPUs are slowed, as jobs of their batch size are by the paper's words, though here they are
    not. Those `as printed` go by eqs. 2 to 5 as they stand in the paper.
    """
    from papers.experiments.sc17.printed import PrintedSolutions
    from papers.experiments.sc17.profile import interference_of

    data = loaded("prof_from_experiments_full")
    measured = interference_of(data)
    site = Site(interference=measured)
    policies = {name: registry.build(name, site=site) for name in (*POLICIES, "mapa")}
    site = Site(interference=interference_of(data, with_single_gpus=False))
    for name in POLICIES[2:]:
        policies[f"{name}, pessimistic"] = registry.build(name, site=site)
    solutions = PrintedSolutions(measured)
    for policy in (TopoAware, TopoAwareP):
        policies[f"{policy.name}, as printed"] = policy(solutions)
    return policies
