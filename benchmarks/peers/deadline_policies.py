"""What a deadline planner is judged by: the clairvoyant optimum, Uniform Progress, spot until it is late.

Uniform Progress: Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under Deadlines", NSDI 2024:
spot whenever it is there; on demand while behind an even rate of progress, until two starts ahead of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from starverse.domain.planning.policy import NEVER, Action, State


class Greedy:
    """Spot while it is there, on demand from the last instant that meets the deadline."""

    def decide(self, state: State, up: bool) -> Action:
        if state.ran is Action.ON_DEMAND or late(state, up):
            return Action.ON_DEMAND
        return Action.SPOT if up else Action.WAIT


class UniformProgress:
    """An even rate of progress from the start on; a start takes one tick."""

    def __init__(self, ticks: int, work: int) -> None:
        self.ticks, self.work = ticks, work

    def decide(self, state: State, up: bool) -> Action:
        done = self.work - state.work_ticks
        gone = self.ticks - state.ticks_left
        if late(state, up):
            return Action.ON_DEMAND
        if state.ran is Action.ON_DEMAND and done < (gone + 2) * self.work / self.ticks:
            return Action.ON_DEMAND
        if up:
            return Action.SPOT
        return Action.ON_DEMAND if done < gone * self.work / self.ticks else Action.WAIT


def late(state: State, up: bool) -> bool:
    """Whether a tick that is not on demand could miss the deadline."""
    work = state.work_ticks - (up and state.ran is Action.SPOT)
    return work > 0 and work + 1 > state.ticks_left - 1


def offline_optimum(available: Sequence[bool], work: int, spot_price: float) -> float:
    """The least cost in ticks on demand, with every tick up to the deadline known: clairvoyant."""
    value = np.full((3, work + 1), NEVER)
    value[:, 0] = 0
    for up in reversed(available):
        wait, spot, firm = value[0], value[1] + spot_price, value[2] + 1
        kept = np.concatenate(([0.0], spot[:-1]))
        kept_firm = np.concatenate(([0.0], firm[:-1]))
        spot, kept = (spot, kept) if up else (wait, wait)
        value = np.minimum(
            wait,
            np.stack(
                (np.minimum(spot, firm), np.minimum(kept, firm), np.minimum(spot, kept_firm)),
            ),
        )
        value[:, 0] = 0
    return float(value[0, work])
