"""What a job will cost: its first hour and its whole time limit, from when it may start at the earliest.

Normative: pricing.md, Rate of an instant. A job of a window runs inside it only: its time limit is spread
over as many openings as it needs, each priced where it lies.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from starverse.domain.money import Money
from starverse.domain.pricing.first_hour import WINDOW_SECONDS_MIN
from starverse.domain.pricing.open_hours import open_spans
from starverse.domain.pricing.price_book import PriceBooks
from starverse.domain.pricing.rating import HOUR_SECONDS, Subject, SubjectKind, Terms, Usage, charge_usages
from starverse.domain.timespan import Timespan, ceil_to_second


@dataclass(frozen=True, slots=True)
class Wish:
    """A job as far as its price goes. ``begin``: not before; ``cost_max``: what it may still cost."""

    terms: Terms
    cards: int
    time_limit_seconds: int
    window: str | None = None
    begin: datetime | None = None
    cost_max: Money | None = None


@dataclass(frozen=True, slots=True)
class JobQuote:
    """``hour`` and ``whole`` (its time limit) count seconds that it may run, from ``starts_at`` on; neither
    is above ``--cost-max``."""

    starts_at: datetime
    hour: Money
    whole: Money


def quote_job(wish: Wish, now: datetime, books: PriceBooks) -> JobQuote | None:
    """``None``: its window never opens. Raises ``Invalid`` where its cards have no price."""
    first = ceil_to_second(now if wish.begin is None else max(now, wish.begin))
    seconds = max(HOUR_SECONDS, wish.time_limit_seconds)
    runs = [Timespan(first, first + timedelta(seconds=seconds))]
    if wish.window is not None:
        runs = _inside(books, wish.window, first, seconds)
    if not runs:
        return None
    hour = _cost(wish, _first(runs, HOUR_SECONDS), books)
    whole = _cost(wish, _first(runs, wish.time_limit_seconds), books)
    if wish.cost_max is not None:
        hour, whole = min(hour, wish.cost_max), min(whole, wish.cost_max)
    return JobQuote(runs[0].start, hour, whole)


def _inside(books: PriceBooks, window: str, first: datetime, seconds: int) -> list[Timespan]:
    """The first so many seconds inside a window, from when it is open long enough to start in."""
    runs: list[Timespan] = []
    for span in open_spans(books, window, first):
        if not runs and span.seconds <= WINDOW_SECONDS_MIN:
            continue
        runs.append(span)
        seconds -= span.seconds
        if seconds <= 0:
            break
    return runs


def _first(runs: list[Timespan], seconds: int) -> list[Timespan]:
    """Their first so many seconds."""
    kept = []
    for run in runs:
        if seconds <= 0:
            break
        kept.append(Timespan(run.start, min(run.end, run.start + timedelta(seconds=seconds))))
        seconds -= run.seconds
    return kept


def _cost(wish: Wish, runs: list[Timespan], books: PriceBooks) -> Money:
    subject = Subject(SubjectKind.ALLOCATION, "quote")
    usages = [Usage(subject, run, wish.cards, wish.terms) for run in runs]
    return charge_usages(usages, books).total
