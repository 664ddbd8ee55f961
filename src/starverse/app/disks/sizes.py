"""What of a disk is charged from when on, and whether a team can pay for more."""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction

from sqlalchemy import Connection

from starverse.app.platform import Platform
from starverse.db import disk_meters, disks, ledger, metering
from starverse.db.disks import Disk, Size
from starverse.domain.catalog.disks import DiskState
from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import NotEnoughMoney
from starverse.domain.ids import TeamId
from starverse.domain.money import floor_to_micro
from starverse.domain.pricing.price_book import PriceBook
from starverse.domain.pricing.storage import free_gib_shares, gib_month_price
from starverse.domain.timespan import ceil_to_second

MONTH_DAYS = 30
"""For asking whether a day can be paid; what is charged goes by the real month."""


def set_size(connection: Connection, disk: Disk, gib: int, now: datetime) -> None:
    """From the next whole second on the disk is charged as ``gib`` (0: not any more).

    Never from an instant that was charged already, of this or another disk of the team: the free GiB are
    shared among all of them. A clock that was set back changes nothing of what is paid.
    """
    disks.lock_money(connection, disk.team_id)
    sizes = [size.since for size in disks.sizes_of_team(connection, disk.team_id) if size.disk_id == disk.id]
    metered = disk_meters.newest_of_team(connection, disk.team_id)
    since = max([ceil_to_second(now), *sizes, *([metered] if metered else [])])
    disks.set_size(connection, Size(disk.id, since, gib))


def require_a_day(connection: Connection, platform: Platform, disk: Disk, gib: int) -> None:
    """Raises :class:`NotEnoughMoney` unless the team could pay a day of all its disks with this one at
    ``gib``. Nothing is held: disks stay when the money ends, so that it is asked before they grow."""
    now = platform.clock.now()
    book = metering.load_books(connection).books.at(now)
    kept = [
        (own.id, own.kind, own.gib)
        for own in disks.of_team(connection, disk.team_id)
        if own.id != disk.id and own.state is not DiskState.FAILED
    ]
    day = month_price(book, [*kept, (disk.id, disk.kind, gib)]) / MONTH_DAYS
    wallet = ledger.team_wallet(connection, TeamId(disk.team_id))
    if floor_to_micro(day) > wallet.free(now):
        month = floor_to_micro(day * MONTH_DAYS)
        raise NotEnoughMoney(
            f"All disks together would cost CNY {month.decimal()} a month; not even a day of that is free.",
            hint=f"Top up, or ask for less: {book.storage.free_gib} GiB of a team cost nothing.",
        )


def month_price(book: PriceBook, team_disks: list[tuple[str, DiskKind, int]]) -> Fraction:
    """Micro-yuan that a team's disks (id, kind, GiB) cost in a month, its free GiB taken off."""
    free = free_gib_shares(book, [(disk_id, gib) for disk_id, _, gib in team_disks])
    return sum(
        (Fraction(gib_month_price(book, kind).micro * (gib - free[key])) for key, kind, gib in team_disks),
        Fraction(0),
    )
