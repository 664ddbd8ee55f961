"""Hours of pools: what was free and what spot cost, one row for each pool and hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select

from starverse.db.history_tables import pool_hours

Pool = tuple[str, str, str]
"""Zone, card model, fabric."""


@dataclass(frozen=True, slots=True)
class PoolHour:
    """One pool in one hour; ``spot_micro_per_card_hour`` ``None``: spot had no price."""

    pool: Pool
    hour_at: datetime
    cards_total: int
    cards_free: int
    spot_micro_per_card_hour: int | None


def newest_hour(connection: Connection) -> datetime | None:
    """The last hour on record."""
    found: datetime | None = connection.execute(select(func.max(pool_hours.c.hour_at))).scalar_one()
    return found


def add(connection: Connection, hours: Sequence[PoolHour]) -> None:
    """Record hours that are not yet on record."""
    if hours:
        connection.execute(
            insert(pool_hours),
            [
                {
                    "zone": hour.pool[0],
                    "card_model": hour.pool[1],
                    "fabric": hour.pool[2],
                    "hour_at": hour.hour_at,
                    "cards_total": hour.cards_total,
                    "cards_free": hour.cards_free,
                    "spot_micro_per_card_hour": hour.spot_micro_per_card_hour,
                }
                for hour in hours
            ],
        )


def hours_of(connection: Connection, pool: Pool, since: datetime) -> tuple[PoolHour, ...]:
    """A pool's hours from ``since`` on, oldest first."""
    rows = connection.execute(
        select(pool_hours)
        .where(
            pool_hours.c.zone == pool[0],
            pool_hours.c.card_model == pool[1],
            pool_hours.c.fabric == pool[2],
            pool_hours.c.hour_at >= since,
        )
        .order_by(pool_hours.c.hour_at)
    )
    return tuple(
        PoolHour(pool, row.hour_at, row.cards_total, row.cards_free, row.spot_micro_per_card_hour)
        for row in rows
    )


def pools(connection: Connection) -> tuple[Pool, ...]:
    """Every pool with an hour on record, by name."""
    columns = (pool_hours.c.zone, pool_hours.c.card_model, pool_hours.c.fabric)
    return tuple(
        (row[0], row[1], row[2]) for row in connection.execute(select(*columns).distinct().order_by(*columns))
    )


def forget(connection: Connection, before: datetime) -> int:
    """Remove hours before an instant; how many went."""
    return connection.execute(delete(pool_hours).where(pool_hours.c.hour_at < before)).rowcount
