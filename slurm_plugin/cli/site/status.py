"""`gputopo status`: what the engine has done so far."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_plugin.cli.options import config_option, json_option

if TYPE_CHECKING:
    from slurm_plugin.config.sections import SlurmConfig

_SLOTS = ("promised", "gated", "placed", "released", "regated", "refused", "mismatched")


@click.command()
@config_option
# Who may not open it reads the file beside it.
@click.option(
    "--socket",
    "socket_path",
    type=click.Path(path_type=Path, readable=False),
    help="The engine's socket, instead of the configuration's.",
)
@json_option
def status(config_path: Path, socket_path: Path | None, as_json: bool) -> None:
    """Ask the engine what it decided, what it passed and how fast.

    Exit status 2 when it is down.
    """
    import json

    from slurm_plugin.base import client
    from slurm_plugin.cli import printable

    if socket_path is None:
        # It knows every policy by name: several times the rest of this command's work.
        from slurm_plugin.config import settings as config

        settings = config.in_force(config_path)
        state = client.status(settings.socket)
        state["unasked"] = _unasked(state, settings.slurm)
        state["config_changed"] = state.get("config_digest", settings.digest) != settings.digest
    else:
        state = client.status(socket_path)
    click.echo(json.dumps(state, indent=2) if as_json else printable(_text(state)))


def _unasked(state: dict[str, Any], settings: SlurmConfig) -> int:
    from slurm_plugin.base import client
    from slurm_plugin.errors import SlurmError
    from slurm_plugin.slurm import choose

    # As the engine knows it: Slurm's own commands take their time while slurmctld is down.
    booted = state.get("charge", {}).get("slurmctld_booted", 0)
    try:
        return client.unasked(state, choose.client(settings), booted)
    except SlurmError:
        return 0  # the engine's own numbers are worth showing without Slurm


def _text(state: dict[str, Any]) -> str:
    return "\n".join([*_engine(state), *_queue(state), *_nodes(state), *_known(state)])


def _engine(state: dict[str, Any]) -> Iterator[str]:
    """Since when it answers, whether it may, what and how fast."""
    from slurm_plugin.base import client

    yield f"up {state['uptime_s']:.0f} s, {state['config']}, enforcement {state['enforcement']}"
    in_force = f"in force is what was read at {client.config_read_at(state)}"
    if why := state.get("reload_error"):
        yield f"NOT RELOADED: {why}; {in_force}"
    elif state.get("config_changed"):
        yield f"NOT RELOADED since it changed: {in_force}"
    if folders := state.get("not_writable"):
        yield f"NOT WRITABLE: {', '.join(folders)}: see gputopo doctor"
    for why in state.get("not_listening", ()):
        yield f"NOT LISTENING: {why}"
    if state.get("unasked"):
        yield f"NOT ASKED about {state['unasked']} jobs with GPUs that started: see gputopo doctor"
    if jobs := client.unaskable(state):
        yield f"ASKED ABOUT NONE of {jobs} jobs with GPUs that started: see gputopo doctor"
    if state["killed"]:
        yield "SWITCHED OFF by the kill switch: everything is passed"
    charge = state.get("charge", {})
    if not charge.get("is_ours", True):
        yield f"STANDING BY for {charge['since_s']:.0f} s: {charge['why']}"
    elif len(charge.get("controllers", ())) > 1:
        others = ", ".join(charge["controllers"])
        yield f"in charge for {charge['since_s']:.0f} s, of the controllers {others}"
    replies = ", ".join(f"{count} {reply}" for reply, count in state["replies"].items()) or "none"
    yield f"replies: {replies}; {state['late']} late"
    if out := state.get("budget_out"):
        yield f"{out} submits and updates passed unasked: the bridge's budget_ms was used up"
    yield f"decisions: {state['decisions_written']} logged, {state['decisions_lost']} lost"
    for verb, times in state["answer_ms"].items():
        yield f"{verb}: p50 {times['p50']:.3f} ms, p99 {times['p99']:.3f} ms"
    for reason, count in sorted(state["passes"].items()):
        yield f"passed {count}: {reason}"


def _queue(state: dict[str, Any]) -> Iterator[str]:
    """The loops that change waiting jobs, and each partition's rule."""
    if "slots" in state:
        slots = state["slots"]
        looked = slots["looked_s_ago"]
        when = "Slurm was not read yet" if looked is None else f"Slurm was read {looked:.1f} s ago"
        yield f"slots: {', '.join(f'{slots.get(key, 0)} {key}' for key in _SLOTS)}; {when}"
    for name, domain in state.get("genie", {}).get("domains", {}).items():
        counts = ", ".join(f"{domain[key]} {key}" for key in ("waiting", "running", "held"))
        yield f"genie, partition {name}: {counts}; {domain['profiles']} profiles"
    if order := state.get("order"):
        yield from _ordered(order)
    for name, rule in state["partitions"].items():
        yield f"partition {name}: {rule['mode']}, {rule['policy']}"


def _nodes(state: dict[str, Any]) -> Iterator[str]:
    """The nodes that are left to Slurm, and marked parts."""
    yield f"nodes: {state['nodes']} declared, {state['nodes_left_to_slurm_count']} left to Slurm"
    for name, why in state["nodes_left_to_slurm"].items():
        yield f"  {name}: {why}"
    marks = state.get("marks", {"nodes": {}, "count": 0, "problem": ""})
    if marks["problem"]:
        yield f"MARKS NOT READ: {marks['problem']}; the marks read last stay"
    if marks["count"]:
        yield f"marked parts on {marks['count']} nodes"
    for name, parts in marks["nodes"].items():
        yield from (f"  {name}: {part}" for part in parts)


def _known(state: dict[str, Any]) -> Iterator[str]:
    """What the engine moved, was told and keeps."""
    if moves := state.get("defrag"):
        under_way = f", moving job {moves['moving']}" if moves["moving"] else ""
        yield f"jobs moved to make room: {moves['moved']}{under_way}"
    if told := state["slurm_nodes"]:
        from datetime import datetime

        when = datetime.fromtimestamp(told["told_at"]).isoformat(" ", "seconds")
        yield f"slurmctld told its {told['nodes']} nodes at {when}"
    for features, count in state.get("nodes_by_feature", {}).items():
        yield f"nodes with {features}: {count}"
    for name, network in state.get("network", {}).get("topologies", {}).items():
        yield f"network{name and ' '}{name}: {network['kind']}, by {network['from']}"
    if state["neighbours"]["age_s"] is not None:
        known = state["neighbours"]
        share = known.get("communication")
        said = "" if share is None else f"; jobs that do not say communicate {100 * share:.0f} %"
        yield f"neighbours: {known['jobs']} jobs, read {known['age_s']:.0f} s ago{said}"
    if state["tables_bytes"] is not None:
        yield f"tables: {state['tables_bytes'] / 1e6:.1f} MB"


def _ordered(order: dict[str, Any]) -> list[str]:
    """Who passed, or why nobody does."""
    lines = [f"order: NOBODY MAY PASS: {order['stopped']}"] if "stopped" in order else []
    if "refused" in order:
        lines.append(f"order: Slurm refused a change: {order['refused']}")
    lines += [f"order: {n} jobs passed in {name}" for name, n in order.get("passed", {}).items()]
    return [*lines, _predicted(order["predicted"])] if "predicted" in order else lines


def _predicted(told: dict[str, float]) -> str:
    """How far predicted run times were off."""
    if "median_off_by" not in told:
        return "run times: no job ended yet of which any was predicted"
    return (
        f"run times of {told['jobs']} jobs: half predicted within a factor of"
        f" {told['median_off_by']:.2g}; {100 * told['within_50']:.0f} % ended within the median,"
        f" {100 * told['within_90']:.0f} % within the 90 % quantile"
    )
