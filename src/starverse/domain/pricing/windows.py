"""Where wall-clock windows begin and end, in any IANA zone, and the local calendar that packages follow.

A window holds at an instant when that instant's wall-clock time in the book's zone lies in [from, to),
wrapping midnight (pricing.md, Rate of an instant). Membership is a property of the instant; so time is cut
into pieces of constant UTC offset, inside which edges are plain integer arithmetic, and a change of the
offset is an edge only where membership differs on its two sides. Daylight saving needs no rule of its own.

Instants are whole seconds since 1970-01-01T00:00:00Z here ("epoch seconds"): integers make rating exact and
fast. Assumes at most one change of offset per UTC day, as in every IANA zone (the closest two ever were
more than three days apart).
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from starverse.domain.errors import InvariantBroken
from starverse.domain.timespan import Timespan, utc

DAY_SECONDS = 86_400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Window:
    """A recurring wall-clock window ``[from, to)``, in seconds of the day; ``from > to`` wraps midnight."""

    name: str
    from_second: int
    to_second: int
    factor: Fraction

    def holds_at(self, second_of_day: int) -> bool:
        """Whether a wall clock showing this second of the day is inside."""
        if self.from_second <= self.to_second:
            return self.from_second <= second_of_day < self.to_second
        return second_of_day >= self.from_second or second_of_day < self.to_second

    def overlaps(self, other: Window) -> bool:
        """Whether some wall-clock time is in both."""
        return self.holds_at(other.from_second) or other.holds_at(self.from_second)


def epoch_second(instant: datetime) -> int:
    """Whole seconds since the epoch; a fraction of a second is dropped (rounds down)."""
    return (utc(instant) - _EPOCH) // _SECOND


def instant_of(second: int) -> datetime:
    """The UTC instant of an epoch second."""
    return _EPOCH + timedelta(seconds=second)


def holds(window: Window, instant: datetime, zone: str) -> bool:
    """Whether ``window`` holds at ``instant``, by the wall clock of the IANA zone ``zone``."""
    local = utc(instant).astimezone(ZoneInfo(zone))
    return window.holds_at(local.hour * 3600 + local.minute * 60 + local.second)


def window_edges(window: Window, span: Timespan, zone: str) -> list[datetime]:
    """The instants strictly inside ``span`` at which membership of ``window`` changes, in order."""
    pieces = window_pieces((window,), epoch_second(span.start), epoch_second(span.end), zone)
    return [instant_of(start) for start, _, _ in pieces[1:]]


def window_pieces(
    windows: Sequence[Window], start: int, end: int, zone: str
) -> list[tuple[int, int, Window | None]]:
    """Tile ``[start, end)`` into pieces inside each of which the same window, or none, holds.

    ``windows`` must not overlap (a price book refuses that for the windows of one tariff). Times are epoch
    seconds. Neighbouring pieces differ. Linear in the number of days.
    """
    pieces: list[tuple[int, int, Window | None]] = []
    for piece_start, piece_end, offset in offset_pieces(start, end, zone):
        edges = {piece_start}
        for window in windows:
            for second in (window.from_second, window.to_second):
                first = piece_start + (second - offset - piece_start) % DAY_SECONDS
                edges.update(range(first, piece_end, DAY_SECONDS))
        bounds = [*sorted(edges), piece_end]
        for begins, ends in pairwise(bounds):
            wall = (begins + offset) % DAY_SECONDS
            holding = next((window for window in windows if window.holds_at(wall)), None)
            if pieces and pieces[-1][2] is holding:
                pieces[-1] = (pieces[-1][0], ends, holding)
            else:
                pieces.append((begins, ends, holding))
    _check_tiling([(a, b) for a, b, _ in pieces], start, end)
    return pieces


def offset_pieces(start: int, end: int, zone: str) -> Iterator[tuple[int, int, int]]:
    """Tile ``[start, end)`` into ``(start, end, offset seconds)`` of constant UTC offset in ``zone``."""
    if start >= end:
        return
    piece_start, offset = start, _offset_at(start, zone)
    for day in range(start // DAY_SECONDS, (end - 1) // DAY_SECONDS + 1):
        change = _offset_change(day, zone)
        if change is not None and start < change[0] < end:
            yield piece_start, change[0], offset
            piece_start, offset = change
    yield piece_start, end, offset


def local_month_pieces(start: int, end: int, zone: str) -> list[tuple[int, int, int]]:
    """Tile ``[start, end)`` by local calendar months: ``(start, end, seconds of that whole month)``."""
    pieces: list[tuple[int, int, int]] = []
    if start >= end:
        return pieces
    local = instant_of(start).astimezone(ZoneInfo(zone))
    month = local.year * 12 + local.month - 1
    if _month_start(month + 1, zone) <= start:  # clocks went back over midnight into the month before
        month += 1
    at = start
    while at < end:
        month_start, month_end = _month_start(month, zone), _month_start(month + 1, zone)
        pieces.append((at, min(end, month_end), month_end - month_start))
        at, month = month_end, month + 1
    _check_tiling([(a, b) for a, b, _ in pieces], start, end)
    return pieces


def wall_to_second(zone: str, day: tuple[int, int, int], at: time) -> int:
    """The epoch second at which clocks in ``zone`` show ``at`` on ``day`` (year, month, day).

    A time that a forward change skips is moved on by the length of the gap; of a time that a backward
    change repeats, the first is taken.
    """
    local = datetime(*day, at.hour, at.minute, at.second, tzinfo=ZoneInfo(zone), fold=0)
    return epoch_second(local)


def month_after(anchored: datetime, months: int) -> tuple[int, int, int]:
    """The date ``months`` after that of ``anchored``: same day, or the last day of a shorter month."""
    index = anchored.year * 12 + anchored.month - 1 + months
    year, month = index // 12, index % 12 + 1
    return year, month, min(anchored.day, calendar.monthrange(year, month)[1])


def _month_start(month: int, zone: str) -> int:
    """The epoch second at which month ``year * 12 + month - 1`` begins."""
    return wall_to_second(zone, (month // 12, month % 12 + 1, 1), time(0))


def _offset_at(second: int, zone: str) -> int:
    offset = instant_of(second).astimezone(ZoneInfo(zone)).utcoffset()
    assert offset is not None, "an aware time always has an offset"
    return offset.days * DAY_SECONDS + offset.seconds


@lru_cache(maxsize=65_536)
def _offset_change(day: int, zone: str) -> tuple[int, int] | None:
    """The change of offset in (day's first second, next day's first second]: when and to what; or none."""
    low, high = day * DAY_SECONDS, (day + 1) * DAY_SECONDS
    before, after = _offset_at(low, zone), _offset_at(high, zone)
    if before == after:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if _offset_at(middle, zone) == before:
            low = middle
        else:
            high = middle
    return high, after


def _check_tiling(pieces: Sequence[tuple[int, int]], start: int, end: int) -> None:
    """Fail loudly unless the pieces cover ``[start, end)`` without gap, overlap or standing still."""
    at = start
    for begins, ends in pieces:
        if begins != at or ends <= begins:
            raise InvariantBroken(context={"pieces": list(pieces), "start": start, "end": end})
        at = ends
    if at != max(start, end):
        raise InvariantBroken(context={"pieces": list(pieces), "start": start, "end": end})
