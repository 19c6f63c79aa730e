"""Deadlines as users write them: a duration (90m, 1d12h) or a time with its zone.

Times are ISO 8601, `2026-11-30T08:00Z` or `2026-11-30T08:00+01:00`; without a zone a time would
mean something else on every host, so it is refused. Pure: the caller brings the clock.
"""

from __future__ import annotations

import re
from datetime import datetime

_DURATION = re.compile(r"(?:(\d{1,3})d)?(?:(\d{1,4})h)?(?:(\d{1,5})m)?(?:(\d{1,7})s)?")
#: Of ISO 8601 what people write; fromisoformat also takes weeks and days of the year.
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?(?:Z|[+-](?:0\d|1[0-4]):[0-5]\d)", re.ASCII)
_UNITS_S = (86400, 3600, 60, 1)

ALLOWED = "a duration such as 90m or 1d12h, or a time with its zone such as 2026-11-30T08:00+01:00"


def duration_s(text: str) -> int | None:
    """Seconds of a duration; None where the text is none."""
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        return None
    return sum(int(part or 0) * unit for part, unit in zip(match.groups(), _UNITS_S, strict=True))


def time_s(text: str) -> int | None:
    """Seconds since 1970 of a time with its zone; None where the text is none."""
    if not _TIME.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int(moment.timestamp()) if moment.year >= 1970 else None


def read(text: str) -> str | None:
    """The text where it is a deadline, else None."""
    return text if duration_s(text) is not None or time_s(text) is not None else None


def deadline_s(text: str, now_s: float) -> float:
    """The moment a deadline means, in seconds since 1970; a duration counts from now.

    `text` is one that `read` lets pass.
    """
    lasts_s = duration_s(text)
    if lasts_s is not None:
        return now_s + lasts_s
    at_s = time_s(text)
    assert at_s is not None, f"{text!r} was not checked"
    return float(at_s)
