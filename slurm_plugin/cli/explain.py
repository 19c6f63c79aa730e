"""`gputopo explain`: why a job got the GPUs it got, from the decision log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from slurm_plugin.cli.options import config_option, json_option


@click.command()
@click.argument("job", type=click.IntRange(min=1))
@config_option
@json_option
@click.option("--all", "every", is_flag=True, help="Every decision, not only the last one.")
def explain(job: int, config_path: Path, as_json: bool, every: bool) -> None:
    """Show what was decided for JOB (an id, or an array's id) and what Slurm would have done."""
    import json

    from slurm_plugin import config
    from slurm_plugin.cli import Fault
    from slurm_plugin.engine import decision_log

    log = config.load(config_path).decision_log
    found = [r for r in decision_log.read(log) if job in (r.get("job"), r.get("array"))]
    if not found:
        raise Fault(f"job {job}: no decision in {log.path}; older ones are rotated away")
    for record in found if every else found[-1:]:
        click.echo(json.dumps(record) if as_json else _text(record))


def _text(record: dict[str, Any]) -> str:
    lines = [
        f"job {record['job']}  {record['time']}  partition {record['partition'] or '-'}"
        f"  {record['mode']}: {record['decision']} ({record['why']})"
    ]
    if record.get("note"):
        lines.append(f"  {record['note']}")
    if "chosen" in record:
        lines.append(f"  policy {record['policy']}, pattern {record['pattern']}")
        lines.append(_choice("chosen", record["chosen"]))
    lines.append(_choice("Slurm's own", record["slurm"]))
    lines += [_choice("looked at", candidate) for candidate in record.get("candidates", [])]
    for name, why in record.get("excluded_nodes", {}).items():
        lines.append(f"  left out {name}: {why}")
    return "\n".join(lines)


def _choice(title: str, choice: dict[str, Any]) -> str:
    gpus = "; ".join(f"{name}: {','.join(map(str, gpus))}" for name, gpus in choice["gpus"].items())
    if "effbw_gbps" not in choice:
        return f"  {title:12} {gpus}"
    return (
        f"  {title:12} {gpus}  score {choice['score']:.2f}, effective"
        f" {choice['effbw_gbps']:.2f} GB/s, sum {choice['agg_gbps']:.0f} GB/s"
    )
