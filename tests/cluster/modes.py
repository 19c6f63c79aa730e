"""The two ways in which the live tests can have placements enforced."""

from __future__ import annotations

import os

MODES = ("select", "slots")


def enforcement() -> str:
    """$GPUTOPO_ENFORCEMENT: select (default) or slots; ValueError for anything else."""
    found = os.environ.get("GPUTOPO_ENFORCEMENT") or "select"
    if found not in MODES:
        raise ValueError(f"GPUTOPO_ENFORCEMENT={found!r}: expected one of {', '.join(MODES)}")
    return found


def variant() -> str:
    """The variant for this way of enforcing; `-launch` behind it: the SPANK plugin, too."""
    return "gputopo-slots" if enforcement() == "slots" else "gputopo"
