"""first-fit: the lowest GPU ids of the first nodes with room. The contract in thirty lines."""

from __future__ import annotations

from policies.contract.assign import assign
from policies.contract.bits import gpus_of
from policies.contract.nouns import Cluster, Placement, Request, Wait
from policies.contract.policy import Policy
from policies.scoring.measure import measured


class FirstFit(Policy):
    """Takes what comes first: by node weight, node name, GPU index."""

    name = "first-fit"

    def place(self, request: Request, cluster: Cluster) -> Placement | Wait:
        """Choose GPUs for one job that fits."""
        pairs = assign(
            request.gpus_per_node, cluster.nodes, lambda state, count: (), kind=self.name
        )
        gpus = {state.name: gpus_of(state.free)[:count] for state, count in pairs}
        reason = "the lowest free GPU ids of the first nodes with room"
        return measured(gpus, request, cluster, self.name, reason)


class Fcfs(FirstFit):
    """The same under the name that the TOPO-AWARE paper (SC'17) gives its baseline."""

    name = "fcfs"
