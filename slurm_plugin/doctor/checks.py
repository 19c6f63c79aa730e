"""The checks, each a small function over one installation; `CHECKS` is their order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from gres_topology import TopologyError
from gres_topology.slurm_files.gres_file import load_devices
from slurm_plugin.act.defrag import record
from slurm_plugin.act.defrag.mover import ASKED_S
from slurm_plugin.act.order.passing import endless, why_not
from slurm_plugin.config.sections import GRES_CONF
from slurm_plugin.decide.load_machines import node_sets
from slurm_plugin.decide.machines import UNDECLARED, Machine, other_gpus
from slurm_plugin.doctor import engine, network, slots, slurm_files
from slurm_plugin.doctor.finding import Finding, fail, ok, warn
from slurm_plugin.doctor.installation import Installation
from slurm_plugin.errors import PluginError, SlurmError
from slurm_plugin.learn.collected import NodeRecord, Store
from slurm_plugin.learn.part_marks import marks
from slurm_plugin.learn.part_marks.marks import Mark
from slurm_plugin.learn.speed_models.database import Database
from slurm_plugin.queue.snapshot import Settings
from slurm_plugin.slurm.interface import SlurmNode


def examine(installation: Installation) -> Iterator[Finding]:
    """Every check's findings; a check that cannot be made says so once."""
    reported: set[str] = set()
    is_slurm_there = True
    for name, check in CHECKS.items():
        try:
            for finding in check(installation):
                yield replace(finding, check=name)
        except PluginError as error:
            text = " ".join(str(error).split())
            if text in reported or (isinstance(error, SlurmError) and not is_slurm_there):
                continue
            reported.add(text)
            is_slurm_there = is_slurm_there and name != "slurm"
            yield Finding(name, "fail", text, _NOT_CHECKED if is_slurm_there else _NO_SLURM)


_NOT_CHECKED = "fix this first; what depends on it was not checked"
_NO_SLURM = (
    "systemctl start munge slurmctld (with client: rest slurmrestd, too); journalctl says why one"
    " does not stay. Where they run, mend what the command itself says: SLURM_CONF where slurm.conf"
    " is elsewhere, mkdir for a missing folder of PluginDir. What depends on Slurm was not checked"
)


def check_config(here: Installation) -> Iterator[Finding]:
    """gputopo.yaml is valid and its topologies are found."""
    settings = here.config
    yield ok(f"{settings.path}: {len(here.machines)} nodes declared")
    for node_set in node_sets(settings):
        if not node_set.nodes:
            yield warn(
                f"{settings.where(node_set.line)}: no node was found with {node_set.features}",
                "where Slurm has such nodes (sinfo -o '%n %b'), the engine finds them within a"
                " minute: is it running?",
            )
    personal = (*settings.accounts.values(), *settings.users.values())
    modes = {one.mode for one in personal} | {one.mode for one in settings.partitions.values()}
    if modes <= {"off", None}:
        yield warn("every partition is off", "set mode: observe or enforce in partitions")


def check_nodes(here: Installation) -> Iterator[Finding]:
    """Declared nodes are Slurm's nodes, with as many GPUs; the rest is named."""
    slurm, collected = {node.name: node for node in here.nodes}, _collected(here)
    good: dict[int, list[str]] = {}
    for name, machine in here.machines.items():
        node = slurm.get(name)
        if node is None:
            yield warn(
                f"{name} is declared, Slurm does not know it",
                "take it out of nodes: in gputopo.yaml, or add it to slurm.conf",
            )
        elif machine.problem:
            is_known = machine.topology is not None or name in collected
            fix = _FIX_NODE if is_known else f"gputopo topology collect {name}"
            yield fail(f"{name} is left to Slurm: {machine.problem}", fix)
        elif lost := _lost_gpus(machine, node):
            yield fail(f"{name}: {lost}", _FIX_LOST.format(name))
        elif machine.topology is not None and (wrong := other_gpus(machine, node.gpus)):
            yield fail(f"{name}: {wrong}", "correct gputopo.yaml or Gres= in slurm.conf")
        else:
            good.setdefault(node.gpu_count, []).append(name)
    for count, names in good.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield ok(f"{', '.join(names[:_NAMED])}{more}: {count} GPUs each")
    for name, node in slurm.items():
        if node.gpu_count and name not in here.machines:
            yield warn(
                f"{name} has {node.gpu_count} GPUs and is not declared: left to Slurm",
                "declare it under nodes: in gputopo.yaml",
            )
    yield from _out_of_order(here, slurm)


def _lost_gpus(machine: Machine, node: SlurmNode) -> str:
    """That slurmd found fewer GPUs than there are, for which Slurm drains the node."""
    topology = machine.topology
    known = len(machine.order or ()) or (topology.gpus if topology else 0)
    if node.gpu_count >= known or not any(word in _DRAINED for word in node.state):
        return ""
    return f"slurmd found {node.gpu_count} GPUs of {known}, and the node is {'+'.join(node.state)}"


def _out_of_order(here: Installation, slurm: Mapping[str, SlurmNode]) -> Iterator[Finding]:
    """Nodes whose GPUs slurmd counts otherwise than gres.conf lists them: the types decide."""
    for node_set in node_sets(here.config):
        if node_set.slurm_index != GRES_CONF:
            continue
        try:
            devices = load_devices(node_set.gres_conf)
        except TopologyError:
            continue  # The nodes are left to Slurm for that, and it is said of each.
        for name in node_set.nodes:
            types = tuple(slurm[name].gpus) if name in slurm else ()
            follows = True
            # The same of a node whose own lines cannot be read.
            with suppress(TopologyError):
                follows = bool(devices.detected_by(name)) or devices.follows_types(name, types)
            if not follows:
                yield warn(
                    f"{name}: Slurm counts GPUs by the types of Gres= in slurm.conf"
                    f" ({', '.join(types)}), and {node_set.gres_conf} lists them otherwise:"
                    " slurm_index: gres-conf takes one GPU for another",
                    "list the types in gres.conf in the order of Gres=, or state slurm_index",
                )


def _collected(here: Installation) -> set[str]:
    """The nodes whose tools were read; none where the records are damaged."""
    with suppress(PluginError):
        return set(Store(here.config.state_dir).nodes())
    return set()


#: Nodes in which nothing is wrong are named that far: a cluster has a thousand of them.
_NAMED = 8
#: What Slurm makes of a node that registers with less than slurm.conf says.
_DRAINED = ("DRAIN", "DRAINED", "DRAINING", "INVALID_REG")
_FIX_LOST = (
    "a GPU fell off the bus or its driver lost it: nvidia-smi (amd-smi) and dmesg there name it;"
    " then restart slurmd and `scontrol update nodename={} state=resume`"
)
_FIX_NODE = (
    "if the hardware was changed on purpose: correct topology: or run"
    " `gputopo topology collect --accept NODE`; else repair the node"
)


def check_marks(here: Installation) -> Iterator[Finding]:
    """Parts that are marked broken or slow are parts of declared nodes, and still look so."""
    path = marks.path_in(here.config.state_dir)
    found = marks.read(path)
    store = Store(here.config.state_dir)
    records = store.nodes()
    for name, parts in found.items():
        machine = here.machines.get(name, UNDECLARED)
        known = (
            {} if machine.topology is None else {one.gpus for one in machine.topology.impairments}
        )
        for mark in parts:
            unmark = f"gputopo topology unmark {name} {mark.part}"
            if mark.gpus not in known:
                yield warn(f"{name}: {mark.text()}: the node has no such part", unmark)
            elif (record := records.get(name)) and _is_whole(mark, record, store):
                yield warn(
                    f"{name}: {mark.text()}, and its tools show the link whole"
                    f" (collected {record.collected}): repaired?",
                    unmark,
                )
    yield ok(f"{path}: {len(found)} nodes with marked parts")


def check_moves(here: Installation) -> Iterator[Finding]:
    """No job is left on its way to another node."""
    path = record.path_in(here.config.state_dir)
    moves = record.read(path)
    move = moves.open
    if move is not None and time.time() > max(move.at + ASKED_S, move.until) + _LATE_S:
        yield warn(
            f"job {move.name} of {move.user} is on its way from {move.source} to {move.target} for"
            " too long: it may be held",
            f"start the engine, which goes on with it; else scontrol release {move.name}",
        )
    yield ok(f"{len(moves.past)} jobs were moved to make room")


#: An engine that runs has ended every move that many seconds after its time.
_LATE_S = 60


def _is_whole(mark: Mark, record: NodeRecord, store: Store) -> bool:
    """Whether a link that is marked broken was there when the node was looked at after that."""
    if mark.state != "broken" or len(mark.gpus) != 2:
        return False
    looked = datetime.fromisoformat(record.collected)
    a, b = mark.gpus
    accepted, latest = (store.topology(key) for key in (record.accepted, record.latest))
    return looked.timestamp() > mark.since and accepted.kinds[a][b] == latest.kinds[a][b]


def check_partitions(here: Installation) -> Iterator[Finding]:
    """Partitions the configuration names exist."""
    known = {partition.name for partition in here.slurm.partitions()}
    for name, rule in here.config.partitions.items():
        if name == "default":
            continue
        if name in known:
            yield ok(f"{name}: {rule.mode}")
        else:
            yield warn(
                f"{name} is no partition of Slurm", "take it out of partitions: in gputopo.yaml"
            )


def check_slurm(here: Installation) -> Iterator[Finding]:
    """slurmctld answers a question of ours."""
    yield ok(f"slurmctld {here.slurm.version()} answers")


def check_plugin(here: Installation) -> Iterator[Finding]:
    """The select plugin is found before Slurm's own and fits its release."""
    enforcement: str
    try:
        enforcement = here.config.enforcement
    except PluginError:
        enforcement = slots.bridge_enforcement(here)
    if enforcement == "select":
        yield from slurm_files.plugin(here.slurm_config)
        with suppress(PluginError):  # check_config reports it
            yield from slurm_files.select_settings(here)


def check_genie(here: Installation) -> Iterator[Finding]:
    """The partitions whose jobs are shaped are Slurm's, and the models are there."""
    settings = here.config.genie
    if settings is None:
        yield ok("no jobs are shaped")
        return
    known = {partition.name: set(partition.nodes) for partition in here.slurm.partitions()}
    for name, rule in settings.partitions.items():
        nodes = known.get(name)
        if nodes is None:
            yield fail(f"{name} is no partition of Slurm", "fix genie.partitions")
        elif nodes != set(rule.nodes):
            other = ", ".join(sorted(nodes ^ set(rule.nodes))[:5])
            problem = f"{name}: Slurm's nodes and genie.partitions.{name}.nodes differ in {other}"
            yield fail(problem, "name the partition's nodes, all of one kind")
        else:
            yield ok(f"{name}: {len(nodes)} nodes, classes {', '.join(rule.classes)}")
    if reason := why_not(here.slurm_config):
        yield warn(f"the queue's order is not kept: {reason[0]}", reason[1])
    count = len(Database(settings.database).all())
    if count:
        yield ok(f"{settings.database}: {count} profiles")
    else:
        yield warn(f"{settings.database}: no profiles", "gputopo profile fit FILE")


def check_order(here: Installation) -> Iterator[Finding]:
    """Where shorter jobs may pass, Slurm goes by the engine's site factors and ends jobs."""
    rules = here.config.partitions.items()
    ordered = sorted(name for name, rule in rules if rule.order == "predicted")
    names = ", ".join(ordered)
    if not names:
        yield ok("every partition has Slurm's own")
        return
    settings = Settings(tuple(here.slurm.partitions()), here.slurm_config)
    over_s = {name: settings.over_limit_s(name) for name in ordered}
    if reason := why_not(here.slurm_config):
        yield fail(f"nobody may pass in {names}: {reason[0]}", reason[1])
    elif reason := endless(over_s):
        yield fail(f"nobody may pass: {reason[0]}", reason[1])
    else:
        yield ok(f"shorter jobs may pass in {names}")


CHECKS: dict[str, Callable[[Installation], Iterator[Finding]]] = {
    "config": check_config,
    "kill switch": engine.check_kill_switch,
    "slurm": check_slurm,
    "file": engine.check_file,
    "socket": engine.check_socket,
    "engine": engine.check_engine,
    "in charge": engine.check_charge,
    "decision log": engine.check_decision_log,
    "slurm.conf": slurm_files.check_conf,
    "bridge": slurm_files.check_bridge,
    "select plugin": check_plugin,
    "questions": engine.check_questions,
    "enforcement": slots.check_bridge_half,
    "slots": slots.check_slots,
    "remote": slots.check_remote,
    "partitions": check_partitions,
    "network": network.check_network,
    "nodes": check_nodes,
    "marks": check_marks,
    "moves": check_moves,
    "genie": check_genie,
    "order": check_order,
}
