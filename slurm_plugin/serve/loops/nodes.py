"""Finds the nodes that gputopo.yaml declares by their features, as they come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from time import monotonic
from typing import Any

from gres_topology import features
from slurm_plugin.config.settings import Config
from slurm_plugin.decide.kept_nodes import ToldNodes
from slurm_plugin.errors import PluginError, SlurmError
from slurm_plugin.learn import by_feature
from slurm_plugin.serve.loops.queue_loop import RegularLoop
from slurm_plugin.serve.service import Engine
from slurm_plugin.serve.setup import Setup
from slurm_plugin.slurm.interface import SlurmNode

logger = logging.getLogger(__name__)

#: Seconds between two looks at what slurmctld's plugin told of its nodes, and at a configuration
#: that declares none by features.
LOOK_S, IDLE_S = 2.0, 60.0
#: Features are asked for at least this often: where the plugin tells which nodes there are, and
#: where there is none. It takes Slurm and us no more than so small a part of the time.
TOLD_S, UNTOLD_S, PART = 60.0, 10.0, 50
#: New nodes that come one by one are taken together: for so long, and longer while more come.
GATHER_S, LONGEST_S = 10.0, 60.0


def _is_used(config: Config) -> bool:
    """Does a set of nodes go by features?"""
    return any(one.features for one in config.nodes)


def find(config: Config, nodes: Iterable[SlurmNode]) -> by_feature.Found:
    """The nodes of each set by features; one that two of them mean is in both.

    Raises `features.Unsupported` for features that cannot be judged.
    """
    wanted = dict.fromkeys(one.features for one in config.nodes if one.features)
    rows = [(node.name, frozenset(node.features)) for node in nodes]
    return {
        one: tuple(sorted(name for name, has in rows if features.holds(one, has))) for one in wanted
    }


class NodesLoop(RegularLoop):
    """Asks Slurm for its nodes' features, for as long as gputopo.yaml goes by them."""

    name = "nodes"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        #: For which configuration and which nodes Slurm was asked last.
        self._asked: tuple[Config | None, ToldNodes | None] = (None, None)
        #: It is asked again by then; and, for other nodes, not before (seconds of `monotonic`).
        self._due = self._not_before = 0.0
        self._found: by_feature.Found = {}
        self._gather_s = GATHER_S
        #: Why what was found cannot be kept.
        self._failure = ""

    def status(self) -> dict[str, Any]:
        """What `gputopo status` shows; nothing where no nodes are declared by features."""
        if not _is_used(self.engine.setup.config):
            return {}
        return {"nodes_by_feature": {one: len(names) for one, names in self._found.items()}}

    def poll_s(self, setup: Setup) -> float:
        """Seconds between two looks."""
        return LOOK_S if _is_used(setup.config) else IDLE_S

    async def next_s(self, setup: Setup, since: float) -> float:
        """One look, and a question where nodes may have come or gone."""
        config = setup.config
        if not _is_used(config):
            return IDLE_S
        latest = self.engine.tables.latest
        told, began = latest.told if latest else None, monotonic()
        former, told_before = self._asked
        is_due = began >= self._due or config is not former
        if not is_due and (told is told_before or began < self._not_before):
            return LOOK_S
        self._asked = config, told
        try:
            nodes = await asyncio.to_thread(lambda: tuple(setup.client.nodes()))
        finally:
            # After an answer that did not come, too: then Slurm has too much to do already.
            rest_s = PART * (monotonic() - began)
            self._due = monotonic() + max(rest_s, UNTOLD_S if told is None else TOLD_S)
            self._not_before = monotonic() + rest_s
        if not nodes:
            raise SlurmError("Slurm shows no nodes; those declared by features stay as they were")
        found = await asyncio.to_thread(find, config, nodes)
        # Another engine may have kept it already, and a reload may have failed.
        is_new = await asyncio.to_thread(self._keep, config, found) or not self._is_in_force(found)
        if is_new:
            self._not_before = max(self._not_before, monotonic() + self._gather_s)
            await self.engine.reload(config)
        self._gather_s = min(2 * self._gather_s, LONGEST_S) if is_new else GATHER_S
        self._found = found
        return LOOK_S

    def _is_in_force(self, found: by_feature.Found) -> bool:
        """Does the engine decide about these very nodes, beside those of the host lists?"""
        setup = self.engine.setup
        listed = {name for one in setup.config.nodes for name in one.nodes}
        names = {name for some in found.values() for name in some}
        return names - listed == setup.machines.keys() - listed

    def _keep(self, config: Config, found: by_feature.Found) -> bool:
        """Keep what was found; whether that is not what was kept before."""
        failure, is_new = "", False
        try:
            is_new = by_feature.keep(config.state_dir, found)
        except PluginError as error:
            failure = str(error)
        if failure and failure != self._failure:
            logger.error("%s; nodes declared by features stay as they were", failure)
        self._failure = failure
        return is_new
