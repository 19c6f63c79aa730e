"""The reference of the hints, from the keys' declarations: for the command and the page."""

from __future__ import annotations

from policies.contract.hint_keys import HintKey
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
            "read_by": _read_by(key, policies),
        }
        for key in policies.keys.values()
    ]


def _read_by(key: HintKey, policies: Registry) -> str:
    if key.reader:
        return key.reader
    users = [policy for policy in policies.names() if key.name in policies.hints_of(policy)]
    users += [f"the engine (if `{key.beside}` is given)"] if key.beside else []
    return ", ".join(users) or "no installed policy (refused)"


def tables(policies: Registry = installed) -> str:
    """The table of docs/hints.md (Markdown)."""
    lines = ["| key | values | default | what it says | read by |", "|---|---|---|---|---|"]
    for row in rows(policies):
        cells = (f"`{row['key']}`", *(row[key] for key in ("values", "default", "doc", "read_by")))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
