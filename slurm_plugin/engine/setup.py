"""Everything the engine works with, built from one configuration and swapped as a whole."""

from __future__ import annotations

import gc
import logging
from dataclasses import dataclass
from pathlib import Path

from gres_topology import NodeTopology
from policies import Cluster, NodeState, Policy, Request
from policies.patterns import TABULATED
from policies.registry import registry
from slurm_plugin import config as configuration
from slurm_plugin.config import Config
from slurm_plugin.enforcement import Enforcement, Select, Slots
from slurm_plugin.engine.decide import Decider
from slurm_plugin.engine.load_machines import load_machines
from slurm_plugin.engine.machines import Machines
from slurm_plugin.engine.rules import Rules
from slurm_plugin.slots.board import Board
from slurm_plugin.slurm import choose

logger = logging.getLogger(__name__)

#: Job sizes per node whose tables are computed before the first question.
WARM_GPUS = 8


@dataclass(frozen=True, slots=True)
class Setup:
    """One configuration, ready to answer."""

    config: Config
    machines: Machines
    enforcement: Enforcement

    def policies(self) -> list[Policy]:
        """The policies the partitions name, each once."""
        names = {rule.policy for rule in self.config.partitions.values() if rule.mode != "off"}
        personal = (*self.config.accounts.values(), *self.config.users.values())
        names |= {rule.policy for rule in personal if rule.policy}
        return [registry.get(name) for name in sorted(names)]

    def tables_bytes(self) -> int | None:
        """Memory of the policies' tables; None where no policy tells."""
        # Variants of one policy share their tables: each kind is counted once.
        kinds = {type(policy): getattr(policy, "tables_bytes", None) for policy in self.policies()}
        told = [int(size()) for size in kinds.values() if callable(size)]
        return sum(told) if told else None


def load(path: Path, board: Board | None = None) -> Setup:
    """Read, build and warm up; raises ConfigError naming file, line and key.

    `board` is what `enforcement: slots` knows of Slurm, kept from one configuration to the
    next. Raises SlurmError where the chosen Slurm client cannot work on this host.
    """
    config = configuration.load(path)
    choose.check(config.slurm)
    machines = load_machines(config)
    decider = Decider(machines, Rules(config), config.waiting, registry.get)
    enforcement: Enforcement = Select(decider)
    if config.enforcement == "slots":
        enforcement = Slots(decider, board or Board(), config.slots.lease_s)
    setup = Setup(config, machines, enforcement)
    warm_up(setup)
    return setup


def warm_up(setup: Setup) -> None:
    """Ask every policy once per machine kind and job size, so that tables are computed.

    On nodes of at most `WARM_GPUS` GPUs the policies in use then answer every free mask
    for the default pattern, so that no first question of its kind is slow.
    """
    kinds = {m.topology.shape: m.topology for m in setup.machines.values() if m.topology}
    # The common one first: a reload under load is useful before it is complete.
    patterns = ("ring", *(pattern for pattern in TABULATED if pattern != "ring"))
    for policy in setup.policies():
        for topology in kinds.values():
            full = (1 << topology.gpus) - 1
            cluster = Cluster({"warm-up": NodeState("warm-up", topology, full, weight=1)})
            for pattern in patterns if "pattern" in registry.hints_of(policy.name) else ("ring",):
                _warm(policy, pattern, topology, cluster)
        for topology in kinds.values():
            if topology.gpus <= WARM_GPUS:
                for free in range(1, (1 << topology.gpus) - 1):
                    cluster = Cluster({"warm-up": NodeState("warm-up", topology, free, weight=1)})
                    _warm(policy, "ring", topology, cluster)
    gc.collect()
    # Tables live as long as the process: keep them out of every later collection.
    gc.freeze()


def _warm(policy: Policy, pattern: str, topology: NodeTopology, cluster: Cluster) -> None:
    free = cluster.nodes["warm-up"].free.bit_count()
    for gpus in range(1, min(WARM_GPUS, free) + 1):
        try:
            policy.place(Request((gpus,), pattern=pattern), cluster)
        except Exception:
            logger.exception(
                "%s fails for %d GPUs of %s in a %s", policy.name, gpus, topology.name, pattern
            )
