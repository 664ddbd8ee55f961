"""The list of idle cards: published in the evening, cards known to be free tomorrow, cheaper than spot."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

from starverse.domain.pricing.windows import instant_of, wall_to_second
from starverse.domain.timespan import Timespan, utc

PUBLISHED_AT = time(20)
"""Wall-clock time in the price book's zone."""


@dataclass(frozen=True, slots=True)
class Freed:
    """Cards of a pool that a booking or a package would have held over ``span`` and holds no more."""

    pool: str
    cards: int
    span: Timespan
    reason: str


@dataclass(frozen=True, slots=True)
class Offer:
    """``cards`` of ``pool`` that anybody may claim over ``span`` at ``price`` per card-hour."""

    pool: str
    cards: int
    span: Timespan
    price: Fraction
    reasons: tuple[str, ...]


def idle_price(spot_price: Fraction, factor: Fraction) -> Fraction:
    """The idle tariff: so much of the spot price (0.9 in the shipped price book)."""
    return spot_price * factor


def published_at(now: datetime, zone: str) -> datetime:
    """When the list in effect at ``now`` was published: the latest 20:00 of the wall clock not after it."""
    local = utc(now).astimezone(ZoneInfo(zone))
    for back in range(3):
        day = local.date() - timedelta(days=back)
        instant = instant_of(wall_to_second(zone, (day.year, day.month, day.day), PUBLISHED_AT))
        if instant <= now:
            return instant
    raise AssertionError("one of the last three evenings is past")


def tomorrow(published: datetime, zone: str) -> Timespan:
    """The day after that of ``published``, from midnight to midnight of the wall clock."""
    day = utc(published).astimezone(ZoneInfo(zone)).date() + timedelta(days=1)
    after = day + timedelta(days=1)
    start, end = (wall_to_second(zone, (d.year, d.month, d.day), time(0)) for d in (day, after))
    return Timespan(instant_of(start), instant_of(end))


def idle_offers(
    freed: Iterable[Freed],
    still_free: Mapping[str, Sequence[tuple[Timespan, int]]],
    day: Timespan,
    prices: Mapping[str, Fraction],
) -> list[Offer]:
    """What to publish for ``day``: in each pool, the cards given back, as far as nobody has taken them since.

    ``still_free``: how many cards of the pool no booking holds, span by span without overlaps.
    ``prices``: the idle price of each pool; one without a price is not offered. Ordered by pool and start.
    """
    offers: list[Offer] = []
    by_pool: dict[str, list[Freed]] = {}
    for each in freed:
        by_pool.setdefault(each.pool, []).append(each)
    for pool in sorted(by_pool.keys() & prices.keys()):
        for span, free in sorted(still_free.get(pool, ())):
            common = span.intersection(day)
            if common is None:
                continue
            for piece in _cut(common, by_pool[pool]):
                given = [each for each in by_pool[pool] if each.span.contains(piece.start)]
                cards = min(free, sum(each.cards for each in given))
                if cards > 0:
                    reasons = tuple(sorted({each.reason for each in given}))
                    offers.append(Offer(pool, cards, piece, prices[pool], reasons))
    return offers


def _cut(span: Timespan, freed: Sequence[Freed]) -> list[Timespan]:
    """``span`` cut where one of ``freed`` begins or ends."""
    edges = {span.start, span.end}
    edges.update(e for each in freed for e in (each.span.start, each.span.end) if span.contains(e))
    ordered = sorted(edges)
    return [Timespan(a, b) for a, b in itertools.pairwise(ordered)]
