"""The engine inside Slurm: socket server, Slurm clients, enforcement, command line."""

from functools import cache


@cache
def version() -> str:
    """The version that is installed; a checkout that is not installed has none ("unknown")."""
    from importlib import metadata

    try:
        return metadata.version("slurm-gputopo")
    except metadata.PackageNotFoundError:
        return "unknown"
