"""The one base exception of this folder."""


class SimulationError(ValueError):
    """A workload or cluster that cannot be replayed; the message says which part of it."""
