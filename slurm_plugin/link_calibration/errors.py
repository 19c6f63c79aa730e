"""The one error of this folder."""

from slurm_plugin.errors import PluginError


class CalibrationError(PluginError):
    """A log or a model file is not what it should be; one line that starts with its name."""
