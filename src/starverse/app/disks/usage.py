"""What a disk holds and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from starverse.app.bill import month_span
from starverse.app.disks.finding import find_disk
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.db import disk_meters, disks, metering
from starverse.domain.catalog.disks import DiskState
from starverse.domain.disk_kind import DiskKind
from starverse.domain.money import ZERO, Money, total
from starverse.domain.pricing.storage import free_gib_shares, gib_month_price


@dataclass(frozen=True, slots=True)
class DiskUsageView:
    """``free_gib`` of its size cost nothing now; ``price_month`` is what the rest costs in a month;
    ``charged_this_month`` what was charged so far, ``charged_until`` ``None``: nothing yet."""

    name: str
    kind: DiskKind
    gib: int
    used_bytes: int | None
    used_files: int | None
    used_at: datetime | None
    over_quota: bool
    hard_quota: bool
    free_gib: int
    price_month: Money
    charged_this_month: Money
    charged_until: datetime | None


def show_usage(platform: Platform, identity: Identity, ref: str) -> DiskUsageView:
    """A disk of the caller's team; its share of the team's free GiB is that of this moment."""
    with platform.database.read() as connection:
        disk = find_disk(connection, identity, ref)
        now = platform.clock.now()
        book = metering.load_books(connection).books.at(now)
        charged = {
            own.id: own.gib for own in disks.of_team(connection, disk.team_id) if own.state is DiskState.READY
        }
        free = free_gib_shares(book, list(charged.items())).get(disk.id, 0)
        local = now.astimezone(ZoneInfo(book.timezone))
        month = month_span(f"{local:%Y-%m}", book.timezone)
        own_charges = disk_meters.charges_of_disk(connection, disk.id)
        meter = disk_meters.load_meters(connection, [disk.id]).get(disk.id)
    costs = disk.state is DiskState.READY
    price = Money(gib_month_price(book, disk.kind).micro * (disk.gib - free)) if costs else ZERO
    return DiskUsageView(
        name=disk.name,
        kind=disk.kind,
        gib=disk.gib,
        used_bytes=disk.used_bytes,
        used_files=disk.used_files,
        used_at=disk.used_at,
        over_quota=disk.over_quota,
        hard_quota=disk.hard_quota,
        free_gib=free,
        price_month=price,
        charged_this_month=total([c.total for c in own_charges if month[0] < c.end <= month[1]]),
        charged_until=None if meter is None else meter.metered_until,
    )
