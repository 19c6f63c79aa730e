"""TOPO-AWARE and TOPO-AWARE-P: utility-driven placement (Amaral et al., SC17).

`policies(settings, interference)` makes the two; the registry holds them with the paper's
equal weights and the default model of interference.
"""

from policies.topo_aware.policy import TopoAware, policies
from policies.topo_aware.solver import Settings
from policies.topo_aware.utility import Weights

TOPO_AWARE, TOPO_AWARE_P = policies()

__all__ = ["TOPO_AWARE", "TOPO_AWARE_P", "Settings", "TopoAware", "Weights", "policies"]
