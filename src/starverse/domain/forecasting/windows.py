"""When a job is cheapest: the next windows, and the hours of the week that have been low."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from starverse.domain.forecasting.series import WEEK_HOURS, Floats, HourlySeries

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class Window:
    """Hours ``[first, first + hours)`` ahead, 0 being the first hour told; ``price`` is their mean.

    ``probability`` is that of the hour in it that is least likely.
    """

    first: int
    hours: int
    price: float
    probability: float


@dataclass(frozen=True, slots=True)
class LowWindow:
    """Hours of the week that have been low: ``[first, first + hours)`` counted from Monday 00:00.

    ``saving`` is the share below the mean of the whole week.
    """

    first: int
    hours: int
    value: float
    saving: float

    @property
    def text(self) -> str:
        """Such as ``Sat 02:00-07:00``."""
        end = (self.first + self.hours) % 24
        return f"{DAYS[self.first // 24 % 7]} {self.first % 24:02d}:00-{end:02d}:00"


def cheapest_windows(
    prices: Sequence[float], chances: Sequence[float], hours: int, count: int = 3, least: float = 0.5
) -> list[Window]:
    """The cheapest windows of ``hours`` that do not overlap, best first; of one price, the likelier first.

    A window whose least likely hour is below ``least`` is left out; none may be left.
    """
    if hours < 1 or len(prices) < hours:
        return []
    price, chance = np.asarray(prices, dtype=np.float64), np.asarray(chances, dtype=np.float64)
    found = [
        Window(at, hours, float(price[at : at + hours].mean()), float(chance[at : at + hours].min()))
        for at in range(len(price) - hours + 1)
    ]
    found.sort(key=lambda window: (round(window.price, 9), -round(window.probability, 3), window.first))
    chosen: list[Window] = []
    for window in found:
        apart = all(abs(window.first - other.first) >= hours for other in chosen)
        if window.probability >= least and apart and not np.isnan(window.price):
            chosen.append(window)
    return chosen[:count]


def low_windows(history: HourlySeries, hours: int = 4, count: int = 3) -> list[LowWindow]:
    """The windows of the week that have been lowest (a price, or cards in use), with their saving.

    Hours are those of the series' own zone. Empty with less than a week of past, or where it never varied.
    """
    hourly = history.hourly()
    if len(hourly) < WEEK_HOURS or not 1 <= hours <= WEEK_HOURS:
        return []
    week = week_profile(hourly)
    mean = float(np.nanmean(week))
    if not mean > 0 or np.isnan(week).any():
        return []
    wrapped = np.concatenate([week, week[: hours - 1]])
    means = np.convolve(wrapped, np.ones(hours) / hours, "valid")
    chosen: list[LowWindow] = []
    for first in np.argsort(means, kind="stable"):
        gap = [
            min((first - other.first) % WEEK_HOURS, (other.first - first) % WEEK_HOURS) for other in chosen
        ]
        saving = 1 - float(means[first]) / mean
        if saving > 0.001 and all(apart >= hours for apart in gap):
            chosen.append(LowWindow(int(first), hours, float(means[first]), saving))
        if len(chosen) == count:
            break
    return chosen


def week_profile(hourly: HourlySeries) -> Floats:
    """Mean of each hour of the week, from Monday 00:00; NaN where none was seen."""
    first = hourly.start.weekday() * 24 + hourly.start.hour
    slots = (first + np.arange(len(hourly))) % WEEK_HOURS
    known = ~np.isnan(hourly.values)
    sums = np.bincount(slots[known], hourly.values[known], WEEK_HOURS)
    counts = np.bincount(slots[known], minlength=WEEK_HOURS)
    return np.where(counts > 0, sums / np.maximum(1, counts), np.nan)
