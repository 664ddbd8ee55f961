"""Usage -> segments -> charges, exact to the micro-yuan.

Normative: pricing.md, Rate of an instant and Charge of a usage. A usage is split at window, version,
membership and price edges; in a segment the rate is constant, ``exact = rate x cards x seconds / 3600``. For
one subject the running total is ``A = floor(sum of exact)`` and a segment's charge is the growth of ``A``;
so the total depends neither on when nor on how often nor in which order the meter ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from starverse.domain.errors import FieldFault, Invalid, InvariantBroken
from starverse.domain.money import Money
from starverse.domain.pricing.price_book import PACKAGES, PriceBook, PriceBooks
from starverse.domain.pricing.windows import Window, epoch_second, instant_of, window_pieces
from starverse.domain.tariff import Tariff
from starverse.domain.timespan import Timespan, format_instant, utc

HOUR_SECONDS = 3600

STEPS_KEPT = 64
"""A year has some thousand steps."""


class SubjectKind(StrEnum):
    """What can be charged for."""

    ALLOCATION = "allocation"
    RESERVATION = "reservation"
    PACKAGE = "package"
    DISK = "disk"


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """What accrues one running total."""

    kind: SubjectKind
    id: str


@dataclass(frozen=True, slots=True)
class MemberChange:
    """From ``since`` on, the account that started the workload holds membership ``member`` (or none)."""

    since: datetime
    member: str | None


@dataclass(frozen=True, slots=True)
class ClearedPrice:
    """From ``since`` on, the pool's auction clears at ``rate`` micro-yuan per card-hour."""

    since: datetime
    rate: Fraction


@dataclass(frozen=True, slots=True)
class Terms:
    """Everything that fixes the rate of one card at every instant, beside the price books.

    ``members`` is the membership history, ``member`` what held before its first change. ``booked_at`` is the
    purchase of a reservation or package (``None``: at its start). ``booked_start`` is where a booked window
    begins; every part of a reservation's usage has to say it, for the lead is counted to there. ``cleared``
    is empty where the pool posts its spot price; ``bid`` caps a cleared price. ``included`` marks what a
    reservation or package already pays for: a workload inside a reservation, a no-GPU start in a package.
    """

    tariff: Tariff
    model: str
    fabric: str = "eth"
    member: str | None = None
    members: tuple[MemberChange, ...] = ()
    booked_at: datetime | None = None
    booked_start: datetime | None = None
    cleared: tuple[ClearedPrice, ...] = ()
    bid: Fraction | None = None
    included: bool = False

    def __post_init__(self) -> None:
        if self.tariff is Tariff.RESERVED and self.booked_start is None:
            raise Invalid(faults=[FieldFault("booked_start", "missing", "the start of the booked window")])

    def bought_at(self, start: datetime) -> datetime:
        """The purchase of a reservation or package whose usage begins at ``start``."""
        return utc(self.booked_at or self.booked_start or start)

    def member_at(self, instant: datetime) -> str | None:
        """The membership that holds at an instant."""
        member = self.member
        for change in sorted(self.members, key=lambda change: change.since):
            if change.since <= instant:
                member = change.member
        return member

    def cleared_at(self, instant: datetime) -> Fraction | None:
        """The clearing price at an instant; ``None`` where the posted price applies."""
        rate = None
        for price in sorted(self.cleared, key=lambda price: price.since):
            if price.since <= instant:
                rate = price.rate
        return rate


@dataclass(frozen=True, slots=True)
class Usage:
    """A subject's use of ``cards`` cards over whole seconds on constant terms."""

    subject: Subject
    span: Timespan
    cards: int
    terms: Terms

    def __post_init__(self) -> None:
        faults = []
        if type(self.cards) is not int or self.cards < 1:
            faults.append(FieldFault("cards", str(self.cards), "a whole number, at least 1"))
        for field, instant in (("start", self.span.start), ("end", self.span.end)):
            if instant.microsecond:
                faults.append(FieldFault(field, instant.isoformat(), "a whole second"))
        if faults:
            raise Invalid(faults=faults)


@dataclass(frozen=True, slots=True)
class Factors:
    """Why a rate is what it is.

    ``floor_share`` is set where that share of list replaced the product; ``hours`` is set for a package.
    """

    list_price: Money
    tariff: Fraction
    window: Fraction = Fraction(1)
    window_name: str | None = None
    member: Fraction = Fraction(1)
    member_name: str | None = None
    floor_share: Fraction | None = None
    hours: int | None = None


@dataclass(frozen=True, slots=True)
class RateStep:
    """One rate (micro-yuan per card-hour), constant over ``span``."""

    span: Timespan
    rate: Fraction
    factors: Factors


@dataclass(frozen=True, slots=True)
class Segment:
    """Part of a usage at one rate. ``amount`` is the growth of the subject's running total over it."""

    tariff: Tariff
    span: Timespan
    cards: int
    rate: Fraction
    factors: Factors
    exact: Fraction
    amount: Money


@dataclass(frozen=True, slots=True)
class RunningTotal:
    """The exact sum a subject accrued, in micro-yuan, as two integers that serialise as text.

    Both outgrow 64 bits in unlucky books: store them as decimal strings.
    """

    numerator: int = 0
    denominator: int = 1

    @property
    def exact(self) -> Fraction:
        return Fraction(self.numerator, self.denominator)

    @property
    def charged(self) -> Money:
        """``A``: the exact sum rounded down, which is what has been charged."""
        return Money(self.numerator // self.denominator)

    def add(self, exact: Fraction) -> tuple[RunningTotal, Money]:
        """The total after ``exact`` more, and the charge: the growth of ``A``. Refuses to go backwards."""
        if exact < 0:
            raise InvariantBroken(context={"exact": str(exact)})
        after = self.exact + exact
        grown = RunningTotal(after.numerator, after.denominator)
        return grown, grown.charged - self.charged


@dataclass(frozen=True, slots=True)
class Charges:
    """The segments of one subject and its running total after them."""

    segments: tuple[Segment, ...]
    running: RunningTotal

    @property
    def total(self) -> Money:
        return Money(sum(segment.amount.micro for segment in self.segments))


def rate_at(terms: Terms, instant: datetime, books: PriceBooks) -> tuple[Fraction, Factors]:
    """The rate of one card at an instant (micro-yuan per card-hour) and why.

    For a package: list price times its factors, for each of the hours it is priced at.
    """
    step = rate_steps(terms, Timespan(instant, instant_of(epoch_second(instant) + 1)), books)[0]
    return step.rate, step.factors


@lru_cache(maxsize=STEPS_KEPT)
def rate_steps(terms: Terms, span: Timespan, books: PriceBooks) -> tuple[RateStep, ...]:
    """Tile ``span`` by the steps of the rate: window, version, membership and clearing-price edges.

    ``reserved`` and packages keep the version of their purchase. A package is one step, with the membership
    at its purchase. Linear in the days of the span. The last few answers are remembered: the quote of a job,
    the decision on it and its hold ask for the same seconds.
    """
    if terms.tariff in PACKAGES:
        bought = terms.bought_at(span.start)
        return (_package_step(terms, span, books.at(bought), bought),)
    keeps_version = terms.tariff is Tariff.RESERVED
    edges = [change.since for change in terms.members] + [price.since for price in terms.cleared]
    if not keeps_version:
        edges += books.edges(span.start, span.end)
    steps: list[RateStep] = []
    for part in span.split_at(edges):
        book = books.at(terms.bought_at(span.start) if keeps_version else part.start)
        steps.extend(_steps_of_part(terms, part, book))
    return tuple(steps)


def charge_usages(usages: Sequence[Usage], books: PriceBooks, before: RunningTotal | None = None) -> Charges:
    """Price the usages of one subject, in order of time, on top of what it accrued ``before``.

    Raises ``Invalid`` where usages are of several subjects or overlap. Packages are priced whole: one usage
    each.
    """
    running = before or RunningTotal()
    ordered = sorted(usages, key=lambda usage: usage.span)
    if len({usage.subject for usage in ordered}) > 1:
        raise Invalid("usages of several subjects cannot share a running total; charge each subject alone")
    for earlier, later in pairwise(ordered):
        if later.span.start < earlier.span.end:
            fault = FieldFault("start", format_instant(later.span.start), "not before the usage before ends")
            raise Invalid(faults=[fault])
    segments: list[Segment] = []
    for usage in ordered:
        for step in rate_steps(usage.terms, usage.span, books):
            cards = charged_cards(usage.terms, usage.cards, books.at(step.span.start))
            exact = exact_of(step, cards)
            running, amount = running.add(exact)
            segments.append(
                Segment(usage.terms.tariff, step.span, cards, step.rate, step.factors, exact, amount)
            )
    return Charges(tuple(segments), running)


def exact_of(step: RateStep, cards: int) -> Fraction:
    """``rate x cards x seconds / 3600``; of a package ``rate x cards x hours``, whatever its span."""
    if step.factors.hours is not None:
        return step.rate * cards * step.factors.hours
    return step.rate * cards * step.span.seconds / HOUR_SECONDS


def charged_cards(terms: Terms, cards: int, book: PriceBook) -> int:
    """The cards a charge counts: ``no_gpu`` counts one, whatever the instance has (pricing.md, no_gpu)."""
    replaced = book.metered[terms.tariff].cards if terms.tariff in book.metered else None
    return cards if replaced is None else replaced


def _steps_of_part(terms: Terms, part: Timespan, book: PriceBook) -> list[RateStep]:
    """Steps inside a part that has one book, one membership and one clearing price."""
    list_price = book.list_price_of(terms.model, terms.fabric)
    member = terms.member_at(part.start)
    cleared = terms.cleared_at(part.start) if terms.tariff in (Tariff.SPOT, Tariff.IDLE) else None
    windows: tuple[Window, ...] = ()
    if terms.tariff is Tariff.RESERVED:
        factor = _reserved_factor(terms, book)
    else:
        _require_tariff(terms.tariff, book)
        factor = book.factor_of(terms.tariff)
        windows = book.windows_of(terms.tariff) if cleared is None else ()
    if cleared is not None:
        factor = _cleared_factor(terms, cleared, list_price, book)
    plain = Factors(
        list_price, factor, member=book.member_factor(member), member_name=member, floor_share=None
    )
    pieces = window_pieces(windows, epoch_second(part.start), epoch_second(part.end), book.timezone)
    return [
        _step(terms, Timespan(instant_of(begins), instant_of(ends)), plain, window, book)
        for begins, ends, window in pieces
    ]


def _step(terms: Terms, span: Timespan, plain: Factors, window: Window | None, book: PriceBook) -> RateStep:
    """List price x tariff x window x member, not below the floor; nothing for what is already paid for."""
    factors = replace(plain, window=window.factor, window_name=window.name) if window else plain
    if terms.included:
        return RateStep(span, Fraction(0), replace(factors, tariff=Fraction(0)))
    list_micro = Fraction(factors.list_price.micro)
    rate = list_micro * factors.tariff * factors.window * factors.member
    floor = book.floor_share * list_micro
    if terms.tariff is not Tariff.NO_GPU and rate < floor:
        return RateStep(span, floor, replace(factors, floor_share=book.floor_share))
    return RateStep(span, rate, factors)


def _reserved_factor(terms: Terms, book: PriceBook) -> Fraction:
    _require_tariff(Tariff.RESERVED, book)
    start = terms.booked_start
    assert start is not None, "checked when the terms were made"
    lead_seconds = epoch_second(start) - epoch_second(terms.bought_at(start))
    return book.tier_for(lead_seconds).factor


def _cleared_factor(terms: Terms, cleared: Fraction, list_price: Money, book: PriceBook) -> Fraction:
    """A clearing price as a share of list: capped at list, never above the bid; idle takes its part of it."""
    rate = min(cleared, Fraction(list_price.micro))
    if terms.bid is not None:
        rate = min(rate, terms.bid)
    own = book.metered[terms.tariff].own_factor if terms.tariff is Tariff.IDLE else Fraction(1)
    return rate * own / list_price.micro


def _package_step(terms: Terms, span: Timespan, book: PriceBook, bought: datetime) -> RateStep:
    _require_tariff(terms.tariff, book)
    package = book.packages[terms.tariff]
    list_price = book.list_price_of(terms.model, terms.fabric)
    member = terms.member_at(bought)
    factor = book.member_factor(member)
    factors = Factors(list_price, package.factor, member=factor, member_name=member, hours=package.hours)
    return RateStep(span, list_price.micro * package.factor * factor, factors)


def _require_tariff(tariff: Tariff, book: PriceBook) -> None:
    if tariff not in book.tariffs:
        have = ", ".join(book.tariffs)
        raise Invalid(faults=[FieldFault("tariff", str(tariff), f"a tariff of the price book: {have}")])
