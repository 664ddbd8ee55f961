"""A card that came free and was given on between two looks is no fault of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from starverse.app.binding import is_proven, read_bindings
from starverse.db import allocations
from starverse.domain.workloads.launch import LaunchSpec
from starverse.domain.workloads.states import JobState
from starverse.testing.node_reports import node_report
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World


def always_the_first(_launch: LaunchSpec, _node: str, _free: Sequence[int], count: int) -> Sequence[int]:
    return range(count)


def test_a_fault_is_proven_only_while_the_other_one_lives(tmp_path: Path) -> None:
    with fresh_database("sqlite", tmp_path) as database:
        world = World(database, tmp_path / "data", nodes=(node_report(cards=4),), bind=always_the_first)
        lab = world.team("lab")
        for _ in range(2):
            world.submit(lab)
        world.run_reconciler("schedule")
        world.run_reconciler("launch")
        world.clock.advance(seconds=0.5)
        with database.read() as connection:
            first, second = allocations.open_ones(connection)
            seen = world.engine.observe([first.id, second.id])
            bindings = read_bindings(connection, world.platform, seen, [first, second])
        state = seen[second.id].state
        assert state is not None
        assert state.bound
        assert set(bindings.reported_by.values()) == {first.id}
        assert is_proven(world.platform, second, state, bindings, [first, second])
        world.engine.kill_launcher(first.id)
        assert not is_proven(world.platform, second, state, bindings, [first, second])


def test_what_ended_before_anybody_looked_had_its_card_by_right(tmp_path: Path) -> None:
    with fresh_database("sqlite", tmp_path) as database:
        world = World(database, tmp_path / "data", nodes=(node_report(cards=4),), bind=always_the_first)
        lab = world.team("lab")
        world.plan("short", run_seconds=2)
        first = world.submit(lab, name="short")
        for loop in ("schedule", "launch"):
            world.run_reconciler(loop)
        world.clock.advance(seconds=10)
        second = world.submit(lab, name="next")
        for loop in ("schedule", "launch"):
            world.run_reconciler(loop)
        world.clock.advance(seconds=0.5)
        world.run_reconciler("observe")
        assert world.job(lab, first.number).state is JobState.SUCCEEDED
        world.run(120, step=10)
        assert world.job(lab, second.number).state is JobState.SUCCEEDED
        assert len(world.job(lab, second.number).allocations) == 1
        world.assert_sound()
