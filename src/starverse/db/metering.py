"""Holds, the meter of each allocation, and the charges it writes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, update

from starverse.db.metadata import MicroYuan
from starverse.db.prepared import Prepared, among
from starverse.db.tables import (
    charge_segments,
    charges,
    credit_backs,
    hold_parts,
    holds,
    memberships,
    meters,
    price_books,
)
from starverse.domain.money import ZERO, Money, total
from starverse.domain.pricing.price_book import PriceBook, PriceBooks
from starverse.domain.pricing.price_book_yaml import load_price_book
from starverse.domain.pricing.rating import MemberChange, RunningTotal


@dataclass(frozen=True, slots=True)
class HoldPart:
    """One pending transfer of a hold, by the ledger account it takes from."""

    transfer_id: str
    ledger_account_id: str
    amount: Money


@dataclass(frozen=True, slots=True)
class HoldRow:
    """Hold ``hour`` (1, 2, ...) covers ``seconds`` seconds of that hour of the allocation."""

    id: str
    team_id: str
    allocation_id: str
    hour: int
    seconds: int
    amount: Money
    state: str
    placed_at: datetime
    parts: tuple[HoldPart, ...]


@dataclass(frozen=True, slots=True)
class Meter:
    """Where an allocation's meter stands. ``paid`` is what pricing needs to split the next charge."""

    metered_until: datetime
    running: RunningTotal
    paid: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """A part of a charge at one rate; ``rate`` is numerator/denominator micro-yuan per card-hour."""

    start_at: datetime
    end_at: datetime
    cards: int
    rate: str
    factors: str
    amount: Money
    price_book_id: str


@dataclass(frozen=True, slots=True)
class ChargeRow:
    """Priced usage of one hour of an allocation, and who paid it."""

    id: str
    team_id: str
    job_id: str
    allocation_id: str
    account_id: str
    cost_label: str | None
    hour: int
    start_at: datetime
    end_at: datetime
    total: Money
    coupon: Money
    credit: Money
    cash: Money
    written_off: Money
    segments: tuple[SegmentRow, ...]


_BOOKS = Prepared(
    select(price_books.c.id, price_books.c.effective_from).order_by(price_books.c.effective_from)
)
_METERS = Prepared(select(meters).where(among(meters.c.allocation_id, "ids")))
_SPANS = Prepared(
    select(holds.c.allocation_id, holds.c.seconds, holds.c.state)
    .where(among(holds.c.allocation_id, "ids"))
    .order_by(holds.c.hour)
)
_HOLDS = Prepared(select(holds).where(holds.c.allocation_id == bindparam("wanted")).order_by(holds.c.hour))
_PARTS = Prepared(
    select(hold_parts).where(among(hold_parts.c.hold_id, "ids")).order_by(hold_parts.c.position)
)
_INSERT_HOLD = Prepared(
    insert(holds),
    ("id", "team_id", "allocation_id", "hour", "seconds", "amount_micro", "state", "placed_at"),
)
_INSERT_PART = Prepared(
    insert(hold_parts), ("hold_id", "position", "transfer_id", "ledger_account_id", "amount_micro")
)
_RESOLVE = Prepared(
    update(holds).where(holds.c.id == bindparam("wanted"), holds.c.state == "open"),
    ("state", "resolved_at"),
)
_METER_COLUMNS = ("metered_until", "accrued", "paid")
_INSERT_METER = Prepared(insert(meters), ("allocation_id", *_METER_COLUMNS))
_SAVE_METER = Prepared(update(meters).where(meters.c.allocation_id == bindparam("wanted")), _METER_COLUMNS)
_MEMBER_CHANGES = Prepared(
    select(memberships.c.since, memberships.c.member)
    .where(memberships.c.account_id == bindparam("wanted"))
    .order_by(memberships.c.since)
)
_CHARGED_OF_ALLOCATION = Prepared(
    select(func.sum(charges.c.total_micro, type_=MicroYuan).label("charged")).where(
        charges.c.allocation_id == bindparam("wanted")
    )
)
_CHARGED_BY_ALLOCATION = Prepared(
    select(charges.c.allocation_id, func.sum(charges.c.total_micro, type_=MicroYuan).label("charged"))
    .where(among(charges.c.job_id, "jobs"))
    .group_by(charges.c.allocation_id)
)
_INSERT_CHARGE = Prepared(
    insert(charges),
    (
        *(
            "id",
            "team_id",
            "job_id",
            "allocation_id",
            "account_id",
            "cost_label",
            "hour",
            "start_at",
            "end_at",
        ),
        *("total_micro", "coupon_micro", "credit_micro", "cash_micro", "written_off_micro", "created_at"),
    ),
)
_INSERT_SEGMENT = Prepared(
    insert(charge_segments),
    (
        *("charge_id", "position", "start_at", "end_at", "cards", "rate", "factors", "amount_micro"),
        "price_book_id",
    ),
)


def insert_hold(connection: Connection, hold: HoldRow) -> None:
    _INSERT_HOLD.run(
        connection,
        id=hold.id,
        team_id=hold.team_id,
        allocation_id=hold.allocation_id,
        hour=hold.hour,
        seconds=hold.seconds,
        amount_micro=hold.amount,
        state=hold.state,
        placed_at=hold.placed_at,
    )
    _INSERT_PART.run_many(
        connection,
        (
            {
                "hold_id": hold.id,
                "position": position,
                "transfer_id": part.transfer_id,
                "ledger_account_id": part.ledger_account_id,
                "amount_micro": part.amount,
            }
            for position, part in enumerate(hold.parts)
        ),
    )


def hold_spans(connection: Connection, allocation_ids: Collection[str]) -> dict[str, list[tuple[int, str]]]:
    """Allocation id -> (seconds, state) of its holds, by hour."""
    found: dict[str, list[tuple[int, str]]] = {}
    for allocation_id, seconds, state in _SPANS.rows(connection, ids=allocation_ids):
        found.setdefault(allocation_id, []).append((seconds, state))
    return found


def held_seconds(connection: Connection, allocation_id: str) -> int:
    """How many seconds from ready all holds of an allocation cover together."""
    return sum(seconds for seconds, _ in hold_spans(connection, [allocation_id]).get(allocation_id, []))


def holds_of(connection: Connection, allocation_id: str) -> list[HoldRow]:
    """All holds of an allocation, by hour."""
    rows = _HOLDS.rows(connection, wanted=allocation_id)
    parts: dict[str, list[HoldPart]] = {row.id: [] for row in rows}
    for part in _PARTS.rows(connection, ids=parts):
        parts[part.hold_id].append(HoldPart(part.transfer_id, part.ledger_account_id, part.amount_micro))
    return [
        HoldRow(
            id=row.id,
            team_id=row.team_id,
            allocation_id=row.allocation_id,
            hour=row.hour,
            seconds=row.seconds,
            amount=row.amount_micro,
            state=row.state,
            placed_at=row.placed_at,
            parts=tuple(parts[row.id]),
        )
        for row in rows
    ]


def open_amount(rows: Iterable[HoldRow]) -> Money:
    """What of some holds is neither posted nor given back."""
    return total([row.amount for row in rows if row.state == "open"])


def resolve_hold(connection: Connection, hold_id: str, state: str, now: datetime) -> bool:
    """Mark a hold posted or voided; false when it was not open any more."""
    return _RESOLVE.run(connection, wanted=hold_id, state=state, resolved_at=now) == 1


def insert_meter(connection: Connection, allocation_id: str, meter: Meter) -> None:
    _INSERT_METER.run(connection, allocation_id=allocation_id, **_meter_values(meter))


def save_meter(connection: Connection, allocation_id: str, meter: Meter) -> None:
    _SAVE_METER.run(connection, wanted=allocation_id, **_meter_values(meter))


def load_meter(connection: Connection, allocation_id: str) -> Meter | None:
    """``None``: nothing was metered yet."""
    return load_meters(connection, [allocation_id]).get(allocation_id)


def load_meters(connection: Connection, allocation_ids: Collection[str]) -> dict[str, Meter]:
    """Allocation id -> its meter; those of which nothing was metered yet are left out."""
    found: dict[str, Meter] = {}
    if not allocation_ids:
        return found
    for row in _METERS.rows(connection, ids=allocation_ids):
        numerator, denominator = row.accrued.split("/")
        running = RunningTotal(int(numerator), int(denominator))
        found[row.allocation_id] = Meter(row.metered_until, running, json.loads(row.paid))
    return found


def insert_charge(connection: Connection, charge: ChargeRow, now: datetime) -> None:
    _INSERT_CHARGE.run(
        connection,
        id=charge.id,
        team_id=charge.team_id,
        job_id=charge.job_id,
        allocation_id=charge.allocation_id,
        account_id=charge.account_id,
        cost_label=charge.cost_label,
        hour=charge.hour,
        start_at=charge.start_at,
        end_at=charge.end_at,
        total_micro=charge.total,
        coupon_micro=charge.coupon,
        credit_micro=charge.credit,
        cash_micro=charge.cash,
        written_off_micro=charge.written_off,
        created_at=now,
    )
    _INSERT_SEGMENT.run_many(
        connection,
        (
            {
                "charge_id": charge.id,
                "position": position,
                "start_at": segment.start_at,
                "end_at": segment.end_at,
                "cards": segment.cards,
                "rate": segment.rate,
                "factors": segment.factors,
                "amount_micro": segment.amount,
                "price_book_id": segment.price_book_id,
            }
            for position, segment in enumerate(charge.segments)
        ),
    )


def charged_by_allocation(connection: Connection, job_ids: Collection[str]) -> dict[str, Money]:
    """Allocation id -> what was charged for it so far."""
    return dict(_CHARGED_BY_ALLOCATION.rows(connection, jobs=job_ids)) if job_ids else {}


def insert_credit_back(
    connection: Connection,
    credit_id: str,
    team_id: str,
    allocation_id: str,
    lost_seconds: int,
    amount: Money,
    now: datetime,
) -> None:
    connection.execute(
        insert(credit_backs).values(
            id=credit_id,
            team_id=team_id,
            allocation_id=allocation_id,
            lost_seconds=lost_seconds,
            amount_micro=amount,
            created_at=now,
        )
    )


def charged_of_allocation(connection: Connection, allocation_id: str) -> Money:
    """What was charged for one allocation so far."""
    return _CHARGED_OF_ALLOCATION.first(connection, wanted=allocation_id).charged or ZERO


def charged_of_job(connection: Connection, job_id: str) -> Money:
    """What was charged for all runs of a job so far."""
    micro = connection.execute(
        select(func.sum(charges.c.total_micro)).where(charges.c.job_id == job_id)
    ).scalar_one()
    return ZERO if micro is None else _money(micro)


def paid_for_job(connection: Connection, job_id: str) -> Money:
    """What its team paid for all runs of a job so far: what was charged less what was written off."""
    micro = connection.execute(
        select(func.sum(charges.c.total_micro - charges.c.written_off_micro)).where(
            charges.c.job_id == job_id
        )
    ).scalar_one()
    return ZERO if micro is None else _money(micro)


def written_off_since(connection: Connection, allocation_id: str, since: datetime) -> Money:
    """What nobody paid of an allocation's charges that reach beyond an instant."""
    micro = connection.execute(
        select(func.sum(charges.c.written_off_micro)).where(
            charges.c.allocation_id == allocation_id, charges.c.end_at > since
        )
    ).scalar_one()
    return ZERO if micro is None else _money(micro)


def member_changes(connection: Connection, account_id: str) -> tuple[MemberChange, ...]:
    """The membership history of an account, for rating."""
    rows = _MEMBER_CHANGES.rows(connection, wanted=account_id)
    return tuple(MemberChange(row.since, row.member) for row in rows)


@dataclass(frozen=True, slots=True)
class StoredBooks:
    """All price-book versions, and the id of each by its ``effective_from``."""

    books: PriceBooks
    ids: dict[datetime, str]

    def id_at(self, instant: datetime) -> str:
        return self.ids[self.books.at(instant).effective_from]


_PARSED: dict[str, PriceBook] = {}
_STORED: dict[tuple[str, ...], StoredBooks] = {}


def load_books(connection: Connection) -> StoredBooks:
    """The price books; each text is parsed once per process, since a version never changes."""
    ids = tuple([row.id for row in _BOOKS.rows(connection)])
    known = _STORED.get(ids)
    if known is not None:
        return known
    for book_id in ids:
        if book_id not in _PARSED:
            content = connection.execute(
                select(price_books.c.content).where(price_books.c.id == book_id)
            ).scalar_one()
            _PARSED[book_id] = load_price_book(content)
    books = StoredBooks(
        PriceBooks([_PARSED[book_id] for book_id in ids]),
        {_PARSED[book_id].effective_from: book_id for book_id in ids},
    )
    _STORED.clear()  # one list of versions at a time
    _STORED[ids] = books
    return books


def _meter_values(meter: Meter) -> dict[str, Any]:
    return {
        "metered_until": meter.metered_until,
        "accrued": f"{meter.running.numerator}/{meter.running.denominator}",
        "paid": json.dumps(meter.paid, sort_keys=True),
    }


def _money(summed: Any) -> Money:
    return summed if isinstance(summed, Money) else Money(int(summed))
