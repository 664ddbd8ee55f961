"""How likely it is that N cards are free together in each of the next hours.

A logistic model per horizon over what a pool's past says plainly: free now and for how long, the share of
the last hour, 6, 24, 72 and 168 hours, and of all the past. It is fitted over all pools together, shrunk to
the share of all the past, the more the further ahead (outcomes that overlap count for less). The naive
methods stand beside: persistence, a two-state Markov chain, and climatology by hour of the week.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from starverse.domain.forecasting.series import HOUR_SECONDS, WEEK_HOURS, Floats, HourlySeries

ANCHORS = (1, 2, 3, 6, 12, 24, 48, 72)
"""Horizons that are fitted; those between are interpolated in the logarithm of the hours."""
FEATURES = 11
SHARES_OF_ALL = 3
PRIOR = np.eye(FEATURES)[SHARES_OF_ALL]
"""Without evidence the model tells the share of all the past."""
PRIOR_WEIGHT = 10.0
WARM_UP_HOURS = 12
STEPS = 7
LOGIT_MAX = 12.0


@dataclass(frozen=True, slots=True, eq=False)
class Flags:
    """Whether ``cards`` were free together at each step of a pool's past, and by how much."""

    free: Floats
    cards: int
    step_seconds: int = HOUR_SECONDS

    @property
    def steps_per_hour(self) -> float:
        return HOUR_SECONDS / self.step_seconds

    @property
    def yes(self) -> Floats:
        return (self.free >= self.cards).astype(np.float64)

    @property
    def hours(self) -> int:
        return int(len(self.free) / self.steps_per_hour)


def flags(history: HourlySeries, cards: int) -> Flags:
    """The past of one question; gaps take the value before them."""
    return Flags(history.filled().values, cards, history.step_seconds)


@dataclass(frozen=True, slots=True, eq=False)
class AvailabilityModel:
    """Coefficients (anchors x features), fitted on the past of every pool together."""

    coefficients: Floats

    @classmethod
    def fitted(
        cls, pasts: Sequence[Flags], prior: AvailabilityModel | None = None, until_hours: int | None = None
    ) -> AvailabilityModel:
        """Fit each anchor on outcomes before ``until_hours`` (``None``: all), from ``prior`` on."""
        rows = []
        for index, ahead in enumerate(ANCHORS):
            start = PRIOR if prior is None else prior.coefficients[index]
            rows.append(fit_horizon(pasts, ahead, start, until_hours))
        return cls(np.array(rows))

    def at(self, hours: Sequence[int]) -> Floats:
        """Coefficients of each hour asked (hours x features)."""
        where = np.log(np.clip(hours, ANCHORS[0], ANCHORS[-1]))
        known = np.log(ANCHORS)
        return np.stack([np.interp(where, known, column) for column in self.coefficients.T], axis=1)


def probability(
    history: HourlySeries, cards: int, hours: Sequence[int], model: AvailabilityModel | None = None
) -> Floats:
    """P(``cards`` free together) for each of ``hours`` ahead; fitted on this history alone without a model.

    Zero without any history: nothing was ever seen free. An hour is one matrix product; 72 hours take well
    under a millisecond.
    """
    past = flags(history, cards)
    if len(past.free) == 0:
        return np.zeros(len(hours))
    model = model or (AvailabilityModel.fitted([past]) if past.hours >= WEEK_HOURS else None)
    if model is None:
        return markov(past, hours)
    now = np.array([len(past.free) - 1])
    shared = features(past, now, hours[0])[0]
    table = np.tile(shared, (len(hours), 1))
    table[:, -1] = [day_before(past, now, ahead)[0] for ahead in hours]
    return sigmoid((table * model.at(hours)).sum(1))


def features(past: Flags, at: np.ndarray, ahead: int) -> Floats:
    """One row for each origin (indices into the past), from what is known there."""
    yes = past.yes
    total = np.concatenate([[0.0], np.cumsum(yes)])
    pace = past.steps_per_hour

    def share(hours: float) -> Floats:
        steps = max(1, round(hours * pace))
        return np.asarray(
            2 * (total[at + 1] - total[np.maximum(0, at + 1 - steps)]) / np.minimum(steps, at + 1) - 1
        )

    changed = np.concatenate([[True], yes[1:] != yes[:-1]])
    since = np.maximum.accumulate(np.where(changed, np.arange(len(yes)), 0))
    age = np.log1p((at - since[at]) / pace) / 3
    now = 2 * yes[at] - 1
    margin = np.clip((past.free[at] - past.cards + 0.5) / max(1, past.cards), -1, 1)
    columns = [np.ones(len(at)), now, now * age, logit(climatology(past, at)), share(1), share(6)]
    columns += [share(24), share(72), share(WEEK_HOURS), margin, day_before(past, at, ahead)]
    return np.stack(columns, axis=1)


def day_before(past: Flags, at: np.ndarray, ahead: int) -> Floats:
    """Whether it was so at the same hour of the last day that is known (1, or -1)."""
    back = round((ahead - 24 * -(-ahead // 24)) * past.steps_per_hour)
    return np.where(past.free[np.maximum(0, at + back)] >= past.cards, 1.0, -1.0)


def climatology(past: Flags, at: np.ndarray) -> Floats:
    """The share of all the past before each origin, drawn a little to one half."""
    seen = np.cumsum(past.yes)[at] / past.steps_per_hour
    return np.asarray((seen + 1) / ((at + 1) / past.steps_per_hour + 2), dtype=np.float64)


def outcomes(past: Flags, ahead: int, until_hours: int | None = None) -> tuple[np.ndarray, Floats]:
    """Origins on the hour, as steps, with what came true ``ahead`` hours later."""
    last = min(past.hours, past.hours if until_hours is None else until_hours)
    hours = np.arange(WARM_UP_HOURS, max(WARM_UP_HOURS, last - ahead))
    at = (hours * past.steps_per_hour).astype(int)
    then = np.minimum(((hours + ahead) * past.steps_per_hour).astype(int), len(past.free) - 1)
    return at, past.yes[then]


def fit_horizon(pasts: Sequence[Flags], ahead: int, prior: Floats, until_hours: int | None = None) -> Floats:
    """Penalised logistic regression by Newton's method; ``prior`` where there is no outcome yet."""
    tables, truths = [], []
    for past in pasts:
        at, truth = outcomes(past, ahead, until_hours)
        if len(at):
            tables.append(features(past, at, ahead))
            truths.append(truth)
    if not tables:
        return prior
    return newton(np.concatenate(tables), np.concatenate(truths), prior, 1 / (1 + ahead / 4))


def newton(table: Floats, truth: Floats, prior: Floats, each: float) -> Floats:
    """Coefficients of largest penalised likelihood; one outcome weighs ``each``."""
    found = prior.copy()
    for _ in range(STEPS):
        told = sigmoid(table @ found)
        bend = each * (told * (1 - told) + 1e-6)
        curve = (table * bend[:, None]).T @ table + PRIOR_WEIGHT * np.eye(len(found))
        slope = table.T @ (each * (truth - told)) - PRIOR_WEIGHT * (found - prior)
        found = found + np.linalg.solve(curve, slope)
    return np.asarray(found, dtype=np.float64)


def markov(past: Flags, hours: Sequence[int]) -> Floats:
    """A chain of two states with the past's own hourly rates of leaving each (Laplace's rule)."""
    at = (np.arange(past.hours) * past.steps_per_hour).astype(int)
    yes = past.yes[at]
    before, after = yes[:-1], yes[1:]
    loss = float((before * (1 - after)).sum() + 1) / float(before.sum() + 2)
    gain = float(((1 - before) * after).sum() + 1) / float((1 - before).sum() + 2)
    settled = gain / (gain + loss)
    fade = (1 - gain - loss) ** np.asarray(hours, dtype=np.float64)
    return np.asarray(settled + (past.yes[-1] - settled) * fade, dtype=np.float64)


def hour_of_week(past: Flags, ahead: int, origins: np.ndarray) -> Floats:
    """Climatology: the share at the same hour of the week before each origin (hours), drawn to all hours'."""
    hourly = past.yes[(np.arange(past.hours) * past.steps_per_hour).astype(int)]
    told = np.empty(len(origins))
    for index, origin in enumerate(origins):
        known = hourly[: origin + 1]
        same = known[(origin + ahead) % WEEK_HOURS :: WEEK_HOURS]
        told[index] = (same.sum() + known.mean()) / (len(same) + 1)
    return told


def logit(share: Floats) -> Floats:
    return np.asarray(np.log(share / (1 - share)), dtype=np.float64)


def sigmoid(value: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(value, -LOGIT_MAX, LOGIT_MAX))), dtype=np.float64)
