"""The bill: charges of a team with their segments, beside the price of the same seconds on demand.

Amounts are exact; a statement is rounded to the fen once, and its rounding line is shown. A charge belongs
to the local month (of the price book's zone) in which its last second lies, so months are sums of days.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from starverse.app import jobs as job_cases
from starverse.app.bill_views import BookRef, ChargeTransfer, paid_in_words, show_transfer
from starverse.app.disks.bill import DiskChargeView, DiskExplanation, disk_charges, explain_disk_charge
from starverse.app.identity import Identity
from starverse.app.job_views import lost_seconds
from starverse.app.platform import Platform
from starverse.app.running_costs import uncharged
from starverse.db import allocations, charges, checkpoints, ledger, metering, price_books
from starverse.db.charges import ChargedSegment, ChargeFilter, StoredCharge
from starverse.db.jobs import get_many
from starverse.domain.errors import FieldFault, Invalid, NotFound
from starverse.domain.ids import JobId
from starverse.domain.money import Money, decimal_string, total
from starverse.domain.pricing.paying import statement_total
from starverse.domain.pricing.price_book import PriceBooks
from starverse.domain.pricing.rating import (
    MemberChange,
    RunningTotal,
    Subject,
    SubjectKind,
    Terms,
    Usage,
    charge_usages,
)
from starverse.domain.tariff import Tariff
from starverse.domain.timespan import Timespan, format_instant

_MONTH = re.compile(r"(\d{4})-(0[1-9]|1[0-2])")


@dataclass(frozen=True, slots=True)
class SegmentView:
    """Part of a charge at one rate; ``on_demand`` is what the same seconds cost on demand."""

    start: datetime
    end: datetime
    cards: int
    tariff: str
    rate_micro_per_card_hour: str
    factors: Mapping[str, Any]
    amount: Money
    on_demand: Money


@dataclass(frozen=True, slots=True)
class ChargeView:
    """A charge: what ran when, at which rates, and who paid."""

    id: str
    job: str
    job_id: str
    attempt: int
    start: datetime
    end: datetime
    tariff: Tariff
    card: str | None
    fabric: str
    cost_label: str | None
    total: Money
    coupon: Money
    credit: Money
    cash: Money
    written_off: Money
    on_demand: Money
    segments: tuple[SegmentView, ...]


@dataclass(frozen=True, slots=True)
class OpenEstimate:
    """What runs now and is not charged yet: from ``since`` to ``until`` (now)."""

    job: str
    attempt: int
    since: datetime
    until: datetime
    amount: Money


@dataclass(frozen=True, slots=True)
class BillView:
    """``rounded`` is ``total`` to the fen; ``rounding`` the difference; ``credit_back`` came back. ``disks``
    are on the bill of a month alone; they cost the same on demand."""

    team: str
    total: Money
    coupon: Money
    credit: Money
    cash: Money
    written_off: Money
    credit_back: Money
    rounding: Money
    rounded: Money
    lost_work_seconds: int
    on_demand_total: Money
    saved: Money
    charges: tuple[ChargeView, ...]
    disks: tuple[DiskChargeView, ...]
    open: tuple[OpenEstimate, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A charge with its arithmetic in words, the price books it used, and the transfers that paid it."""

    charge: ChargeView
    steps: tuple[str, ...]
    price_books: tuple[BookRef, ...]
    transfers: tuple[ChargeTransfer, ...]


@dataclass(frozen=True, slots=True)
class BillFilter:
    """``job`` is a job number, task or id; ``month`` is ``YYYY-MM``; ``label`` a cost label.

    With none of them, the bill is that of the present month.
    """

    job: str | None = None
    month: str | None = None
    label: str | None = None


def show_bill(platform: Platform, identity: Identity, wanted: BillFilter) -> BillView:
    """The bill of the caller's team."""
    with platform.database.read() as connection:
        books = metering.load_books(connection).books
        now = platform.clock.now()
        job_ids = None
        if wanted.job is not None:
            job_ids = tuple(JobId(job.id) for job in job_cases.find_jobs(connection, identity, wanted.job))
        ended = _span_of(wanted, now, books.at(now).timezone)
        chosen = ChargeFilter(identity.team_id, job_ids, wanted.label, ended)
        found = charges.list_charges(connection, chosen)
        shown = _views(connection, found, books)
        back = total([given.amount for given in _credit_backs(connection, chosen, found)])
        lost = _lost_work(connection, found)
        of_all = ended is not None and wanted.job is None and wanted.label is None
        stored = disk_charges(connection, identity.team_id, ended) if of_all and ended else ()
        running: tuple[OpenEstimate, ...] = ()
        if ended is None or ended[0] < now <= ended[1]:
            running = _open_estimates(connection, chosen, books, now)
    return _bill(identity.team_name, shown, stored, back, lost, running)


def _span_of(wanted: BillFilter, now: datetime, zone: str) -> tuple[datetime, datetime] | None:
    """(after, until] in which the charges end; ``None``: all of the job or label."""
    if wanted.month is not None:
        return month_span(wanted.month, zone)
    if wanted.job is not None or wanted.label is not None:
        return None
    return month_span(now.astimezone(ZoneInfo(zone)).strftime("%Y-%m"), zone)


def _bill(
    team: str,
    shown: tuple[ChargeView, ...],
    stored: tuple[DiskChargeView, ...],
    credit_back: Money,
    lost: int,
    running: tuple[OpenEstimate, ...],
) -> BillView:
    every: tuple[ChargeView | DiskChargeView, ...] = (*shown, *stored)
    amounts = [charge.total for charge in every]
    amount, (rounded, rounding) = total(amounts), statement_total(amounts)
    on_demand = total([charge.on_demand for charge in shown] + [charge.total for charge in stored])
    return BillView(
        team=team,
        total=amount,
        coupon=total([charge.coupon for charge in every]),
        credit=total([charge.credit for charge in every]),
        cash=total([charge.cash for charge in every]),
        written_off=total([charge.written_off for charge in every]),
        credit_back=credit_back,
        rounding=rounding,
        rounded=rounded,
        lost_work_seconds=lost,
        on_demand_total=on_demand,
        saved=on_demand - amount,
        charges=shown,
        disks=stored,
        open=running,
    )


def explain_charge(platform: Platform, identity: Identity, charge_id: str) -> Explanation | DiskExplanation:
    """Every figure behind one charge; raises :class:`NotFound` for another team's."""
    with platform.database.read() as connection:
        found = charges.get_charge(connection, charge_id)
        stored = explain_disk_charge(connection, identity.team_id, charge_id)
        if stored is not None:
            return stored
        if found is None or found.team_id != identity.team_id:
            raise NotFound(f"There is no charge {charge_id[:80]!r} in team {identity.team_name}.")
        books = metering.load_books(connection).books
        view = _views(connection, [found], books)[0]
        effective_from = {str(book.id): book.effective_from for book in price_books.versions(connection)}
        used = dict.fromkeys(segment.price_book_id for segment in found.segments)
        return Explanation(
            view,
            tuple(_steps(found, view)),
            tuple(BookRef(book_id, effective_from[book_id]) for book_id in used),
            _transfers(connection, found),
        )


def month_span(month: str, zone: str) -> tuple[datetime, datetime]:
    """The instants between which a local calendar month lies; raises :class:`Invalid` for no month."""
    found = _MONTH.fullmatch(month)
    year = int(found[1]) if found else 0
    if found is None or not 1970 <= year < 9999:
        raise Invalid(faults=[FieldFault("month", month[:40], "a month such as 2026-03")])
    number = int(found[2])
    start = datetime(year, number, 1, tzinfo=ZoneInfo(zone))
    after = datetime(year + number // 12, number % 12 + 1, 1, tzinfo=ZoneInfo(zone))
    return start, after


def _views(
    connection: Connection, found: Sequence[StoredCharge], books: PriceBooks
) -> tuple[ChargeView, ...]:
    """Charges with the price of the same seconds on demand: the growth of each allocation's own total."""
    every = charges.charges_of_allocations(connection, {charge.allocation_id for charge in found})
    members = {
        account_id: metering.member_changes(connection, account_id)
        for account_id in {charge.account_id for charge in found}
    }
    compared: dict[str, list[Money]] = {}
    by_allocation: dict[str, list[StoredCharge]] = defaultdict(list)
    for charge in every:
        by_allocation[charge.allocation_id].append(charge)
    for own in by_allocation.values():
        compared.update(_on_demand(own, members[own[0].account_id], books))
    return tuple(_view(charge, compared[charge.id]) for charge in found)


def _named(job_number: str, instance_name: str | None) -> str:
    """Whose charge it is: a job's by its number, an instance's by its name."""
    return job_number if instance_name is None else f"instance {instance_name}"


def _on_demand(
    own: Sequence[StoredCharge], members: tuple[MemberChange, ...], books: PriceBooks
) -> dict[str, list[Money]]:
    """Charge id -> the on-demand amount of each of its segments; ``own`` are all charges of an allocation."""
    running = RunningTotal()
    amounts: dict[str, list[Money]] = {}
    for charge in own:
        amounts[charge.id] = []
        for segment in charge.segments:
            if charge.card_model is None:
                amounts[charge.id].append(segment.amount)
                continue
            terms = Terms(Tariff.ON_DEMAND, charge.card_model, charge.fabric, members=members)
            usage = Usage(
                Subject(SubjectKind.ALLOCATION, charge.allocation_id),
                Timespan(segment.start, segment.end),
                segment.cards,
                terms,
            )
            priced = charge_usages([usage], books, running)
            running = priced.running
            amounts[charge.id].append(priced.total)
    return amounts


def _view(charge: StoredCharge, on_demand: Sequence[Money]) -> ChargeView:
    return ChargeView(
        id=charge.id,
        job=_named(charge.job_number, charge.instance_name),
        job_id=charge.job_id,
        attempt=charge.attempt,
        start=charge.start,
        end=charge.end,
        tariff=charge.tariff,
        card=charge.card_model,
        fabric=charge.fabric,
        cost_label=charge.cost_label,
        total=charge.total,
        coupon=charge.coupon,
        credit=charge.credit,
        cash=charge.cash,
        written_off=charge.written_off,
        on_demand=total(list(on_demand)),
        segments=tuple(
            SegmentView(
                start=segment.start,
                end=segment.end,
                cards=segment.cards,
                tariff=str(segment.factors.get("tariff_name", charge.tariff)),
                rate_micro_per_card_hour=decimal_string(segment.rate, places=24),
                factors={key: value for key, value in segment.factors.items() if value is not None},
                amount=segment.amount,
                on_demand=compared,
            )
            for segment, compared in zip(charge.segments, on_demand, strict=True)
        ),
    )


def _credit_backs(
    connection: Connection, chosen: ChargeFilter, found: Sequence[StoredCharge]
) -> Iterable[charges.CreditBack]:
    own = {charge.allocation_id for charge in found}
    for given in charges.list_credit_backs(connection, chosen):
        if chosen.label is None or given.allocation_id in own:
            yield given


def _lost_work(connection: Connection, found: Sequence[StoredCharge]) -> int:
    """Seconds run after the newest verified checkpoint at each kill of the allocations billed here."""
    own = {charge.allocation_id for charge in found}
    jobs = get_many(connection, {charge.job_id for charge in found})
    lines = {job.checkpoints_id for job in jobs.values()}
    published = checkpoints.newest_verified_before(connection, lines)
    runs = allocations.of_jobs(connection, list(jobs))
    return sum(
        lost_seconds(run, published.get((jobs[run.job_id].checkpoints_id, run.attempt)))
        for job_runs in runs.values()
        for run in job_runs
        if run.id in own and jobs[run.job_id].instance_id is None
    )


def _open_estimates(
    connection: Connection, chosen: ChargeFilter, books: PriceBooks, now: datetime
) -> tuple[OpenEstimate, ...]:
    running = [
        run
        for run in allocations.open_ones(connection)
        if run.team_id == chosen.team_id
        and run.ready_at is not None
        and run.card_model is not None
        and (chosen.job_ids is None or run.job_id in chosen.job_ids)
    ]
    jobs = get_many(connection, [run.job_id for run in running])
    stand = metering.load_meters(connection, [run.id for run in running])
    members = {
        account_id: metering.member_changes(connection, account_id)
        for account_id in {run.account_id for run in running}
    }
    estimates = []
    for run in running:
        job = jobs[run.job_id]
        open_ = uncharged(run, stand.get(run.id), members, books, now)
        if open_ is not None and chosen.label in (None, job.spec.cost_label):
            span = open_.span
            named = _named(job.display_number, job.spec.name if job.instance_id is not None else None)
            estimates.append(OpenEstimate(named, run.attempt, span.start, span.end, open_.amount))
    return tuple(estimates)


def _transfers(connection: Connection, charge: StoredCharge) -> tuple[ChargeTransfer, ...]:
    """The transfers of the hold that this charge settled."""
    held = {hold.hour: hold.id for hold in metering.holds_of(connection, charge.allocation_id)}
    prefix = f"{held.get(charge.hour, '')}:"
    return tuple(
        show_transfer(stored)
        for stored in ledger.transfers_of_subject(connection, charge.allocation_id)
        if stored.transfer.id.startswith(prefix)
    )


def _steps(charge: StoredCharge, view: ChargeView) -> Iterable[str]:
    """The arithmetic of a charge, one sentence a step."""
    what = f"job {charge.job_number}" if charge.instance_name is None else view.job
    yield (
        f"{what}, attempt {charge.attempt}: hour {charge.hour} of this run, "
        f"{format_instant(charge.start)} to {format_instant(charge.end)}"
    )
    for segment in charge.segments:
        yield _step(segment)
    yield paid_in_words(charge)
    if view.on_demand != charge.total and charge.tariff is not Tariff.ON_DEMAND:
        saved = view.on_demand - charge.total
        yield f"the same seconds on demand: {view.on_demand.decimal()}, so {saved.decimal()} less"


def _step(segment: ChargedSegment) -> str:
    factors = segment.factors
    seconds = Timespan(segment.start, segment.end).seconds
    product = [f"list {factors['list_price']}", f"{factors['tariff_name']} {_plain(factors['tariff'])}"]
    if factors.get("window_name"):
        product.append(f"{factors['window_name']} {_plain(factors['window'])}")
    if factors.get("member_name"):
        product.append(f"{factors['member_name']} {_plain(factors['member'])}")
    rate = decimal_string(segment.rate / 1_000_000, places=24)
    floor = factors.get("floor_share")
    raised = "" if floor is None else f", raised to the floor of {_plain(floor)} of list"
    exact = decimal_string(segment.rate * segment.cards * seconds / 3600 / 1_000_000, places=12)
    return (
        f"{format_instant(segment.start)} to {format_instant(segment.end)}: {' x '.join(product)}{raised} = "
        f"{rate} per card-hour; x {segment.cards} cards x {seconds} s / 3600 = {exact}; "
        f"the running total, rounded down, grows by {segment.amount.decimal()}"
    )


def _plain(text: str) -> str:
    """A stored fraction such as ``3/10`` as a decimal."""
    return decimal_string(Fraction(text), places=24)
