"""Closing usage: rate it, split who pays, post the hold, write the charge (pricing.md, Charge of a usage).

The total never depends on when or how often this runs: a charge is the growth of the allocation's exact
running total. All functions work in the caller's write transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from starverse.app.funding import ledger_account_of, sources_of, terms_of
from starverse.app.gifts import Gift, give_credit
from starverse.app.ports import Ids
from starverse.db import ledger, metering
from starverse.db.metering import ChargeRow, HoldRow, Meter, SegmentRow, StoredBooks
from starverse.domain.errors import InvariantBroken
from starverse.domain.ids import TeamId, TransferId
from starverse.domain.ledger.accounts import REVENUE, WRITE_OFF
from starverse.domain.ledger.transfers import Purpose, Transfer, move, settle_hold
from starverse.domain.money import ZERO, Money, total
from starverse.domain.pricing.clock import RunReport, charged_span, credited_span
from starverse.domain.pricing.open_hours import window_end
from starverse.domain.pricing.paying import (
    Mark,
    Payment,
    Piece,
    SourceKind,
    Sources,
    SubjectPaid,
    pay,
    pay_edges,
)
from starverse.domain.pricing.rating import (
    Factors,
    RunningTotal,
    Segment,
    Subject,
    SubjectKind,
    Usage,
    charge_usages,
)
from starverse.domain.timespan import Timespan, ceil_to_second
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.states import AllocationState


def charged_span_of(
    connection: Connection, allocation: Allocation, job: Job, now: datetime
) -> Timespan | None:
    """The seconds of an allocation that are charged: so far, or whole once it is over.

    Never one outside the window that the job may run in: what a KILL or a new price book leaves beyond it
    is the platform's.
    """
    elapsed = None
    lost = allocation.state is AllocationState.LOST
    if allocation.ready_at is not None and allocation.ended_at is not None and not lost:
        elapsed = allocation.ended_at - allocation.ready_at
    capped = allocation.notice_deadline if allocation.tariff.value in ("spot", "idle") else None
    return charged_span(
        RunReport(
            ready_at=allocation.ready_at,
            elapsed=elapsed,
            reclaim_deadline=capped,
            lost=lost,
            proof_of_life_at=allocation.ended_at if lost else None,
            closes_at=_closes_at(connection, allocation, job),
        ),
        now if allocation.ended_at is None else max(now, allocation.ended_at),
    )


def _closes_at(connection: Connection, allocation: Allocation, job: Job) -> datetime | None:
    """The end of the window that its first charged second lies in; that second where it lies in none."""
    if job.spec.window is None or allocation.ready_at is None:
        return None
    start = ceil_to_second(allocation.ready_at)
    return window_end(metering.load_books(connection).books, job.spec.window, start) or start


def close_full_hours(
    connection: Connection, allocation: Allocation, job: Job, now: datetime, ids: Ids
) -> int:
    """Charge every held hour that is over, for an allocation that goes on; how many were charged.

    An hour is over once its launcher was seen alive at its end: the clock alone does not prove that it ran
    so long (it may have ended while nobody was looking). The last hold stays open until the end, for the
    seconds beyond it; and so does one that reaches beyond the reclaim deadline, up to which spot is charged.
    """
    if allocation.ready_at is None or allocation.alive_at is None:
        return 0
    so_far = charged_span_of(connection, allocation, job, min(now, allocation.alive_at))
    if so_far is None:
        return 0
    closed, end = 0, so_far.start
    for hold in metering.holds_of(connection, allocation.id)[:-1]:
        start, end = end, end + timedelta(seconds=hold.seconds)
        if hold.state == "open" and end <= so_far.end:
            _close(connection, allocation, job, hold, Timespan(start, end), now, ids)
            closed += 1
    return closed


def settle(connection: Connection, allocation: Allocation, job: Job, now: datetime, ids: Ids) -> Money:
    """Charge the rest of an allocation that is over and give back what is left of its holds.

    Seconds beyond the last hold (reality ran longer than was funded) are part of its charge; what no source
    can pay goes to ``write_off``. Returns all that was charged for it.
    """
    span = charged_span_of(connection, allocation, job, now)
    holds = metering.holds_of(connection, allocation.id)
    start = None if span is None else span.start
    for position, hold in enumerate(holds):
        if span is None or start is None:
            if hold.state == "open":
                _void(connection, hold, now)
            continue
        end = start + timedelta(seconds=hold.seconds)
        if hold.state == "open":
            last = position == len(holds) - 1
            until = span.end if last else min(end, span.end)
            if until > start:
                _close(connection, allocation, job, hold, Timespan(start, until), now, ids)
            else:
                _void(connection, hold, now)
        start = end
    return metering.charged_of_allocation(connection, allocation.id)


def credit_back(
    connection: Connection,
    allocation: Allocation,
    job: Job,
    checkpoint_at: datetime | None,
    now: datetime,
    ids: Ids,
) -> Money:
    """Give the seconds since the newest verified checkpoint back as credit, once, after a fault of ours.

    What of them was written off nobody paid, so it does not come back.
    """
    span = charged_span_of(connection, allocation, job, now)
    lost = None if span is None else credited_span(span, checkpoint_at)
    if span is None or lost is None:
        return ZERO
    books = metering.load_books(connection)
    terms = terms_of(connection, allocation)
    subject = Subject(SubjectKind.ALLOCATION, allocation.id)
    cards = allocation.cards_priced
    kept = ZERO
    if lost.start > span.start:
        before = Usage(subject, Timespan(span.start, lost.start), cards, terms)
        kept = charge_usages([before], books.books).running.charged
    cost = charge_usages([Usage(subject, span, cards, terms)], books.books).running.charged - kept
    amount = cost - metering.written_off_since(connection, allocation.id, lost.start)
    if amount <= ZERO:
        return ZERO
    gift = Gift(TeamId(allocation.team_id), amount, "lost work", allocation.id, Purpose.GOODWILL)
    give_credit(connection, ids, gift, now)
    metering.insert_credit_back(
        connection, ids.uuid7(), allocation.team_id, allocation.id, lost.seconds, amount, now
    )
    return amount


def _close(
    connection: Connection,
    allocation: Allocation,
    job: Job,
    hold: HoldRow,
    span: Timespan,
    now: datetime,
    ids: Ids,
) -> None:
    books = metering.load_books(connection)
    stored = metering.load_meter(connection, allocation.id)
    meter = stored or Meter(span.start, RunningTotal(), {})
    if meter.metered_until != span.start:
        raise InvariantBroken(
            f"the meter of {allocation.id} stands at {meter.metered_until}, not at {span.start}",
            context={"hold": hold.id},
        )
    sources = _with_held(sources_of(ledger.team_wallet(connection, TeamId(allocation.team_id))), hold)
    segments, pieces, running = _rate(connection, allocation, span, sources, books, meter.running)
    share = books.books.at(span.start).coupon_share_max
    owed = _within(_payable(connection, job), pieces)
    payment = pay(owed, sources, share, read_paid(meter.paid))
    grown = total([piece.growth for piece in pieces])
    missing = grown - total([part.amount for part in payment.parts])
    _post(connection, list(_transfers(connection, allocation, hold, payment, missing)), now)
    if not metering.resolve_hold(connection, hold.id, "posted", now):
        raise InvariantBroken(f"hold {hold.id} was resolved before", context={"allocation": allocation.id})
    after = Meter(span.end, running, write_paid(payment.subject))
    if stored is None:
        metering.insert_meter(connection, allocation.id, after)
    else:
        metering.save_meter(connection, allocation.id, after)
    charge = ChargeRow(
        id=ids.uuid7(),
        team_id=allocation.team_id,
        job_id=allocation.job_id,
        allocation_id=allocation.id,
        account_id=allocation.account_id,
        cost_label=job.spec.cost_label,
        hour=hold.hour,
        start_at=span.start,
        end_at=span.end,
        total=grown,
        coupon=payment.amount_of(SourceKind.COUPON),
        credit=payment.amount_of(SourceKind.CREDIT),
        cash=payment.amount_of(SourceKind.CASH),
        written_off=missing,
        segments=tuple(_segment_row(segment, books) for segment in segments),
    )
    metering.insert_charge(connection, charge, now)


def _rate(
    connection: Connection,
    allocation: Allocation,
    span: Timespan,
    sources: Sources,
    books: StoredBooks,
    running: RunningTotal,
) -> tuple[list[Segment], list[Piece], RunningTotal]:
    """Segments and the pieces that are paid alike, over a span, on top of the running total."""
    terms = terms_of(connection, allocation)
    subject = Subject(SubjectKind.ALLOCATION, allocation.id)
    segments: list[Segment] = []
    pieces: list[Piece] = []
    for part in span.split_at(pay_edges(sources)):
        charged = charge_usages([Usage(subject, part, allocation.cards_priced, terms)], books.books, running)
        segments += charged.segments
        pieces.append(Piece(part.start, part.end, charged.total))
        running = charged.running
    return segments, pieces, running


def _payable(connection: Connection, job: Job) -> Money | None:
    """What may still be paid for a job; ``None``: whatever it costs.

    ``--cost-max`` is a promise: seconds up to a KILL, or a price that rose after the hold, are beyond it.
    """
    if job.spec.cost_max is None:
        return None
    return max(ZERO, job.spec.cost_max - metering.paid_for_job(connection, job.id))


def _within(limit: Money | None, pieces: list[Piece]) -> list[Piece]:
    """The pieces as far as ``limit`` goes, in their order."""
    if limit is None:
        return pieces
    kept = []
    for piece in pieces:
        growth = min(limit, piece.growth)
        kept.append(replace(piece, growth=growth))
        limit -= growth
    return kept


def _with_held(sources: Sources, hold: HoldRow) -> Sources:
    """What may pay the charge of a hold: what it keeps back, and what else is free."""
    held: dict[str, Money] = {}
    cash = ZERO
    for part in hold.parts:
        if part.ledger_account_id.startswith("cash:"):
            cash += part.amount
        else:
            held[part.ledger_account_id] = held.get(part.ledger_account_id, ZERO) + part.amount
    return Sources(
        tuple(replace(c, left=c.left + held.get(c.id, ZERO)) for c in sources.coupons),
        tuple(replace(c, left=c.left + held.get(c.id, ZERO)) for c in sources.credits),
        (sources.cash or ZERO) + cash,
    )


def _transfers(
    connection: Connection, allocation: Allocation, hold: HoldRow, payment: Payment, missing: Money
) -> Sequence[Transfer]:
    """Post each part of the hold for what its source really pays; what goes beyond is moved at once.

    ``missing`` is what nobody pays: it is written off.
    """
    owed = {ledger_account_of(part, allocation.team_id): part.amount for part in payment.parts if part.amount}
    pending = ledger.find_transfers(connection, [TransferId(part.transfer_id) for part in hold.parts])
    transfers: list[Transfer] = []
    for position, part in enumerate(hold.parts):
        transfer = pending[TransferId(part.transfer_id)].transfer
        take = min(owed.get(transfer.debit, ZERO), part.amount)
        owed[transfer.debit] = owed.get(transfer.debit, ZERO) - take
        transfers.append(settle_hold(TransferId(f"{hold.id}:post:{position}"), transfer, take))
    if missing:
        owed[WRITE_OFF] = missing
    for position, (source, amount) in enumerate(sorted(owed.items())):
        if amount:
            purpose = Purpose.WRITE_OFF if source == WRITE_OFF else Purpose.CHARGE
            transfer_id = TransferId(f"{hold.id}:more:{position}")
            transfers.append(move(transfer_id, source, REVENUE, amount, purpose, subject=allocation.id))
    return transfers


def _void(connection: Connection, hold: HoldRow, now: datetime) -> None:
    pending = ledger.find_transfers(connection, [TransferId(part.transfer_id) for part in hold.parts])
    transfers = [
        settle_hold(
            TransferId(f"{hold.id}:void:{position}"), pending[TransferId(part.transfer_id)].transfer, ZERO
        )
        for position, part in enumerate(hold.parts)
    ]
    _post(connection, transfers, now)
    metering.resolve_hold(connection, hold.id, "voided", now)


def _post(connection: Connection, transfers: list[Transfer], now: datetime) -> None:
    if not transfers:
        return
    ledger.post_decided(connection, transfers, now, "a settlement")


def _segment_row(segment: Segment, books: StoredBooks) -> SegmentRow:
    return SegmentRow(
        start_at=segment.span.start,
        end_at=segment.span.end,
        cards=segment.cards,
        rate=f"{segment.rate.numerator}/{segment.rate.denominator}",
        factors=json.dumps({"tariff_name": segment.tariff.value, **_factors(segment.factors)}),
        amount=segment.amount,
        price_book_id=books.id_at(segment.span.start),
    )


def _factors(factors: Factors) -> dict[str, object]:
    return {
        "list_price": factors.list_price.decimal(),
        "tariff": str(factors.tariff),
        "window": str(factors.window),
        "window_name": factors.window_name,
        "member": str(factors.member),
        "member_name": factors.member_name,
        "floor_share": None if factors.floor_share is None else str(factors.floor_share),
    }


def read_paid(raw: dict[str, Any]) -> SubjectPaid:
    if not raw:
        return SubjectPaid()
    return SubjectPaid(
        Money(raw["accrued"]),
        Money(raw["coupon_paid"]),
        {name: Mark(Money(mark[0]), Money(mark[1])) for name, mark in raw["marks"].items()},
    )


def write_paid(paid: SubjectPaid) -> dict[str, Any]:
    return {
        "accrued": paid.accrued.micro,
        "coupon_paid": paid.coupon_paid.micro,
        "marks": {name: [m.accrued.micro, m.coupon_paid.micro] for name, m in paid.marks.items()},
    }
