"""What the next hour of a workload costs, and whether a wallet and the workload's own limits allow it.

Normative: pricing.md, Holds. One rule for all who ask: a submit, the scheduler before it places, the hold
that is taken with the cards, and each later one. What one of them lets through, the next does not refuse,
unless the wallet changed in between.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from starverse.domain.errors import Invalid
from starverse.domain.money import ZERO, Money
from starverse.domain.pricing.holds import hourly_hold
from starverse.domain.pricing.open_hours import seconds_left, window_edges_of_all, window_end
from starverse.domain.pricing.paying import Part, Piece, Sources, pay
from starverse.domain.pricing.price_book import PriceBook, PriceBooks
from starverse.domain.pricing.rating import HOUR_SECONDS, Subject, SubjectKind, Terms, Usage, charge_usages
from starverse.domain.timespan import Timespan, ceil_to_second

WINDOW_SECONDS_MIN = 60
"""With less of its window left, a job is not started any more."""


class Unfunded(StrEnum):
    """Why no (further) second can be funded."""

    NO_MONEY = "no_money"
    COST_MAX = "cost_max"
    WINDOW_CLOSED = "window_closed"
    TIME_LIMIT = "time_limit"
    NO_PRICE = "no_price"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whose next hour is asked for.

    ``seconds_left`` of its time limit; ``started``: it runs already, so that its window may be used to the
    last second. ``cost_left``: of ``--cost-max``, what is neither charged nor held. ``taken_at``: when its
    cards would be taken; its window must hold there already, a fraction of a second before its first start.
    """

    terms: Terms
    cards: int
    seconds_left: int
    started: bool = False
    window: str | None = None
    cost_left: Money | None = None
    taken_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Affordable:
    """It can be had: so many seconds, for at most so much, and who would pay it."""

    seconds: int
    amount: Money
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class NotFunded:
    """It cannot. For ``no_money``: what it would need and what is there."""

    why: Unfunded
    needed: Money = ZERO
    available: Money = ZERO


def afford(
    wanted: Wanted, starts: Collection[datetime], sources: Sources, books: PriceBooks
) -> Affordable | NotFunded:
    """The next hour, or what is left, whichever of ``starts`` it begins at: the dearest of them counts."""
    try:
        return _afford(wanted, starts, sources, books)
    except Invalid:
        return NotFunded(Unfunded.NO_PRICE)


def _afford(
    wanted: Wanted, starts: Collection[datetime], sources: Sources, books: PriceBooks
) -> Affordable | NotFunded:
    seconds = min(HOUR_SECONDS, wanted.seconds_left)
    if seconds <= 0:
        return NotFunded(Unfunded.TIME_LIMIT)
    if wanted.window is not None:
        if wanted.taken_at is not None and window_end(books, wanted.window, wanted.taken_at) is None:
            return NotFunded(Unfunded.WINDOW_CLOSED)
        left = min(seconds_left(books, wanted.window, start) for start in starts)
        if left <= (0 if wanted.started else WINDOW_SECONDS_MIN):
            return NotFunded(Unfunded.WINDOW_CLOSED)
        seconds = min(seconds, left)
    if wanted.cost_left is not None:
        seconds = _seconds_for(wanted.cost_left, seconds, wanted, starts, books)
        if seconds <= 0:
            return NotFunded(Unfunded.COST_MAX)
    needed, start = max((_hold(wanted, at, seconds, books), at) for at in starts)
    piece = Piece(start, start + timedelta(seconds=seconds), needed)
    payment = pay((piece,), sources, books.at(start).coupon_share_max)
    if payment.missing:
        return NotFunded(Unfunded.NO_MONEY, needed, needed - payment.missing)
    return Affordable(seconds, needed, payment.parts)


def candidate_starts(now: datetime, within_seconds: int, books: PriceBooks) -> tuple[datetime, ...]:
    """Starts within so many seconds at which an hour may cost most: its cost is linear between them.

    The slope changes only where the start or the end of the hour crosses an edge of a window or a version.
    """
    first = ceil_to_second(now)
    last = first + timedelta(seconds=max(1, within_seconds))
    reach = Timespan(first, last + timedelta(seconds=HOUR_SECONDS))
    edges = window_edges_of_all(books, reach)
    shifted = [edge - timedelta(seconds=HOUR_SECONDS) for edge in edges]
    return tuple(sorted({first, last, *(e for e in (*edges, *shifted) if first < e < last)}))


def cost_of(
    terms: Terms, cards: int, start: datetime, books: PriceBooks, seconds: int = HOUR_SECONDS
) -> Money:
    """What a usage of its own is charged over ``seconds`` from ``start``; what a price is shown as."""
    begins = ceil_to_second(start)
    span = Timespan(begins, begins + timedelta(seconds=seconds))
    usage = Usage(Subject(SubjectKind.ALLOCATION, "quote"), span, cards, terms)
    return charge_usages([usage], books).total


def dearest_pool(pools: Collection[tuple[str, str]], book: PriceBook) -> tuple[str, str] | None:
    """The (model, fabric) that costs most; pools without a price are not sold. ``None``: none has one."""
    priced = [pool for pool in sorted(pools) if book.sells(*pool)]
    return max(priced, key=lambda pool: book.list_price_of(*pool).micro, default=None)


def _seconds_for(
    amount: Money, most: int, wanted: Wanted, starts: Collection[datetime], books: PriceBooks
) -> int:
    """The most seconds, at most ``most``, that cost no more than ``amount`` from any of the starts."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if all(_hold(wanted, start, middle, books) <= amount for start in starts):
            low = middle
        else:
            high = middle - 1
    return low


def _hold(wanted: Wanted, start: datetime, seconds: int, books: PriceBooks) -> Money:
    return hourly_hold(wanted.terms, wanted.cards, start, books, seconds)
