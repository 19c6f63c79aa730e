"""The two ways in which the live tests can have placements enforced."""

import os

MODES = ("select", "slots")
_current = ""


def wanted() -> tuple[str, ...]:
    """The ways to test: $GPUTOPO_ENFORCEMENT, or both; ValueError for anything else."""
    result = os.environ.get("GPUTOPO_ENFORCEMENT") or ""
    if result and result not in MODES:
        raise ValueError(f"GPUTOPO_ENFORCEMENT={result!r}: expected one of {', '.join(MODES)}")
    return (result,) if result else MODES


def use(mode: str) -> None:
    """From now on the tests are about this way of enforcing."""
    global _current
    _current = mode


def enforcement() -> str:
    """The way of enforcing of the test that runs: select (also outside of tests) or slots."""
    return _current or wanted()[0]


def variant() -> str:
    """The variant for this way of enforcing; `-launch` behind it: the SPANK plugin, too."""
    return "gputopo-slots" if enforcement() == "slots" else "gputopo"
