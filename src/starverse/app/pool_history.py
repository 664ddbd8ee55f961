"""What pools have and what spot costs, kept hour by hour for forecasts."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta

from starverse.app.platform import Platform
from starverse.db import nodes, pool_history
from starverse.db.metering import load_books
from starverse.db.nodes import NodeUse
from starverse.db.pool_history import Pool, PoolHour
from starverse.domain.errors import Invalid
from starverse.domain.pricing.price_book import PriceBooks
from starverse.domain.pricing.rating import Terms, rate_at
from starverse.domain.tariff import Tariff

KEPT = timedelta(weeks=26)
"""How long hours are kept: forecasts look back twelve weeks, people a little further."""


def record_hour(platform: Platform) -> str:
    """Keep the present hour of every pool, once; hours in which no server ran stay gaps."""
    now = platform.clock.now()
    hour_at = now.replace(minute=0, second=0, microsecond=0)
    with platform.database.read() as connection:
        newest = pool_history.newest_hour(connection)
        if newest is not None and newest >= hour_at:
            return ""
        found = nodes.all_nodes(connection)
        books = load_books(connection).books
    hours = pool_hours_of(found, books, hour_at, now)
    with platform.database.write() as connection:
        newest = pool_history.newest_hour(connection)
        if newest is not None and newest >= hour_at:
            return ""
        pool_history.add(connection, hours)
        pool_history.forget(connection, hour_at - KEPT)
    return f"kept {hour_at:%Y-%m-%d %H:00} of {len(hours)} pools" if hours else ""


def pool_hours_of(
    found: tuple[NodeUse, ...], books: PriceBooks, hour_at: datetime, now: datetime
) -> list[PoolHour]:
    """One row for each pool: cards on nodes that take work, and the spot price of now."""
    total: dict[Pool, int] = defaultdict(int)
    free: dict[Pool, int] = defaultdict(int)
    for node in found:
        for card in node.cards:
            pool = (node.zone, card.model, node.fabric)
            total[pool] += 1
            free[pool] += node.takes_work and card.state == "free"
    return [
        PoolHour(pool, hour_at, total[pool], free[pool], _spot_price(pool, books, now))
        for pool in sorted(total)
    ]


def _spot_price(pool: Pool, books: PriceBooks, now: datetime) -> int | None:
    try:
        rate, _ = rate_at(Terms(Tariff.SPOT, pool[1], pool[2]), now, books)
    except Invalid:  # the book does not price this model on spot
        return None
    return round(rate)
