"""Holds: the money of the next hour is kept back before it is run (pricing.md, Holds).

Hold 1 is taken with the cards, in one transaction. Hold k+1 is taken ten minutes before k ends, for an
hour or what is left. All functions work in the caller's write transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import Connection

from starverse.app.ports import Ids
from starverse.db import ledger, metering
from starverse.db.metering import HoldPart, HoldRow, StoredBooks
from starverse.domain.errors import InvariantBroken
from starverse.domain.ids import LedgerAccountId, TeamId, TransferId
from starverse.domain.ledger.accounts import REVENUE, cash_id
from starverse.domain.ledger.transfers import hold as hold_transfer
from starverse.domain.ledger.wallet import Wallet
from starverse.domain.money import ZERO, Money
from starverse.domain.pricing.holds import hourly_hold
from starverse.domain.pricing.paying import Coupon, Credit, Part, Piece, SourceKind, Sources, pay
from starverse.domain.pricing.price_book import PriceBooks
from starverse.domain.pricing.rating import Terms
from starverse.domain.pricing.windows import holds, window_edges
from starverse.domain.timespan import Timespan, ceil_to_second, floor_to_second
from starverse.domain.workloads.records import Allocation, Job

HOUR_SECONDS = 3600
EXTEND_BEFORE_SECONDS = 600
WINDOW_SECONDS_MIN = 60
"""With less of its window left, a job is not started any more."""


class Unfunded(StrEnum):
    """Why no (further) second can be funded."""

    NO_MONEY = "no_money"
    COST_MAX = "cost_max"
    WINDOW_CLOSED = "window_closed"
    TIME_LIMIT = "time_limit"


@dataclass(frozen=True, slots=True)
class Funded:
    """A hold was taken: its seconds from ready, and what it keeps back."""

    seconds: int
    amount: Money


@dataclass(frozen=True, slots=True)
class NotFunded:
    """Nothing was taken. For ``no_money``: what it would need and what is there."""

    why: Unfunded
    needed: Money = ZERO
    available: Money = ZERO


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
    starts = _candidate_starts(connection, now, start_within_seconds)
    return _take(connection, allocation, job, 1, starts, now, ids)


def take_next(
    connection: Connection, allocation: Allocation, job: Job, now: datetime, ids: Ids
) -> Funded | NotFunded:
    """Hold the hour that follows the last hold; the allocation is running."""
    held = metering.holds_of(connection, allocation.id)
    if allocation.ready_at is None or not held:
        raise InvariantBroken(f"allocation {allocation.id} is extended before it is ready or without a hold")
    start = ceil_to_second(allocation.ready_at) + timedelta(seconds=sum(hold.seconds for hold in held))
    return _take(connection, allocation, job, held[-1].hour + 1, (start,), now, ids)


def _take(
    connection: Connection,
    allocation: Allocation,
    job: Job,
    hour: int,
    starts: tuple[datetime, ...],
    now: datetime,
    ids: Ids,
) -> Funded | NotFunded:
    books = metering.load_books(connection)
    before = sum(hold.seconds for hold in metering.holds_of(connection, allocation.id))
    wanted = min(HOUR_SECONDS, job.spec.time_limit_seconds - before)
    if wanted <= 0:
        return NotFunded(Unfunded.TIME_LIMIT)
    if job.spec.window is not None:
        left = _seconds_left_in_window(books, job.spec.window, starts)
        wanted = min(wanted, left)
        if left <= (WINDOW_SECONDS_MIN if not before else 0):
            return NotFunded(Unfunded.WINDOW_CLOSED)
    terms = terms_of(connection, allocation)
    if job.spec.cost_max is not None:
        spent = metering.charged_of_job(connection, job.id) + _held_for(connection, allocation.id)
        wanted = _seconds_for(job.spec.cost_max - spent, wanted, allocation, terms, starts, books.books)
        if wanted <= 0:
            return NotFunded(Unfunded.COST_MAX)
    sources = sources_of(ledger.team_wallet(connection, TeamId(allocation.team_id)))
    needed, start = max((_cost(allocation, terms, s, wanted, books.books), s) for s in starts)
    end = start + timedelta(seconds=wanted)
    payment = pay((Piece(start, end, needed),), sources, books.books.at(start).coupon_share_max)
    if payment.missing:
        return NotFunded(Unfunded.NO_MONEY, needed, needed - payment.missing)
    hold = _record(connection, allocation, hour, wanted, payment.parts, now, ids)
    return Funded(hold.seconds, hold.amount)


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
    outcome = ledger.post(connection, transfers, now) if transfers else None
    if outcome is not None and not outcome.ok:
        raise InvariantBroken(f"the hold of {allocation.id} was refused", context={"outcome": outcome})
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


def _candidate_starts(connection: Connection, now: datetime, within_seconds: int) -> tuple[datetime, ...]:
    """Starts at which the cost of an hour may be greatest: cost is linear between them.

    Its slope changes only where the start or the end of the hour crosses an edge of a window or a version.
    """
    books = metering.load_books(connection).books
    first = ceil_to_second(now)
    last = first + timedelta(seconds=max(1, within_seconds))
    reach = Timespan(first, last + timedelta(seconds=HOUR_SECONDS))
    edges = list(books.edges(reach.start, reach.end))
    book = books.at(now)
    for window in book.windows.values():
        edges += window_edges(window, reach, book.timezone)
    shifted = [edge - timedelta(seconds=HOUR_SECONDS) for edge in edges]
    return tuple(sorted({first, last, *(e for e in (*edges, *shifted) if first < e < last)}))


def _cost(allocation: Allocation, terms: Terms, start: datetime, seconds: int, books: PriceBooks) -> Money:
    return hourly_hold(terms, len(allocation.cards), start, books, seconds)


def _seconds_for(
    amount: Money,
    wanted: int,
    allocation: Allocation,
    terms: Terms,
    starts: tuple[datetime, ...],
    books: PriceBooks,
) -> int:
    """The most seconds, at most ``wanted``, that cost no more than ``amount`` from any of the starts."""
    low, high = 0, wanted
    while low < high:
        middle = (low + high + 1) // 2
        if all(_cost(allocation, terms, start, middle, books) <= amount for start in starts):
            low = middle
        else:
            high = middle - 1
    return low


def _seconds_left_in_window(books: StoredBooks, name: str, starts: tuple[datetime, ...]) -> int:
    """Whole seconds from the latest start to the end of the window; 0 when it does not hold there."""
    left = []
    for start in starts:
        end = window_end(books.books, name, start)
        left.append(0 if end is None else int((floor_to_second(end) - start).total_seconds()))
    return min(left)


def window_end(books: PriceBooks, name: str, instant: datetime) -> datetime | None:
    """When the window that holds at an instant ends; ``None`` when it does not hold there or is unknown."""
    book = books.at(instant)
    window = book.windows.get(name)
    if window is None or not holds(window, instant, book.timezone):
        return None
    edges = window_edges(window, Timespan(instant, instant + timedelta(hours=50)), book.timezone)
    return next((edge for edge in edges if edge > instant), None)


def _held_for(connection: Connection, allocation_id: str) -> Money:
    return Money(
        sum(
            hold.amount.micro for hold in metering.holds_of(connection, allocation_id) if hold.state == "open"
        )
    )
