"""Job logs of every kind a site has at hand, read into the same jobs.

The format is recognised by the file's beginning, not by its name; `.gz` is unpacked. What
cannot be used is counted and named, never dropped in silence.
"""

from simulation.traces.reading import read
from simulation.traces.trace import Rejected, Trace, prepare

__all__ = ["Rejected", "Trace", "prepare", "read"]
