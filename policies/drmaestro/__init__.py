"""DRMaestro: batch placement of all waiting jobs, with remote GPUs, as minimum-cost flow.

M. Amaral, doctoral thesis, UPC, chapter 5. It decides; nothing in the engine enacts it yet, so
it is not among the policies a job can ask for.
"""

from policies.drmaestro.flow import best_solver, by_networkx, by_ortools
from policies.drmaestro.phases import Costs
from policies.drmaestro.planner import DRMaestro, placed_cost, slowdown
from policies.drmaestro.profiles import RODINIA, NetworkProfile, sensitivity_of

__all__ = [
    "RODINIA",
    "Costs",
    "DRMaestro",
    "NetworkProfile",
    "best_solver",
    "by_networkx",
    "by_ortools",
    "placed_cost",
    "sensitivity_of",
    "slowdown",
]
