"""The report about mutants: figures by part, and a line for each that survives."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from mutations import Mutant

C_PARTS = ("select", "spank")
JUDGED = Path(__file__).with_name("judged.yaml")
_HEAD = """# One-line mutants

A mutant is the code with one line changed: `<` made `<=`, a call left out, nothing returned. Tests
that do not notice say nothing about that line. `make mutants` tries a seeded sample and writes
this file; `make mutants ONLY=policies` tries one part. It works on a copy of the tree.

The tests for a mutant are those that run its line (coverage by test), the shortest first, 25 s of
them at most; a line that runs at import gets the tests that run anything of its file, or stand in
a file that imports it. The Lua files get tests/lua_bridge, C files tests/select or tests/spank. A
test that fails with the mutant has to fail twice. `hung` ran past its limit and is caught, too.

Tests were written for what survived the first run, in which 148 of 197 (but for C) were caught, or
75 %: that is nearer to what the tests are worth on lines that nobody tried. Another seed (`SEED`
in tests/mutants/run_mutants.py) draws such lines.

C: only files that are built without Slurm's headers (`slurm_plugin/select/pure`, and `PURE` in
spank's Makefile) are tried here.
With the seeds 2 and 3 (40 each) 25 and 30 were caught at first, 7 and 3 equivalent; tests were
written for the other 15.
"""


def _all() -> dict[str, dict[str, str]]:
    result: dict[str, dict[str, str]] = yaml.safe_load(JUDGED.read_text(encoding="utf-8")) or {}
    return result


def judged(one: Mutant) -> str:
    """What a person says of a mutant that survives; '' where nobody did."""
    said = _all().get(one.id, {})
    return next((f"{word}: {why}" for word, why in said.items()), "")


Found = Sequence[tuple[Mutant, Mapping[str, Any] | None]]


def _row(name: str, result: Found) -> str:
    outcomes = [output["outcome"] for _, output in result if output]
    caught, hung = outcomes.count("caught"), outcomes.count("hung")
    equal = sum(judged(one).startswith("equivalent") for one in _left(result))
    left = len(_left(result)) - equal
    share = 100 * (caught + hung) / max(1, len(outcomes))
    cells = (len(result), len(outcomes), caught, hung, equal, left)
    return f"| {name} | {' | '.join(map(str, cells))} | {share:.1f} % |"


def _left(result: Found) -> list[Mutant]:
    return [one for one, output in result if output and output["outcome"] == "survived"]


def report(results: Mapping[str, Found], measuring_s: float) -> str:
    """docs/mutants.md."""
    rows = [_row(part, result) for part, result in results.items()]
    for name, is_c in (("**all but C**", False), ("**C**", True)):
        some = [result for part, result in results.items() if (part in C_PARTS) is is_c]
        if some:
            rows.append(_row(name, [item for result in some for item in result]))
    every = [item for result in results.values() for item in result]
    took_s = sum(output["seconds"] for _, output in every if output)
    lines = [
        _HEAD,
        "| part | drawn | tried | caught | hung | equivalent | survived | caught of tried |",
    ]
    lines += ["|---|---|---|---|---|---|---|---|", *rows, ""]
    lines.append(
        f"It took {measuring_s / 60:.0f} minutes to measure which test runs which line, and"
    )
    lines += [f"{took_s / 60:.0f} to try the mutants, one after the other.", ""]
    for word, title in (("equivalent", "Equivalent"), ("", "Survivors")):
        lines += [f"## {title}", ""]
        for one in _left(every):
            said = judged(one)
            if said.startswith("equivalent") is bool(word):
                why = said.partition(": ")[2] or "not looked at"
                lines += [f"- `{one.path}` line {one.line} (`{one.id}`): {why}", "", "  ```diff"]
                lines += [f"  - {one.was.strip()}", f"  + {one.becomes.strip()}", "  ```", ""]
    return "\n".join(lines).rstrip() + "\n"
