"""Replaces Slurm and the clock; imports the same policies the engine runs."""

from simulation.errors import SimulationError
from simulation.judge import Summary, Verdict, judge, summarise
from simulation.replay import Record, replay
from simulation.workload import SimJob, mixed_jobs

__all__ = [
    "Record",
    "SimJob",
    "SimulationError",
    "Summary",
    "Verdict",
    "judge",
    "mixed_jobs",
    "replay",
    "summarise",
]
