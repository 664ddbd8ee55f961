"""The heat map of one pool: what each of the next hours is like, and how far that is to be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np

from starverse.domain.forecasting.availability import (
    climatology,
    flags,
    hour_of_week,
    markov,
    probability,
)
from starverse.domain.forecasting.backtest import calibration, chances_told, skill
from starverse.domain.forecasting.free_cards import ENOUGH_HOURS, forecast
from starverse.domain.forecasting.series import Floats, HourlySeries
from starverse.domain.forecasting.windows import LowWindow, Window, cheapest_windows, low_windows

HOURS = 72
JUDGED = (1, 6, 24, 72)
"""Horizons at which the past is told again, to see how good the forecast has been."""
NAIVE_METHODS = ("climatology", "share of the past", "persistence", "Markov")
JUDGED_FROM_HOURS = 168
JUDGED_HOURS_MAX = 12 * 168
LOW, HIGH = 0, -1
"""The columns of the 5 % and the 95 % quantile."""


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour ahead; prices ``None`` where none were recorded. ``method``: ``model``, or a naive one.

    ``price_low`` and ``price_high`` bound a 90 % band.
    """

    at: datetime
    probability: float
    method: str
    free: float
    price: float | None = None
    price_low: float | None = None
    price_high: float | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """How good the forecast ``ahead`` hours has been on this pool's own past.

    ``skill`` is against the best naive method there (``best_naive``): below zero the model is hidden.
    """

    ahead: int
    skill: float
    calibration_error: float
    best_naive: str
    outcomes: int


@dataclass(frozen=True, slots=True)
class HeatMap:
    """``enough`` false: not enough history; ``record`` is then empty."""

    cards: int
    history_hours: int
    enough: bool
    hours: tuple[Hour, ...]
    record: tuple[Record, ...]
    windows: tuple[Window, ...]
    low: tuple[LowWindow, ...]

    def start_of(self, window: Window) -> datetime:
        """The instant at which a window begins."""
        return self.hours[window.first].at

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; instants in ISO 8601, a price ``None`` where none was recorded."""
        return {
            "cards": self.cards,
            "history_hours": self.history_hours,
            "enough_history": self.enough,
            "hours": [
                {
                    "at": hour.at.isoformat(),
                    "probability": round(hour.probability, 4),
                    "method": hour.method,
                    "free": round(hour.free, 2),
                    "price": hour.price,
                    "price_low": hour.price_low,
                    "price_high": hour.price_high,
                }
                for hour in self.hours
            ],
            "record": [
                {
                    "ahead_hours": row.ahead,
                    "skill": round(row.skill, 4),
                    "calibration_error": round(row.calibration_error, 4),
                    "best_naive": row.best_naive,
                    "outcomes": row.outcomes,
                }
                for row in self.record
            ],
            "windows": [
                {
                    "start": self.start_of(window).isoformat(),
                    "hours": window.hours,
                    "price": None if self.hours[0].price is None else window.price,
                    "probability": round(window.probability, 4),
                }
                for window in self.windows
            ],
            "low_windows": [
                {"week_hour": low.first, "hours": low.hours, "text": low.text, "saving": round(low.saving, 4)}
                for low in self.low
            ],
        }


def heat_map(
    history: HourlySeries, cards: int, hours: int = 1, prices: HourlySeries | None = None
) -> HeatMap:
    """The next 72 hours for ``cards`` together, with the best windows for a job of ``hours``.

    ``prices`` has a price per card-hour for the same times, ``None``: none were recorded; windows are then
    the likeliest ones.
    """
    enough = history.hours >= ENOUGH_HOURS and history.gap_share < 0.5
    judged = _recent(history)
    record = _record(judged, cards) if enough else ()
    ahead = range(1, HOURS + 1)
    told = probability(judged, cards, ahead)
    methods = ["model" if enough else "not enough history"] * HOURS
    for index in range(HOURS):
        if record and (row := _record_for(record, index + 1)).skill < 0:
            told[index], methods[index] = _naive(judged, cards, index + 1, row.best_naive), row.best_naive
    free = forecast(history, ahead)
    cost = None if prices is None or prices.gap_share == 1.0 else forecast(prices, ahead)
    rows = tuple(
        Hour(
            history.end + timedelta(hours=index + 1),
            float(told[index]),
            methods[index],
            float(np.nan_to_num(free.mean[index])),
            *(() if cost is None else _priced(cost.mean[index], cost.quantiles[index])),
        )
        for index in range(HOURS)
    )
    return HeatMap(
        cards,
        int(history.hours),
        enough,
        rows,
        record,
        tuple(_windows(rows, hours)),
        tuple(low_windows(prices, min(hours, 24)) if prices is not None else ()),
    )


def _windows(rows: tuple[Hour, ...], hours: int) -> list[Window]:
    costs = [1.0 if row.price is None else row.price for row in rows]
    return cheapest_windows(costs, [row.probability for row in rows], hours)


def _priced(mean: float, quantiles: Floats) -> tuple[float, float, float]:
    low, high = float(quantiles[LOW]), float(quantiles[HIGH])
    return float(mean), min(low, float(mean)), max(high, float(mean))


def _recent(history: HourlySeries) -> HourlySeries:
    """The newest twelve weeks: what is older says little, and is not told again each time."""
    steps = JUDGED_HOURS_MAX * 3600 // history.step_seconds
    if len(history) <= steps:
        return history
    dropped = len(history) - steps
    start = history.start + timedelta(seconds=dropped * history.step_seconds)
    return HourlySeries(start, history.values[dropped:], history.step_seconds)


def _record(history: HourlySeries, cards: int) -> tuple[Record, ...]:
    past = flags(history, cards)
    found = []
    for ahead in JUDGED:
        if past.hours < JUDGED_FROM_HOURS + ahead + 24:
            continue
        told, _ = chances_told([past], ahead, JUDGED_FROM_HOURS)
        best = min(NAIVE_METHODS, key=told.brier)
        ours = told.by_method["forecast"]
        found.append(
            Record(
                ahead,
                skill(ours, told.by_method[best], told.outcome),
                calibration(ours, told.outcome),
                best,
                len(ours),
            )
        )
    return tuple(found)


def _record_for(record: tuple[Record, ...], ahead: int) -> Record:
    """The judged horizon that is nearest in the logarithm."""
    for near, far in pairwise(record):
        if ahead * ahead <= near.ahead * far.ahead:
            return near
    return record[-1]


def _naive(history: HourlySeries, cards: int, ahead: int, method: str) -> float:
    past = flags(history, cards)
    if method == "climatology":
        return float(hour_of_week(past, ahead, np.array([past.hours - 1]))[0])
    if method == "share of the past":
        return float(climatology(past, np.array([len(past.free) - 1]))[0])
    return float(past.yes[-1]) if method == "persistence" else float(markov(past, [ahead])[0])
