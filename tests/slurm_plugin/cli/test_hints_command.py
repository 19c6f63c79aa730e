"""`gputopo hints` and docs/hints.md say what the grammar knows."""

import json
from pathlib import Path

from commands_in_tests import run

from policies.contract.hint_keys import KEYS, LAUNCH
from policies.hints import parse, supported_keys
from policies.hints.page import tables

PAGE = Path(__file__).resolve().parents[3] / "docs" / "hints.md"


def test_every_key_is_listed_with_values_default_and_reader():
    rows = json.loads(run("hints", "--json"))["keys"]
    assert [row["key"] for row in rows] == list(KEYS)
    assert all(row["values"] and row["default"] and row["doc"] for row in rows)
    by_key = {row["key"]: row for row in rows}
    assert by_key["mem"]["values"] == "preferred, bind, interleave, none"
    assert by_key["bind"]["read_by"] == "the launch"
    assert "mapa" in by_key["pattern"]["read_by"]
    assert by_key["remote"]["read_by"] == "the engine"
    assert by_key["batch"]["read_by"] == "horizon, topo-aware, topo-aware-p, genie"
    table = run("hints")
    assert all(key in table for key in KEYS)


def test_the_page_is_the_commands_output():
    text = PAGE.read_text()
    begin, end = "<!-- reference -->\n", "<!-- /reference -->"
    written = text[text.index(begin) + len(begin) : text.index(end)]
    # gputopo hints --markdown refreshes it.
    assert written.strip() == tables().strip() == run("hints", "--markdown").strip()


def test_launch_keys_go_with_every_policy():
    assert {name for name, key in KEYS.items() if key.reader == LAUNCH} <= set(supported_keys())
    for policy in ("mapa", "first-fit"):
        text = f"policy={policy},bind=none,mem=interleave"
        assert str(parse(text)) == text
