"""Windows and package periods tile time in every zone, at both changes of clocks of a year."""

from __future__ import annotations

from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from zoneinfo import available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starverse.domain.pricing.packages import package_period
from starverse.domain.pricing.windows import (
    Window,
    epoch_second,
    holds,
    instant_of,
    local_month_pieces,
    offset_pieces,
    window_pieces,
)
from starverse.domain.tariff import Tariff

ZONES = sorted(zone for zone in available_timezones() if "/" in zone and not zone.startswith("Etc/"))
YEAR = epoch_second(datetime.fromisoformat("2026-01-01T00:00:00+00:00"))
NIGHT = Window("night", 23 * 3600, 8 * 3600, Fraction(1, 2))

clock_minutes = st.integers(0, 1439)
seconds_of_history = st.integers(
    epoch_second(datetime.fromisoformat("1975-01-01T00:00:00+00:00")),
    epoch_second(datetime.fromisoformat("2060-01-01T00:00:00+00:00")),
)


@st.composite
def windows(draw: st.DrawFn) -> Window:
    begins = draw(clock_minutes)
    ends = draw(clock_minutes.filter(lambda minute: minute != begins))
    return Window("w", begins * 60, ends * 60, Fraction(1, 2))


@settings(max_examples=150, deadline=None)
@given(windows(), st.sampled_from(ZONES), seconds_of_history, st.integers(1, 200 * 86_400), st.data())
def test_pieces_tile_the_span_and_say_what_the_wall_clock_says(
    window: Window, zone: str, start: int, length: int, data: st.DataObject
) -> None:
    pieces = window_pieces((window,), start, start + length, zone)
    assert (pieces[0][0], pieces[-1][1]) == (start, start + length)
    assert all(a[1] == b[0] and a[2] is not b[2] for a, b in pairwise(pieces))
    for begins, ends, holding in data.draw(st.lists(st.sampled_from(pieces), min_size=1, max_size=5)):
        for second in {begins, ends - 1, data.draw(st.integers(begins, ends - 1))}:
            assert holds(window, instant_of(second), zone) == (holding is window)


@pytest.mark.parametrize("quarter", range(4))
def test_every_change_of_clocks_of_a_year_in_every_zone_is_cut_at_its_second(quarter: int) -> None:
    for zone in ZONES[quarter::4]:
        pieces = list(offset_pieces(YEAR, YEAR + 365 * 86_400, zone))
        assert (pieces[0][0], pieces[-1][1]) == (YEAR, YEAR + 365 * 86_400)
        assert all(a[1] == b[0] and a[2] != b[2] for a, b in pairwise(pieces))
        for begins, _, offset in pieces[1:]:
            edges = window_pieces((NIGHT,), begins - 86_400, begins + 86_400, zone)
            assert all(a[1] == b[0] for a, b in pairwise(edges))
            for piece_start, piece_end, holding in edges:
                for second in (piece_start, piece_end - 1):
                    assert holds(NIGHT, instant_of(second), zone) == (holding is NIGHT)
            assert abs(offset) < 86_400


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(ZONES), seconds_of_history, st.sampled_from([Tariff.DAY, Tariff.MONTH, Tariff.YEAR]))
def test_package_periods_tile_time_and_always_advance(zone: str, start: int, tariff: Tariff) -> None:
    periods = [package_period(tariff, instant_of(start), index, zone) for index in range(15)]
    assert periods[0].start == instant_of(start)
    assert all(a.end == b.start for a, b in pairwise(periods))
    shortest = {Tariff.DAY: 24, Tariff.MONTH: 28 * 24 - 26, Tariff.YEAR: 365 * 24 - 26}[tariff]
    assert all(period.length >= timedelta(hours=shortest) for period in periods)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(ZONES), seconds_of_history, st.integers(1, 400 * 86_400))
def test_local_months_tile_time_and_none_is_stuck(zone: str, start: int, length: int) -> None:
    pieces = local_month_pieces(start, start + length, zone)
    assert (pieces[0][0], pieces[-1][1]) == (start, start + length)
    assert all(a[1] == b[0] for a, b in pairwise(pieces))
    assert all(ends - begins <= month_seconds for begins, ends, month_seconds in pieces)
    assert all(ends - begins == month_seconds for begins, ends, month_seconds in pieces[1:-1])
    assert all(26 * 86_400 < month_seconds < 32.1 * 86_400 for *_, month_seconds in pieces)
