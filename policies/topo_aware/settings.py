"""What a site may set of `topo-aware` and `topo-aware-p`."""

from __future__ import annotations

from dataclasses import dataclass

from policies.contract.settings import setting


@dataclass(frozen=True, slots=True)
class TopoAwareSettings:
    """Weights of the utility's terms, which count by their shares, and memory bandwidth."""

    communication: float = setting(1.0, "Weight of the term of distance.", high=1000)
    interference: float = setting(1.0, "Weight of the term of neighbours.", high=1000)
    fragmentation: float = setting(1.0, "Weight of the term of whole sockets.", high=1000)
    socket_memory_gbps: float = setting(
        0.0,
        "Host memory bandwidth of one socket, GB/s, for `memory-bandwidth`; 0: not checked.",
        high=100_000,
    )

    def conflict(self) -> tuple[str, str] | None:
        """Without any weight there is nothing to choose by."""
        if self.communication + self.interference + self.fragmentation:
            return None
        return "", "all three weights are 0; expected one above"
