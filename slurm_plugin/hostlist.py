"""Slurm's host list notation; see `gres_topology.hostlist`, whose readers need it too."""

from gres_topology.hostlist import MAX_HOSTS, expand

__all__ = ["MAX_HOSTS", "expand"]
