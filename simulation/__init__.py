"""Replays job logs without Slurm: the clock is virtual, the policies are the ones that the engine
runs.

`core` has the clock, the jobs and the nodes; `models` the simulators on top of it; `traces` reads
logs; `stock` is what Slurm itself would choose; `report` turns runs into figures.
"""

from simulation.core.jobs import SimJob
from simulation.core.record import Record, SimulatedRun
from simulation.errors import SimulationError
from simulation.models.placing import Simulator

__all__ = ["Record", "SimJob", "SimulatedRun", "SimulationError", "Simulator"]
