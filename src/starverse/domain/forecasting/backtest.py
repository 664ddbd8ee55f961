"""How good a forecast has been: rolling origins, each judged with what was known then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from starverse.domain.forecasting import availability as chance
from starverse.domain.forecasting import free_cards
from starverse.domain.forecasting.series import Floats

REFIT_HOURS = 24
BINS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """What was told at rolling origins, by method, and what came true."""

    outcome: Floats
    by_method: dict[str, Floats] = field(default_factory=dict)

    def error(self, method: str) -> float:
        """Mean absolute error."""
        return float(np.abs(self.by_method[method] - self.outcome).mean())

    def brier(self, method: str) -> float:
        """Mean squared error of a probability."""
        return float(((self.by_method[method] - self.outcome) ** 2).mean())


def skill(told: Floats, reference: Floats, outcome: Floats) -> float:
    """Brier skill: 1 is perfect, 0 as good as ``reference``, below 0 worse; 0 where that made no error."""
    own, other = float(((told - outcome) ** 2).mean()), float(((reference - outcome) ** 2).mean())
    return 1 - own / other if other > 0 else 0.0


def calibration(told: Floats, outcome: Floats) -> float:
    """Expected calibration error over ten bins: how far a probability told is from what came true."""
    bins = np.minimum((told * BINS).astype(int), BINS - 1)
    return float(np.abs(np.bincount(bins, told - outcome, BINS)).sum() / len(told)) if len(told) else 0.0


def join(parts: Sequence[Told]) -> Told:
    """All that was told, of several pools or horizons; the methods of the first."""
    methods = parts[0].by_method
    return Told(
        np.concatenate([part.outcome for part in parts]),
        {name: np.concatenate([part.by_method[name] for part in parts]) for name in methods},
    )


def cards_told(values: Floats, ahead: int, start_hours: int) -> tuple[Told, float]:
    """Free cards at each hour from ``start_hours`` on, refitted daily; also how many lay in the band.

    ``values`` is hourly and without gaps. The band is that of the 5 % and 95 % quantiles, the figure a share.
    """
    blends, naive, truths, inside = [], [], [], []
    for origin in range(start_hours, len(values) - ahead, REFIT_HOURS):
        known = values[: origin + 1]
        blend = free_cards.fit(known, ahead)
        low, *_, high = free_cards.error_quantiles(known, ahead, blend.used)
        at = np.arange(origin, min(origin + REFIT_HOURS, len(values) - ahead))
        told, truth = free_cards.blend_at(values, at, ahead, blend.used), values[at + ahead]
        blends.append(told)
        naive.append(free_cards.naive(values, at, ahead))
        truths.append(truth)
        inside.append((truth >= told + low) & (truth <= told + high))
    beside = np.concatenate(naive)
    methods = {"forecast": np.concatenate(blends)}
    methods |= {name: beside[:, index] for index, name in enumerate(free_cards.NAIVE)}
    return Told(np.concatenate(truths), methods), float(np.concatenate(inside).mean())


def chances_told(
    pasts: Sequence[chance.Flags], ahead: int, start_hours: int, prior: Floats = chance.PRIOR
) -> tuple[Told, Floats]:
    """P(N free together) at each hour from ``start_hours`` on, refitted daily over all pasts together.

    Also the coefficients of the last fit, which may be the prior of pools whose past begins later.
    """
    tables = [chance.features(past, *_hours(past, ahead)) for past in pasts]
    truths = [
        past.yes[_steps(past, np.arange(len(table)) + ahead)]
        for past, table in zip(pasts, tables, strict=True)
    ]
    parts: list[Told] = []
    coefficients = prior
    for origin in range(start_hours, max(len(table) for table in tables), REFIT_HOURS):
        known = slice(chance.WARM_UP_HOURS, max(chance.WARM_UP_HOURS, origin - ahead + 1))
        seen = np.concatenate([truth[known] for truth in truths])
        if len(seen):
            table = np.concatenate([table[known] for table in tables])
            coefficients = chance.newton(table, seen, prior, 1 / (1 + ahead / 4))
        for past, table, truth in zip(pasts, tables, truths, strict=True):
            hours = np.arange(origin, min(origin + REFIT_HOURS, len(table)))
            if len(hours):
                told = chance.sigmoid(table[hours] @ coefficients)
                parts.append(Told(truth[hours], {"forecast": told, **_beside(past, ahead, hours)}))
    return join(parts), coefficients


def _beside(past: chance.Flags, ahead: int, hours: np.ndarray) -> dict[str, Floats]:
    at = _steps(past, hours)
    known = chance.Flags(past.free[: at[0] + 1], past.cards, past.step_seconds)
    leaving = {state: _markov_from(known, state, ahead) for state in (0.0, 1.0)}
    yes = past.yes[at]
    return {
        "climatology": chance.hour_of_week(past, ahead, hours),
        "share of the past": chance.climatology(past, at),
        "persistence": yes,
        "Markov": np.where(yes > 0, leaving[1.0], leaving[0.0]),
    }


def _markov_from(known: chance.Flags, state: float, ahead: int) -> float:
    free = np.append(known.free[:-1], known.cards if state else known.cards - 1)
    return float(chance.markov(chance.Flags(free, known.cards, known.step_seconds), [ahead])[0])


def _steps(past: chance.Flags, hours: np.ndarray) -> np.ndarray:
    return np.asarray(np.minimum((hours * past.steps_per_hour).astype(int), len(past.free) - 1))


def _hours(past: chance.Flags, ahead: int) -> tuple[np.ndarray, int]:
    return _steps(past, np.arange(max(0, past.hours - ahead))), ahead
