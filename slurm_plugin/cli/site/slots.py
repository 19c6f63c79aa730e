"""`gputopo slots`: the jobs behind the gate, and giving them back before the mode is removed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from slurm_plugin.cli.groups import CommandGroup
from slurm_plugin.cli.options import config_option, json_option


@click.group(cls=CommandGroup)
def slots() -> None:
    """List the waiting jobs of `enforcement: slots`, or give them back to Slurm alone."""


@slots.command("list")
@config_option
@json_option
def list_(config_path: Path, as_json: bool) -> None:
    """List waiting jobs: what they asked, whether they are gated or have slots, and why."""
    import json

    from slurm_plugin.cli import tables
    from slurm_plugin.config import settings as config
    from slurm_plugin.serve.give_back import waiting
    from slurm_plugin.slurm import choose
    from slurm_plugin.slurm.job_entries.saved import NAME, readable

    settings = config.in_force(config_path)
    notes = readable(settings.state_dir / NAME)
    jobs = waiting(choose.client(settings.slurm))
    rows = [_row(job, kept, notes.get(job.job_id)) for job, kept in jobs]
    if as_json:
        click.echo(json.dumps({"jobs": rows}, indent=2))
    elif not rows:
        click.echo("no job waits")
    else:
        titles = [title.replace("_s", " s") for title in rows[0]]
        tables.show(tables.plain(titles, [list(map(str, row.values())) for row in rows]))


@slots.command("release-all")
@config_option
def release_all(config_path: Path) -> None:
    """Give every waiting job its own request back: Slurm alone places them from then on.

    Set the kill switch or stop the engine first, or new jobs are gated again.
    """
    from slurm_plugin.config import settings as config
    from slurm_plugin.serve.give_back import give_back
    from slurm_plugin.slurm import choose

    settings = config.load(config_path, writes=False)
    done = give_back(choose.client(settings.slurm))
    click.echo(f"{done} waiting job{'' if done == 1 else 's'} given back to Slurm")
    if not settings.kill_switch.exists():
        click.echo(
            f"{settings.kill_switch} does not exist: a running engine gates new jobs", err=True
        )


def _row(job: Any, kept: Any, entries: Any) -> dict[str, Any]:
    from slurm_plugin.base.job_notes import hints
    from slurm_plugin.base.job_notes.records import PLACED

    asked = next(filter(None, kept.requests), "")
    left_s = int(job.eligible - time.time()) if job.eligible else 0
    return {
        "job": job.name,
        "user": job.user,
        "partition": job.partition,
        "state": kept.state,
        "asked": asked,
        "slots": (job.tres_per_node or job.tres_per_job) if kept.state == PLACED else "",
        "nodes": job.req_nodes,
        "gate_s": max(0, left_s),
        "reason": job.reason,
        "note": hints.note_in(job.admin_comment)
        or hints.note_in(entries.text() if entries else ""),
    }
