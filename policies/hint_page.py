"""The hint reference, from the declarations in `hint_keys`: for the command and the page."""

from __future__ import annotations

from policies.hint_keys import BESIDE, ENGINE, GENERAL, KEYS, LAUNCH
from policies.registry import Registry
from policies.registry import registry as installed


def rows(policies: Registry = installed) -> list[dict[str, str]]:
    """One row per key: `key`, `values`, `default`, `doc`, `read_by`, in the grammar's order."""
    return [
        {
            "key": key.name,
            "values": key.allowed + (" (or alone)" if key.flag else ""),
            "default": key.default,
            "doc": key.doc,
            "read_by": _read_by(key.name, policies),
        }
        for key in KEYS.values()
    ]


def _read_by(name: str, policies: Registry) -> str:
    if name in GENERAL:
        return "every job"
    if name in LAUNCH:
        return "the launch"
    if name in ENGINE:
        return "the engine"
    users = [policy for policy in policies.names() if name in policies.hints_of(policy)]
    users += [f"the engine beside `{BESIDE[name]}`"] if name in BESIDE else []
    return ", ".join(users) or "no installed policy (refused)"


def tables(policies: Registry = installed) -> str:
    """The table of docs/hints.md (Markdown)."""
    lines = ["| key | values | default | what it says | read by |", "|---|---|---|---|---|"]
    for row in rows(policies):
        cells = (f"`{row['key']}`", *(row[key] for key in ("values", "default", "doc", "read_by")))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
