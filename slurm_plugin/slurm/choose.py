"""The Slurm client that gputopo.yaml asks for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from slurm_plugin.slurm.clients import pyslurm_client
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.clients.pyslurm_client import PySlurm
from slurm_plugin.slurm.clients.rest import Rest
from slurm_plugin.slurm.runner import ProcessRunner, Runner

if TYPE_CHECKING:
    from slurm_plugin.config.sections import SlurmConfig

logger = logging.getLogger(__name__)


def check(settings: SlurmConfig) -> None:
    """SlurmError where the client can never work here; a missing slurmrestd is only logged."""
    if settings.client == "pyslurm":
        pyslurm_client.check()
    elif settings.client == "rest" and not settings.rest_socket.exists():
        logger.error(
            "slurm.client is rest, but %s does not exist (or this user may not see it): start"
            " slurmrestd or set slurm.rest_socket",
            settings.rest_socket,
        )


def client(settings: SlurmConfig, run: Runner | None = None) -> SlurmClient:
    """The client `slurm.client` names, not yet asked anything; SlurmError where it cannot work.

    Its commands are run by `run`, else as the settings say.
    """
    run = run or ProcessRunner(settings.bin_dir, settings.timeout_s)
    if settings.client == "rest":
        return Rest(settings.rest_socket, run, settings.timeout_s)
    if settings.client == "pyslurm":
        return PySlurm(run)
    return SlurmClient(run)
