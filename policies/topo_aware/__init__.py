"""TOPO-AWARE and TOPO-AWARE-P: utility-driven placement (Amaral et al., SC17)."""

from policies.topo_aware.policy import TopoAware, TopoAwareP
from policies.topo_aware.settings import TopoAwareSettings

__all__ = ["TopoAware", "TopoAwareP", "TopoAwareSettings"]
