"""Half-open spans of UTC time, ``[start, end)``, and reading instants that people write."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


def utc(instant: datetime) -> datetime:
    """The same instant in UTC; raises ``ValueError`` for a time without a zone."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant.isoformat()} has no time zone; write it as 2026-03-10T10:00:00+08:00")
    return instant.astimezone(UTC)


def parse_instant(text: str) -> datetime:
    """Read an ISO 8601 / RFC 3339 instant with an offset or ``Z``; raises ``ValueError`` otherwise."""
    try:
        instant = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text!r} is not a time such as 2026-03-10T10:00:00+08:00") from error
    return utc(instant)


def format_instant(instant: datetime) -> str:
    """RFC 3339 in UTC: ``2026-03-10T02:00:00Z``; microseconds only where there are any."""
    return utc(instant).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True, slots=True, order=True)
class Timespan:
    """``[start, end)`` in UTC; never empty, never backwards."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", utc(self.start))
        object.__setattr__(self, "end", utc(self.end))
        if self.end <= self.start:
            raise ValueError(f"a span must end after its start: {self.start} .. {self.end}")

    @property
    def length(self) -> timedelta:
        return self.end - self.start

    @property
    def seconds(self) -> int:
        """Whole seconds from start to end; raises ``ValueError`` when the span is not whole seconds."""
        length = self.length
        if length.microseconds:
            raise ValueError(f"{self.start} .. {self.end} is not a whole number of seconds")
        return length.days * 86_400 + length.seconds

    def contains(self, instant: datetime) -> bool:
        return self.start <= instant < self.end

    def intersection(self, other: Timespan) -> Timespan | None:
        """The common part, or ``None`` when there is none."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        return Timespan(start, end) if start < end else None

    def split_at(self, instants: list[datetime]) -> list[Timespan]:
        """The parts of this span between those of ``instants`` that lie strictly inside it, in order."""
        edges = sorted({utc(i) for i in instants if self.start < i < self.end})
        bounds = [self.start, *edges, self.end]
        return [Timespan(a, b) for a, b in itertools.pairwise(bounds)]


def ceil_to_second(instant: datetime) -> datetime:
    """The first whole second at or after ``instant`` (pricing.md, Clock: the start rounds up)."""
    whole = floor_to_second(instant)
    return whole if whole == utc(instant) else whole + timedelta(seconds=1)


def floor_to_second(instant: datetime) -> datetime:
    """The last whole second at or before ``instant`` (pricing.md, Clock: the end rounds down)."""
    return utc(instant).replace(microsecond=0)
