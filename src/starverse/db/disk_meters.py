"""Where the meter of each disk stands, and the charges that it wrote."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, func, insert, or_, select, update

from starverse.db.disk_tables import disk_charges, disk_meters, disk_sizes, disks
from starverse.db.metadata import UtcTime
from starverse.db.metering import Meter
from starverse.db.prepared import Prepared
from starverse.db.session import LostRace
from starverse.db.statements import in_chunks
from starverse.domain.disk_kind import DiskKind
from starverse.domain.money import Money
from starverse.domain.pricing.rating import RunningTotal


@dataclass(frozen=True, slots=True)
class DiskSegmentRow:
    """Part of a charge: ``free_gib`` of ``gib`` cost nothing, a GiB-month costs ``price``, and the month has
    ``month_seconds``."""

    start: datetime
    end: datetime
    gib: int
    free_gib: int
    price: Money
    month_seconds: int
    amount: Money
    price_book_id: str

    @property
    def exact(self) -> Fraction:
        """Micro-yuan, not rounded."""
        charged = max(0, self.gib - self.free_gib)
        seconds = int((self.end - self.start).total_seconds())
        return Fraction(self.price.micro * charged * seconds, self.month_seconds)


@dataclass(frozen=True, slots=True)
class DiskCharge:
    """What a disk cost over a span, and who paid it."""

    id: str
    team_id: str
    disk_id: str
    disk_name: str
    kind: DiskKind
    start: datetime
    end: datetime
    total: Money
    coupon: Money
    credit: Money
    cash: Money
    written_off: Money
    segments: tuple[DiskSegmentRow, ...]


def load_meters(connection: Connection, disk_ids: Collection[str]) -> dict[str, Meter]:
    """Disk id -> its meter; those of which nothing was metered yet are left out."""
    found = {}
    for some in in_chunks(disk_ids):
        for row in connection.execute(select(disk_meters).where(disk_meters.c.disk_id.in_(some))):
            numerator, denominator = row.accrued.split("/")
            running = RunningTotal(int(numerator), int(denominator))
            found[row.disk_id] = Meter(row.metered_until, running, json.loads(row.paid))
    return found


def save_meter(connection: Connection, disk_id: str, meter: Meter, before: Meter | None) -> None:
    """Move a meter on from where it stood; raises :class:`LostRace` where another server did."""
    values = {
        "metered_until": meter.metered_until,
        "accrued": f"{meter.running.numerator}/{meter.running.denominator}",
        "paid": json.dumps(meter.paid, sort_keys=True),
    }
    if before is None:
        connection.execute(insert(disk_meters).values(disk_id=disk_id, **values))
        return
    c = disk_meters.c
    same = and_(c.disk_id == disk_id, c.metered_until == before.metered_until)
    if connection.execute(update(disk_meters).where(same).values(**values)).rowcount != 1:
        raise LostRace()


def newest_of_team(connection: Connection, team_id: str) -> datetime | None:
    """Until when a disk of the team was metered at the latest."""
    query = (
        select(disk_meters.c.metered_until)
        .join(disks, disks.c.id == disk_meters.c.disk_id)
        .where(disks.c.team_id == team_id)
        .order_by(disk_meters.c.metered_until.desc())
    )
    return connection.execute(query.limit(1)).scalar()


def teams_due(connection: Connection, until: datetime) -> tuple[str, ...]:
    """Teams with a disk that is charged and was not metered until then.

    A disk is charged until its newest size, where that is 0.
    """
    return tuple(row.team_id for row in _TEAMS_DUE.rows(connection, until=until))


def _teams_due() -> Prepared:
    until = bindparam("until", type_=UtcTime)
    newest = (
        select(
            disk_sizes.c.disk_id,
            func.max(disk_sizes.c.since).label("since"),
            func.max(disk_sizes.c.gib).label("most"),
        )
        .group_by(disk_sizes.c.disk_id)
        .subquery()
    )
    until_then = disk_meters.c.metered_until
    behind = or_(
        and_(until_then.is_(None), newest.c.most > 0),
        and_(until_then < until, or_(disk_sizes.c.gib > 0, until_then < newest.c.since)),
    )
    return Prepared(
        select(disks.c.team_id)
        .distinct()
        .join(newest, newest.c.disk_id == disks.c.id)
        .join(
            disk_sizes,
            and_(disk_sizes.c.disk_id == newest.c.disk_id, disk_sizes.c.since == newest.c.since),
        )
        .outerjoin(disk_meters, disk_meters.c.disk_id == disks.c.id)
        .where(behind)
        .order_by(disks.c.team_id)
    )


_TEAMS_DUE = _teams_due()


def insert_charge(connection: Connection, charge: DiskCharge, now: datetime) -> None:
    """Raises ``IntegrityError`` where the span was charged before."""
    connection.execute(
        insert(disk_charges).values(
            id=charge.id,
            team_id=charge.team_id,
            disk_id=charge.disk_id,
            start_at=charge.start,
            end_at=charge.end,
            total_micro=charge.total,
            coupon_micro=charge.coupon,
            credit_micro=charge.credit,
            cash_micro=charge.cash,
            written_off_micro=charge.written_off,
            segments=json.dumps([_write(segment) for segment in charge.segments]),
            created_at=now,
        )
    )


def charges_of_team(
    connection: Connection, team_id: str, ended: tuple[datetime, datetime]
) -> tuple[DiskCharge, ...]:
    """Those that end within (after, until], by disk and time."""
    c = disk_charges.c
    return _read(connection, and_(c.team_id == team_id, c.end_at > ended[0], c.end_at <= ended[1]))


def charges_of_disk(connection: Connection, disk_id: str) -> tuple[DiskCharge, ...]:
    return _read(connection, disk_charges.c.disk_id == disk_id)


def get_charge(connection: Connection, charge_id: str) -> DiskCharge | None:
    return next(iter(_read(connection, disk_charges.c.id == charge_id)), None)


def _read(connection: Connection, where: ColumnElement[bool]) -> tuple[DiskCharge, ...]:
    query = (
        select(disk_charges, disks.c.name, disks.c.kind)
        .join(disks, disks.c.id == disk_charges.c.disk_id)
        .where(where)
        .order_by(disks.c.name, disk_charges.c.disk_id, disk_charges.c.start_at)
    )
    return tuple(
        DiskCharge(
            id=row.id,
            team_id=row.team_id,
            disk_id=row.disk_id,
            disk_name=row.name,
            kind=row.kind,
            start=row.start_at,
            end=row.end_at,
            total=row.total_micro,
            coupon=row.coupon_micro,
            credit=row.credit_micro,
            cash=row.cash_micro,
            written_off=row.written_off_micro,
            segments=tuple(_segment(raw) for raw in json.loads(row.segments)),
        )
        for row in connection.execute(query)
    )


def _write(segment: DiskSegmentRow) -> dict[str, Any]:
    return {
        "start": segment.start.isoformat(),
        "end": segment.end.isoformat(),
        "gib": segment.gib,
        "free_gib": segment.free_gib,
        "price_micro": segment.price.micro,
        "month_seconds": segment.month_seconds,
        "amount_micro": segment.amount.micro,
        "price_book_id": segment.price_book_id,
    }


def _segment(raw: dict[str, Any]) -> DiskSegmentRow:
    return DiskSegmentRow(
        start=datetime.fromisoformat(raw["start"]),
        end=datetime.fromisoformat(raw["end"]),
        gib=raw["gib"],
        free_gib=raw["free_gib"],
        price=Money(raw["price_micro"]),
        month_seconds=raw["month_seconds"],
        amount=Money(raw["amount_micro"]),
        price_book_id=raw["price_book_id"],
    )
