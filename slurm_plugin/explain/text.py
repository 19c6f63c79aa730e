"""A story in words, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from slurm_plugin.lending.record import DECISIONS, LENT

#: How each decision is said, by (decision, applied).
_SAID = {
    ("use", True): "placed",
    ("use", False): "left as Slurm chose (observe mode)",
    ("wait", True): "postponed",
    ("wait", False): "left as Slurm chose (observe mode; would have been postponed)",
    ("shape", True): "shaped",
    ("pass", True): "left to Slurm's own choice",
    ("pass", False): "left to Slurm's own choice",
    ("lent", True): "lent GPUs of other nodes",
    ("not lent", True): "lent nothing",
    ("loan over", True): "lent nothing: a loan came to nothing",
}
_TITLE = 12


def in_words(told: Mapping[str, Any]) -> str:
    """The whole story, one line per fact; nothing in it can move the cursor."""
    lines = [_headline(told), *_asked(told)]
    if "state" in told:
        lines.append(_line("state", told["state"]))
    lines += [*loan_lines(told), *_shape(told), *_choices(told), *_started(told)]
    lines += [*_candidates(told), *_earlier(told), *_tasks(told)]
    if "admin_comment" in told:
        lines.append(_line("AdminComment", told["admin_comment"] or "nothing of ours"))
    if told.get("remark"):
        lines.append(_line("remark", told["remark"]))
    return "\n".join(printable(line) for line in lines)


def printable(text: str) -> str:
    """The text with every control character shown as `?`."""
    return "".join(char if char.isprintable() else "?" for char in text)


def gpu_list(gpus: Mapping[str, Any]) -> str:
    """`dgx1: 0,3; dgx2: 1,2`."""
    return "; ".join(f"{name}: {','.join(map(str, found))}" for name, found in gpus.items())


def _line(title: str, text: str) -> str:
    return f"  {title:{_TITLE}}  {text}"


def _headline(told: Mapping[str, Any]) -> str:
    if "decision" not in told:
        return f"job {told['job']}  told by {told['source']}"
    applied = bool(told.get("applied", told.get("mode") != "observe"))
    said = _SAID.get((told["decision"], applied), told["decision"])
    of = f" of array {told['array']}" if told.get("array") else ""
    when = f"{told.get('time', '')}  " if told.get("time") else ""
    return f"job {told['job']}{of}  {when}{said}"


def _asked(told: Mapping[str, Any]) -> list[str]:
    if "decision" not in told:
        return []
    if told["decision"] == "shape":
        return [_line("asked", f"a shape in partition {told['partition']}; hint: {told['hint']}")]
    if told["decision"] in DECISIONS:
        asked = told.get("asked") or "?"
        text = (
            f"{asked} in partition {told.get('partition') or '-'}; hint: {told.get('hint') or '-'}"
        )
        # The lines of the loan say it again where they say anything.
        is_said = told["decision"] == LENT or told.get("loan", {}).get("waits") == told.get("why")
        why = [] if is_said else [_line("because", str(told.get("why", "")))]
        return [_line("asked", text), *why]
    counts = told.get("gpus_per_node")
    wanted = " + ".join(map(str, counts)) if counts else "?"
    where = f"partition {told.get('partition') or '-'} ({told.get('mode', '-')})"
    account = f", account {told['account']}" if told.get("account") else ""
    hint = told.get("hint") or "none, the site's defaults"
    lines = [_line("asked", f"{wanted} GPUs in {where}{account}; hint: {hint}")]
    if "policy" in told:
        nodes = told.get("candidate_nodes", "?")
        text = f"policy {told['policy']}, pattern {told['pattern']}, {nodes} nodes to choose from"
        lines.append(_line("decided by", text))
    why = told.get("reason") or told.get("note") or told.get("why", "")
    if told.get("decision") != "use":
        why = told.get("note") or why
    return [*lines, _line("because", why)] if why else lines


def loan_lines(told: Mapping[str, Any]) -> list[str]:
    """Who lends to the job, or to whom it lends, or why nothing is lent.

    As Slurm has it now, else as it was decided.
    """
    loan = told.get("loan") or (told if told.get("decision") == "lent" else {})
    if "lends_to" in loan:
        return [_line("lends to", f"job {loan['lends_to']}, and ends with it")]
    if "waits" in loan:
        text = loan["waits"] or "no reason was told yet"
        if loan.get("tries"):
            text += f"; loans that came to nothing: {loan['tries']}"
        if loan.get("next"):
            text += f"; next try at {_moment(loan['next'])}"
        return [_line("not lent", text)]
    if not loan.get("donors"):
        return []
    lines = [_line("runs on", f"{gpu_list({loan['host']: loan['gpus']})}, its own GPUs")]
    lines += [
        _line("lent", f"{gpu_list({one['node']: one['gpus']})}, by job {one['job']}")
        for one in loan["donors"]
    ]
    return [*lines, _line("lent because", loan["why"])] if loan.get("why") else lines


def _shape(told: Mapping[str, Any]) -> list[str]:
    """The shape a job was given, and those it could have had."""
    of = told if told.get("decision") == "shape" else told.get("shaping")
    if not of:
        return []
    left = of["allowance_s"]
    when = f"could wait {left:.0f} s more" if left >= 0 else f"{-left:.0f} s late as predicted"
    lines = [
        _line("shape", f"{of['shape']}  {of['why']}"),
        _line("deadline", f"{_moment(of['deadline'])}  class {of['service']}, then {when}"),
    ]
    lines += [_line("note", of["note"])] if of.get("note") else []
    for one in of.get("shapes", []):
        late = "" if one["in_time"] else "  too late"
        facts = f"{one['latency_s']:,.1f} s, cost {one['cost']:.3f}, ratio {one['ratio']:,.4g}"
        lines.append(_line("could be", f"{one['shape']}  {facts}{late}"))
    if of.get("shapes_left_out"):
        lines.append(_line("could be", f"and {of['shapes_left_out']} more"))
    lines += [
        _line("before", f"{one.get('time', '')}  shape {one['shape']}: {one['why']}")
        for one in told.get("shaped_before", [])
    ]
    return lines


def _moment(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).isoformat(timespec="seconds")


def _choices(told: Mapping[str, Any]) -> list[str]:
    lines = []
    if "chosen" in told:
        waiting = told.get("decision") == "wait"
        lines.append(_choice("would be now" if waiting else "chosen", told["chosen"]))
    if "slurm" in told:
        # Its score is of that set alone, so it would not compare with the candidates'.
        own = {key: value for key, value in told["slurm"].items() if key != "score"}
        lines.append(_choice("Slurm's own", own))
    if "alt" in told:
        lines.append(_line("else", f"{gpu_list(told['alt'])}, within the nodes Slurm chose"))
    lines += [
        _line("left out", f"{name}: {why}") for name, why in told.get("excluded_nodes", {}).items()
    ]
    return lines


def _choice(title: str, choice: Mapping[str, Any]) -> str:
    text = gpu_list(choice.get("gpus", {}))
    facts = []
    if choice.get("terms"):
        terms = ", ".join(f"{name} {value:.2f}" for name, value in choice["terms"].items())
        facts.append(f"utility {choice['score']:.2f} ({terms})")
    elif "score" in choice and "effbw_gbps" in choice:
        facts.append(f"score {choice['score']:.2f}")
    if "effbw_gbps" in choice:
        facts += [
            f"effective {choice['effbw_gbps']:.2f} GB/s",
            f"sum {choice['agg_gbps']:.0f} GB/s",
            f"left {choice['preserved_gbps']:.0f} GB/s",
        ]
    if facts:
        text += "  " + ", ".join(facts)
    if choice.get("pcie_hops"):
        text += f", {choice['pcie_hops']} PCIe hops"
    return _line(title, text)


def _started(told: Mapping[str, Any]) -> list[str]:
    if "started" not in told:
        return []
    gpus = told["started"]["gpus"]
    chosen = told.get("chosen", {}).get("gpus", {})
    same = {name: sorted(found) for name, found in chosen.items()} == gpus
    applied = told.get("decision") == "use" and told.get("applied", True)
    differs = (
        "" if same or not applied else "  (not as chosen: it did not fit beside CPUs or memory)"
    )
    return [_line("started", f"{told['started']['time']}  {gpu_list(gpus)}{differs}")]


def _candidates(told: Mapping[str, Any]) -> list[str]:
    return [_choice("looked at", candidate) for candidate in told.get("candidates", [])]


def _earlier(told: Mapping[str, Any]) -> list[str]:
    lines = []
    if told.get("earlier_left_out"):
        lines.append(_line("before", f"{told['earlier_left_out']} more decisions"))
    for record in told.get("earlier", []):
        said = f"postponed {record['wait_s']} s" if "wait_s" in record else record["decision"]
        why = record.get("note") or record.get("why", "")
        lines.append(_line("before", f"{record.get('time', '')}  {said}: {why}"))
    return lines


def _tasks(told: Mapping[str, Any]) -> list[str]:
    lines = [
        _line("task", f"job {task['job']}  {task['decision']}  {gpu_list(task['gpus'])}")
        for task in told.get("tasks", [])
    ]
    if told.get("tasks_left_out"):
        lines.append(_line("task", f"and {told['tasks_left_out']} more"))
    return lines
