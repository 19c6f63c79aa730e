"""What listens beside the socket where the site wants it: explanations and metrics.

Neither is needed to place a job, so neither may keep the engine from starting.
"""

from __future__ import annotations

import logging

from slurm_plugin.errors import PluginError
from slurm_plugin.explain.listener import ExplainListener
from slurm_plugin.serve.metrics import Metrics
from slurm_plugin.serve.service import Engine

logger = logging.getLogger(__name__)


class Extras:
    """The optional listeners of one engine; their addresses need a restart to change."""

    def __init__(self, engine: Engine) -> None:
        config = engine.setup.config
        self._configured: list[ExplainListener | Metrics] = []
        if config.explain_listen is not None:
            listener = ExplainListener(
                config.explain_listen,
                lambda: (engine.setup.config.decision_log, engine.setup.machines),
            )
            self._configured.append(listener)
        if config.metrics_listen is not None:
            self._configured.append(Metrics(config.metrics_listen, engine))
        self._started: list[ExplainListener | Metrics] = []

    async def start(self) -> None:
        """Start what is configured; what fails is logged and left out."""
        for one in self._configured:
            self._started.append(one)
            try:
                await one.start()
            except PluginError as error:
                logger.error("%s; going on without", error)

    async def stop(self) -> None:
        """Stop what was started."""
        for one in self._started:
            await one.stop()
