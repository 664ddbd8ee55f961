"""Work is done by its deadline whatever spot does, and at the least cost where spot is sure."""

from __future__ import annotations

import random

import pytest
from benchmarks.peers.deadline_policies import Greedy, UniformProgress, offline_optimum
from benchmarks.planner import Decide

from starverse.domain.planning.markov import AGES, PoolModel, states_of
from starverse.domain.planning.policy import Action, DeadlinePolicy, State, Work

TICK, WORK, TICKS = 600, 12, 18
STEADY = PoolModel.fitted([True] * 400, TICK)


def cost_of(decide: Decide, available: list[bool]) -> float | None:
    """Cost in ticks on demand with spot at 0.3; ``None`` when the work is not done."""
    work, ran, cost = WORK, Action.WAIT, 0.0
    for tick, pool in enumerate(states_of(available).tolist()):
        action = decide(State(TICKS - tick, work, pool, ran), available[tick])
        assert action is not Action.SPOT or available[tick]
        work -= action is ran and action is not Action.WAIT
        cost += (0, 0.3, 1)[action]
        if not work:
            return cost
        ran = action
    return None


def policy(model: PoolModel = STEADY) -> DeadlinePolicy:
    return DeadlinePolicy(Work(WORK * TICK, TICKS * TICK, TICK), model, 0.3)


def test_no_course_of_the_pool_makes_it_late_or_cheaper_than_hindsight() -> None:
    planner = policy()
    deciders = (
        lambda state, _up: planner.decide(state),
        UniformProgress(TICKS, WORK).decide,
        Greedy().decide,
    )
    for seed in range(60):
        draw = random.Random(seed)
        share = draw.choice((0.0, 0.3, 0.6, 0.9, 1.0))
        available = [draw.random() < share for _ in range(TICKS)]
        best = offline_optimum(available, WORK, 0.3)
        for decide in deciders:
            cost = cost_of(decide, available)
            assert cost is not None, seed
            assert cost >= best - 1e-9, seed


def test_spot_that_never_goes_away_is_used_from_start_to_end() -> None:
    planner = policy()
    assert cost_of(lambda state, _up: planner.decide(state), [True] * TICKS) == pytest.approx(
        0.3 * (WORK + 1)
    )


def test_a_pool_without_a_past_costs_between_spot_and_on_demand() -> None:
    expected = policy(PoolModel.fitted([], TICK)).expected_ticks(len(AGES))
    assert 0.3 * (WORK + 1) < expected < WORK + 1


def test_work_that_cannot_be_in_time_is_refused() -> None:
    with pytest.raises(ValueError, match="deadline"):
        DeadlinePolicy(Work(WORK * TICK, WORK * TICK, TICK), STEADY, 0.3)
    with pytest.raises(ValueError, match="tick"):
        DeadlinePolicy(Work(WORK * TICK, TICKS * TICK, TICK + 1), STEADY, 0.3)
