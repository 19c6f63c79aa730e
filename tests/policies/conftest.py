"""Puts the named machines and the slow way beside the tests of this folder."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from policies.scoring import tables


@pytest.fixture
def made_tables(monkeypatch) -> list[tables.NodeTables]:
    """The tables of nodes that are made while the test runs."""
    made = []

    class Counted(tables.NodeTables):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(tables, "NodeTables", Counted)
    return made
