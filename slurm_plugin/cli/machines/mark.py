"""`gputopo topology mark`, `unmark` and `marks`: parts of nodes that are broken or slow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from slurm_plugin.cli.options import config_option, json_option

if TYPE_CHECKING:
    from gres_topology import NodeTopology
    from gres_topology.readers.health import HealthReport
    from slurm_plugin.config.settings import Config
    from slurm_plugin.learn.part_marks.marks import Mark

_PARTS = "gpu I | link I-J | power"


@click.command()
@config_option
@click.argument("node")
@click.argument("words", nargs=-1, metavar=f"[{_PARTS}] [STATE]")
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="What a degraded part or a capped node still delivers.  [default: 0.5 of a"
    " link, of a cap its share of the watts]",
)
@click.option("--reason", default="", help="Why, for explain and marks.")
@click.option(
    "--from",
    "report",
    type=click.File(errors="replace"),
    metavar="FILE",
    help="Read the node's parts from a report; - for stdin.",
)
def mark(
    config_path: Path,
    node: str,
    words: tuple[str, ...],
    share: float | None,
    reason: str,
    report: TextIO | None,
) -> None:
    """Mark a part of NODE as broken, degraded or capped, so that jobs avoid it.

    GPUs count as nvidia-smi does. STATE is broken or degraded; of power, WATTS/WATTS: what the
    node may take, and takes without the cap.

    FILE has the output of nvidia-smi nvlink -s or -e, of nvidia-smi --query-gpu=index,power.limit,
    power.default_limit --format=csv, of dcgmi diag -j or of dcgmi health --check -j. What it no
    longer finds loses the mark that such a report made.
    """
    from gres_topology import cpulist
    from slurm_plugin.config import settings
    from slurm_plugin.learn.part_marks import marks
    from slurm_plugin.tell.explain.text import printable

    config = settings.load(config_path)
    topology = _topology(config, node)
    if (report is None) == (not words):
        raise click.UsageError(f"expected a part ({_PARTS}) and its state, or --from FILE")
    path = marks.path_in(config.state_dir)
    if report is None:
        new = [_by_hand(node, words, share, reason)]
        gone = marks.change(path, lambda mark: False, _checked(new, topology))
    else:
        new, said = _reported(node, topology, report, reason)
        mine = (node, said.kind)
        by_hand = {mark.part for mark in marks.read(path).get(node, ()) if not mark.source}
        new = [mark for mark in new if mark.part not in by_hand]
        gone = marks.change(
            path, lambda mark: (mark.node, mark.source) == mine and said.tells_of(mark.gpus), new
        )
        if said.untold:
            gpus = cpulist.format_list(sorted(said.untold))
            click.echo(f"{node}: too little is said of GPU {gpus}: marks there stay")
    parts = {one.part for one in new}
    for one in new:
        click.echo(printable(f"{node}: {one.text()}{f' ({one.why})' if one.why else ''}"))
    for one in gone:
        if one.part not in parts:
            click.echo(f"{node}: {one.part} is no longer marked")
    if not new and not gone:
        click.echo(f"{node}: nothing to mark")


@click.command()
@config_option
@click.argument("node")
@click.argument("words", nargs=-1, metavar=f"[{_PARTS}]")
def unmark(config_path: Path, node: str, words: tuple[str, ...]) -> None:
    """Take away a mark of NODE, or all of them; exit status 1 where there is none."""
    from slurm_plugin.config import settings
    from slurm_plugin.learn.part_marks import marks

    config, part = settings.load(config_path), " ".join(words)
    gone = marks.change(
        marks.path_in(config.state_dir),
        lambda mark: mark.node == node and part in ("", mark.part),
    )
    for one in gone:
        click.echo(f"{node}: {one.part} is no longer marked")
    if not gone:
        click.echo(
            f"{node}: {part} is not marked" if part else f"{node}: nothing is marked", err=True
        )
        raise SystemExit(1)


@click.command("marks")
@config_option
@json_option
def marks_(config_path: Path, as_json: bool) -> None:
    """List what is marked, since when, by whom and why."""
    from datetime import UTC, datetime

    import msgspec

    from slurm_plugin.config import settings
    from slurm_plugin.learn.part_marks import marks
    from slurm_plugin.tell.explain.text import printable

    found = marks.read(marks.path_in(settings.load(config_path, writes=False).state_dir))
    rows = [one for node in sorted(found) for one in found[node]]
    if as_json:
        click.echo(json.dumps([msgspec.to_builtins(one) for one in rows], indent=1))
        return
    for one in rows:
        since = datetime.fromtimestamp(one.since, UTC).isoformat(" ", "minutes")
        said = ", ".join(text for text in (one.why, one.source) if text)
        who = f" by {one.by}" if one.by else ""
        line = f"{one.node}  {one.text()}  since {since}{who}{f': {said}' if said else ''}"
        # The file is SlurmUser's, and a report may be a node's: neither commands a terminal.
        click.echo(printable(line))
    if not rows:
        click.echo("nothing is marked")


def _topology(config: Config, node: str) -> NodeTopology:
    """The node's topology without marks; a Fault where it has none."""
    from slurm_plugin.cli import Fault
    from slurm_plugin.decide.load_machines import load_machines
    from slurm_plugin.decide.machines import UNDECLARED

    machine = load_machines(config, {}).get(node, UNDECLARED)
    if machine.topology is None:
        raise Fault(f"{node}: {machine.problem}; expected a node of {config.path}")
    return machine.topology


def _checked(new: list[Mark], topology: NodeTopology) -> list[Mark]:
    """The marks, if the node has such parts."""
    from gres_topology.impaired import impaired

    for one in new:
        impaired(topology, [one.impairment()])
    return new


def _by_hand(node: str, words: tuple[str, ...], share: float | None, reason: str) -> Mark:
    """The mark that the words tell of; click.UsageError where they do not."""
    *part, state = words
    values: dict[str, object] = {"part": " ".join(part), "state": state, "share": share}
    if part == ["power"]:
        limit, _, of = state.partition("/")
        try:
            values |= {"state": "capped", "watts": float(limit), "of_watts": float(of)}
        except ValueError:
            raise click.UsageError(
                f"power {state!r}: expected WATTS/WATTS, as in 300/400"
            ) from None
    elif state == "degraded" and share is None:
        values["share"] = 0.5
    elif state == "broken" and share is not None:
        raise click.UsageError("a broken part delivers nothing; expected degraded with --share")
    return _mark(node, values, reason)


def _reported(
    node: str, topology: NodeTopology, report: TextIO, reason: str
) -> tuple[list[Mark], HealthReport]:
    """The marks that a report tells of, and what it says itself."""
    from gres_topology.readers import health

    said = health.read(report.read(8 << 20), topology, getattr(report, "name", "the report"))
    new = []
    for one in said.found:
        part = ("power", "gpu ", "link ")[len(one.gpus)] + "-".join(map(str, one.gpus))
        values: dict[str, object] = {"part": part, "source": said.kind}
        values |= {"state": "degraded", "share": one.share} if one.share else {"state": "broken"}
        if said.watts is not None:
            values |= {"state": "capped", "watts": said.watts[0], "of_watts": said.watts[1]}
            del values["share"]
        new.append(_mark(node, values, reason or one.why))
    return new, said


def _mark(node: str, values: dict[str, object], why: str) -> Mark:
    import getpass
    import time

    import msgspec

    from slurm_plugin.learn.part_marks.marks import Mark

    who = {"since": int(time.time()), "by": getpass.getuser(), "why": why[:200]}
    given = {key: value for key, value in values.items() if value is not None}
    try:
        return msgspec.convert({"node": node, **given, **who}, Mark)
    except msgspec.ValidationError as error:
        raise click.UsageError(str(error)) from None
