"""`gputopo report`: what the site gained, from the decision log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_plugin.cli.options import config_option, json_option

if TYPE_CHECKING:
    from slurm_plugin.config.sections import SlurmConfig
    from slurm_plugin.queue.free_history import FreeReading

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@click.command()
@config_option
@click.option(
    "--since",
    metavar="WHEN",
    help="Only what was decided since: 2h, 7d, 4w, or 2026-01-31[T12:00].",
)
@json_option
def report(config_path: Path, since: str | None, as_json: bool) -> None:
    """Sum up the decision log: bandwidth and rings against stock Slurm, waits, passes.

    And what of the free GPUs is of use to jobs: over time, as the engine noted it, and now.
    """
    import json

    from slurm_plugin.base.log_lines import LineReader
    from slurm_plugin.cli import Fault
    from slurm_plugin.config import settings as config
    from slurm_plugin.decide import decision_log
    from slurm_plugin.queue.free_history import FreeHistory, over_time
    from slurm_plugin.tell.explain.gains import Gains
    from slurm_plugin.tell.explain.search import attributed

    first = _first(since, datetime.now(UTC)) if since else None
    settings = config.in_force(config_path)
    log = settings.decision_log
    gains, reader = Gains(), LineReader()
    try:
        for record in attributed(decision_log.read(log, reader)):
            if first is None or _is_after(record.time, first):
                gains.add(record)
    except PermissionError as error:
        raise Fault(f"{log.path}: permission denied; run this as root or SlurmUser") from error
    rows = FreeHistory(log).since(first.timestamp() if first else None)
    summary = gains.summary() | {
        "over_time": over_time(rows),
        "by_day": {day: over_time(some) for day, some in _by_day(rows).items()},
        "now": _now(settings.slurm),
        "unread_lines": reader.unread,
    }
    if as_json:
        click.echo(json.dumps(summary, indent=2))
    elif not gains.records:
        click.echo(f"nothing decided{f' since {since}' if since else ''}: {log.path}")
        if reader.unread:
            click.echo(_unread(reader.unread))
    else:
        click.echo(_text(summary))


def _now(slurm: SlurmConfig) -> dict[str, Any]:
    """How scattered the free GPUs are, as metrics and pages tell it; or why that is not known."""
    from slurm_plugin.errors import SlurmError
    from slurm_plugin.queue.snapshot import read_snapshot
    from slurm_plugin.serve.site_figures import figures_of
    from slurm_plugin.slurm import choose

    try:
        figures = figures_of(read_snapshot(choose.client(slurm))).fragmentation
    except SlurmError as error:
        return {"problem": str(error)}
    return {
        "gpus": figures.total,
        "free": figures.free,
        "stranded": figures.stranded,
        "fragmentation": round(figures.share, 4),
        "largest": list(figures.largest_over_nodes),
    }


def _by_day(rows: list[FreeReading]) -> dict[str, list[FreeReading]]:
    """The readings of each day (local time), oldest first."""
    days: dict[str, list[FreeReading]] = {}
    for row in rows:
        days.setdefault(datetime.fromtimestamp(row.at).date().isoformat(), []).append(row)
    return days


def _first(since: str, now: datetime) -> datetime:
    number, unit = since[:-1], since[-1:]
    if number.isdecimal() and unit in _UNITS and len(number) < 7:
        try:
            return now - timedelta(**{_UNITS[unit]: int(number)})
        except OverflowError:
            pass
    try:
        moment = datetime.fromisoformat(since)
        return moment if moment.tzinfo else moment.astimezone()
    except (ValueError, OverflowError):
        raise click.UsageError(
            f"--since {since!r}: expected 90m, 2h, 7d, 4w or a date such as 2026-01-31"
        ) from None


def _is_after(stamp: str, first: datetime) -> bool:
    try:
        return datetime.fromisoformat(stamp) >= first
    except (ValueError, TypeError):
        # Not a time, or one of no zone: no line of ours.
        return False


def _text(summary: dict[str, Any]) -> str:
    waits = summary["postponements"]
    lines = [f"{summary['from']} to {summary['to']}, {summary['records']} decisions and starts"]
    lines += _block("placed", summary["placed"])
    if summary["observed"]["jobs"]:
        lines += _block("observed only", summary["observed"])
    lines.append(
        f"postponed: {waits['times']} times, {waits['jobs']} jobs,"
        f" {waits['waited_s_mean']:.0f} s on average"
    )
    total = sum(summary["passes"].values())
    lines.append(f"left to Slurm: {total} times")
    lines += [f"  {count:>6}  {why}" for why, count in summary["passes"].items()]
    if lent := summary["lent"]:
        lines.append(
            f"lent to jobs of other nodes: {lent['gpu_s'] / 3600:,.1f} GPU hours by"
            f" {lent['donors']} donors; {lent['bytes_in'] / 1e9:,.2f} GB to them,"
            f" {lent['bytes_out'] / 1e9:,.2f} GB from them"
        )
    lines.append(f"started without an answer of ours: {summary['started_undecided']} jobs")
    lines += [_unread(summary["unread_lines"])] if summary["unread_lines"] else []
    for key, title in (("by_partition", "partition"), ("by_policy", "policy")):
        for name, block in summary[key].items():
            ratio = f", x {block['ratio_mean']:.2f}" if "ratio_mean" in block else ""
            lines.append(f"{title} {name}: {block['jobs']} jobs{ratio}")
    lines += _free(summary["over_time"], summary["by_day"])
    now = summary["now"]
    if "problem" in now:
        return "\n".join([*lines, f"now: not known ({now['problem']})"])
    nodes, per_node = now["largest"]
    lines.append(
        f"now: {now['free']} of {now['gpus']} GPUs are free, {now['stranded']} stranded;"
        f" fragmentation {100 * now['fragmentation']:.0f} %; the largest job that could start has"
        f" {nodes} x {per_node} GPUs"
    )
    return "\n".join(lines)


def _unread(lines: int) -> str:
    return f"lines of the log that cannot be read, and are left out: {lines}"


#: Days that are told one by one, the last ones.
_DAYS = 14


def _free(whole: dict[str, Any], by_day: dict[str, dict[str, Any]]) -> list[str]:
    """What of the free GPUs jobs could use over time; nothing where nothing was noted."""
    if not whole["readings"]:
        return []

    def words(some: dict[str, Any]) -> str:
        return (
            f"{100 * some['stranded_mean']:.1f} % of the GPUs stranded (at most"
            f" {100 * some['stranded_most']:.1f} %), fragmentation"
            f" {100 * some['fragmentation_mean']:.0f} %, largest job that could start"
            f" {some['largest_median']} GPUs (in nine of ten readings"
            f" {some['largest_lowest_tenth']})"
        )

    lines = [f"free GPUs in {whole['readings']} readings: {words(whole)}"]
    if len(by_day) > 1:
        lines += [f"  {day}: {words(some)}" for day, some in list(by_day.items())[-_DAYS:]]
    return lines


def _block(title: str, block: dict[str, Any]) -> list[str]:
    other = block["started_otherwise"]
    aside = f" ({other} started on other GPUs than chosen)" if other else ""
    lines = [f"{title}: {block['jobs']} jobs{aside}"]
    if "ratio_mean" in block:
        low, middle, high = block["ratio_quartiles"]
        bounds = block["ratio_interval"]
        sure = f" ({bounds[0]:.2f} to {bounds[1]:.2f} with 95 % certainty)" if bounds else ""
        lines.append(
            f"  effective bandwidth of {block['compared']} multi-GPU jobs, each beside what Slurm"
            f" would have taken: {block['ratio_mean']:.2f} times as much on average{sure};"
            f" {block['ratio_more']} got more, {block['ratio_less']} less, the others as much;"
            f" quartiles {low:.2f} {middle:.2f} {high:.2f}"
        )
    if block["rings"]:
        lines.append(
            f"  rings without a PCIe hop: {block['rings_without_pcie']} of {block['rings']},"
            f" stock {block['rings_without_pcie_slurm']}"
        )
    return lines
