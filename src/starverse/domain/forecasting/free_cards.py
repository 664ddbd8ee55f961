"""Free cards for each of the next hours: persistence pulled towards what the pool is usually like.

The forecast is ``level + weight * (now - level)``. The level is the mean of three memories of the past (the
same hour of the last seven days, the last week, all of it); the weight of each horizon is fitted on the past
by least absolute error and shrunk to a slow decay, the more the further ahead, because outcomes that overlap
say little. Bands are quantiles of the past errors of the same horizon (split conformal). Where the blend has
not beaten persistence on the past, persistence is told instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from starverse.domain.forecasting.series import WEEK_HOURS, Floats, HourlySeries

DAY_HOURS = 24
ENOUGH_HOURS = WEEK_HOURS
"""With less past than this a forecast is still given, and says that there is not enough history."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
GRID = np.array([1, 0.97, 0.94, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0])
"""The weights of now that are tried."""
DECAY_HOURS = 48.0
PRIOR_HOURS = 400.0
WARM_UP_HOURS = 48
MARGIN = 0.98
"""A blend is told where its error is below this share of persistence's; ahead / outcomes is added, because
outcomes that overlap say little against the prior."""
MATURE_HOURS = 3 * WEEK_HOURS
"""Below a day ahead, persistence is hard to beat: no blend is told with fewer outcomes than this."""
NAIVE = ("persistence", "one day", "one week")


@dataclass(frozen=True, slots=True, eq=False)
class CardsForecast:
    """One entry (row) for each hour asked; ``quantiles`` has a column for each of ``QUANTILES``.

    ``skill`` is 1 - error / best naive error of the same horizon over the past, 0 where the learned blend
    is hidden (``method`` is then ``persistence``). ``enough`` false: not enough history.
    """

    hours: tuple[int, ...]
    mean: Floats
    quantiles: Floats
    method: tuple[str, ...]
    skill: Floats
    enough: bool


@dataclass(frozen=True, slots=True)
class Blend:
    """What was fitted for one horizon: the weight of now, and whether it beat persistence on the past."""

    weight: float
    hidden: bool
    skill: float

    @property
    def used(self) -> float:
        return 1.0 if self.hidden else self.weight


def forecast(history: HourlySeries, hours: Sequence[int]) -> CardsForecast:
    """Mean and quantiles of each hour ahead (1: an hour after the newest sample), never below zero."""
    values = history.filled().hourly().values
    mean, bands, methods, skills = [], [], [], []
    for ahead in hours:
        if len(values) == 0:
            mean.append(np.nan)
            bands.append(np.full(len(QUANTILES), np.nan))
            methods.append("no history")
            skills.append(0.0)
            continue
        blend = fit(values, ahead)
        told = blend_at(values, np.array([len(values) - 1]), ahead, blend.used)[0]
        mean.append(max(0.0, told))
        bands.append(np.maximum(0.0, told + error_quantiles(values, ahead, blend.used)))
        methods.append("persistence" if blend.hidden else "blend")
        skills.append(blend.skill)
    return CardsForecast(
        tuple(hours),
        np.array(mean),
        np.array(bands).reshape(len(mean), len(QUANTILES)),
        tuple(methods),
        np.array(skills),
        history.hours >= ENOUGH_HOURS and history.gap_share < 0.5,
    )


def fit(values: Floats, ahead: int) -> Blend:
    """The weight of now for one horizon, from the outcomes that are known at the newest sample."""
    prior = float(np.exp(-max(0, ahead - 1) / DECAY_HOURS))
    origins = np.arange(WARM_UP_HOURS, len(values) - ahead)
    if len(origins) < WARM_UP_HOURS:
        return Blend(prior, hidden=True, skill=0.0)
    level = levels(values, origins, ahead)
    now, outcome = values[origins], values[origins + ahead]
    errors = np.abs(level[:, None] + (now - level)[:, None] * GRID - outcome[:, None]).mean(0) + 1e-9
    count = len(origins)
    likely = np.exp(-(errors / errors.min() - 1) * 2 * count / (8 + ahead))
    fitted = float(likely @ GRID / likely.sum())
    pull = PRIOR_HOURS * (1 + ahead / DAY_HOURS) * min(1.0, ahead / DAY_HOURS)
    weight = (count * fitted + pull * prior) / (count + pull)
    own = float(np.abs(level + weight * (now - level) - outcome).mean())
    best = min(float(np.abs(told - outcome).mean()) for told in naive(values, origins, ahead).T)
    skill = 1 - own / best if best > 0 else 0.0
    young = ahead < DAY_HOURS and count < MATURE_HOURS
    hidden = young or own >= errors[0] * (MARGIN + ahead / count)
    return Blend(weight, hidden, 0.0 if hidden else max(0.0, skill))


def blend_at(values: Floats, origins: np.ndarray, ahead: int, weight: float) -> Floats:
    """The blend told at each of ``origins`` (indices into ``values``), each from its own past only."""
    if weight == 1.0:
        return np.asarray(values[origins], dtype=np.float64)
    level = levels(values, origins, ahead)
    return np.asarray(level + weight * (values[origins] - level), dtype=np.float64)


def levels(values: Floats, origins: np.ndarray, ahead: int) -> Floats:
    """What the pool is usually like at that hour, as known at each origin."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    everything = total[origins + 1] / (origins + 1)
    week = (total[origins + 1] - total[np.maximum(0, origins + 1 - WEEK_HOURS)]) / np.minimum(
        WEEK_HOURS, origins + 1
    )
    same_hour = origins + ahead - DAY_HOURS * -(-ahead // DAY_HOURS)
    days = same_hour[:, None] - DAY_HOURS * np.arange(7)
    known = days >= 0
    sums = np.where(known, values[np.maximum(0, days)], 0.0).sum(1)
    counts = known.sum(1)
    profile = np.where(counts > 0, sums / np.maximum(1, counts), values[origins])
    return np.asarray((everything + week + profile) / 3, dtype=np.float64)


def naive(values: Floats, origins: np.ndarray, ahead: int) -> Floats:
    """The naive methods beside, in the order of ``NAIVE``: now, the same hour of a day, of a week before."""

    def seasonal(period: int) -> Floats:
        at = origins + ahead - period * -(-ahead // period)
        return np.asarray(np.where(at >= 0, values[np.maximum(0, at)], values[origins]), dtype=np.float64)

    return np.stack([values[origins], seasonal(DAY_HOURS), seasonal(WEEK_HOURS)], axis=1)


def error_quantiles(values: Floats, ahead: int, weight: float) -> Floats:
    """Quantiles of outcome - told over the past, of conformal rank; zero without a past."""
    origins = np.arange(min(WARM_UP_HOURS, len(values)), len(values) - ahead)
    if len(origins) == 0:
        return np.zeros(len(QUANTILES))
    errors = values[origins + ahead] - blend_at(values, origins, ahead, weight)
    centred = np.array(QUANTILES) - 0.5
    ranks = np.clip(0.5 + centred * (1 + 1 / len(errors)), 0, 1)
    return np.asarray(np.quantile(errors, ranks), dtype=np.float64)
