"""Free cards ahead: a daily shape is found, a random walk is left alone, odd pasts have a plain answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from starverse.domain.errors import Invalid
from starverse.domain.forecasting.backtest import cards_told
from starverse.domain.forecasting.free_cards import NAIVE, fit, forecast, levels
from starverse.domain.forecasting.series import HourlySeries, from_samples

START = datetime(2026, 3, 2, tzinfo=UTC)


def noisy_level(hours: int, seed: int = 7) -> np.ndarray:
    return 20 + 5 * np.random.default_rng(seed).standard_normal(hours)


def test_a_noisy_level_is_forecast_better_than_by_any_naive_method() -> None:
    told, inside = cards_told(noisy_level(900), 24, 400)
    assert told.error("forecast") < 0.85 * min(told.error(name) for name in NAIVE)
    assert 0.8 < inside < 0.97


def test_a_random_walk_is_told_by_persistence_an_hour_ahead() -> None:
    walk = 500 + np.cumsum(np.random.default_rng(3).standard_normal(700))
    blend = fit(walk, 1)
    assert blend.hidden
    assert blend.used == 1.0
    assert blend.skill == 0.0


def test_what_comes_later_changes_nothing_that_was_told() -> None:
    values = noisy_level(600)
    changed = values.copy()
    changed[500:] = 99
    at = np.arange(480, 500)
    assert np.array_equal(levels(values, at, 72), levels(changed, at, 72))
    assert fit(values[:500], 6) == fit(changed[:500], 6)


def test_the_first_day_says_that_there_is_not_enough_history() -> None:
    told = forecast(HourlySeries(START, np.array([4.0, 4.0, 6.0])), [1, 72])
    assert not told.enough
    assert told.mean.tolist() == [6.0, 6.0]
    assert set(told.method) == {"persistence"}


def test_no_history_at_all_is_no_number() -> None:
    told = forecast(HourlySeries(START, np.full(5, np.nan)), [1])
    assert told.method == ("no history",)
    assert np.isnan(told.mean[0])


def test_bands_are_ordered_and_never_below_nothing() -> None:
    told = forecast(HourlySeries(START, np.abs(noisy_level(400) - 18)), [1, 6, 24, 72])
    assert told.enough
    assert (np.diff(told.quantiles, axis=1) >= 0).all()
    assert (told.quantiles >= 0).all()


def test_samples_become_hours_with_gaps_and_the_later_of_two() -> None:
    half = timedelta(minutes=30)
    series = from_samples([(START + 2 * half * 2, 5.0), (START, 1.0), (START + half, 2.0)])
    assert np.array_equal(series.values, [2.0, np.nan, 5.0], equal_nan=True)
    assert series.filled().values.tolist() == [2.0, 2.0, 5.0]
    assert series.end == START + timedelta(hours=2)


def test_a_series_without_samples_or_without_a_zone_is_refused() -> None:
    with pytest.raises(Invalid, match="no samples"):
        from_samples([])
    with pytest.raises(Invalid, match="zone"):
        HourlySeries(START.replace(tzinfo=None), np.zeros(3))
