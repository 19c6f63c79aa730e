"""What a check found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `fix` says what to do unless `level` is ok."""

    check: str
    level: str
    text: str
    fix: str = ""


def ok(check: str, text: str) -> Finding:
    """All is well."""
    return Finding(check, OK, text)


def warn(check: str, text: str, fix: str) -> Finding:
    """Works, but somebody should know."""
    return Finding(check, WARN, text, fix)


def fail(check: str, text: str, fix: str) -> Finding:
    """Does not work as configured."""
    return Finding(check, FAIL, text, fix)
