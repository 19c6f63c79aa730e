"""Plain policies lifted to a queue: first in, first out, one request after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from policies.nouns import Cluster, Placement, Policy, Request, Wait


def fits(request: Request, cluster: Cluster) -> bool:
    """Whether there are distinct nodes with enough free GPUs for every count."""
    free = sorted((node.free.bit_count() for node in cluster.nodes.values()), reverse=True)
    wanted = sorted(request.gpus_per_node, reverse=True)
    return len(wanted) <= len(free) and all(
        count <= room for count, room in zip(wanted, free, strict=False)
    )


def without(cluster: Cluster, placement: Placement) -> Cluster:
    """The snapshot with a placement's GPUs no longer free."""
    nodes = dict(cluster.nodes)
    for name, gpus in placement.gpus.items():
        taken = sum(1 << gpu for gpu in gpus)
        nodes[name] = replace(nodes[name], free=nodes[name].free & ~taken)
    return replace(cluster, nodes=nodes)


@dataclass(frozen=True, slots=True)
class FifoPlan:
    """Plans a whole queue with a policy that decides job by job."""

    policy: Policy

    def plan(
        self, requests: Sequence[Request], cluster: Cluster
    ) -> list[tuple[Request, Placement | Wait]]:
        """Decisions from the head of the queue on, up to the first job that does not fit.

        A job that waits by its own wish (Wait) lets later ones pass; one that does not fit
        stops the queue, so that nobody overtakes it.
        """
        decided: list[tuple[Request, Placement | Wait]] = []
        for request in requests:
            if not fits(request, cluster):
                break
            answer = self.policy.place(request, cluster)
            decided.append((request, answer))
            if isinstance(answer, Placement):
                cluster = without(cluster, answer)
        return decided
