"""Whether a pool has spot cards in the next tick, told from how long it has had them, or lacked them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

AGES = (1, 2, 4, 8, 16, 32, 64, 128)
"""Ticks from which a run counts as one class older: run lengths are heavy-tailed, hazards fall with age."""
PRIOR = 0.5
"""Ends of a run that each class is taken to have seen before any data."""
MEAN_RUN_TICKS = 20
"""Mean run that the prior speaks for."""


@dataclass(frozen=True, slots=True)
class PoolModel:
    """A Markov chain over (without or with cards, class of age).

    States below ``len(AGES)`` are without cards. ``transitions[i, j]``: the chance of ``j`` after ``i``.
    """

    transitions: NDArray[np.float64]
    tick_seconds: int

    @classmethod
    def fitted(cls, available: Sequence[bool], tick_seconds: int) -> PoolModel:
        """From one observation a tick, oldest first; without any, a pool of even odds."""
        count = len(AGES)
        seen = np.zeros((2 * count, 2 * count))
        for state in range(2 * count):
            up, age = divmod(state, count)
            stay, older, flip = state, up * count + min(age + 1, count - 1), (1 - up) * count
            seen[state, flip] += PRIOR
            grows = 1 if age + 1 == count else 1 / max(AGES[age + 1] - AGES[age], 1)
            seen[state, older] += PRIOR * (MEAN_RUN_TICKS - 1) * grows
            seen[state, stay] += PRIOR * (MEAN_RUN_TICKS - 1) * (1 - grows)
        states = states_of(available)
        np.add.at(seen, (states[:-1], states[1:]), 1)
        return cls(seen / seen.sum(axis=1, keepdims=True), tick_seconds)


def states_of(available: Sequence[bool]) -> NDArray[np.intp]:
    """The state of each tick; the run before the first observation is not known and counts from there."""
    states = np.zeros(len(available), dtype=np.intp)
    age = 0
    for tick, up in enumerate(available):
        age = age + 1 if tick and up == available[tick - 1] else 1
        states[tick] = bool(up) * len(AGES) + np.searchsorted(AGES, age, side="right") - 1
    return states
