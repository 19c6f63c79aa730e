"""What keeps a job from a node, or from placing at all (SC17, sections 4.3 and 4.4).

GPUs: the contract's counts, each on a node with room. Memory bandwidth: what the job needs
must be left beside what the node's jobs use. Single node and anti-collocation are about the counts,
which are Slurm's: where they do not agree the job waits for Slurm to offer others.
"""

from __future__ import annotations

from policies.contract.nouns import Request
from policies.topo_aware.index import StateGroup


def memory_of(request: Request) -> float:
    """Host memory bandwidth the job needs on each of its nodes, GB/s."""
    return float(request.options.get("memory-bandwidth", "0"))


def against_counts(request: Request) -> str:
    """Why these counts are not what the job allows; empty if they are."""
    counts = request.gpus_per_node
    if request.options.get("single-node") == "yes" and len(counts) > 1:
        return f"single-node: Slurm offers {len(counts)} nodes; ask with --nodes=1"
    if request.options.get("anti-collocation") == "yes" and counts[0] > 1:
        return (
            f"anti-collocation: Slurm offers {counts[0]} GPUs of one node;"
            " ask with --gpus-per-node=1 and --nodes"
        )
    return ""


def has_memory(group: StateGroup, need_gbps: float, socket_gbps: float, sockets: int) -> bool:
    """Whether a node of the group has the host memory bandwidth left."""
    if need_gbps <= 0 or socket_gbps <= 0:
        return True
    used = sum(job.memory_gbps for job in group.state.beside)
    return used + need_gbps <= socket_gbps * sockets
