"""Slurm's spans and instants, ``--time`` and ``--begin`` (sbatch manual page; ``parse_time.c``)."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from starverse.domain.sbatch.origins import BadValue

TIME_LIMIT_SECONDS_MAX = 366 * 86_400

_TIME_EXPECTED = "minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS"
_NO_END = {"UNLIMITED", "INFINITE", "NONE"}
_SPAN = re.compile(
    r"(?:(?P<days>\d{1,9})-(?P<h1>\d{1,9})(?::(?P<m1>\d{1,9})(?::(?P<s1>\d{1,9}))?)?"
    r"|(?P<h2>\d{1,9}):(?P<m2>\d{1,9}):(?P<s2>\d{1,9})"
    r"|(?P<m3>\d{1,9})(?::(?P<s3>\d{1,9}))?)",
    re.ASCII,
)
_BEGIN_EXPECTED = (
    "now+1hour, HH:MM[:SS] [AM|PM], today, tomorrow, midnight, noon, teatime, MM/DD[/YY][-HH:MM],"
    " or YYYY-MM-DD[THH:MM[:SS]]"
)
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_NOW = re.compile(r"now(?:\s*(?P<sign>[+-])\s*(?P<count>\d{1,9})\s*(?P<unit>[a-z]*))?", re.ASCII)
_NAMED_TIMES = {"midnight": 0, "noon": 12, "elevenses": 11, "fika": 15, "teatime": 16}
_CLOCK = re.compile(r"(?P<h>\d{1,2}):(?P<m>\d\d)(?::(?P<s>\d\d))?\s*(?P<half>am|pm)?", re.ASCII)
_ISO_DAY = re.compile(r"(?P<y>\d{4})-(?P<m>\d{1,2})-(?P<d>\d{1,2})", re.ASCII)
_US_DAY = re.compile(r"(?P<m>\d{1,2})(?P<sep>[./])(?P<d>\d{1,2})(?:(?P=sep)(?P<y>\d{2}))?", re.ASCII)
_PLAIN_DAY = re.compile(r"(?P<m>\d\d)(?P<d>\d\d)(?P<y>\d\d)?", re.ASCII)
_OFFSET = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d.*(?:[Zz]|[+-]\d\d:?\d\d)", re.ASCII)


def parse_time_limit(text: str) -> int:
    """A time limit in seconds (exact; Slurm rounds up to minutes). Raises :class:`BadValue`."""
    if text.upper() in _NO_END or text in {"0", "-1"}:
        raise BadValue(f"a limit: every job has one (default 24 hours); {_TIME_EXPECTED}")
    found = _SPAN.fullmatch(text)
    if found is None:
        raise BadValue(_TIME_EXPECTED)
    part = {name: int(value) for name, value in found.groupdict().items() if value is not None}
    seconds = (
        part.get("days", 0) * 86_400
        + (part.get("h1", 0) + part.get("h2", 0)) * 3600
        + (part.get("m1", 0) + part.get("m2", 0) + part.get("m3", 0)) * 60
        + (part.get("s1", 0) + part.get("s2", 0) + part.get("s3", 0))
    )
    if seconds <= 0:
        raise BadValue(f"more than zero; {_TIME_EXPECTED}")
    if seconds > TIME_LIMIT_SECONDS_MAX:
        raise BadValue("at most 366 days")
    return seconds


def format_time_limit(seconds: int) -> str:
    """``D-HH:MM:SS``, or ``HH:MM:SS`` under a day: what squeue shows and ``--time`` reads."""
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def parse_begin(text: str, now: datetime, zone: tzinfo) -> datetime:
    """An instant in UTC from any of Slurm's forms, read in ``zone``; an ISO time may carry its offset.

    A time without a day is the next such time; a day without a year is the next such day. ``now`` must be
    aware. Raises :class:`BadValue`.
    """
    try:
        return _begin(text.strip(), now, zone).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        if isinstance(error, BadValue):
            raise
        raise BadValue(_BEGIN_EXPECTED) from error


def _begin(text: str, now: datetime, zone: tzinfo) -> datetime:
    if _OFFSET.fullmatch(text):
        return datetime.fromisoformat(text)
    lower = text.lower()
    relative = _NOW.fullmatch(lower)
    if relative is not None:
        return now + _delta(relative)
    local = now.astimezone(zone)
    day_text, clock_text = _day_and_clock(lower)
    day = _day(day_text, local.date()) if day_text else None
    clock = _clock(clock_text) if clock_text else None
    if day is None and clock is None:
        raise BadValue(_BEGIN_EXPECTED)
    if day is None:
        assert clock is not None
        today = datetime.combine(local.date(), clock, zone)
        return today if today > now else datetime.combine(local.date() + timedelta(days=1), clock, zone)
    if isinstance(day, date):
        return datetime.combine(day, clock or time(), zone)
    month, of_month = day
    this_year = datetime.combine(_date(local.year, month, of_month), clock or time(), zone)
    if this_year > now:
        return this_year
    return datetime.combine(_date(local.year + 1, month, of_month), clock or time(), zone)


def _delta(relative: re.Match[str]) -> timedelta:
    if relative["sign"] is None:
        return timedelta()
    unit = relative["unit"] or "second"
    seconds = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
    if seconds is None:
        raise BadValue("a unit of seconds, minutes, hours, days or weeks, such as now+2hours")
    amount = int(relative["count"]) * seconds
    return timedelta(seconds=amount if relative["sign"] == "+" else -amount)


def _day_and_clock(text: str) -> tuple[str, str]:
    """Split at Slurm's separators between a day and a time of day: ``T``, ``-`` or white space."""
    if _CLOCK.fullmatch(text) or text in _NAMED_TIMES:
        return "", text
    found = re.fullmatch(
        r"(?P<day>\d{4}-\d{1,2}-\d{1,2}|[\d./]+|today|tomorrow)(?:[t\s-]\s*(?P<clock>.+))?", text
    )
    if found is None:
        raise BadValue(_BEGIN_EXPECTED)
    return found["day"], found["clock"] or ""


def _clock(text: str) -> time:
    if text in _NAMED_TIMES:
        return time(_NAMED_TIMES[text])
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise BadValue(_BEGIN_EXPECTED)
    hour = int(found["h"])
    if found["half"]:
        if not 1 <= hour <= 12:
            raise BadValue("an hour from 1 to 12 with AM or PM")
        hour = hour % 12 + (12 if found["half"] == "pm" else 0)
    return time(hour, int(found["m"]), int(found["s"] or 0))


def _day(text: str, today: date) -> date | tuple[int, int]:
    """A whole date, or month and day where the year is left out."""
    if text == "today":
        return today
    if text == "tomorrow":
        return today + timedelta(days=1)
    iso = _ISO_DAY.fullmatch(text)
    if iso is not None:
        return date(int(iso["y"]), int(iso["m"]), int(iso["d"]))
    found = _US_DAY.fullmatch(text) or _PLAIN_DAY.fullmatch(text)
    if found is None:
        raise BadValue(_BEGIN_EXPECTED)
    month, of_month = int(found["m"]), int(found["d"])
    return date(2000 + int(found["y"]), month, of_month) if found["y"] else (month, of_month)


def _date(year: int, month: int, day: int) -> date:
    try:
        return date(year, month, day)
    except ValueError:
        if (month, day) == (2, 29):
            return date(year, 3, 1)
        raise
