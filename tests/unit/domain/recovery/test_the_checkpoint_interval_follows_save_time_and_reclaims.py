"""The interval of Young and Daly at its edges, and beside every other interval."""

from __future__ import annotations

import math

import pytest

from starverse.domain.recovery.checkpoint_interval import best_interval, expected_loss_share, reclaim_rate

HOUR = 3600.0


def test_without_reclaims_the_operators_maximum() -> None:
    interval = best_interval(10, 0, 900)
    assert interval.seconds == 900
    assert interval.expected_loss_share == pytest.approx(10 / 910)


@pytest.mark.parametrize("save", [1, 5, 30, 120])
@pytest.mark.parametrize("between_hours", [0.5, 2, 8])
def test_no_other_interval_is_expected_to_lose_much_less(save: float, between_hours: float) -> None:
    rate = 1 / (between_hours * HOUR)
    best = best_interval(save, rate, 10 * HOUR)
    others = [expected_loss_share(best.seconds * 1.1**step, save, rate) for step in range(-30, 31)]
    assert best.expected_loss_share <= min(others) * 1.01


@pytest.mark.parametrize(("save", "rate"), [(0, 0), (0, 1), (HOUR, 1), (1e9, 1e9), (60, 1e-12)])
def test_odd_figures_give_an_interval(save: float, rate: float) -> None:
    interval = best_interval(save, rate)
    assert 0 < interval.seconds <= 1800
    assert 0 <= interval.expected_loss_share <= 1


@pytest.mark.parametrize("figures", [(-1, 0, 1), (1, -1, 1), (1, math.inf, 1), (math.nan, 0, 1), (1, 0, 0)])
def test_what_is_no_figure_is_refused(figures: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        best_interval(*figures)


def test_a_pool_seen_for_a_moment_is_not_one_without_reclaims() -> None:
    assert reclaim_rate(0, 60) == pytest.approx(1 / (3 * HOUR), rel=0.01)
    assert reclaim_rate(50, 100 * HOUR) == pytest.approx(0.5 / HOUR, rel=0.05)
