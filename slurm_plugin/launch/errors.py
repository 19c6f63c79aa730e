"""The exception of this folder."""

from slurm_plugin.errors import PluginError


class LaunchError(PluginError):
    """A machine does not fit a launch table; the text says what was expected."""
