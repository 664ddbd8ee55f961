"""Holds: the money of the next hour is kept back before it is run (pricing.md, Holds).

Hold 1 is taken with the cards, in one transaction. Hold k+1 is taken ten minutes before k ends, for an
hour or what is left. All functions work in the caller's write transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from starverse.app.ports import Ids
from starverse.db import ledger, metering
from starverse.db.metering import HoldPart, HoldRow
from starverse.domain.errors import InvariantBroken
from starverse.domain.ids import LedgerAccountId, TeamId, TransferId
from starverse.domain.ledger.accounts import REVENUE, cash_id
from starverse.domain.ledger.transfers import hold as hold_transfer
from starverse.domain.ledger.wallet import Wallet
from starverse.domain.money import ZERO, Money
from starverse.domain.pricing.first_hour import Affordable, NotFunded, Wanted, afford, candidate_starts
from starverse.domain.pricing.paying import Coupon, Credit, Part, SourceKind, Sources
from starverse.domain.pricing.rating import HOUR_SECONDS, Terms
from starverse.domain.timespan import ceil_to_second
from starverse.domain.workloads.records import Allocation, Job

EXTEND_BEFORE_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Funded:
    """A hold was taken: its seconds from ready, and what it keeps back."""

    seconds: int
    amount: Money


def terms_of(connection: Connection, allocation: Allocation) -> Terms:
    """The terms an allocation is rated on: its tariff and pool, and the starter's membership history."""
    if allocation.card_model is None:
        raise InvariantBroken(f"allocation {allocation.id} has no card model to be priced by")
    return Terms(
        tariff=allocation.tariff,
        model=allocation.card_model,
        fabric=allocation.fabric,
        members=metering.member_changes(connection, allocation.account_id),
    )


def sources_of(wallet: Wallet) -> Sources:
    """What is free in a wallet, as pricing wants it."""
    return Sources(
        tuple(
            Coupon(c.id, c.available, c.redeemed_at, c.expires_at)
            for c in wallet.coupons
            if c.redeemed_at is not None
        ),
        tuple(Credit(c.id, c.available, c.expires_at) for c in wallet.credits),
        wallet.cash.available,
    )


def take_first(
    connection: Connection, allocation: Allocation, job: Job, start_within_seconds: int, ids: Ids
) -> Funded | NotFunded:
    """Hold hour 1 of an allocation that is being placed now.

    When it will be ready is not known yet: the dearest start within ``start_within_seconds`` is held for.
    """
    now = allocation.placed_at
    starts = candidate_starts(now, start_within_seconds, metering.load_books(connection).books)
    found = _ask(connection, allocation, job, (), starts)
    return found if isinstance(found, NotFunded) else _take(connection, allocation, 1, found, now, ids)


def ask_next(connection: Connection, allocation: Allocation, job: Job) -> Affordable | NotFunded:
    """Whether the hour that follows the last hold can be held; nothing is taken, and nothing is written."""
    held = metering.holds_of(connection, allocation.id)
    if allocation.ready_at is None or not held:
        raise InvariantBroken(f"allocation {allocation.id} is extended before it is ready or without a hold")
    start = ceil_to_second(allocation.ready_at) + timedelta(seconds=sum(hold.seconds for hold in held))
    return _ask(connection, allocation, job, held, (start,))


def take_next(
    connection: Connection, allocation: Allocation, job: Job, now: datetime, ids: Ids
) -> Funded | NotFunded:
    """Hold the hour that follows the last hold; the allocation is running."""
    found = ask_next(connection, allocation, job)
    if isinstance(found, NotFunded):
        return found
    hour = metering.holds_of(connection, allocation.id)[-1].hour + 1
    return _take(connection, allocation, hour, found, now, ids)


def _ask(
    connection: Connection,
    allocation: Allocation,
    job: Job,
    held: Sequence[HoldRow],
    starts: tuple[datetime, ...],
) -> Affordable | NotFunded:
    before = sum(hold.seconds for hold in held)
    wanted = Wanted(
        terms_of(connection, allocation),
        allocation.cards_priced,
        job.spec.time_limit_seconds - before,
        started=before > 0,
        window=job.spec.window,
        cost_left=cost_left(connection, job, metering.open_amount(held)),
        taken_at=None if held else allocation.placed_at,
    )
    sources = sources_of(ledger.team_wallet(connection, TeamId(allocation.team_id)))
    return afford(wanted, starts, sources, metering.load_books(connection).books)


def _take(
    connection: Connection, allocation: Allocation, hour: int, found: Affordable, now: datetime, ids: Ids
) -> Funded:
    hold = _record(connection, allocation, hour, found.seconds, found.parts, now, ids)
    return Funded(hold.seconds, hold.amount)


def cost_left(connection: Connection, job: Job, held: Money) -> Money | None:
    """What of ``--cost-max`` is neither charged nor held; ``None`` without one."""
    if job.spec.cost_max is None:
        return None
    charged = metering.charged_of_job(connection, job.id) if job.attempts else ZERO
    return job.spec.cost_max - charged - held


def _record(
    connection: Connection,
    allocation: Allocation,
    hour: int,
    seconds: int,
    parts: tuple[Part, ...],
    now: datetime,
    ids: Ids,
) -> HoldRow:
    hold_id = ids.uuid7()
    transfers = [
        hold_transfer(
            TransferId(f"{hold_id}:{position}"),
            ledger_account_of(part, allocation.team_id),
            REVENUE,
            part.amount,
            subject=allocation.id,
        )
        for position, part in enumerate(parts)
    ]
    if transfers:
        ledger.post_decided(connection, transfers, now, f"the hold of {allocation.id}")
    hold = HoldRow(
        id=hold_id,
        team_id=allocation.team_id,
        allocation_id=allocation.id,
        hour=hour,
        seconds=seconds,
        amount=Money(sum(part.amount.micro for part in parts)),
        state="open",
        placed_at=now,
        parts=tuple(HoldPart(t.id, t.debit, t.amount) for t in transfers),
    )
    metering.insert_hold(connection, hold)
    return hold


def seconds_to_stop(held_seconds: int, time_limit_seconds: int, kill_after_seconds: int) -> int:
    """When a launcher that hears nothing more sends TERM for want of money, counted from ready.

    So early that even a KILL comes before the last held second is over, but never in the first three
    quarters. What is held for its whole time limit ends by that limit, not by its money.
    """
    if held_seconds >= time_limit_seconds:
        return held_seconds + HOUR_SECONDS
    return held_seconds - min(kill_after_seconds, held_seconds // 4)


def stops_by(allocation: Allocation, job: Job, kill_after_seconds: int) -> datetime | None:
    """:func:`seconds_to_stop` as an instant; ``None`` before it is ready."""
    if allocation.ready_at is None or allocation.funded_until is None:
        return None
    ready = ceil_to_second(allocation.ready_at)
    held = int((allocation.funded_until - ready).total_seconds())
    return ready + timedelta(seconds=seconds_to_stop(held, job.spec.time_limit_seconds, kill_after_seconds))


def ledger_account_of(part: Part, team_id: str) -> LedgerAccountId:
    """The ledger account that a part comes from: a coupon, a credit grant, or the team's cash."""
    return cash_id(TeamId(team_id)) if part.kind is SourceKind.CASH else LedgerAccountId(part.id)
