"""The heat map: 72 hours, a record of how good it has been, the model hidden where it has not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np

from starverse.domain.forecasting.heat_map import HOURS, heat_map
from starverse.domain.forecasting.series import HourlySeries

START = datetime(2026, 3, 2, tzinfo=UTC)


def sticky(hours: int) -> np.ndarray:
    return 8.0 * (np.cumsum(np.random.default_rng(5).random(hours) < 1 / 12) % 2)


def test_the_first_day_has_an_answer_that_calls_itself_young() -> None:
    told = heat_map(HourlySeries(START, np.array([0.0, 4.0, 4.0])), 2)
    assert not told.enough
    assert len(told.hours) == HOURS
    assert told.hours[0].at == START + timedelta(hours=3)
    assert {hour.method for hour in told.hours} == {"not enough history"}
    assert told.record == ()
    assert told.low == ()


def test_each_hour_is_told_by_the_model_only_where_it_beat_every_naive_method() -> None:
    told = heat_map(HourlySeries(START, sticky(500)), 4)
    assert [row.ahead for row in told.record] == [1, 6, 24, 72]
    expected = [row.best_naive if row.skill < 0 else "model" for row in told.record]
    assert [told.hours[row.ahead - 1].method for row in told.record] == expected
    assert all(0 <= hour.probability <= 1 for hour in told.hours)


def test_prices_come_with_a_band_and_choose_the_window() -> None:
    week = np.where(np.arange(168) % 24 < 6, 1.0, 2.0)
    prices = HourlySeries(START, np.tile(week, 4))
    told = heat_map(HourlySeries(START, np.full(672, 9.0)), 2, 4, prices)
    assert all(hour.price_low <= hour.price <= hour.price_high for hour in told.hours)  # type: ignore[operator]
    assert told.windows[0].price <= min(window.price for window in told.windows)
    assert told.low[0].saving > 0.3
    assert told.start_of(told.windows[0]).hour < 6


def test_without_any_sample_nothing_is_likely() -> None:
    told = heat_map(HourlySeries(START, np.empty(0)), 1, 3)
    assert not told.enough
    assert {hour.probability for hour in told.hours} == {0.0}
    assert told.windows == ()
