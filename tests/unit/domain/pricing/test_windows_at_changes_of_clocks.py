"""Wall-clock windows on the nights the clocks change, and months in zones with odd offsets."""

from __future__ import annotations

from calendar import monthrange
from datetime import datetime
from fractions import Fraction
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from starverse.domain.pricing.windows import (
    Window,
    epoch_second,
    holds,
    instant_of,
    local_month_pieces,
    window_edges,
    window_pieces,
)
from starverse.domain.timespan import Timespan

NIGHT = Window("night", 23 * 3600, 8 * 3600, Fraction(1, 2))
SMALL_HOURS = Window("small hours", 2 * 3600, 3 * 3600, Fraction(1, 2))


def wall(text: str, zone: str, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)


def held_seconds(window: Window, start: datetime, end: datetime, zone: str) -> int:
    pieces = window_pieces((window,), epoch_second(start), epoch_second(end), zone)
    return sum(b - a for a, b, holding in pieces if holding is window)


NIGHTS = [
    ("an ordinary night", NIGHT, "Asia/Shanghai", "2026-03-10", 9.0),
    ("spring forward in Berlin", NIGHT, "Europe/Berlin", "2026-03-28", 8.0),
    ("fall back in Berlin", NIGHT, "Europe/Berlin", "2026-10-24", 10.0),
    ("spring forward in New York", NIGHT, "America/New_York", "2026-03-07", 8.0),
    ("fall back in St John's, half past", NIGHT, "America/St_Johns", "2026-10-31", 10.0),
    ("half an hour on Lord Howe", NIGHT, "Australia/Lord_Howe", "2026-04-04", 9.5),
    ("half an hour less on Lord Howe", NIGHT, "Australia/Lord_Howe", "2026-10-03", 8.5),
    ("a window inside the gap does not happen", SMALL_HOURS, "Europe/Berlin", "2026-03-28", 0.0),
    ("a window inside the fold happens twice", SMALL_HOURS, "Europe/Berlin", "2026-10-24", 2.0),
    ("the changes at midnight in Havana", NIGHT, "America/Havana", "2026-03-07", 8.0),
    ("a zone at a quarter", NIGHT, "Asia/Kathmandu", "2026-03-10", 9.0),
]


@pytest.mark.parametrize(
    ("window", "zone", "day", "hours"), [n[1:] for n in NIGHTS], ids=[n[0] for n in NIGHTS]
)
def test_a_night_is_as_long_as_its_wall_clock(window: Window, zone: str, day: str, hours: float) -> None:
    noon = wall(f"{day} 12:00", zone)
    held = held_seconds(window, noon, instant_of(epoch_second(noon) + 23 * 3600), zone)
    assert held == hours * 3600


def test_edges_are_exactly_where_membership_changes() -> None:
    zone = "America/St_Johns"
    span = Timespan(wall("2026-03-06 12:00", zone), wall("2026-03-10 12:00", zone))
    edges = window_edges(NIGHT, span, zone)
    nights = [
        (wall(f"2026-03-0{d} 23:00", zone), wall(f"2026-03-{d + 1:02d} 08:00", zone)) for d in range(6, 10)
    ]
    assert edges == [edge for night in nights for edge in night]
    for edge in edges:
        assert holds(NIGHT, edge, zone) != holds(NIGHT, instant_of(epoch_second(edge) - 1), zone)


def test_the_day_samoa_skipped_has_no_night_of_its_own() -> None:
    zone = "Pacific/Apia"
    start, end = wall("2011-12-29 12:00", zone), wall("2011-12-31 12:00", zone)
    assert epoch_second(end) - epoch_second(start) == 24 * 3600
    assert held_seconds(NIGHT, start, end, zone) == 9 * 3600


MONTHS = [
    ("+08:00", "Asia/Shanghai", 2026, 2, 28 * 86_400),
    ("+05:30", "Asia/Kolkata", 2028, 2, 29 * 86_400),
    ("-03:30 with a change of clocks", "America/St_Johns", 2026, 3, 31 * 86_400 - 3600),
    ("-03:30 back over midnight into the month before", "America/St_Johns", 2009, 11, 30 * 86_400 + 3600),
    ("+14:00", "Pacific/Kiritimati", 2026, 12, 31 * 86_400),
]


@pytest.mark.parametrize(
    ("zone", "year", "month", "seconds"), [m[1:] for m in MONTHS], ids=[m[0] for m in MONTHS]
)
def test_a_month_is_the_sum_of_its_local_days(zone: str, year: int, month: int, seconds: int) -> None:
    start = wall(f"{year}-{month:02d}-01", zone)
    end = wall(f"{year + month // 12}-{month % 12 + 1:02d}-01", zone)
    assert epoch_second(end) - epoch_second(start) == seconds
    days = [wall(f"{year}-{month:02d}-{day:02d}", zone) for day in range(1, monthrange(year, month)[1] + 1)]
    bounds = [epoch_second(day) for day in (*days, end)]
    summed = 0
    for begins, ends in pairwise(bounds):
        for a, b, month_seconds in local_month_pieces(begins, ends, zone):
            assert month_seconds == seconds
            summed += b - a
    assert summed == seconds


def test_the_hour_repeated_over_midnight_is_billed_to_the_month_that_began() -> None:
    zone = "America/St_Johns"
    repeated = epoch_second(wall("2009-10-31 23:30", zone, fold=1))
    began = epoch_second(wall("2009-11-01 00:00", zone))
    assert repeated > began
    assert local_month_pieces(repeated, repeated + 10, zone) == [
        (repeated, repeated + 10, 30 * 86_400 + 3600)
    ]
