"""Charges with their segments and what stands around them, for bills. ``db.metering`` writes them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any

from sqlalchemy import ColumnElement, Connection, select

from starverse.db.statements import in_chunks
from starverse.db.tables import allocations, charge_segments, charges, credit_backs, jobs
from starverse.domain.ids import AccountId, AllocationId, ChargeId, JobId, TeamId, format_job_number
from starverse.domain.money import Money
from starverse.domain.tariff import Tariff


@dataclass(frozen=True, slots=True)
class ChargedSegment:
    """Part of a charge at one ``rate`` (micro-yuan per card-hour) and the factors that made it."""

    start: datetime
    end: datetime
    cards: int
    rate: Fraction
    factors: Mapping[str, Any]
    amount: Money
    price_book_id: str


@dataclass(frozen=True, slots=True)
class StoredCharge:
    """Priced usage of one hour of an allocation, who paid it, and on what it ran."""

    id: ChargeId
    team_id: TeamId
    job_id: JobId
    job_number: str
    instance_name: str | None
    allocation_id: AllocationId
    account_id: AccountId
    attempt: int
    tariff: Tariff
    card_model: str | None
    fabric: str
    cost_label: str | None
    hour: int
    start: datetime
    end: datetime
    total: Money
    coupon: Money
    credit: Money
    cash: Money
    written_off: Money
    segments: tuple[ChargedSegment, ...]


@dataclass(frozen=True, slots=True)
class CreditBack:
    """What a lost node or a card fault gave back."""

    allocation_id: AllocationId
    job_id: JobId
    lost_seconds: int
    amount: Money
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ChargeFilter:
    """Which charges of a team. ``ended`` is (after, until]: a charge belongs to the span its end lies in.

    ``None``: not restricted by this.
    """

    team_id: TeamId
    job_ids: tuple[JobId, ...] | None = None
    label: str | None = None
    ended: tuple[datetime, datetime] | None = None


def list_charges(connection: Connection, wanted: ChargeFilter) -> tuple[StoredCharge, ...]:
    """By start, then job."""
    conditions = [charges.c.team_id == wanted.team_id]
    if wanted.label is not None:
        conditions.append(charges.c.cost_label == wanted.label)
    if wanted.ended is not None:
        conditions.append(charges.c.end_at > wanted.ended[0])
        conditions.append(charges.c.end_at <= wanted.ended[1])
    if wanted.job_ids is None:
        return _read(connection, conditions)
    found = [
        charge
        for some in in_chunks(wanted.job_ids)
        for charge in _read(connection, [*conditions, charges.c.job_id.in_(some)])
    ]
    return tuple(sorted(found, key=lambda charge: (charge.start, charge.job_id)))


def charges_of_allocations(
    connection: Connection, allocation_ids: Collection[AllocationId]
) -> tuple[StoredCharge, ...]:
    """Every charge of these allocations, by start."""
    found = [
        charge
        for some in in_chunks(allocation_ids)
        for charge in _read(connection, [charges.c.allocation_id.in_(some)])
    ]
    return tuple(sorted(found, key=lambda charge: (charge.start, charge.job_id)))


def get_charge(connection: Connection, charge_id: str) -> StoredCharge | None:
    return next(iter(_read(connection, [charges.c.id == charge_id])), None)


def list_credit_backs(connection: Connection, wanted: ChargeFilter) -> tuple[CreditBack, ...]:
    """What came back to a team, by time; a ``label`` is not looked at."""
    own = None if wanted.job_ids is None else frozenset(wanted.job_ids)
    query = (
        select(credit_backs, allocations.c.job_id)
        .join(allocations, allocations.c.id == credit_backs.c.allocation_id)
        .where(credit_backs.c.team_id == wanted.team_id)
        .order_by(credit_backs.c.created_at)
    )
    if wanted.ended is not None:
        query = query.where(
            credit_backs.c.created_at > wanted.ended[0], credit_backs.c.created_at <= wanted.ended[1]
        )
    return tuple(
        CreditBack(row.allocation_id, row.job_id, row.lost_seconds, row.amount_micro, row.created_at)
        for row in connection.execute(query)
        if own is None or row.job_id in own
    )


def _read(connection: Connection, conditions: list[ColumnElement[bool]]) -> tuple[StoredCharge, ...]:
    rows = connection.execute(
        select(
            charges,
            jobs.c.number,
            jobs.c.array_index,
            jobs.c.name,
            jobs.c.instance_id,
            allocations.c.attempt,
            allocations.c.tariff,
            allocations.c.card_model,
            allocations.c.fabric,
        )
        .join(jobs, jobs.c.id == charges.c.job_id)
        .join(allocations, allocations.c.id == charges.c.allocation_id)
        .where(*conditions)
        .order_by(charges.c.start_at, charges.c.job_id)
    ).all()
    segments = _segments(connection, conditions)
    return tuple(
        StoredCharge(
            id=row.id,
            team_id=row.team_id,
            job_id=row.job_id,
            job_number=format_job_number(row.number, row.array_index),
            instance_name=None if row.instance_id is None else row.name,
            allocation_id=row.allocation_id,
            account_id=row.account_id,
            attempt=row.attempt,
            tariff=row.tariff,
            card_model=row.card_model,
            fabric=row.fabric,
            cost_label=row.cost_label,
            hour=row.hour,
            start=row.start_at,
            end=row.end_at,
            total=row.total_micro,
            coupon=row.coupon_micro,
            credit=row.credit_micro,
            cash=row.cash_micro,
            written_off=row.written_off_micro,
            segments=tuple(segments[row.id]),
        )
        for row in rows
    )


def _segments(
    connection: Connection, conditions: list[ColumnElement[bool]]
) -> dict[str, list[ChargedSegment]]:
    found: dict[str, list[ChargedSegment]] = defaultdict(list)
    query = (
        select(charge_segments)
        .join(charges, charges.c.id == charge_segments.c.charge_id)
        .where(*conditions)
        .order_by(charge_segments.c.charge_id, charge_segments.c.position)
    )
    for row in connection.execute(query):
        found[row.charge_id].append(
            ChargedSegment(
                row.start_at,
                row.end_at,
                row.cards,
                Fraction(row.rate),
                json.loads(row.factors),
                row.amount_micro,
                row.price_book_id,
            )
        )
    return found
