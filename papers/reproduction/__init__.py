"""docs/reproduction.md: each table, figure and claim of the papers, and what our runs say of it.

A paper is a file here: its rows, what is claimed of each experiment, its plots, and sweeps over
what is not printed. `running` makes the runs, `page` the page.
"""

from papers.reproduction.claims import ExperimentRun, Paper
from papers.reproduction.drmaestro import DRMAESTRO
from papers.reproduction.genie import GENIE
from papers.reproduction.mapa import MAPA
from papers.reproduction.rqueue import RQUEUE
from papers.reproduction.sc17 import SC17

__all__ = ["PAPERS", "ExperimentRun", "Paper"]

PAPERS = (SC17, MAPA, GENIE, RQUEUE, DRMAESTRO)
