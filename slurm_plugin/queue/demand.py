"""From a submit to what the job needs, and to the fields that give it slots or gate it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_plugin import hostlist
from slurm_plugin.protocol import Submit
from slurm_plugin.queue import slot_names as names
from slurm_plugin.queue.candidates import Group, Need
from slurm_plugin.queue.capacity import Room
from slurm_plugin.slots_keys import SlotsKeys
from slurm_plugin.slurm.gres_text import counts
from slurm_plugin.slurm.interface import QueuedJob

#: How the four requests are called in a bracket and on the wire, and in Slurm.
REQUESTS = {
    "tpn": "tres_per_node",
    "tpj": "tres_per_job",
    "tpt": "tres_per_task",
    "tps": "tres_per_socket",
}
#: Spread over more nodes than this is no job for which slots are looked for.
MAX_NODES = 64
#: Most nodes that a job may name, or exclude: their names are made anew at every look.
MAX_NAMED = 4096

_GPU = re.compile(r"(?:gres[/:])?gpu(?:[:=]|\Z)")


@dataclass(frozen=True, slots=True)
class Unplaceable(Exception):
    """Slots cannot serve this job: Slurm's own choice; the text says why."""

    why: str


def need_of(asked: Submit, room: Room, default_partition: str) -> Need:
    """What the job needs per node, on as few nodes as it may have.

    Raises Unplaceable where the GPUs per node cannot be known before the job starts.
    """
    keys = asked.slots
    sockets = sockets_of(asked)
    if keys is None or not (asked.gpus or sockets):
        raise Unplaceable("GPUs per node are not known before the start")
    if keys.reservation:
        raise Unplaceable("the job runs in a reservation")
    if keys.overcommit:
        # Slurm counts the tasks' CPUs again beside types, and never starts it.
        raise Unplaceable("with --overcommit Slurm starts no job on slots")
    nodes = _nodes(asked, keys, room)
    gpus = asked.gpus // nodes if keys.form in ("job", "task") else asked.per_node
    if keys.enforce_binding:
        _check_one_socket(gpus, sockets, room)
        sockets = 1
    in_all = gpus * nodes
    cpus = max(
        keys.cpus, keys.cpus_per_task * max(1, asked.tasks), keys.cpus_per_gpu * in_all, nodes
    )
    each = -(-cpus // nodes)
    memory = keys.mem_node_mb or keys.mem_cpu_mb * each or keys.mem_gpu_mb * gpus
    return Need(
        gpus,
        nodes,
        each,
        memory,
        frozenset(filter(None, (asked.partition or default_partition).split(","))),
        keys.features,
        node_names(keys.req_nodes),
        node_names(keys.exc_nodes),
        keys.exclusive,
        sockets,
    )


def _check_one_socket(gpus: int, sockets: int, room: Room) -> None:
    """Raises Unplaceable where a job that may use only cores near its GPUs needs several sockets.

    Slurm keeps to the cores near each GRES type in turn, and finds none near two sockets at once.
    """
    sizes = (mask.bit_count() for node in room.values() for mask in node.sockets)
    if sockets > 1 or gpus > max(sizes, default=0):
        raise Unplaceable("with --gres-flags=enforce-binding slots have to be of one socket")


def sockets_of(asked: Submit) -> int:
    """Sockets per node of --gpus-per-socket (which needs --sockets-per-node); 0 without."""
    keys = asked.slots
    if keys is None or keys.form != "socket":
        return 0
    each = gpus_of(keys.tps)
    return asked.per_node // each if each else 0


def gpus_of(text: str) -> int:
    """The GPUs that one request names, of whatever type."""
    gpus = [item.replace("=", ":") for item in text.split(",") if "gpu" in item]
    return sum(counts(",".join(gpus)).values())


def _nodes(asked: Submit, keys: SlotsKeys, room: Room) -> int:
    least = max(1, asked.nodes)
    if keys.form in ("node", "socket"):
        if not asked.per_node:
            raise Unplaceable("GPUs per node are not known before the start")
        return least
    largest = max((len(node.slots) for node in room.values()), default=0)
    for nodes in range(least, min(asked.max_nodes or MAX_NODES, MAX_NODES) + 1):
        even = asked.gpus % nodes == 0 and (keys.form != "task" or asked.tasks % nodes == 0)
        if even and asked.gpus // nodes <= largest:
            return nodes
    raise Unplaceable(f"{asked.gpus} GPUs cannot be spread evenly over the nodes asked for")


def slots_given(job: QueuedJob) -> dict[str, int]:
    """The slots that the job's request in Slurm names, with their GPU indices.

    Empty where it cannot be read: a user may have changed it, and the look goes on to others.
    """
    try:
        types = counts(job.tres_per_node) or counts(job.tres_per_job)
    except ValueError:
        return {}
    return {kind: i for kind in types if (i := names.index_of(kind)) is not None}


def nodes_given(job: QueuedJob) -> frozenset[str]:
    """The nodes that the job's request in Slurm names; empty as above."""
    try:
        return node_names(job.req_nodes)
    except Unplaceable:
        return frozenset()


def node_names(text: str) -> frozenset[str]:
    """The nodes of a host list; raises Unplaceable for one that cannot be read."""
    try:
        return frozenset(hostlist.expand(text, MAX_NAMED)) if text else frozenset()
    except ValueError as error:
        raise Unplaceable(f"node list: {error}") from error


def rest(text: str) -> str:
    """A request without its GPUs: `cpu=4,gres/gpu=1` leaves `cpu=4`."""
    return ",".join(item for item in text.split(",") if item and not _GPU.match(item))


def given_by(asked: Submit, keys: SlotsKeys) -> str:
    """The field that takes the slots: `node` or `job`.

    Steps of srun and salloc take over the job's GPUs only in the form they asked in: with a
    model by --gres that is the node's, else the whole job's.
    """
    return "node" if keys.batch or (keys.form == "node" and asked.type) else "job"


def original(asked: Submit, token: str) -> dict[str, str]:
    """What a bracket keeps, so that the request can be given back."""
    keys = asked.slots
    assert keys is not None
    counts = f"{asked.nodes or 1}-{asked.max_nodes or ''}"
    values = {key: getattr(keys, key) for key in REQUESTS}
    return {
        "token": token,
        **values,
        "nodes": counts,
        "begin": str(keys.begin) if keys.begin else "",
        "req": keys.req_nodes,
        "spn": str(sockets_of(asked) or ""),
        "cpg": str(keys.cpus_per_gpu) if keys.cpus_per_gpu else "",
        "cpt": str(keys.cpus_per_task) if keys.cpus_per_task else "",
        "by": given_by(asked, keys),
        "bind": "1" if keys.enforce_binding else "",
    }


def placed(asked: Submit, need: Need, group: Group, mask: int) -> dict[str, str]:
    """The fields (without the comment) that give the job these slots on these nodes."""
    keys = asked.slots
    assert keys is not None
    by = "tres_per_node" if given_by(asked, keys) == "node" else "tres_per_job"
    old = any(getattr(keys, key).startswith("gres:") for key in REQUESTS)
    count = 1 if by == "tres_per_node" else need.nodes
    slots = names.request(group.slots, mask, count)
    texts = {field: rest(getattr(keys, key)) for key, field in REQUESTS.items()}
    wanted = ",".join(f"gres{':' if old else '/'}{item}" for item in slots.split(","))
    texts[by] = ",".join(filter(None, (wanted, texts[by])))
    had = {field for key, field in REQUESTS.items() if getattr(keys, key)} | {by}
    values = {field: text for field, text in texts.items() if field in had}
    values["tres_bind"] = ""
    values["req_nodes"] = ",".join(group.names)
    values["min_nodes"] = values["max_nodes"] = str(need.nodes)
    if keys.cpus_per_gpu:
        # Slurm refuses it beside several GPU types.
        cpus = keys.cpus_per_gpu * need.gpus * need.nodes
        values |= {"cpus_per_tres": "", "min_cpus": str(cpus)}
        if asked.tasks and cpus % asked.tasks == 0:
            values["cpus_per_task"] = str(cpus // asked.tasks)
    return values
