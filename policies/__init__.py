"""What decides: (request, snapshot of the cluster) -> placement or wait, with reasons.

Pure: opens no file, no socket, no clock. Imports only gres_topology.
"""

from policies.contract.nouns import (
    Candidate,
    Cluster,
    NodeState,
    Placement,
    Policy,
    Request,
    RunningJob,
    Wait,
)

__all__ = [
    "Candidate",
    "Cluster",
    "NodeState",
    "Placement",
    "Policy",
    "Request",
    "RunningJob",
    "Wait",
]
