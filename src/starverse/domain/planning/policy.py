"""The cheapest way to have work done by its deadline, in expectation, that can never be late.

A finite-horizon dynamic programme over ticks left, work left, what runs, and the pool's state. Whatever it
does leaves time to finish on demand, its start included: the deadline is met though spot never comes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from starverse.domain.planning.markov import AGES, PoolModel

NEVER = 1e9
"""Cost of what the deadline forbids, in ticks on demand."""


class Action(IntEnum):
    """What runs in a tick; also what ran in the tick before."""

    WAIT = 0
    SPOT = 1
    ON_DEMAND = 2


@dataclass(frozen=True, slots=True)
class Work:
    """Run time that is left, time until the deadline, and what a start costs before work goes on."""

    seconds: int
    deadline_seconds: int
    restart_seconds: int


@dataclass(frozen=True, slots=True)
class State:
    """Where work stands as a tick begins; ``pool``: the model's state, ``ran``: what ran in the last tick."""

    ticks_left: int
    work_ticks: int
    pool: int
    ran: Action


class DeadlinePolicy:
    """Decisions for one work on one pool; ``spot_price`` is a share of the price on demand.

    A start takes one tick: ``ValueError`` where the model's ticks are shorter than a start, or where the work
    cannot be done in time even on demand from now on.
    """

    def __init__(self, work: Work, model: PoolModel, spot_price: float) -> None:
        if work.restart_seconds > model.tick_seconds:
            raise ValueError("a tick has to be at least as long as a start")
        self.work_ticks = -(-work.seconds // model.tick_seconds)
        self.ticks = work.deadline_seconds // model.tick_seconds
        if self.work_ticks + 1 > self.ticks:
            raise ValueError("the work cannot be done by the deadline, even on demand from now on")
        self._actions, self.expected = _solve(self.ticks, self.work_ticks, model, spot_price)

    def decide(self, state: State) -> Action:
        """What to run in this tick."""
        if not state.work_ticks:
            return Action.WAIT
        return Action(int(self._actions[state.ticks_left, state.ran, state.work_ticks, state.pool]))

    def expected_ticks(self, pool: int) -> float:
        """Expected cost from the start on, in ticks on demand, with the pool in state ``pool``."""
        return float(self.expected[Action.WAIT, self.work_ticks, pool])


def _solve(
    ticks: int, work: int, model: PoolModel, spot_price: float
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """The action of each (ticks left, ran, work left, pool), and the cost with all ticks left."""
    pools = 2 * len(AGES)
    value = np.full((3, work + 1, pools), NEVER)
    value[:, 0] = 0
    actions = np.zeros((ticks + 1, 3, work + 1, pools), dtype=np.int8)
    left = np.arange(work + 1)
    after = np.maximum(left - 1, 0)
    has_none = np.arange(pools) < len(AGES)
    for time in range(1, ticks + 1):
        ahead = np.minimum(value @ model.transitions.T, NEVER)
        tight = (left > 0) & (left + 1 > time - 1)
        wait = np.where(tight[:, None], NEVER, ahead[Action.WAIT])
        spot = np.where(tight[:, None] | has_none, NEVER, spot_price + ahead[Action.SPOT])
        spot_on = spot_price + ahead[Action.SPOT][after]
        spot_on = np.where(tight[after][:, None] | has_none, NEVER, spot_on)
        firm = 1 + ahead[Action.ON_DEMAND]
        firm_on = 1 + ahead[Action.ON_DEMAND][after]
        value = np.empty_like(value)
        for ran in Action:
            choices = (
                wait,
                spot_on if ran is Action.SPOT else spot,
                firm_on if ran is Action.ON_DEMAND else firm,
            )
            stacked = np.stack(choices)
            actions[time, ran] = stacked.argmin(axis=0)
            value[ran] = np.minimum(stacked.min(axis=0), NEVER)
        value[:, 0] = 0
    return actions, value
