"""Benchmark 12 runs on a few bookings; its own count finds cards booked twice, and its bound is one."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import calendar as bench
from benchmarks.peers.booking_bound import accepted_at_most

from starverse.domain.scheduling.calendar.calendar import Calendar


def test_seconds_over_capacity_are_counted_without_the_calendar() -> None:
    calendar = Calendar()
    calendar.set_capacity("pool", 8)
    calendar.restore("a", "pool", 8, bench._at(0), bench._at(100))
    calendar.restore("b", "pool", 4, bench._at(100), bench._at(200))
    assert bench._over(calendar, "pool") == 0
    calendar.restore("c", "pool", 1, bench._at(90), bench._at(130))
    assert bench._over(calendar, "pool") == 10


def test_a_booked_year_books_no_node_twice() -> None:
    year = bench.a_booked_year(np.random.default_rng(12), 500)
    assert len(year) == 500
    for node in range(int(year.nodes.max()) + 1):
        starts, ends = year.starts[year.nodes == node], year.ends[year.nodes == node]
        assert (starts < ends).all()
        assert (ends[:-1] <= starts[1:]).all()


def test_the_bound_is_what_hindsight_would_accept() -> None:
    pytest.importorskip("scipy", reason="the bound is solved by SciPy, which is not here")
    starts, ends = np.array([0, 0, 60]), np.array([100, 60, 130])
    cards = np.array([8, 8, 8])
    assert accepted_at_most(starts, ends, cards, 8) == pytest.approx(8 * 130)
