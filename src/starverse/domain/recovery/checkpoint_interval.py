"""How often to save: the interval at which saving and losing work cost least together, and what they cost.

Young (CACM 1974) and Daly (FGCS 2006): with saves of ``s`` seconds and reclaims at rate ``r``, an interval of
``t`` costs ``s / t`` in saves and, since half an interval is lost on average at a reclaim, ``r (t + s) / 2``.
Daly's higher order term matters once ``s`` is not small beside the time between reclaims.

The rate is estimated from what was seen, with a prior: a pool seen for an hour without a reclaim is not one
without reclaims.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

PRIOR_RECLAIMS = 1.0
PRIOR_SECONDS = 3 * 3600.0
"""Before anything is seen: as if one reclaim had been seen in three hours of running."""
OPERATOR_MAXIMUM_SECONDS = 1800.0
UNMEASURED_SAVE_SECONDS = 10.0
"""What a save is taken to last before one was measured."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Save every ``seconds``; ``expected_loss_share`` of the time goes into saves and work redone."""

    seconds: float
    expected_loss_share: float


def best_interval(
    save_seconds: float, reclaims_per_second: float, maximum_seconds: float = OPERATOR_MAXIMUM_SECONDS
) -> Interval:
    """The interval of Young and Daly, never above ``maximum_seconds`` nor below the time a save takes.

    A save that takes no time is taken as a second, the unit in which it is measured. Without reclaims the
    maximum is best. Raises ``ValueError`` for what is negative or no number.
    """
    for name, value in (("save_seconds", save_seconds), ("reclaims_per_second", reclaims_per_second)):
        if not (0 <= value < math.inf):
            raise ValueError(f"{name} is {value}; it must be a number from 0 on")
    if not maximum_seconds > 0:
        raise ValueError(f"maximum_seconds is {maximum_seconds}; it must be more than 0")
    save = max(save_seconds, 1.0)
    seconds = max(min(_daly(save, reclaims_per_second), maximum_seconds), min(save, maximum_seconds))
    return Interval(seconds, expected_loss_share(seconds, save_seconds, reclaims_per_second))


@dataclass(slots=True)
class SavePace:
    """The interval of one run, as its saves are measured; mutable, its keeper's own working state.

    ``reclaims_per_second`` 0: it runs on a claim that is not reclaimed, and saves at the maximum.
    """

    maximum_seconds: float
    reclaims_per_second: float
    measured_seconds: float = 0.0
    measured: int = 0

    def saved(self, seconds: float) -> None:
        """A save took so long."""
        self.measured_seconds += max(0.0, seconds)
        self.measured += 1

    @property
    def save_seconds(self) -> float:
        """The mean of what was measured, or what is taken before."""
        return self.measured_seconds / self.measured if self.measured else UNMEASURED_SAVE_SECONDS

    @property
    def interval(self) -> Interval:
        return best_interval(self.save_seconds, self.reclaims_per_second, self.maximum_seconds)


def expected_loss_share(seconds: float, save_seconds: float, reclaims_per_second: float) -> float:
    """The share of the time that goes into saves and into work done twice, from 0 to 1; saves every
    ``seconds`` of work, reclaims without memory."""
    cycle = seconds + save_seconds
    if reclaims_per_second == 0:
        return save_seconds / cycle
    # Of a cycle only what a save completes counts; the chance of that is exp(-rate x cycle).
    wall = math.expm1(min(reclaims_per_second * cycle, 700.0)) / reclaims_per_second
    return min(1.0, max(0.0, 1.0 - seconds / wall))


def reclaim_rate(
    reclaims: float,
    running_seconds: float,
    *,
    prior_reclaims: float = PRIOR_RECLAIMS,
    prior_seconds: float = PRIOR_SECONDS,
) -> float:
    """Reclaims per second of one allocation, from ``reclaims`` seen in ``running_seconds`` of them all."""
    return (reclaims + prior_reclaims) / (running_seconds + prior_seconds)


def _daly(save: float, rate: float) -> float:
    if rate == 0:
        return math.inf
    between = 1.0 / rate
    if save >= 2 * between:
        return between
    part = save / (2 * between)
    return math.sqrt(2 * save * between) * (1 + math.sqrt(part) / 3 + part / 9) - save
