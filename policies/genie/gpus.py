"""`genie` as a placing policy: the GPUs inside each node of a job whose shape is settled.

GENIE chooses nodes and GPUs per node (Chen et al., TPDS, section 5.3) and says nothing about which
GPUs of a node; here they are chosen by bandwidth, as for any other job.
"""

from __future__ import annotations

from policies.genie.submit import HINTS
from policies.mapa import Mapa


class GenieGpus(Mapa):
    """As `mapa`, and reads what a job must say to be shaped."""

    name = "genie"
    hints = (*Mapa.hints, *HINTS)
