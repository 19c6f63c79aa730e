"""What stock Slurm itself chooses: a model of select/cons_tres, as policies of the simulator alone.

`choose` gives the nodes, GPUs and cores of one job. It is written after what Slurm 24.11 does, and
tests/cluster/placement/test_stock_live.py compares it with a live Slurm.
"""

from simulation.stock.choice import choose
from simulation.stock.nouns import Ask, NodeOrder, StockMachine, StockNode, Taken, machine_of
from simulation.stock.policy import STOCK, Stock, policy_named

__all__ = [
    "STOCK",
    "Ask",
    "NodeOrder",
    "Stock",
    "StockMachine",
    "StockNode",
    "Taken",
    "choose",
    "machine_of",
    "policy_named",
]
