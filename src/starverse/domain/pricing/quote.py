"""A priced request: total, who would pay, why segment by segment, and what would cost less.

Normative: pricing.md, its last paragraph and Paying a charge. The same rating and the same ``pay`` as meters
and holds; nothing here has arithmetic of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from starverse.domain.errors import FieldFault, Invalid
from starverse.domain.money import ZERO, Money, decimal_string
from starverse.domain.pricing.packages import package_period
from starverse.domain.pricing.paying import (
    HoldPeriod,
    Piece,
    SourceKind,
    Sources,
    pay_edges,
    pay_in_order,
)
from starverse.domain.pricing.price_book import FABRICS, METERED, PACKAGES, PriceBook, PriceBooks
from starverse.domain.pricing.rating import (
    Factors,
    RunningTotal,
    Segment,
    Subject,
    SubjectKind,
    Terms,
    Usage,
    charge_usages,
    rate_steps,
)
from starverse.domain.tariff import Tariff
from starverse.domain.timespan import Timespan, format_instant, utc

DAYS_MAX = 3_660
CARDS_MAX = 1_000_000
_YEARS = (2000, 2199)
_SEARCH = timedelta(hours=24)
"""How far ahead a cheaper start is looked for: every window comes round once a day."""


@dataclass(frozen=True, slots=True)
class QuoteRequest:
    """What is to be priced. ``end`` may be ``None`` for a package: its own end.

    ``booked_at`` is when a reservation or package is bought (``None``: at its start). A package that ends
    before ``end`` goes on as ``on_demand``, or with ``renew`` as further packages.
    """

    card: str
    cards: int
    tariff: str
    start: datetime
    end: datetime | None
    fabric: str = "eth"
    booked_at: datetime | None = None
    member: str | None = None
    renew: bool = False


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way to the same card-hours, and what it costs."""

    tariff: Tariff
    start: datetime
    end: datetime
    cards: int
    total: Money


@dataclass(frozen=True, slots=True)
class Quote:
    """A priced request. ``cash`` is what is left to pay in cash, whether or not it is there."""

    currency: str
    segments: tuple[Segment, ...]
    total: Money
    coupon: Money
    credit: Money
    cash: Money
    missing: Money
    cheaper: tuple[Alternative, ...]

    def to_json(self) -> dict[str, object]:
        """The stable shape of ``starverse quote --json``."""
        return {
            "currency": self.currency,
            "total_micro": self.total.micro,
            "coupon_micro": self.coupon.micro,
            "credit_micro": self.credit.micro,
            "cash_micro": self.cash.micro,
            "segments": [segment_json(segment) for segment in self.segments],
            "cheaper": [alternative_json(alternative) for alternative in self.cheaper],
        }


def quote(request: QuoteRequest, books: PriceBooks, sources: Sources | None = None) -> Quote:
    """Price a request; raises ``Invalid`` naming every field that is wrong."""
    sources = sources or Sources()
    checked = _Checked.of(request, books)
    segments, periods = _price(checked, books, sources)
    total = Money(sum(segment.amount.micro for segment in segments))
    share_max = books.at(checked.start).coupon_share_max
    payments = [payment for _, payment in pay_in_order(periods, sources, share_max)]
    coupon = _sum(payment.amount_of(SourceKind.COUPON) for payment in payments)
    credit = _sum(payment.amount_of(SourceKind.CREDIT) for payment in payments)
    return Quote(
        currency=books.at(checked.start).currency,
        segments=segments,
        total=total,
        coupon=coupon,
        credit=credit,
        cash=total - coupon - credit,
        missing=_sum(payment.missing for payment in payments),
        cheaper=_cheaper(checked, books, total),
    )


def what_fits(request: QuoteRequest, books: PriceBooks, sources: Sources) -> tuple[Alternative, ...]:
    """What ``sources`` would pay in full where they do not pay this: for a refusal for money.

    Those of ``Quote.cheaper`` that it pays, cheapest first; where it pays none of them, the request with as
    many cards as it does pay. Idle cards are left out: they are to be claimed, not had.
    """
    checked = _Checked.of(request, books)
    total = _total(checked, books)
    fitting = tuple(
        alternative
        for alternative in _cheaper(checked, books, total)
        if alternative.tariff is not Tariff.IDLE and _is_payable(checked, alternative, books, sources)
    )
    if fitting:
        return fitting
    low, high = 0, checked.cards
    while high - low > 1:
        cards = (low + high) // 2
        fewer = replace(checked, cards=cards)
        if _is_payable(checked, _as_alternative(fewer, ZERO), books, sources):
            low = cards
        else:
            high = cards
    if low == 0:
        return ()
    fewer = replace(checked, cards=low)
    return (_as_alternative(fewer, _total(fewer, books)),)


def segment_json(segment: Segment) -> dict[str, object]:
    """A segment as API and command line show it."""
    return {
        "start": format_instant(segment.span.start),
        "end": format_instant(segment.span.end),
        "cards": segment.cards,
        "rate_micro_per_card_hour": decimal_string(segment.rate, places=24),
        "factors": factors_json(segment.factors),
        "amount_micro": segment.amount.micro,
    }


def factors_json(factors: Factors) -> dict[str, str]:
    """The factors of a rate as exact decimal strings; ``floor`` and ``hours`` only where they count."""
    shown = {
        "list_price": factors.list_price.decimal(),
        "tariff": decimal_string(factors.tariff, places=24),
        "window": decimal_string(factors.window, places=24),
        "member": decimal_string(factors.member, places=24),
    }
    if factors.floor_share is not None:
        shown["floor"] = decimal_string(factors.floor_share, places=24)
    if factors.hours is not None:
        shown["hours"] = str(factors.hours)
    return shown


def alternative_json(alternative: Alternative) -> dict[str, object]:
    """An alternative as API and command line show it."""
    return {
        "tariff": str(alternative.tariff),
        "start": format_instant(alternative.start),
        "end": format_instant(alternative.end),
        "cards": alternative.cards,
        "total_micro": alternative.total.micro,
    }


@dataclass(frozen=True, slots=True)
class _Checked:
    """A request whose fields are right."""

    card: str
    cards: int
    tariff: Tariff
    start: datetime
    end: datetime
    fabric: str
    booked_at: datetime | None
    member: str | None
    renew: bool

    @classmethod
    def of(cls, request: QuoteRequest, books: PriceBooks) -> _Checked:
        faults = list(_time_faults(request))
        if type(request.cards) is not int or not 1 <= request.cards <= CARDS_MAX:
            faults.append(FieldFault("cards", str(request.cards), f"a whole number from 1 to {CARDS_MAX}"))
        book: PriceBook | None = None
        try:
            book = books.at(_bought_at(request))
            books.at(request.start)
        except Invalid as error:
            faults.extend(error.faults)
        faults.extend(_book_faults(request, book or books.versions[0]))
        if faults:
            raise Invalid(faults=faults)
        tariff = Tariff(request.tariff)
        end = request.end or package_period(tariff, request.start, 0, books.at(request.start).timezone).end
        booked_at = utc(request.booked_at) if request.booked_at else None
        return cls(
            request.card,
            request.cards,
            tariff,
            utc(request.start),
            utc(end),
            request.fabric,
            booked_at,
            request.member,
            request.renew,
        )

    def terms(self, tariff: Tariff, booked_at: datetime | None = None) -> Terms:
        start = self.start if tariff is Tariff.RESERVED else None
        return Terms(
            tariff, self.card, self.fabric, member=self.member, booked_at=booked_at, booked_start=start
        )


def _time_faults(request: QuoteRequest) -> Iterator[FieldFault]:
    named = [("start", request.start), ("end", request.end), ("booked_at", request.booked_at)]
    for name, instant in named:
        if instant is not None and not _YEARS[0] <= instant.year <= _YEARS[1]:
            yield FieldFault(name, instant.isoformat(), f"a year from {_YEARS[0]} to {_YEARS[1]}")
        if instant is not None and instant.microsecond:
            yield FieldFault(name, instant.isoformat(), "a whole second")
    if request.end is None:
        if request.tariff not in PACKAGES:
            yield FieldFault(
                "end", "missing", "a time after the start (only packages have an end of their own)"
            )
    elif utc(request.end) <= utc(request.start):
        yield FieldFault("end", format_instant(request.end), f"after {format_instant(request.start)}")
    elif utc(request.end) - utc(request.start) > timedelta(days=DAYS_MAX):
        yield FieldFault("end", format_instant(request.end), f"at most {DAYS_MAX} days after the start")
    if request.booked_at is not None and utc(request.booked_at) > utc(request.start):
        expected = f"not after the start, {format_instant(request.start)}"
        yield FieldFault("booked_at", format_instant(request.booked_at), expected)


def _book_faults(request: QuoteRequest, book: PriceBook) -> Iterator[FieldFault]:
    if request.tariff not in book.tariffs:
        yield FieldFault("tariff", request.tariff, f"one of {', '.join(book.tariffs)}")
    if request.fabric not in FABRICS:
        yield FieldFault("fabric", request.fabric, f"one of {', '.join(FABRICS)}")
    else:
        try:
            book.list_price_of(request.card, request.fabric)
        except Invalid as error:
            yield from error.faults
    if request.member is not None and request.member not in book.members:
        yield FieldFault("member", request.member, f"one of {', '.join(book.members) or '(none)'}")


def _bought_at(request: QuoteRequest) -> datetime:
    keeps_version = request.tariff not in METERED
    return request.booked_at if keeps_version and request.booked_at is not None else request.start


def _usages(request: _Checked, books: PriceBooks) -> list[Usage]:
    """The usages a request comes to: one, or packages and what follows them."""
    span = Timespan(request.start, request.end)
    if request.tariff not in PACKAGES:
        kind = SubjectKind.RESERVATION if request.tariff is Tariff.RESERVED else SubjectKind.ALLOCATION
        return [
            Usage(Subject(kind, "1"), span, request.cards, request.terms(request.tariff, request.booked_at))
        ]
    zone = books.at(request.booked_at or request.start).timezone
    usages: list[Usage] = []
    covered = request.start
    while covered < request.end and (request.renew or not usages):
        period = package_period(request.tariff, request.start, len(usages), zone)
        bought = request.booked_at if not usages else None
        subject = Subject(SubjectKind.PACKAGE, str(len(usages) + 1))
        usages.append(Usage(subject, period, request.cards, request.terms(request.tariff, bought)))
        covered = period.end
    if covered < request.end:
        rest = Timespan(covered, request.end)
        subject = Subject(SubjectKind.ALLOCATION, "1")
        usages.append(Usage(subject, rest, request.cards, request.terms(Tariff.ON_DEMAND)))
    return usages


def _price(
    request: _Checked, books: PriceBooks, sources: Sources
) -> tuple[tuple[Segment, ...], list[HoldPeriod]]:
    """The segments of all subjects and, for paying, the growth of each running total between paying edges."""
    segments: list[Segment] = []
    periods: list[HoldPeriod] = []
    for usage in _usages(request, books):
        charges = charge_usages([usage], books)
        segments.extend(charges.segments)
        subject_id = f"{usage.subject.kind}/{usage.subject.id}"
        if usage.subject.kind is SubjectKind.PACKAGE:
            bought = usage.terms.bought_at(usage.span.start)
            periods.append(HoldPeriod(subject_id, bought, (Piece(bought, bought, charges.total),)))
            continue
        periods.append(HoldPeriod(subject_id, usage.span.end, _pieces(usage, books, sources)))
    return tuple(segments), periods


def _pieces(usage: Usage, books: PriceBooks, sources: Sources) -> tuple[Piece, ...]:
    """The growth of a usage's running total between the edges at which what may pay changes.

    Where coupons redeemed on the way share the usage, hour by hour, as its holds will be posted.
    """
    edges = pay_edges(sources)
    if sum(utc(coupon.redeemed_at) > usage.span.start for coupon in sources.coupons) > 1:
        hours = range(1, usage.span.seconds // 3600 + 1)
        edges += [usage.span.start + timedelta(hours=hour) for hour in hours]
    pieces: list[Piece] = []
    running = RunningTotal()
    for part in usage.span.split_at(edges):
        charges = charge_usages([replace(usage, span=part)], books, running)
        running = charges.running
        pieces.append(Piece(part.start, part.end, charges.total))
    return tuple(pieces)


def _total(request: _Checked, books: PriceBooks) -> Money:
    return _sum(charge_usages([usage], books).total for usage in _usages(request, books))


def _cheaper(request: _Checked, books: PriceBooks, total: Money) -> tuple[Alternative, ...]:
    """Tariffs over the same instants, and the cheapest start, that really cost less; cheapest first."""
    found: list[Alternative] = []
    if request.tariff is not Tariff.NO_GPU:
        for tariff in books.at(request.start).tariffs:
            bookable = tariff is not Tariff.RESERVED or request.booked_at is not None
            if tariff not in (request.tariff, Tariff.NO_GPU) and bookable:
                found.extend(_priced(replace(request, tariff=tariff), books))
    if request.tariff not in PACKAGES:
        for start in _other_starts(request, books):
            found.extend(
                _priced(replace(request, start=start, end=start + (request.end - request.start)), books)
            )
    less = [alternative for alternative in found if alternative.total < total]
    starts = [alternative for alternative in less if alternative.tariff is request.tariff]
    best = min(starts, key=lambda alternative: (alternative.total, alternative.start), default=None)
    kept = [alternative for alternative in less if alternative.tariff is not request.tariff]
    kept += [best] if best is not None else []
    return tuple(sorted(kept, key=lambda alternative: (alternative.total, alternative.start)))


def _priced(request: _Checked, books: PriceBooks) -> Iterator[Alternative]:
    """The request as an alternative; none where the price books do not sell it."""
    try:
        yield _as_alternative(request, _total(request, books))
    except Invalid:
        return


def _as_alternative(request: _Checked, total: Money) -> Alternative:
    return Alternative(request.tariff, request.start, request.end, request.cards, total)


def _other_starts(request: _Checked, books: PriceBooks) -> list[datetime]:
    """Later starts worth a look: where an end of the span meets an edge of the rate, within a day.

    The cost is piecewise linear in the start, so its lowest values lie there. Of a booking: the starts far
    enough ahead for another tier.
    """
    if request.tariff is Tariff.RESERVED:
        booked_at = request.booked_at or request.start
        tiers = books.at(booked_at).reserved
        starts = [booked_at + timedelta(hours=tier.lead_hours) for tier in tiers]
        return [start for start in starts if start > request.start]
    latest = request.start + _SEARCH
    length = request.end - request.start
    search = Timespan(request.start, latest + length)
    edges = [step.span.start for step in rate_steps(request.terms(request.tariff), search, books)[1:]]
    return sorted({at for edge in edges for at in (edge, edge - length) if request.start < at <= latest})


def _is_payable(request: _Checked, alternative: Alternative, books: PriceBooks, sources: Sources) -> bool:
    other = replace(
        request,
        tariff=alternative.tariff,
        start=alternative.start,
        end=alternative.end,
        cards=alternative.cards,
    )
    _, periods = _price(other, books, sources)
    payments = pay_in_order(periods, sources, books.at(other.start).coupon_share_max)
    return not any(payment.missing for _, payment in payments)


def _sum(amounts: Iterable[Money]) -> Money:
    return Money(sum(amount.micro for amount in amounts))
