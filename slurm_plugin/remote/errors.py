"""What goes wrong with GPUs lent over the network."""

from __future__ import annotations

from slurm_plugin.errors import PluginError


class RemoteError(PluginError):
    """A preset is wrong, or a donor cannot serve; one line for people."""


class Refused(RemoteError):
    """The other side is not who it should be, or says that we are not."""


class HungUp(Refused):
    """The other side turned us away before it knew who we are; another try may succeed."""
