"""A hold that was taken until a time goes back to its wallet by a loop; those of open allocations stay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from starverse.db import ledger
from starverse.domain.ids import TeamId, TransferId
from starverse.domain.ledger.accounts import REVENUE, cash_id
from starverse.domain.ledger.transfers import hold
from starverse.domain.money import Money
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with fresh_database("sqlite", tmp_path) as database:
        yield World(database, tmp_path / "data")


def open_holds(world: World, team: TeamId) -> list[str]:
    with world.database.read() as connection:
        return [stored.transfer.id for stored in ledger.open_holds_of_team(connection, team)]


def test_only_what_was_held_for_a_time_expires_and_only_then(world: World) -> None:
    lab = world.team("lab")
    team = TeamId(lab.team_id)
    world.plan("train", run_seconds=50_000)
    world.submit(lab, name="train")
    world.run(5)
    of_the_run = open_holds(world, team)
    assert of_the_run, "the hour of the run is held"
    until = world.clock.now() + timedelta(seconds=60)
    kept = replace(hold(TransferId("for-a-time"), cash_id(team), REVENUE, Money(10)), expires_at=until)
    with world.database.write() as connection:
        assert ledger.post(connection, [kept], world.clock.now()).ok
    world.clock.advance(seconds=59)
    assert "expired" not in world.run_reconciler("meter")
    assert "for-a-time" in open_holds(world, team)
    world.clock.advance(seconds=1)
    assert world.run_reconciler("meter") == "1 holds expired"
    assert world.run_reconciler("meter") == ""
    assert open_holds(world, team) == of_the_run
    with world.database.read() as connection:
        assert ledger.check(connection) == ()
