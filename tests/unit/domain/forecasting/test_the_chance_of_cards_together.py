"""P(N cards free together): near what happens, honest about persistence, silent about the rest."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from starverse.domain.forecasting.availability import AvailabilityModel, Flags, features, markov, probability
from starverse.domain.forecasting.backtest import calibration, chances_told, skill
from starverse.domain.forecasting.series import HourlySeries
from starverse.domain.forecasting.windows import cheapest_windows, low_windows

START = datetime(2026, 3, 2, tzinfo=UTC)


def sticky(hours: int, seed: int = 5) -> np.ndarray:
    """0 or 8 free cards, changing about every twelve hours."""
    turns = np.random.default_rng(seed).random(hours) < 1 / 12
    return 8.0 * (np.cumsum(turns) % 2)


def test_a_pool_that_sticks_is_told_with_skill_an_hour_ahead_and_is_calibrated() -> None:
    told, _ = chances_told([Flags(sticky(700), 4)], 1, 168)
    assert skill(told.by_method["forecast"], told.by_method["climatology"], told.outcome) > 0.5
    assert calibration(told.by_method["forecast"], told.outcome) < 0.05


def test_far_ahead_it_tells_about_the_share_of_the_past() -> None:
    free = sticky(700)
    told = probability(HourlySeries(START, free), 4, [72])
    assert abs(told[0] - (free >= 4).mean()) < 0.2


def test_what_comes_later_changes_no_feature() -> None:
    free = sticky(300)
    changed = free.copy()
    changed[250:] = 3
    at = np.array([200, 249])
    assert np.array_equal(features(Flags(free, 4), at, 24), features(Flags(changed, 4), at, 24))


def test_young_pasts_are_told_by_the_chain_and_no_past_by_zero() -> None:
    young = HourlySeries(START, sticky(40))
    assert np.array_equal(probability(young, 4, [1, 6]), markov(Flags(young.values, 4), [1, 6]))
    assert probability(HourlySeries(START, np.empty(0)), 1, [1]).tolist() == [0.0]


def test_more_cards_than_were_ever_free_are_unlikely() -> None:
    model = AvailabilityModel.fitted([Flags(sticky(400), 4)])
    told = probability(HourlySeries(START, sticky(400)), 1000, [1, 24, 72], model)
    assert (told < 0.1).all()


def test_perfect_forecasts_have_skill_one_and_no_error() -> None:
    truth = np.array([0.0, 1.0, 1.0])
    assert skill(truth, np.full(3, 0.5), truth) == 1.0
    assert calibration(truth, truth) == 0.0


def test_the_cheapest_windows_do_not_overlap_and_leave_out_what_is_unlikely() -> None:
    prices = [3.0, 1.0, 1.0, 3.0, 2.0, 2.0, 1.0, 1.0]
    chances = [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.1, 0.9]
    found = cheapest_windows(prices, chances, 2)
    assert [window.first for window in found] == [1, 4]
    assert found[0].price == 1.0
    assert cheapest_windows(prices, chances, 9) == []
    assert cheapest_windows(prices, chances, 0) == []


def test_low_hours_of_the_week_are_named_with_their_saving() -> None:
    week = np.full(168, 10.0)
    week[24 * 5 + 2 : 24 * 5 + 6] = 5.0
    found = low_windows(HourlySeries(START, np.tile(week, 3)), hours=4, count=1)
    assert found[0].text == "Sat 02:00-06:00"
    assert round(found[0].saving, 2) == 0.49
    assert low_windows(HourlySeries(START, week[:100])) == []
    assert low_windows(HourlySeries(START, np.full(400, 10.0))) == []
