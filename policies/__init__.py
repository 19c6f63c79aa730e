"""What decides: (request, snapshot of the cluster) -> placement or wait, with reasons.

Pure: opens no file, no socket, no clock. Imports only gres_topology. A policy is a subclass of
`Policy` (docs/writing-a-policy.md); `policies.registry` has them by name.
"""

from policies.contract.nouns import (
    Candidate,
    Cluster,
    NodeState,
    Placement,
    Request,
    RunningJob,
    Wait,
)
from policies.contract.policy import LooksAt, Policy, Site

__all__ = [
    "Candidate",
    "Cluster",
    "LooksAt",
    "NodeState",
    "Placement",
    "Policy",
    "Request",
    "RunningJob",
    "Site",
    "Wait",
]
