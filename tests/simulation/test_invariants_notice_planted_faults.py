"""Each invariant of the simulation is broken on purpose once, and noticed by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from starverse.testing.crashes import CrashPoints, SimulatedCrash
from starverse.testing.invariants import Inspector
from starverse.testing.platforms import fresh_database
from starverse.testing.simulated_world import SimulatedWorld

Fault = Callable[[SimulatedWorld, Connection], None]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SimulatedWorld]:
    """One job has ended, one runs, one waits."""
    with fresh_database("sqlite", tmp_path) as database:
        world = SimulatedWorld(1, database, tmp_path / "data")
        world.calm = True
        lab = world.team("lab")
        world.submit(lab, "--time=1", "--cost-max=5", name="short")
        world.run(100, step=5)
        for _ in range(30):
            world.submit(lab, "--time=90", name="long")
        world.run(20, step=5)
        yield world
        world.close()


def sql(statement: str) -> Fault:
    def plant(_world: SimulatedWorld, connection: Connection) -> None:
        assert connection.execute(text(statement)).rowcount

    return plant


def start_twice(world: SimulatedWorld, _connection: Connection) -> None:
    world.engine.starts[next(iter(world.engine.starts))] = 2


def give_a_launcher_a_card_of_another(world: SimulatedWorld, _connection: Connection) -> None:
    alive = [run for run in world.engine.launchers.values() if not run.ended]
    object.__setattr__(alive[0].spec, "cards", alive[1].spec.cards)


def bind_other_cards(world: SimulatedWorld, _connection: Connection) -> None:
    run = next(run for run in world.engine.launchers.values() if not run.ended)
    object.__setattr__(run.state, "bound", ((run.spec.node, (77,)),))


def run_past_its_limit(world: SimulatedWorld, _connection: Connection) -> None:
    run = next(run for run in world.engine.launchers.values() if not run.ended)
    object.__setattr__(run.state, "alive_at", run.state.alive_at + 7200)


def never_was_ready(world: SimulatedWorld, _connection: Connection) -> None:
    run = next(run for run in world.engine.launchers.values() if run.ended)
    object.__setattr__(run.state, "ready_at", None)


ENDED = "(SELECT id FROM allocations WHERE closed_at IS NOT NULL LIMIT 1)"
OPEN = "(SELECT id FROM allocations WHERE state = 'running' LIMIT 1)"


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("cards_once", give_a_launcher_a_card_of_another),
        ("cards_as_bound", bind_other_cards),
        (
            "noticed_once",
            sql(
                "INSERT INTO events (at, subject_kind, subject_id, kind, reason, message)"
                " SELECT placed_at, 'job', job_id, 'notice', 'reclaim', '' FROM allocations"
            ),
        ),
        ("cards_free_again", sql(f"UPDATE allocation_cards SET open = 0 WHERE allocation_id = {OPEN}")),
        ("started_once", start_twice),
        ("holds_match", sql(f"UPDATE holds SET state = 'open' WHERE allocation_id = {ENDED}")),
        (
            "charged_exactly_as_run",
            sql("UPDATE charges SET total_micro = total_micro + 1, cash_micro = cash_micro + 1"),
        ),
        ("charged_once", sql("UPDATE charges SET start_at = start_at + 1000000")),
        (
            "cost_max_kept",
            sql("UPDATE charges SET total_micro = 5000001, cash_micro = 5000001, written_off_micro = 0"),
        ),
        ("no_charge_before_ready", never_was_ready),
        ("waits_have_reasons", sql("UPDATE jobs SET reason = '' WHERE state = 'queued'")),
        ("attempts_count_up", sql("UPDATE jobs SET attempts = attempts + 1 WHERE ended_at IS NOT NULL")),
        ("one_run_at_a_time", sql("UPDATE jobs SET state = 'running' WHERE state = 'queued'")),
        (
            "legal_transitions",
            sql("UPDATE jobs SET state = 'queued', ended_at = NULL WHERE ended_at IS NOT NULL"),
        ),
        ("time_limits_kept", run_past_its_limit),
        (
            "ledger_sound",
            sql("UPDATE ledger_accounts SET credits_posted = credits_posted + 1 WHERE kind = 'cash'"),
        ),
        (
            "nothing_unowned_runs",
            sql("UPDATE allocations SET state = 'ended', ended_at = ready_at WHERE state = 'running'"),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_planted_fault_is_noticed(world: SimulatedWorld, name: str, fault: Fault) -> None:
    inspector = Inspector(world)
    assert inspector.tick() == []
    inspector = Inspector(world, last=inspector.last)
    with world.database.write() as connection:
        fault(world, connection)
    found = {broken.name for broken in inspector.tick()}
    found |= {broken.name for broken in inspector.tick({"sweep", "observe"})}
    assert name in found


def test_a_sound_world_at_rest_passes(world: SimulatedWorld) -> None:
    world.engine.reports = ()
    inspector = Inspector(world)
    assert inspector.tick({"sweep"}) == []
    assert {broken.name for broken in inspector.end()} >= {"comes_to_rest", "holds_match"}


def test_an_armed_server_dies_at_the_step_that_was_chosen() -> None:
    points = CrashPoints()
    points.arm(2)
    points.step("first")
    points.step("second")
    with pytest.raises(SimulatedCrash, match="third"):
        points.step("third")
    points.step("the next server lives")
    assert points.passed == 4
