"""Lines of a story: a title, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_TITLE = 12


def line(title: str, text: str) -> str:
    """One fact, indented below the headline."""
    return f"  {title:{_TITLE}}  {text}"


def gpu_list(gpus: Mapping[str, Any]) -> str:
    """`dgx1: 0,3; dgx2: 1,2`."""
    return "; ".join(f"{name}: {','.join(map(str, some))}" for name, some in gpus.items())


def moment(epoch_s: float) -> str:
    """A time in ISO 8601, UTC."""
    return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="seconds")


def loan_lines(story: Mapping[str, Any]) -> list[str]:
    """Who lends to the job, or to whom it lends, or why nothing is lent.

    As Slurm has it now, else as it was decided.
    """
    loan = story.get("loan") or (story if story.get("decision") == "lent" else {})
    if "lends_to" in loan:
        return [line("lends to", f"job {loan['lends_to']}, and ends with it")]
    if "waits" in loan:
        text = loan["waits"] or "no reason was told yet"
        if loan.get("tries"):
            text += f"; loans that came to nothing: {loan['tries']}"
        if loan.get("next"):
            text += f"; next try at {moment(loan['next'])}"
        return [line("not lent", text)]
    if not loan.get("donors"):
        return []
    lines = [line("runs on", f"{gpu_list({loan['host']: loan['gpus']})}, its own GPUs")]
    lines += [
        line("lent", f"{gpu_list({one['node']: one['gpus']})}, by job {one['job']}")
        for one in loan["donors"]
    ]
    return [*lines, line("lent because", loan["why"])] if loan.get("why") else lines


def shape_lines(story: Mapping[str, Any]) -> list[str]:
    """The shape a job was given, and those it could have had."""
    of = story if story.get("decision") == "shape" else story.get("shaping")
    if not of:
        return []
    left = of["allowance_s"]
    when = f"could wait {left:.0f} s more" if left >= 0 else f"{-left:.0f} s late as predicted"
    lines = [
        line("shape", f"{of['shape']}  {of['why']}"),
        line("deadline", f"{moment(of['deadline'])}  class {of['service']}, then {when}"),
    ]
    lines += [line("note", of["note"])] if of.get("note") else []
    for one in of.get("shapes", []):
        late = "" if one["in_time"] else "  too late"
        facts = f"{one['latency_s']:,.1f} s, cost {one['cost']:.3f}, ratio {one['ratio']:,.4g}"
        lines.append(line("could be", f"{one['shape']}  {facts}{late}"))
    if of.get("shapes_left_out"):
        lines.append(line("could be", f"and {of['shapes_left_out']} more"))
    lines += [
        line("before", f"{one.get('time', '')}  shape {one['shape']}: {one['why']}")
        for one in story.get("shaped_before", [])
    ]
    return lines
