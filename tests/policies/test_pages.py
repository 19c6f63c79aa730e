"""The documentation of the policies says what is installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policies.contract.hint_keys import KEYS
from policies.hints import supported_keys
from policies.registry import registry

PAGES = Path(__file__).resolve().parents[2] / "docs" / "policies"
INDEX = (PAGES / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", registry.names())
def test_every_policy_has_a_row_and_a_page_that_names_it(name):
    row = next(line for line in INDEX.splitlines() if line.startswith(f"| `{name}`"))
    page = re.search(r"\]\(([a-z-]+\.md)?(#[\w-]+)?\) \|$", row)
    assert page
    assert name in (PAGES / (page[1] or "README.md")).read_text(encoding="utf-8").replace(row, "")


def test_the_table_of_hints_is_that_of_the_keys_with_an_effect():
    section = INDEX.split("## Hints that have an effect")[1].split("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| `")]
    found = {cells[0].strip(" `"): [cell.strip() for cell in cells[1:]] for cells in rows}
    assert tuple(found) == supported_keys()
    for name, (allowed, default, doc, _) in found.items():
        key = KEYS[name]
        assert (default, doc) == (key.default, key.doc)
        assert allowed == key.allowed or name == "policy"
