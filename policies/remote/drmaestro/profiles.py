"""How much applications with remote GPUs feel the network (thesis sections 3.3.3 and 5.4.2)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NetworkProfile:
    """Shares of the time spent on an idle and on a fully loaded network, all GPUs remote.

    A loaded network is taken to lengthen the network's part alone.
    """

    idle: float
    loaded: float

    @property
    def overhead(self) -> float:
        """By which share remote GPUs lengthen the job on an idle network."""
        return 1 / (1 - self.idle) - 1

    @property
    def sensitivity(self) -> float:
        """By which share a fully loaded network lengthens it further (`RemoteJob.sensitivity`)."""
        return (1 - self.idle) / (1 - self.loaded) - 1


#: Section 3.3.3's percentages; it prints none for Hotspot.
RODINIA = {
    "b+tree": NetworkProfile(0.002, 0.01),
    "nw": NetworkProfile(0.17, 0.49),
    "backprop": NetworkProfile(0.05, 0.06),
    "gaussian": NetworkProfile(0.01, 0.09),
    "lavamd": NetworkProfile(0.02, 0.03),
    "pathfinder": NetworkProfile(0.02, 0.11),
    "srad": NetworkProfile(0.03, 0.08),
}

#: The thesis's neutral factor for an application without a profile (section 5.4, inference).
UNKNOWN_SENSITIVITY = 1.0
