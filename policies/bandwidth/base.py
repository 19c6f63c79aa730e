"""What every bandwidth model is."""

from __future__ import annotations

from abc import ABC, abstractmethod

from gres_topology import NodeTopology
from policies.contract.bits import Floats, Ints
from policies.errors import PolicyError


class BandwidthModel(ABC):
    """Predicts the effective bandwidth of many sets of one size at once."""

    name: str

    @abstractmethod
    def refusal(self, topology: NodeTopology, pattern: str, k: int) -> str | None:
        """Why the model does not hold for this machine, pattern and size; None if it does."""

    def effbw_gbps(self, topology: NodeTopology, pattern: str, k: int, weakest: Ints) -> Floats:
        """GB/s for every row of `members(gpus, k)`.

        `weakest` is the narrowest link of each set's widest matching, in MB/s. Raises
        PolicyError where the model does not hold.
        """
        reason = self.refusal(topology, pattern, k)
        if reason:
            raise PolicyError(f"{reason}; use the model `rings`")
        return self._effbw_gbps(topology, k, weakest)

    @abstractmethod
    def _effbw_gbps(self, topology: NodeTopology, k: int, weakest: Ints) -> Floats:
        """The same where the model holds."""
