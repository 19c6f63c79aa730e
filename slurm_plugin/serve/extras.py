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
        self._engine = engine
        self._explain: ExplainListener | None = None
        self._metrics: Metrics | None = None

    async def start(self) -> None:
        """Start what is configured; what fails is logged and left out."""
        config = self._engine.setup.config
        if config.explain_listen is not None:
            self._explain = ExplainListener(config.explain_listen, lambda: self._engine.setup)
            try:
                await self._explain.start()
            except PluginError as error:
                logger.error("%s; going on without", error)
        if config.metrics_listen is not None:
            self._metrics = Metrics(config.metrics_listen, self._engine)
            try:
                await self._metrics.start()
            except PluginError as error:
                logger.error("%s; going on without", error)

    async def stop(self) -> None:
        """Stop what was started."""
        if self._explain is not None:
            await self._explain.stop()
        if self._metrics is not None:
            await self._metrics.stop()
