"""Heat maps of the pools that there are, from the hours on record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from starverse.app.platform import Platform
from starverse.app.pool_history import KEPT
from starverse.db import pool_history
from starverse.db.pool_history import PoolHour
from starverse.domain.forecasting.heat_map import heat_map
from starverse.domain.forecasting.series import HourlySeries, from_samples

MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class HeatMapRequest:
    """``cards`` free together, for a job of ``hours``; ``None``: pools are not restricted by this."""

    cards: int = 1
    hours: int = 1
    card: str | None = None
    fabric: str | None = None


def heat_maps(platform: Platform, wanted: HeatMapRequest) -> list[dict[str, Any]]:
    """One heat map for each pool that fits and has an hour on record; prices in yuan, hours in the zone of
    the price book."""
    since = platform.clock.now() - KEPT
    with platform.database.read() as connection:
        found = {
            pool: pool_history.hours_of(connection, pool, since)
            for pool in pool_history.pools(connection)
            if wanted.card in (None, pool[1]) and wanted.fabric in (None, pool[2])
        }
    zone = ZoneInfo(platform.settings.timezone)
    maps = []
    for pool, hours in found.items():
        free, prices = series_of(hours, zone)
        told = heat_map(free, wanted.cards, wanted.hours, prices).to_json()
        maps.append({"pool": "/".join(pool), **told})
    return maps


def series_of(hours: Sequence[PoolHour], zone: ZoneInfo) -> tuple[HourlySeries, HourlySeries]:
    """Free cards and spot prices in yuan of hours in order, with the hours that nobody kept as gaps."""
    free = [(hour.hour_at.astimezone(zone), float(hour.cards_free)) for hour in hours]
    prices = [(hour.hour_at.astimezone(zone), _yuan(hour.spot_micro_per_card_hour)) for hour in hours]
    return from_samples(free), from_samples(prices)


def _yuan(micro: int | None) -> float:
    return math.nan if micro is None else micro / MICRO
