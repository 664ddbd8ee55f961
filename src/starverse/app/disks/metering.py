"""Charging disks: by the full hour, to the second, without a hold (pricing.md, storage).

A charge is the growth of the disk's exact running total, paid from coupons, credit and cash as any usage.
What nobody can pay is written off; a disk stays when the money ends. Nothing depends on when this runs but
what is in the wallet then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from starverse.app.disks.sizes import month_price
from starverse.app.funding import ledger_account_of, sources_of
from starverse.app.metering import read_paid, write_paid
from starverse.app.one_by_one import each
from starverse.app.platform import Platform
from starverse.db import disk_meters, disks, ledger, metering
from starverse.db.disk_meters import DiskCharge, DiskSegmentRow
from starverse.db.disks import Disk
from starverse.db.metering import Meter, StoredBooks
from starverse.domain.ids import TeamId, TransferId
from starverse.domain.ledger.accounts import REVENUE, WRITE_OFF
from starverse.domain.ledger.transfers import Purpose, Transfer, move
from starverse.domain.money import Money, total
from starverse.domain.pricing.paying import Payment, Piece, SourceKind, Sources, pay, pay_edges
from starverse.domain.pricing.price_book import PriceBooks
from starverse.domain.pricing.rating import RunningTotal
from starverse.domain.pricing.storage import DiskSegment, DiskUsage, charge_disk
from starverse.domain.pricing.team_storage import SizeChange, team_usages
from starverse.domain.pricing.windows import epoch_second, instant_of, local_month_pieces
from starverse.domain.timespan import Timespan


@dataclass(frozen=True, slots=True)
class _Period:
    """What a disk ran up within one local month and up to a full hour: one charge."""

    disk: Disk
    span: Timespan
    segments: tuple[tuple[DiskSegment, DiskUsage], ...]
    running: RunningTotal


def meter_all(platform: Platform) -> list[str]:
    """Charge every team's disks up to the last full hour; what was done, in words."""
    until = full_hour(platform.clock.now())
    with platform.database.read() as connection:
        due = disk_meters.teams_due(connection, until)
    return each(due, lambda team_id: meter_team(platform, team_id))


def meter_team(platform: Platform, team_id: str) -> str:
    """Charge the disks of one team, in one transaction: their free GiB hang together."""

    def act(connection: Connection) -> str:
        disks.lock_money(connection, team_id)
        now = platform.clock.now()
        charged = _meter(connection, platform, team_id, now)
        return f"charged disks of team {team_id}: {charged.decimal()}" if charged else ""

    return platform.database.write_retrying(act)


def full_hour(now: datetime) -> datetime:
    return now.replace(minute=0, second=0, microsecond=0)


def burn_per_hour(connection: Connection, team_id: str, books: PriceBooks, now: datetime) -> Fraction:
    """Micro-yuan an hour that the team's disks cost now, by a month of thirty days."""
    book = books.at(now)
    sizes: dict[str, int] = {}
    for size in disks.sizes_of_team(connection, team_id):
        sizes[size.disk_id] = size.gib
    owned = disks.get_many(connection, sizes)
    held = [(key, owned[key].kind, gib) for key, gib in sizes.items() if gib]
    return month_price(book, held) / (30 * 24) if held else Fraction(0)


def _meter(connection: Connection, platform: Platform, team_id: str, now: datetime) -> Money:
    books = metering.load_books(connection)
    sizes = disks.sizes_of_team(connection, team_id)
    owned = disks.get_many(connection, {size.disk_id for size in sizes})
    changes = [SizeChange(s.disk_id, owned[s.disk_id].kind, s.since, s.gib) for s in sizes]
    meters = disk_meters.load_meters(connection, list(owned))
    until = full_hour(now)
    usages = team_usages(changes, {key: m.metered_until for key, m in meters.items()}, until, books.books)
    sources = sources_of(ledger.team_wallet(connection, TeamId(team_id)))
    periods = [
        period
        for key, own in usages.items()
        for period in _periods(owned[key], own, meters.get(key), sources, books.books)
    ]
    standing = {key: read_paid(meter.paid) for key, meter in meters.items()}
    transfers: list[Transfer] = []
    charged: list[Money] = []
    running: dict[str, RunningTotal] = {}
    for period in sorted(periods, key=lambda period: (period.span.end, period.disk.id)):
        share = books.books.at(period.span.start).coupon_share_max
        pieces = [Piece(s.span.start, s.span.end, s.amount) for s, _ in period.segments]
        payment = pay(pieces, sources, share, standing.get(period.disk.id))
        sources, standing[period.disk.id] = payment.sources, payment.subject
        running[period.disk.id] = period.running
        charge = _charge(platform.ids.uuid7(), period, payment, books)
        if charge.total:
            disk_meters.insert_charge(connection, charge, now)
            transfers += _transfers(charge, payment)
            charged.append(charge.total)
    if transfers:
        ledger.post_decided(connection, transfers, now, "a charge of disks")
    for key, accrued in running.items():
        after = Meter(until, accrued, write_paid(standing[key]))
        disk_meters.save_meter(connection, key, after, meters.get(key))
    return total(charged)


def _periods(
    disk: Disk, usages: Sequence[DiskUsage], meter: Meter | None, sources: Sources, books: PriceBooks
) -> list[_Period]:
    """One charge for each local month: months are sums of charges."""
    running = RunningTotal() if meter is None else meter.running
    found = []
    for parts in _by_month(usages, books).values():
        split = [
            DiskUsage(part, usage.kind, usage.gib, usage.free_gib)
            for usage in parts
            for part in usage.span.split_at(pay_edges(sources))
        ]
        segments: list[tuple[DiskSegment, DiskUsage]] = []
        for usage in split:
            priced, running = charge_disk([usage], books, running)
            segments += [(segment, usage) for segment in priced]
        span = Timespan(split[0].span.start, split[-1].span.end)
        found.append(_Period(disk, span, tuple(segments), running))
    return found


def _by_month(usages: Sequence[DiskUsage], books: PriceBooks) -> Mapping[tuple[int, int], list[DiskUsage]]:
    """The usages, cut at the ends of local months, by the month that they lie in."""
    months: dict[tuple[int, int], list[DiskUsage]] = {}
    for usage in usages:
        zone = books.at(usage.span.start).timezone
        start, end = epoch_second(usage.span.start), epoch_second(usage.span.end)
        for begins, ends, _ in local_month_pieces(start, end, zone):
            span = Timespan(instant_of(begins), instant_of(ends))
            local = span.start.astimezone(ZoneInfo(zone))
            part = DiskUsage(span, usage.kind, usage.gib, usage.free_gib)
            months.setdefault((local.year, local.month), []).append(part)
    return months


def _charge(charge_id: str, period: _Period, payment: Payment, books: StoredBooks) -> DiskCharge:
    return DiskCharge(
        id=charge_id,
        team_id=period.disk.team_id,
        disk_id=period.disk.id,
        disk_name=period.disk.name,
        kind=period.disk.kind,
        start=period.span.start,
        end=period.span.end,
        total=total([segment.amount for segment, _ in period.segments]),
        coupon=payment.amount_of(SourceKind.COUPON),
        credit=payment.amount_of(SourceKind.CREDIT),
        cash=payment.amount_of(SourceKind.CASH),
        written_off=payment.missing,
        segments=tuple(_segment_row(segment, usage, books) for segment, usage in period.segments),
    )


def _segment_row(segment: DiskSegment, usage: DiskUsage, books: StoredBooks) -> DiskSegmentRow:
    return DiskSegmentRow(
        start=segment.span.start,
        end=segment.span.end,
        gib=usage.gib,
        free_gib=usage.free_gib,
        price=segment.price_per_gib_month,
        month_seconds=segment.month_seconds,
        amount=segment.amount,
        price_book_id=books.id_at(segment.span.start),
    )


def _transfers(charge: DiskCharge, payment: Payment) -> list[Transfer]:
    """What moves for a charge: ids are made from its own, so that a repeat is the same."""
    owed = [
        (ledger_account_of(part, charge.team_id), part.amount, Purpose.CHARGE)
        for part in payment.parts
        if part.amount
    ]
    if payment.missing:
        owed.append((WRITE_OFF, payment.missing, Purpose.WRITE_OFF))
    return [
        move(TransferId(f"{charge.id}:{position}"), source, REVENUE, amount, purpose, subject=charge.disk_id)
        for position, (source, amount, purpose) in enumerate(owed)
    ]
