"""What a check found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `level` is ok, warn or fail, `fix` says what to do unless it is ok.

    `check` is the check's name, which `examine` fills in.
    """

    check: str
    level: str
    text: str
    fix: str = ""


def ok(text: str) -> Finding:
    """All is well."""
    return Finding("", "ok", text)


def warn(text: str, fix: str) -> Finding:
    """Works, but somebody should know."""
    return Finding("", "warn", text, fix)


def fail(text: str, fix: str) -> Finding:
    """Does not work as configured."""
    return Finding("", "fail", text, fix)
