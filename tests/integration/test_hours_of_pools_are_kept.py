"""Free cards and the spot price of each hour are on record once, and go after half a year."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from starverse.db import pool_history
from starverse.testing.platforms import START, fresh_database
from starverse.testing.worlds import World


def test_each_hour_of_each_pool_is_kept_once_and_old_ones_go(tmp_path: Path) -> None:
    with fresh_database("sqlite", tmp_path) as database:
        world = World(database, tmp_path / "data")
        world.run_reconciler("inventory")
        assert "of 1 pools" in world.run_reconciler("history")
        assert world.run_reconciler("history") == ""
        world.clock.advance(hours=3, minutes=20)
        world.run_reconciler("history")
        with database.read() as connection:
            (pool,) = pool_history.pools(connection)
            kept = pool_history.hours_of(connection, pool, START)
        assert [hour.hour_at for hour in kept] == [START, START + timedelta(hours=3)]
        assert all(0 < hour.cards_free <= hour.cards_total for hour in kept)
        assert all(hour.spot_micro_per_card_hour for hour in kept)
        world.clock.advance(weeks=27)
        world.run_reconciler("history")
        with database.read() as connection:
            assert len(pool_history.hours_of(connection, pool, START)) == 1
