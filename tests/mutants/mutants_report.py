"""The report about mutants: figures by part, and a line for each that survives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from mutations import Mutant

JUDGED = Path(__file__).with_name("judged.yaml")
_HEAD = """# One-line mutants

A mutant is the code with one line changed: `<` made `<=`, a call left out, nothing returned. Tests
that do not notice say nothing about that line. `make mutants` tries a seeded sample and writes
this file; `make mutants ONLY=policies` tries one part. It works on a copy of the tree.

The tests for a mutant are those that run its line (coverage by test), the shortest first, 25 s of
them at most; a line that runs at import gets the tests that run anything of its file. The Lua
files get tests/lua_bridge, C files tests/select or tests/spank. A test that fails with the
mutant has to fail twice. `hung` ran past its limit and is caught, too.

C: only files that are built without Slurm's headers (`PURE` in the two Makefiles) are tried here.
"""


def _all() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = yaml.safe_load(JUDGED.read_text(encoding="utf-8")) or {}
    return found


def judged(one: Mutant) -> str:
    """What a person says of a mutant that survives; '' where nobody did."""
    said = _all().get(one.id, {})
    return next((f"{word}: {why}" for word, why in said.items()), "")


def _row(name: str, found: Sequence[tuple[Mutant, Mapping[str, Any]]]) -> str:
    outcomes = [told["outcome"] for _, told in found]
    caught, hung = outcomes.count("caught"), outcomes.count("hung")
    equal = sum(
        told["outcome"] == "survived" and judged(one).startswith("equivalent")
        for one, told in found
    )
    left = len(found) - caught - hung - equal
    share = 100 * (caught + hung) / max(1, len(found))
    return f"| {name} | {len(found)} | {caught} | {hung} | {equal} | {left} | {share:.0f} % |"


def report(
    results: Mapping[str, Sequence[tuple[Mutant, Mapping[str, Any]]]], measuring_s: float
) -> str:
    """docs/mutants.md."""
    is_c = {part: part in ("select", "spank") for part in results}
    rows = [_row(part, found) for part, found in results.items()]
    for name, kind in (("**all but C**", False), ("**C**", True)):
        some = [item for part, found in results.items() if is_c[part] is kind for item in found]
        if some:
            rows.append(_row(name, some))
    every = [item for found in results.values() for item in found]
    took_s = sum(told["seconds"] for _, told in every)
    lines = [_HEAD, "| part | mutants | caught | hung | equivalent | survived | caught of all |"]
    lines += ["|---|---|---|---|---|---|---|", *rows, ""]
    lines.append(
        f"It took {measuring_s / 60:.0f} minutes to measure which test runs which line, and"
    )
    lines += [f"{took_s / 60:.0f} to try the mutants, one after the other.", ""]
    for word, title in (("equivalent", "Equivalent"), ("", "Survivors")):
        lines += [f"## {title}", ""]
        for one, told in every:
            said = judged(one)
            if told["outcome"] == "survived" and said.startswith("equivalent") is bool(word):
                why = said.partition(": ")[2] or "not looked at"
                lines.append(f"- `{one.path}` line {one.line} (`{one.id}`): {why}")
                lines += ["", "  ```diff", f"  - {one.was.strip()}", f"  + {one.becomes.strip()}"]
                lines += ["  ```", ""]
    return "\n".join(lines).rstrip() + "\n"
