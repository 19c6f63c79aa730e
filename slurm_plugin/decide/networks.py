"""The networks between nodes by which questions are answered.

Where the site names a topology_conf, they are those that slurmctld has in force; the file counts
where slurmctld does not say, or weighs no network itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from gres_topology import Network
from gres_topology.slurm_files.network import Networks

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class NetworksInForce:
    """Changed by the event loop alone; questions look up one network each."""

    #: What topology_conf says; None where the site names none: Slurm chooses the nodes.
    file: Networks | None = None
    #: What slurmctld said last, and since when (epoch) it says so.
    told: Networks | None = None
    since: float = 0.0

    def of(self, name: str) -> Network | None:
        """The topology of that name, the default one for an empty name; None for no such name."""
        if self.file is None:
            return None
        told = self.told.of(name) if self.told else None
        return self.file.of(name) if told is None or not told.kind else told

    def take(self, told: Networks, now: float) -> None:
        """slurmctld has these in force now (epoch); one that it does not tell stays as it was."""
        before = self.told.by_name if self.told else {}
        by_name = {
            name: network if network.kind else before.get(name, network)
            for name, network in told.by_name.items()
        }
        told = Networks(by_name, by_name.get("", told.default))
        if told == self.told:
            return
        if self.told is not None:
            logger.warning("slurmctld has another topology in force: it counts from now on")
        self.told, self.since = told, now

    def status(self) -> Mapping[str, object]:
        """What `gputopo status` shows: by topology its kind, and where that is from."""
        if self.file is None:
            return {}
        names = dict.fromkeys(("", *(self.told.by_name if self.told else ()), *self.file.by_name))
        known = {name: network for name in names if (network := self.of(name)) is not None}
        return {
            "since": self.since,
            "topologies": {
                name: {"kind": network.kind, "from": network.source}
                for name, network in known.items()
            },
        }
