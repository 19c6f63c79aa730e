"""Deadlines as users write them: a duration (90m, 1d12h) or a time with its zone.

Times are ISO 8601, `2026-11-30T08:00Z` or `2026-11-30T08:00+01:00`; without a zone a time would
mean something else on every host, so it is refused. Pure: the caller brings the clock.
"""

from __future__ import annotations

import re
from calendar import monthrange, timegm

_DURATION = re.compile(r"(?:(\d{1,3})d)?(?:(\d{1,4})h)?(?:(\d{1,5})m)?(?:(\d{1,7})s)?")
_TIME = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2})(?::(\d{2}))?(?:Z|([+-])(\d{2}):(\d{2}))"
)
_UNITS_S = (86400, 3600, 60, 1)

ALLOWED = "a duration such as 90m or 1d12h, or a time with its zone such as 2026-11-30T08:00+01:00"


def duration_s(text: str) -> int | None:
    """Seconds of a duration; None where the text is none."""
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        return None
    return sum(int(part or 0) * unit for part, unit in zip(found.groups(), _UNITS_S, strict=True))


def time_s(text: str) -> int | None:
    """Seconds since 1970 of a time with its zone; None where the text is none."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    sign, zone_h, zone_m = found.groups()[6:]
    if not year >= 1970 or not 1 <= month <= 12 or not 1 <= day <= monthrange(year, month)[1]:
        return None
    away_h, away_m = int(zone_h or 0), int(zone_m or 0)
    if hour > 23 or minute > 59 or second > 59 or away_h > 14 or away_m > 59:
        return None
    away_s = (away_h * 3600 + away_m * 60) * (-1 if sign == "-" else 1)
    return timegm((year, month, day, hour, minute, second)) - away_s


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
