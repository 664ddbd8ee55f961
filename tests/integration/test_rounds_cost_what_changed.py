"""What is remembered between rounds is what would be read afresh; a look at a node sees all that is on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError

from starverse.app.usage_memory import UsageMemory
from starverse.db import allocations
from starverse.db.session import Database
from starverse.reconcilers import launch
from starverse.testing.node_reports import node_report
from starverse.testing.platforms import POSTGRES_VARIABLE, fresh_database
from starverse.testing.worlds import World


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "postgresql" and not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    with fresh_database(request.param, tmp_path) as made:
        yield made


def test_usage_kept_from_round_to_round_equals_usage_read_afresh(database: Database, tmp_path: Path) -> None:
    world = World(database, tmp_path / "data")
    teams = [world.team("ann"), world.team("bob")]
    memory = UsageMemory()
    for turn in range(4):
        for who in teams[: 1 + turn % 2]:
            world.submit(who, "--time=10")
        world.run(90, step=30)
        world.clock.advance(seconds=3600 * turn)
        now = world.clock.now()
        with database.read() as connection:
            kept, afresh = memory.ended(connection, now), UsageMemory().ended(connection, now)
        assert kept == pytest.approx(afresh)
    assert set(kept) == {who.team_id for who in teams}


def test_an_allocation_that_is_read_twice_counts_once(database: Database, tmp_path: Path) -> None:
    world = World(database, tmp_path / "data")
    who = world.team("ann")
    world.submit(who, "--time=10")
    world.run(120, step=30)
    memory, now = UsageMemory(), world.clock.now()
    with database.read() as connection:
        first = memory.ended(connection, now)
        assert memory.ended(connection, now) == first
    assert first[who.team_id] > 0


def test_a_look_at_one_node_finds_all_that_is_open_there_and_nothing_else(
    database: Database, tmp_path: Path
) -> None:
    nodes = (node_report("n1", cards=2), node_report("n2", cards=2), node_report("n3", cards=2))
    world = World(database, tmp_path / "data", nodes=nodes)
    who = world.team("ann")
    world.submit(who, "--gres=gpu:rtx4090:2", "--nodes=2")
    world.submit(who, "--gres=gpu:rtx4090:2")
    world.run_reconciler("schedule")
    with database.read() as connection:
        everything = allocations.open_ones(connection)
        for node in ("n1", "n2", "n3"):
            expected = [a.id for a in everything if node in a.nodes]
            assert [a.id for a in allocations.open_on(connection, [node])] == expected
        assert len(everything) == 2
        assert allocations.open_on(connection, ["elsewhere"]) == []


def test_more_than_one_batch_of_starts_waits_for_no_period(database: Database, tmp_path: Path) -> None:
    tasks = launch.BATCH + 6
    world = World(
        database, tmp_path / "data", nodes=tuple(node_report(f"n{n}") for n in range(tasks // 8 + 1))
    )
    world.submit(world.team("ann"), f"--array=1-{tasks}", "--mem=1G", "--time=5")
    world.run_reconciler("schedule")
    woken: list[str] = []
    world.platform.wakeups.listen("launch", lambda: woken.append("launch"))
    assert world.run_reconciler("launch") == f"submitted {launch.BATCH}"
    assert woken == ["launch"]
    assert world.run_reconciler("launch") == "submitted 6"
    assert woken == ["launch"]


def test_a_compiled_statement_fails_with_the_errors_that_callers_know(
    database: Database, tmp_path: Path
) -> None:
    world = World(database, tmp_path / "data")
    world.submit(world.team("ann"))
    world.run_reconciler("schedule")
    with database.read() as connection:
        (there,) = allocations.open_ones(connection)
    with pytest.raises(IntegrityError), database.write() as connection:
        allocations.insert_allocation(connection, there)
    with database.read() as connection:
        assert allocations.get(connection, there.id) == there
