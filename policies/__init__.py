"""What decides: (request, snapshot of the cluster) -> placement or wait, with reasons.

Pure: opens no file, no socket, no clock. Imports only gres_topology. A policy of your own needs
these names and `policies.scoring.measured` (docs/writing-a-policy.md); `policies.registry` has
all policies by name.
"""

from policies.contract.assign import assign
from policies.contract.bits import gpus_of, mask_of
from policies.contract.hint_keys import HintKey, count, number, one_of
from policies.contract.nouns import (
    Ahead,
    Candidate,
    Cluster,
    NodeState,
    Placement,
    Release,
    Request,
    RunningJob,
    Wait,
    WaitingJob,
)
from policies.contract.policy import LooksAt, Policy, Site
from policies.contract.settings import setting

__all__ = [
    "Ahead",
    "Candidate",
    "Cluster",
    "HintKey",
    "LooksAt",
    "NodeState",
    "Placement",
    "Policy",
    "Release",
    "Request",
    "RunningJob",
    "Site",
    "Wait",
    "WaitingJob",
    "assign",
    "count",
    "gpus_of",
    "mask_of",
    "number",
    "one_of",
    "setting",
]
