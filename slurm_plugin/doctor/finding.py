"""What a check found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    #: The check's name, which `examine` fills in.
    check: str
    #: ok, warn or fail.
    level: str
    text: str
    #: What to do, unless it is ok.
    fix: str = ""


def ok(text: str) -> Finding:
    """A finding that needs nothing done."""
    return Finding("", "ok", text)


def warn(text: str, fix: str) -> Finding:
    """Works, but somebody should know."""
    return Finding("", "warn", text, fix)


def fail(text: str, fix: str) -> Finding:
    """Does not work as configured."""
    return Finding("", "fail", text, fix)
