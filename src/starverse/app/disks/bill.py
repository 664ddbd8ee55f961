"""What disks cost on a bill, and the figures behind it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from starverse.app.bill_views import BookRef, ChargeTransfer, paid_in_words, show_transfer
from starverse.db import disk_meters, ledger, price_books
from starverse.db.disk_meters import DiskCharge, DiskSegmentRow
from starverse.domain.disk_kind import DiskKind
from starverse.domain.money import Money, decimal_string
from starverse.domain.timespan import format_instant


@dataclass(frozen=True, slots=True)
class DiskSegmentView:
    """Part of a disk's charge: ``free_gib`` of ``gib`` cost nothing."""

    start: datetime
    end: datetime
    gib: int
    free_gib: int
    price_per_gib_month: Money
    month_seconds: int
    amount: Money


@dataclass(frozen=True, slots=True)
class DiskChargeView:
    """What a disk cost over a span, and who paid."""

    id: str
    disk: str
    disk_id: str
    kind: DiskKind
    start: datetime
    end: datetime
    total: Money
    coupon: Money
    credit: Money
    cash: Money
    written_off: Money
    segments: tuple[DiskSegmentView, ...]


@dataclass(frozen=True, slots=True)
class DiskExplanation:
    """A disk's charge with its arithmetic in words, its price books, and the transfers that paid it."""

    charge: DiskChargeView
    steps: tuple[str, ...]
    price_books: tuple[BookRef, ...]
    transfers: tuple[ChargeTransfer, ...]


def disk_charges(
    connection: Connection, team_id: str, ended: tuple[datetime, datetime]
) -> tuple[DiskChargeView, ...]:
    """What a team's disks cost in the charges that end within (after, until], by disk and time."""
    return tuple(map(_view, disk_meters.charges_of_team(connection, team_id, ended)))


def explain_disk_charge(connection: Connection, team_id: str, charge_id: str) -> DiskExplanation | None:
    """Every figure behind one charge; ``None``: the team's disks have none of that id."""
    found = disk_meters.get_charge(connection, charge_id)
    if found is None or found.team_id != team_id:
        return None
    effective_from = {str(book.id): book.effective_from for book in price_books.versions(connection)}
    used = dict.fromkeys(segment.price_book_id for segment in found.segments)
    return DiskExplanation(
        _view(found),
        tuple(_steps(found)),
        tuple(BookRef(book_id, effective_from[book_id]) for book_id in used),
        tuple(
            show_transfer(stored)
            for stored in ledger.transfers_of_subject(connection, found.disk_id)
            if stored.transfer.id.startswith(f"{found.id}:")
        ),
    )


def _view(charge: DiskCharge) -> DiskChargeView:
    return DiskChargeView(
        id=charge.id,
        disk=charge.disk_name,
        disk_id=charge.disk_id,
        kind=charge.kind,
        start=charge.start,
        end=charge.end,
        total=charge.total,
        coupon=charge.coupon,
        credit=charge.credit,
        cash=charge.cash,
        written_off=charge.written_off,
        segments=tuple(
            DiskSegmentView(s.start, s.end, s.gib, s.free_gib, s.price, s.month_seconds, s.amount)
            for s in charge.segments
        ),
    )


def _steps(charge: DiskCharge) -> Iterable[str]:
    """The arithmetic, one sentence a step."""
    yield (
        f"disk {charge.disk_name} ({charge.kind.value}), "
        f"{format_instant(charge.start)} to {format_instant(charge.end)}"
    )
    for segment in charge.segments:
        yield _step(segment)
    yield paid_in_words(charge)


def _step(segment: DiskSegmentRow) -> str:
    seconds = int((segment.end - segment.start).total_seconds())
    exact = decimal_string(segment.exact / 1_000_000, places=12)
    return (
        f"{format_instant(segment.start)} to {format_instant(segment.end)}: {segment.free_gib} of "
        f"{segment.gib} GiB are free; {max(0, segment.gib - segment.free_gib)} GiB x "
        f"{segment.price.decimal()} a month x {seconds} s / the month's {segment.month_seconds} s = {exact}; "
        f"the running total, rounded down, grows by {segment.amount.decimal()}"
    )
