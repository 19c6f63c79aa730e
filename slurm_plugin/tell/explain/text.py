"""A story in words, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from slurm_plugin.tell.explain.story import loan_of

#: Decisions about loans.
_OF_LOANS = ("lent", "not lent", "loan over")
#: How each decision is said, by (decision, applied).
_SAID = {
    ("use", True): "placed",
    ("use", False): "left as Slurm chose (observe mode)",
    ("wait", True): "postponed",
    ("wait", False): "left as Slurm chose (observe mode; would have been postponed)",
    ("shape", True): "shaped",
    ("order", True): "its place in the queue",
    ("pass", True): "left to Slurm's own choice",
    ("pass", False): "left to Slurm's own choice",
    ("lent", True): "lent GPUs of other nodes",
    ("not lent", True): "lent nothing",
    ("given back", True): "was lent GPUs, which are given back",
    ("loan over", True): "lent nothing: a loan came to nothing",
}


def in_words(story: Mapping[str, Any]) -> str:
    """The whole story, one line per fact; nothing in it can move the cursor."""
    lines = [headline(story), *asked(story)]
    if "state" in story:
        lines.append(_line("state", story["state"]))
    if "order" in story:
        lines.append(_line("order", story["order"]))
    lines += [*_loan(story), *_given_back(story), *_shape(story)]
    lines += [*_choices(story), *_started(story)]
    if "nvlink" in story:
        lines.append(_line("NVLink", story["nvlink"]))
    lines += [_choice("looked at", one) for one in story.get("candidates", [])]
    lines += [*_earlier(story), *_tasks(story)]
    if "entries" in story:
        lines.append(_line("notes", story["entries"]))
    if "admin_comment" in story:
        lines.append(_line("AdminComment", story["admin_comment"] or "nothing of ours"))
    if unread := story.get("unread_lines"):
        lines.append(_line("left out", f"lines of the log that cannot be read: {unread}"))
    if story.get("remark"):
        lines.append(_line("remark", story["remark"]))
    return "\n".join(printable(one) for one in lines)


def printable(text: str) -> str:
    """The text with every control character shown as `?`."""
    return "".join(char if char.isprintable() else "?" for char in text)


def headline(story: Mapping[str, Any]) -> str:
    """The job, when it was decided, and what."""
    if "decision" not in story:
        return f"job {story['job']}  told by {story['source']}"
    applied = bool(story.get("applied", story.get("mode") != "observe"))
    said = _SAID.get((story["decision"], applied), story["decision"])
    of = f" of array {story['array']}" if story.get("array") else ""
    when = f"{story.get('time', '')}  " if story.get("time") else ""
    return f"job {story['job']}{of}  {when}{said}"


def asked(story: Mapping[str, Any]) -> list[str]:
    """What was asked for, who decided, and why."""
    if "decision" not in story:
        return []
    if story["decision"] == "shape":
        return [_line("asked", f"a shape in partition {story['partition']}; hint: {story['hint']}")]
    if story["decision"] == "order":
        return [_line("order", story["why"])]
    if story["decision"] in _OF_LOANS:
        return _asked_to_borrow(story)
    counts = story.get("gpus_per_node")
    wanted = " + ".join(map(str, counts)) if counts else "?"
    where = f"partition {story.get('partition') or '-'} ({story.get('mode', '-')})"
    account = f", account {story['account']}" if story.get("account") else ""
    hint = story.get("hint") or "none, the site's defaults"
    wanted = f"{story['shares']} a node" if "shares" in story else f"{wanted} GPUs"
    lines = [_line("asked", f"{wanted} in {where}{account}; hint: {hint}")]
    if "policy" in story:
        nodes = story.get("candidate_nodes", "?")
        by = f"policy {story['policy']}, pattern {story.get('pattern', '-')}"
        lines.append(_line("decided by", f"{by}, {nodes} nodes to choose from"))
    if "nodes" in story:
        lines.append(_line("nodes", story["nodes"]))
    why = story.get("reason") or story.get("note") or story.get("why", "")
    if story.get("decision") != "use":
        why = story.get("note") or why
    return [*lines, _line("because", why)] if why else lines


def _asked_to_borrow(story: Mapping[str, Any]) -> list[str]:
    asked, partition = story.get("asked") or "?", story.get("partition") or "-"
    lines = [_line("asked", f"{asked} in partition {partition}; hint: {story.get('hint') or '-'}")]
    why = story.get("why")
    # The lines of the loan say it where there are any.
    if story["decision"] != "lent" and story.get("loan", {}).get("waits") != why:
        lines.append(_line("because", str(why or "")))
    return lines


def _choices(story: Mapping[str, Any]) -> list[str]:
    lines = []
    if "chosen" in story:
        waiting = story.get("decision") == "wait"
        lines.append(_choice("would be now" if waiting else "chosen", story["chosen"]))
    if "slurm" in story:
        lines.append(_choice("Slurm's own", story["slurm"]))
    if "alt" in story:
        lines.append(_line("else", f"{gpu_list(story['alt'])}, within the nodes Slurm chose"))
    lines += [
        _line("marked", f"{name}: {part}")
        for name, parts in story.get("marked", {}).items()
        for part in parts
    ]
    lines += [
        _line("left out", f"{name}: {why}") for name, why in story.get("excluded_nodes", {}).items()
    ]
    return lines


def _choice(title: str, choice: Mapping[str, Any]) -> str:
    text, facts = gpu_list(choice.get("gpus", {})), figures(choice)
    if facts:
        text += "  " + ", ".join(facts)
    if choice.get("pcie_hops"):
        text += f", {choice['pcie_hops']} PCIe hops"
    return _line(title, text)


def figures(choice: Mapping[str, Any]) -> list[str]:
    """What a set of GPUs is worth, each figure with what it is.

    Of its score nothing is said but where it has terms: it has no unit, and sets are shown in its
    order.
    """
    facts = []
    if "of_gpus" in choice:
        begun = choice.get("begun", 0)
        facts.append(f"{choice.get('shares', 'slices')} of {_of_gpus(choice['of_gpus'])}")
        facts.append(f"{begun} GPU{'' if begun == 1 else 's'} begun")
        facts.append(f"{choice.get('untouched', '?')} untouched there")
    if choice.get("terms"):
        score = _figure(choice.get("score"), 2)
        terms = ", ".join(f"{name} {_figure(value, 2)}" for name, value in choice["terms"].items())
        facts.append(f"utility {score} ({terms})")
    if "effbw_gbps" in choice:
        gpus = choice.get("gpus", {})
        # Between nodes is the network, of which nothing is counted.
        inside = " inside its worst node" if len(gpus) > 1 else ""
        if any(len(some) > 1 for some in gpus.values()):
            facts.append(f"{_figure(choice['effbw_gbps'], 1)} GB/s for its pattern{inside}")
            facts.append(f"{_figure(choice.get('agg_gbps'), 0)} GB/s over all its links")
        facts.append(f"{_figure(choice.get('preserved_gbps'), 0)} GB/s left among free GPUs")
    return facts + (_rails(choice) if "spine" in choice and "rails" in choice else [])


def _figure(value: float | None, digits: int) -> str:
    """A figure, `?` where the line has none."""
    return "?" if value is None else f"{value:.{digits}f}"


def _rails(choice: Mapping[str, Any]) -> list[str]:
    """Which rails a job of several nodes is on, and what crosses the spine."""
    rails, spine = choice["rails"], choice["spine"]
    alike = {tuple(some) for some in rails.values()}
    where = (
        f"{','.join(map(str, alike.pop()))} on each node" if len(alike) == 1 else gpu_list(rails)
    )
    told = "" if choice.get("rails_declared") else " (by the NICs' distance)"
    shares = (
        f"{said} {_figure(spine[key], 2)} of {_figure(spine.get(f'{key}_total'), 2)}"
        for key, said in (("ring", "ring"), ("tree", "tree"), ("sharp", "SHARP"))
        if key in spine
    )
    return [f"rails {where}{told}", f"over the spine {', '.join(shares)} bytes per byte reduced"]


def _of_gpus(parents: Mapping[str, Any]) -> str:
    """`GPU 4, 4, 6`: which GPU of the topology each slice is of, node by node."""
    return "; ".join(f"GPU {', '.join(map(str, some))}" for some in parents.values())


def _started(story: Mapping[str, Any]) -> list[str]:
    if "started" not in story:
        return []
    gpus = story["started"]["gpus"]
    chosen = story.get("chosen", {}).get("gpus", {})
    same = {name: sorted(some) for name, some in chosen.items()} == gpus
    applied = story.get("decision") == "use" and story.get("applied", True)
    differs = (
        "" if same or not applied else "  (not as chosen: it did not fit beside CPUs or memory)"
    )
    return [_line("started", f"{story['started']['time']}  {gpu_list(gpus)}{differs}")]


def _earlier(story: Mapping[str, Any]) -> list[str]:
    lines = []
    if story.get("earlier_left_out"):
        lines.append(_line("before", f"{story['earlier_left_out']} more decisions"))
    for record in story.get("earlier", []):
        said = f"postponed {record['wait_s']} s" if "wait_s" in record else record["decision"]
        why = record.get("note") or record.get("why", "")
        lines.append(_line("before", f"{record.get('time', '')}  {said}: {why}"))
    return lines


def _tasks(story: Mapping[str, Any]) -> list[str]:
    lines = [
        _line("task", f"job {task['job']}  {task['decision']}  {gpu_list(task['gpus'])}")
        for task in story.get("tasks", [])
    ]
    if story.get("tasks_left_out"):
        lines.append(_line("task", f"and {story['tasks_left_out']} more"))
    return lines


def _line(title: str, text: str) -> str:
    """One fact, indented below the headline."""
    return f"  {title:{12}}  {text}"


def gpu_list(gpus: Mapping[str, Any]) -> str:
    """`dgx1: 0,3; dgx2: 1,2`."""
    return "; ".join(f"{name}: {','.join(map(str, some))}" for name, some in gpus.items())


def _moment(epoch_s: float) -> str:
    """A time in ISO 8601, UTC."""
    return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="seconds")


def _loan(story: Mapping[str, Any]) -> list[str]:
    """Who lends to the job, to whom it lends, or why nothing is lent."""
    loan = loan_of(story)
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
        _line("lent", f"{gpu_list({one['node']: one['gpus']})}, by job {one['job']}{_idle(one)}")
        for one in loan["donors"]
    ]
    return [*lines, _line("lent because", loan["why"])] if loan.get("why") else lines


def _idle(one: Mapping[str, Any]) -> str:
    if not (since := one.get("idle_since")):
        return ""
    return f"; nothing passed since {_moment(since)}: the job needs nothing, waits, or it hangs"


def _given_back(story: Mapping[str, Any]) -> list[str]:
    """What each donor lent until it ended."""
    return [
        _line(
            "lent until",
            f"{one['time']}  {one['gpus']} GPUs of {one['node']} by job {one['donor']} for"
            f" {one['seconds']} s; {one['bytes_in']:,} bytes to it in {one['packets_in']:,}"
            f" packets, {one['bytes_out']:,} from it",
        )
        for one in story.get("given_back", [])
    ]


def _shape(story: Mapping[str, Any]) -> list[str]:
    """The shape a job was given, and those it could have had."""
    of = story if story.get("decision") == "shape" else story.get("shaping")
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
        for one in story.get("shaped_before", [])
    ]
    return lines
