"""Who lends to a job that does not fit: the R queue's choice, among nodes of one GPU model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from policies import Request
from policies.r_queue import LEAST_OCCUPIED, LOCAL_FIRST, RQueue
from policies.remote import RemoteJob, RemotePlacement
from policies.remote import Room as RemoteRoom
from slurm_plugin.protocol import Submit
from slurm_plugin.remote.settings import RemoteConfig
from slurm_plugin.slots.candidates import Need, may_use
from slurm_plugin.slots.room import Hold, Node, Room

ORDERS = {"local-first": LOCAL_FIRST, "least-occupied": LEAST_OCCUPIED}


@dataclass(frozen=True, slots=True)
class Offer:
    """Local slots (`mask` of `host`) and donors' slots; `holds` is all that they take."""

    host: str
    mask: int
    donors: Mapping[str, int]
    holds: tuple[Hold, ...] = ()


def may_borrow(asked: Submit) -> bool:
    """Can a job of this kind borrow? Batch jobs of one node with GPUs counted per node.

    Others ask Slurm for GPUs in ways that their steps repeat, or get them on several nodes.
    """
    keys = asked.slots
    return (
        keys is not None
        and keys.form == "node"
        and keys.batch
        and not (keys.array or keys.het or keys.exclusive or keys.req_nodes)
        and not (keys.cpus_per_gpu or keys.mem_gpu_mb)
        and not keys.tpn.startswith("gres:")
        and asked.nodes <= 1
        and asked.max_nodes <= 1
        and asked.per_node >= 2
    )


def offer(need: Need, room: Room, settings: RemoteConfig, end: float) -> Offer | None:
    """The best loan for this need now (until `end`, an epoch); None where there is none.

    At least one GPU is local. Of several GPU models, the one that needs the fewest donors' GPUs.
    """
    one = replace(need, gpus=1)
    models: dict[str, list[Node]] = {}
    for node in room.values():
        if node.is_open and node.slots and may_use(one, node):
            models.setdefault(_model(node), []).append(node)
    found = []
    for _, nodes in sorted(models.items()):
        placed = _placed(need, nodes, settings)
        if placed is not None:
            found.append(_offer(placed, need, settings, end))
    return max(found, key=lambda one: one.mask.bit_count(), default=None)


def _model(node: Node) -> str:
    return node.slots[0].rpartition(".")[0]


def _placed(need: Need, nodes: list[Node], settings: RemoteConfig) -> RemotePlacement | None:
    queue = RQueue(
        donors=ORDERS[settings.donors],
        donor_cpus=settings.donor_cpus,
        donor_memory_mb=settings.donor_memory_mb,
    )
    rooms = {
        node.name: RemoteRoom(
            node.name,
            node.free,
            node.cpus,
            node.memory_mb,
            settings.donor_cpus,
            settings.donor_memory_mb,
        )
        for node in sorted(nodes, key=lambda node: node.name)
    }
    job = RemoteJob(Request((need.gpus,)), need.cpus, need.memory_mb)
    answer = queue.decide(job, rooms, {node.name: node.jobs for node in nodes})
    if not isinstance(answer, RemotePlacement) or not answer.tasks[0].local:
        return None
    most = settings.preset.max_donors
    return answer if answer.remote_gpus and not (most and len(answer.donors) > most) else None


def _offer(placed: RemotePlacement, need: Need, settings: RemoteConfig, end: float) -> Offer:
    [task] = placed.tasks
    mask = sum(1 << gpu for gpu in task.local)
    holds = [Hold({task.node: mask}, need.cpus, need.memory_mb, end)]
    for node, lent in placed.donors.items():
        gpus = lent.bit_count()
        cpus, memory_mb = settings.donor_cpus * gpus, settings.donor_memory_mb * gpus
        holds.append(Hold({node: lent}, cpus, memory_mb, end))
    return Offer(task.node, mask, dict(placed.donors), tuple(holds))
