"""docs/reproduction.md: each table, figure and claim of the papers, and what our runs say of it.

A paper is a file here: its rows, what is claimed of each experiment, its plots, and sweeps over
what is not printed. `running` makes the runs, `page` the page.
"""

from simulation.reproduction.claims import ExperimentRun, Paper
from simulation.reproduction.drmaestro import DRMAESTRO
from simulation.reproduction.genie import GENIE
from simulation.reproduction.mapa import MAPA
from simulation.reproduction.rqueue import RQUEUE
from simulation.reproduction.sc17 import SC17

__all__ = ["PAPERS", "ExperimentRun", "Paper"]

PAPERS = (SC17, MAPA, GENIE, RQUEUE, DRMAESTRO)
