"""DRMaestro: batch placement of all waiting jobs, with remote GPUs, as minimum-cost flow.

M. Amaral, doctoral thesis, UPC, chapter 5. It is not among the policies a job can ask
for: the engine asks it about jobs that fit on no node, where a site sets it so.
"""

from policies.remote.drmaestro.costs import Costs, utility
from policies.remote.drmaestro.flow import best_solver, by_networkx, by_ortools
from policies.remote.drmaestro.planner import HELD_BACK, DRMaestro, slowdown
from policies.remote.drmaestro.profiles import RODINIA, NetworkProfile

__all__ = [
    "HELD_BACK",
    "RODINIA",
    "Costs",
    "DRMaestro",
    "NetworkProfile",
    "best_solver",
    "by_networkx",
    "by_ortools",
    "slowdown",
    "utility",
]
