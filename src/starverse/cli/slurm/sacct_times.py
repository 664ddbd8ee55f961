"""Times as sacct's ``-S`` and ``-E`` take them (sacct manual page). Pure: ``now`` carries the zone."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_UNITS = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_HOURS = {"midnight": 0, "noon": 12, "fika": 15, "teatime": 16}
_RELATIVE = re.compile(r"now(?:([+-])(\d{1,9})(second|minute|hour|day|week|)s?)?")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*(am|pm)?")
_DAYS = (
    re.compile(r"(?P<y>\d{4})-(?P<m>\d{1,2})(?:-(?P<d>\d{1,2}))?"),
    re.compile(r"(?P<m>\d{1,2})/(?P<d>\d{1,2})(?:/(?P<y>\d{2}|\d{4}))?"),
    re.compile(r"(?P<m>\d{1,2})\.(?P<d>\d{1,2})(?:\.(?P<y>\d{2}|\d{4}))?"),
    re.compile(r"(?P<m>\d{2})(?P<d>\d{2})(?P<y>\d{2})?"),
)


def parse_sacct_time(text: str, now: datetime) -> datetime | None:
    """The instant on the clocks of ``now``'s zone, ``None`` when the text is not a time."""
    words = text.strip().lower().replace("t", "t")
    relative = _RELATIVE.fullmatch(words)
    if relative is not None:
        seconds = int(relative[2] or 0) * _UNITS[relative[3] or ""]
        return now + timedelta(seconds=-seconds if relative[1] == "-" else seconds)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    named = {"today": midnight, "tomorrow": midnight + timedelta(days=1)}
    if words in named:
        return named[words]
    if words in _HOURS:
        return midnight.replace(hour=_HOURS[words])
    try:
        return _day_and_clock(words, midnight)
    except ValueError:
        return None


def _day_and_clock(words: str, midnight: datetime) -> datetime | None:
    day_text, _, clock_text = (
        words.replace("t", " ", 1).partition(" ") if _CLOCK.search(words) else (words, "", "")
    )
    if _CLOCK.fullmatch(words):
        day_text, clock_text = "", words
    day: datetime | None = midnight
    if day_text:
        day = next((_day(found, midnight) for p in _DAYS if (found := p.fullmatch(day_text))), None)
    clock = _CLOCK.fullmatch(clock_text.strip()) if clock_text else None
    if day is None or (clock_text and clock is None):
        return None
    if clock is None:
        return day
    hour = int(clock[1])
    if clock[4]:
        hour = hour % 12 + (12 if clock[4] == "pm" else 0)
    return day.replace(hour=hour, minute=int(clock[2]), second=int(clock[3] or 0))


def _day(found: re.Match[str], midnight: datetime) -> datetime:
    year = int(found["y"] or midnight.year)
    return midnight.replace(
        year=year + 2000 if year < 100 else year, month=int(found["m"]), day=int(found["d"] or 1)
    )
