"""What a policy and its callers agree on: the nouns, the class to derive, hints and settings.

A policy of your own needs these names and `policies.scoring.measured`
(docs/writing-a-policy.md).
"""

from policies.contract.bits import gpus_of, mask_of
from policies.contract.hint_keys import HintKey, count, number, one_of
from policies.contract.nodes import assign, assign_near, groups_of
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
from policies.contract.settings import setting

__all__ = [
    "Candidate",
    "Cluster",
    "HintKey",
    "LooksAt",
    "NodeState",
    "Placement",
    "Policy",
    "Request",
    "RunningJob",
    "Site",
    "Wait",
    "assign",
    "assign_near",
    "count",
    "gpus_of",
    "groups_of",
    "mask_of",
    "number",
    "one_of",
    "setting",
]
