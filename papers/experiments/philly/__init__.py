"""The Philly trace that comes with the project, and a cluster of its size.

15,000 jobs of Microsoft's cluster (Jeon et al., ATC'19, CC BY 4.0; attribution beside the file).
Its 552 nodes with 2,490 GPUs are taken as 231 nodes of eight, wired as a DGX-1P, and 321 of two on
one PCIe switch: section 2 of the paper has both kinds.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from gres_topology import NodeTopology
from gres_topology.catalog import declared, load
from simulation.traces import Trace, prepare, read

EIGHTS, TWOS = 231, 321
#: The trace's first days hold 5 % of its jobs.
QUIET_DAYS = 47
#: Its nodes of two, as a machine in YAML.
PAIR = """
name: pcie-pair
source: assumed, two GPUs behind one PCIe switch
model: Tesla P100-PCIE-16GB
rates: {pcie: 3}
gpus: 2
other_links: PIX
"""


def cluster() -> dict[str, NodeTopology]:
    """552 nodes, 2,490 GPUs."""
    eight = load("dgx1p")
    pair = declared.read(PAIR, name="pcie-pair", source="papers.experiments.philly")
    nodes = {f"eight{number:03}": eight for number in range(1, EIGHTS + 1)}
    return nodes | {f"pair{number:03}": pair for number in range(1, TWOS + 1)}


def trace() -> Trace:
    """The jobs after the quiet days, as this cluster can run them."""
    file = resources.files(__name__) / "philly_15k_2017.csv.gz"
    with resources.as_file(file) as path:
        return prepare(read(Path(path)), cluster(), skip_days=QUIET_DAYS)
