"""`gputopo defrag`: which running jobs, moved where, would free what; and what was moved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_plugin.cli.options import config_option, json_option

if TYPE_CHECKING:
    from slurm_plugin.act.defrag.plan import Gain
    from slurm_plugin.config.settings import Config
    from slurm_plugin.queue.snapshot import Snapshot


@click.command()
@config_option
@click.option("--plan", is_flag=True, help="What could be freed now, and at what cost.")
@click.option(
    "--moves",
    type=click.IntRange(1, 4),
    default=3,
    show_default=True,
    help="With --plan: the most jobs to move for one gain.",
)
@json_option
def defrag(config_path: Path, plan: bool, moves: int, as_json: bool) -> None:
    """Say which jobs could be moved to make room (--plan), or which were moved.

    Jobs are moved by the engine alone, where gputopo.yaml says `defrag: {move: yes}`.
    """
    from slurm_plugin.config import settings

    config = settings.load(config_path, writes=False)
    told = _plan(config, moves) if plan else _moved(config)
    if as_json:
        click.echo(json.dumps(told, indent=1))
        return
    for line in _plan_words(told) if plan else _moved_words(told):
        click.echo(line)


def _plan(config: Config, most: int) -> dict[str, Any]:
    import time
    from itertools import islice

    from slurm_plugin.act.defrag import record
    from slurm_plugin.act.defrag.movable import movable_jobs, waiting_jobs
    from slurm_plugin.act.defrag.plan import MOST_WAITING, Planner
    from slurm_plugin.act.defrag.sight import Sight
    from slurm_plugin.decide.load_machines import load_machines
    from slurm_plugin.decide.rules import Rules
    from slurm_plugin.queue.snapshot import read_snapshot
    from slurm_plugin.slurm import choose, requeue
    from slurm_plugin.slurm.runner import ProcessRunner

    machines, now = load_machines(config), time.time()
    sight = Sight(machines if config.enforcement == "slots" else None)
    snapshot = _with_entries(config, read_snapshot(choose.client(config.slurm)))
    nodes = sight.nodes(snapshot)
    moved = record.read(record.path_in(config.state_dir)).jobs
    some = movable_jobs(snapshot, nodes, Rules(config), moved, sight)
    run = ProcessRunner(config.slurm.bin_dir, config.slurm.timeout_s)
    allowed = requeue.requeueable(run) if some else set()
    movable = [one for one in some if one.job.job_id in allowed]
    planner = Planner(nodes, movable, now, most)
    waiting = islice(waiting_jobs(snapshot, nodes, now, sight), MOST_WAITING)
    gains = [gain for job, need in waiting if (gain := planner.for_job(job, need))]
    gains += planner.nodes_freed()
    if config.topology_conf is not None:
        from gres_topology.slurm_files import networks

        gains += planner.blocks_freed(networks.read(config.topology_conf).default)
    gains += planner.pairs_freed(machines)
    return {
        "gains": [_told(gain, now) for gain in gains],
        "movable": len(movable),
        "running": sum(bool(job.gpus) for job in snapshot.active),
        "not_requeueable": len(some) - len(movable),
        "acts": config.defrag.move,
    }


def _with_entries(config: Config, snapshot: Snapshot) -> Snapshot:
    """Our entries about jobs in AdminComment's place, where the engine keeps them to itself."""
    from dataclasses import replace

    from slurm_plugin.slurm.job_entries.saved import NAME, readable

    kept = readable(config.state_dir / NAME)
    jobs = (
        replace(job, admin_comment=kept[job.job_id].text()) if job.job_id in kept else job
        for job in snapshot.jobs
    )
    return replace(snapshot, jobs=tuple(jobs))


def _told(gain: Gain, now: float) -> dict[str, Any]:
    return {
        "kind": gain.kind,
        "what": gain.what,
        "waiting": gain.job,
        "cost_gpu_hours": round(gain.cost_gpu_s / 3600, 3),
        "moves": [
            {
                "job": one.job.job_id,
                "user": one.job.user,
                "gpus": one.gpus,
                "from": one.node,
                "to": target,
                "cost_gpu_hours": round(one.cost_gpu_s(now) / 3600, 3),
                "basis": one.basis,
            }
            for one, target in gain.moves
        ],
    }


def _plan_words(told: dict[str, Any]) -> list[str]:
    lines = []
    for gain in told["gains"]:
        lines.append(f"{gain['what']}, at {gain['cost_gpu_hours']:g} GPU hours at most:")
        lines += [
            f"  job {move['job']} of {move['user']}, {move['gpus']} GPUs, from {move['from']} to"
            f" {move['to']}: {move['cost_gpu_hours']:g} ({move['basis']})"
            for move in gain["moves"]
        ]
    if not lines:
        lines.append("nothing to gain by moving jobs")
    lines.append(f"{told['movable']} of {told['running']} running jobs with GPUs may be moved")
    if told["not_requeueable"]:
        lines.append(
            f"{told['not_requeueable']} more would allow it, but Slurm does not requeue them"
        )
    if not told["acts"]:
        lines.append("no job is moved: gputopo.yaml has no `defrag: {move: yes}`")
    return lines


def _moved(config: Config) -> dict[str, Any]:
    import msgspec

    from slurm_plugin.act.defrag import record

    found: dict[str, Any] = msgspec.to_builtins(record.read(record.path_in(config.state_dir)))
    return found


def _moved_words(told: dict[str, Any]) -> list[str]:
    from datetime import UTC, datetime

    rows = [*told["past"], *filter(None, [told["open"]])]
    lines = []
    for one in rows:
        when = datetime.fromtimestamp(one["at"], UTC).isoformat(" ", "seconds")
        why = f": {one['why']}" if one["why"] else ""
        lines.append(
            f"{when}  job {one['name']} of {one['user']}, {one['gpus']} GPUs, from {one['source']}"
            f" to {one['target']} for job {one['waiting']}: {one['state']}{why}"
        )
    return lines or ["no job was moved"]
