"""What the checks look at, read once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from slurm_plugin.config import settings as config
from slurm_plugin.config.sections import SlurmConfig
from slurm_plugin.config.settings import Config
from slurm_plugin.decide.load_machines import load_machines
from slurm_plugin.decide.machines import Machines
from slurm_plugin.errors import PluginError
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import SlurmNode

#: Where it is if nobody says otherwise.
SLURM_CONF = "/etc/slurm/slurm.conf"


class Installation:
    """One installation. Each attribute raises PluginError where it cannot be read."""

    def __init__(self, path: Path, make_client: Callable[[SlurmConfig], SlurmClient]) -> None:
        self.path = path
        self._make_client = make_client

    @cached_property
    def config(self) -> Config:
        """The settings of gputopo.yaml."""
        return config.load(self.path, writes=False)

    @cached_property
    def machines(self) -> Machines:
        """The declared nodes' hardware."""
        return load_machines(self.config)

    @cached_property
    def slurm(self) -> SlurmClient:
        """Slurm, reached as the configuration says (or by PATH without one)."""
        try:
            settings = self.config.slurm
        except PluginError:
            settings = SlurmConfig()
        return self._make_client(settings)

    @cached_property
    def slurm_config(self) -> dict[str, str]:
        """`scontrol show config`."""
        return dict(self.slurm.config())

    @property
    def slurm_conf(self) -> Path:
        """The slurm.conf that slurmctld has read."""
        return Path(self.slurm_config.get("SLURM_CONF") or SLURM_CONF)

    def beside_slurm_conf(self, name: str) -> Path:
        """A file in the directory of slurm.conf."""
        return self.slurm_conf.with_name(name)

    @cached_property
    def nodes(self) -> list[SlurmNode]:
        """Slurm's nodes."""
        return self.slurm.nodes()
