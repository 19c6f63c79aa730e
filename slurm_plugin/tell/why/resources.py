"""What is missing on the nodes: GPUs in all, GPUs on one node, CPUs or memory beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gres_topology import Network, features
from slurm_plugin.queue.candidates import (
    Need,
    Spread,
    cpus_for,
    fits,
    free_for,
    mask_of_types,
    may_use,
    withheld,
)
from slurm_plugin.queue.capacity import Node, Nodes, emptied, empty
from slurm_plugin.queue.slurms_choice import can_start, share_of
from slurm_plugin.tell.why import words
from slurm_plugin.tell.why.site import SiteNodes
from slurm_plugin.tell.why.state import WaitReason

#: How the sentence begins for a job that no set of nodes will do for.
NEVER = "can never start as it is: "
#: A fact behind what is said of blocks.
NO_SEGMENTS = "as for a job without --segment, which Slurm before 25.05 does not tell"


def shortage_of(need: Need, site: SiteNodes) -> WaitReason | None:
    """What is missing for one job now; None where it fits.

    Raises Unsupported for a constraint that cannot be judged.
    """
    if need not in site.shortages:
        site.shortages[need] = _shortage_of(need, site)
    return site.shortages[need]


def _shortage_of(need: Need, site: SiteNodes) -> WaitReason | None:
    reason = _anywhere(need, site)
    network = site.network_of(need)
    if reason is not None or network is None:
        return reason
    every = site.rooms(need, site.nodes)
    if any(can_start(need, room) for room in every):
        return None
    return _apart(need, every, site, network)


def _apart(need: Need, every: Sequence[Nodes], site: SiteNodes, network: Network) -> WaitReason:
    """What is missing for a job that finds enough nodes, but not where Slurm keeps it together."""
    noun, spread = network.noun, need.spread
    if not every:
        several = f"nodes that it names are not of one {noun}"
        one = f"node that it names is in no {noun}"
        text = f"the {one if len(need.req_nodes) == 1 else several}"
        return WaitReason("impossible", f"{NEVER}{text}")
    inside = [[unit.name for unit in network.units if unit.nodes & room.keys()] for room in every]
    many = max(map(len, inside))
    whole = f"one {noun}" if many <= 1 else f"{many} {noun}s"
    if spread:
        over = f" on {words.nodes(spread.least)}" if spread.least > 1 else ""
        what = words.gpus(spread.gpus or need.gpus, "free ")
        beside = f" beside {what} of each node" if need.gpus else ""
        each = what if spread.gpus else f"{spread.cpus} CPUs{beside}"
        wanted = f"{each}{over} in {whole}"
    else:
        each = f" with {words.gpus(need.gpus, 'free ')} each" if need.gpus else ""
        wanted = f"{words.nodes(need.nodes)} of {whole}{each}"
    if not any(can_start(need, room) for room in site.rooms(need, emptied(site.nodes))):
        text = f"it needs {wanted.replace('free ', '')}, and there are never so many"
        return WaitReason("impossible", f"{NEVER}{text}")
    found = [(*_found(need, room), names) for room, names in zip(every, inside, strict=True)]
    found.sort(key=lambda one: (-one[0], one[2]))
    has = [f"{words.together(names)} has {text}" for _, text, names in found]
    facts = (("blocks", NO_SEGMENTS),) if network.sizes else ()
    return WaitReason("fragmentation", f"waits for {wanted}: {words.named(has)}", facts)


def _found(need: Need, room: Nodes) -> tuple[int, str]:
    """How many GPUs (CPUs) of a job that Slurm may spread, or nodes of another, there are now."""
    if need.spread:
        shares = [share_of(need, node) for node in room.values()]
        there = sum(one.gpus if need.spread.gpus else one.cpus for one in shares)
        return there, f"{there or 'none'}"
    ready = sorted(node.name for node in room.values() if fits(need, node))
    return len(ready), f"{len(ready)} ({words.named(ready)})" if ready else "none"


def _anywhere(need: Need, site: SiteNodes) -> WaitReason | None:
    """What is missing for a job that may be on any nodes."""
    usable = [node for node in site.nodes.values() if _may_ever(need, node)]
    if need.spread is not None:
        # What is counted for the whole job Slurm takes from as many nodes as it needs.
        if can_start(need, site.nodes):
            return None
        if len(usable) < need.nodes:
            every = emptied(site.nodes)
            if can_start(need, every):
                return _spread(need, need.spread, site)
            shares = [share_of(need, node) for node in every.values()]
            wanted = f"{need.spread.cpus} CPUs"
            most, least = sum(share.cpus for share in shares), need.spread.cpus
            if need.gpus:
                wanted = words.gpus(need.spread.gpus)
                most, least = sum(share.gpus for share in shares), need.spread.gpus
            if 0 < most < least:
                text = f"it needs {wanted}, and all nodes together have {most} for it"
                return WaitReason("impossible", f"{NEVER}{text}")
    if len(usable) < need.nodes:
        return _never(need, site, len(usable))
    ready = [node for node in usable if node.is_open]
    if len(ready) < need.nodes:
        return _closed(need, usable, site)
    free = {node.name: _free(need, node) for node in ready}
    enough = [node for node in ready if free[node.name] >= need.gpus]
    facts = _facts(need, ready, usable, free, site)
    if len(enough) < need.nodes:
        return WaitReason(*_too_few_gpus(need, ready, enough, free), facts)
    missing = _beside(need, enough)
    return WaitReason(*missing, facts) if missing else None


def _spread(need: Need, spread: Spread, site: SiteNodes) -> WaitReason:
    """What is missing for a job that has room on several nodes together alone."""
    shares = [share_of(need, node) for node in site.nodes.values()]
    if spread.gpus:
        there, what = sum(share.gpus for share in shares), words.gpus(spread.gpus, "free ")
        wanted = f"{what} with their CPUs and memory"
    else:
        there, what = sum(share.cpus for share in shares), words.gpus(need.gpus, "free ")
        wanted = f"{spread.cpus} CPUs" + (f" of nodes that have {what}" if need.gpus else "")
    free = {node.name: _free(need, node) for node in site.nodes.values() if node.is_open}
    text = f"waits for {wanted}: {there or 'none'} {words.is_are(there or 1)} there"
    return WaitReason("gpus" if spread.gpus else "cpus", text, (("free", words.by_node(free)),))


def _may_ever(need: Need, node: Node) -> bool:
    """Could the node serve the job if nothing ran there?"""
    cpus = cpus_for(need, empty(node)) if node.withholds else node.all_cpus
    return cpus >= need.cpus and node.all_memory_mb >= need.memory_mb and may_use(need, node)


def _free(need: Need, node: Node) -> int:
    """Free GPUs that the job may have there."""
    return free_for(need, node).bit_count()


def _never(need: Need, site: SiteNodes, usable: int) -> WaitReason:
    """No set of nodes can ever serve the job: what rules them out."""
    nodes = list(site.nodes.values())
    checks: Sequence[tuple[str, Need]] = (
        (f"is in partition {words.named(sorted(need.partitions))}", _only(partitions=need)),
        ("is one that it names", _only(req_nodes=need)),
        ("is one that it does not exclude", _only(exc_nodes=need)),
        (f"has the features {words.quoted(need.features)}", _only(features=need)),
        (f"has GPUs of type {', '.join(sorted(need.types))}", _only(types=need)),
        (f"has {words.gpus(need.gpus)}", _only(gpus=need)),
        (f"has {need.cpus} CPUs", _only(cpus=need)),
        (f"has {need.memory_mb} MB of memory", _only(memory_mb=need)),
    )
    asked = []
    for text, alone in checks:
        left = [node for node in nodes if _may_ever(alone, node)]
        if len(left) < len(nodes):
            asked.append(text)
        nodes = left
        if len(nodes) < need.nodes:
            break
    that = " and ".join(asked)
    if need.nodes > 1:
        text = f"{NEVER}it needs {need.nodes} nodes, and only {usable} will do"
        return WaitReason("impossible", f"{text} (each {that})" if that else text)
    return WaitReason("impossible", f"{NEVER}no node {that}")


def _only(**kept: Need) -> Need:
    """A need of one of these properties alone."""
    [(name, need)] = kept.items()
    nothing = Need(0, nodes=need.nodes, cpus=0)
    return replace(nothing, **{name: getattr(need, name)})


def _closed(need: Need, usable: Sequence[Node], site: SiteNodes) -> WaitReason:
    whys = [f"{node.name} is {site.closed[node.name]}" for node in usable if not node.is_open]
    a_node = "a node" if need.nodes == 1 else f"{need.nodes} nodes"
    text = f"waits for {a_node} that can take jobs: {words.named(whys)}"
    return WaitReason("nodes", text)


def _too_few_gpus(
    need: Need, ready: Sequence[Node], enough: Sequence[Node], free: Mapping[str, int]
) -> tuple[str, str]:
    """The cause, and the text."""
    there, total = sum(free.values()), sum(_all(need, node) for node in ready)
    some = {name: count for name, count in free.items() if count}
    what = words.gpus(need.gpus, "free ")
    if len(ready) == 1:
        of_all = f"{there or 'none'} of its {total} {words.is_are(there or 1)} free"
        return "gpus", f"waits for {what} on {ready[0].name}: {of_all}"
    shown = f" ({words.by_node(some)})" if some else ""
    if there < need.gpus * need.nodes:
        wanted = words.gpus(need.gpus * need.nodes, "free ")
        number = f"only {there}" if there else "none"
        is_free = f"{words.is_are(there or 1)} free"
        return "gpus", f"waits for {wanted}: {number} of {total} {is_free}{shown}"
    if need.nodes > 1:
        has = f"{words.named([node.name for node in enough]) or 'none'} {_has(len(enough))}"
        text = f"waits for {need.nodes} nodes with {what} each: only {has} so many{shown}"
        return "fragmentation", text.replace("only none has", "none has")
    text = f"waits for {what} on one node: {there} are free, but never {need.gpus} on one node"
    return "fragmentation", text + shown


def _has(count: int) -> str:
    return "has" if count <= 1 else "have"


def _all(need: Need, node: Node) -> int:
    mask = mask_of_types(node.gpu_types, need.types) if need.types else node.all_gpus
    return mask.bit_count()


def _beside(need: Need, enough: Sequence[Node]) -> tuple[str, str] | None:
    """What is missing on the nodes with enough free GPUs, first CPUs, then memory."""
    checks: tuple[tuple[str, Callable[[Node], int], int, str], ...] = (
        ("cpus", lambda node: cpus_for(need, node), need.cpus, "CPUs"),
        ("memory", lambda node: node.memory_mb, need.memory_mb, "MB"),
    )
    left = list(enough)
    for cause, has, needs, unit in checks:
        before, left = left, [node for node in left if has(node) >= needs]
        if len(left) < need.nodes:
            few = (node for node in before if has(node) < needs)
            best = max(few, key=lambda node: (has(node), node.name))
            lack = f"only {has(best)} of the {needs} {unit} that it needs are free there"
            return cause, f"{_has_gpus(need, best)} {lack}"
    if need.exclusive and sum(not node.jobs for node in left) < need.nodes:
        best = min(left, key=lambda node: (node.jobs, node.name))
        text = f"waits for a node of its own: {best.name} has free GPUs, but {best.jobs} other"
        return "exclusive", f"{text} {'job runs' if best.jobs == 1 else 'jobs run'} there"
    return None


def _has_gpus(need: Need, node: Node) -> str:
    if not need.gpus:
        return f"waits for {node.name}:"
    there = words.gpus(_free(need, node), "free ")
    return f"waits although {node.name} has {there}:"


def _facts(
    need: Need,
    ready: Sequence[Node],
    usable: Sequence[Node],
    free: Mapping[str, int],
    site: SiteNodes,
) -> tuple[tuple[str, str], ...]:
    """What is free on each node, and why the others do not count."""
    lines = [
        (
            "free",
            f"{node.name}: {words.gpus(free[node.name])} of {_all(need, node)},"
            f" {node.cpus} CPUs, {node.memory_mb} MB",
        )
        for node in sorted(ready, key=lambda node: (-free[node.name], node.name))
    ][: words.MAX_NAMED]
    if len(ready) > words.MAX_NAMED:
        lines.append(("free", f"and {len(ready) - words.MAX_NAMED} nodes with no more"))
    kept = [("withheld", text) for node in ready if (text := withheld(need, node))]
    lines += kept[: words.MAX_NAMED]
    lines += [
        ("left out", f"{node.name} is {site.closed[node.name]}")
        for node in usable
        if not node.is_open
    ][: words.MAX_NAMED]
    if need.features:
        named = {node.name for node in usable}
        others = [n for n in site.nodes.values() if n.gpu_types and n.name not in named]
        lacking = [n.name for n in others if not features.holds(need.features, n.features)]
        if lacking:
            what = f"{words.quoted(need.features)}: not on {words.named(sorted(lacking))}"
            lines.append(("features", what))
    return tuple(lines)
