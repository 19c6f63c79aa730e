"""What every bandwidth model is."""

from __future__ import annotations

from abc import ABC, abstractmethod

from gres_topology import NodeTopology
from policies.contract.bits import Floats, Ints


class BandwidthModel(ABC):
    """Predicts the effective bandwidth of many sets of one size at once."""

    name: str

    @abstractmethod
    def refusal(self, topology: NodeTopology, pattern: str, k: int) -> str | None:
        """Why the model does not hold for this machine, pattern and size; None if it does."""

    @abstractmethod
    def effbw_gbps(self, topology: NodeTopology, k: int, weakest: Ints) -> Floats:
        """GB/s for every row of `members(gpus, k)`. Ask only where `refusal` returned None.

        `weakest` is the narrowest link of each set's widest matching, in MB/s.
        """
