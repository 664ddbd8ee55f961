"""Free cards and the spot price of each hour are on record once, and go after half a year."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from starverse.app.heat_maps import HeatMapRequest, heat_maps
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
        (told,) = heat_maps(world.platform, HeatMapRequest(cards=8))
        assert told["pool"] == "/".join(pool)
        assert not told["enough_history"]
        assert told["history_hours"] == 4
        assert told["hours"][0]["at"] == "2026-03-10T14:00:00+08:00"
        assert told["hours"][0]["price"] > 0
        assert heat_maps(world.platform, HeatMapRequest(card="h100")) == []
        world.clock.advance(weeks=27)
        world.run_reconciler("history")
        with database.read() as connection:
            assert len(pool_history.hours_of(connection, pool, START)) == 1
