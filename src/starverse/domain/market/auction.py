"""The sealed-bid auction of a pool's spot cards: one price for all who win, for one span of sale.

Bids stand in the order of (price, highest first; time placed; id). Cards go to them in that order; a bid that
is all or nothing and does not fit into what is left is passed over, a partial one takes what is left. The
price is the highest that somebody who got less than they asked for would still have paid, as long as it is
not above what a winner bid, and never below the floor. So where cards are enough for everybody they cost
the floor.

What holds (tests/property/market): nobody pays more than their bid; what the operator receives is exactly
what the winners pay; raising a bid never loses it cards; where all bids are partial the price never falls
when a bid rises, the cards go where they are worth most (the optimum of the linear programme), and a bid in
several parts of the same price and time gets what it would get whole, at the same price. Bids that are all or
nothing give those last three up: whoever finds the best packing of them solves a knapsack, and would have to
take cards from a higher bid. What stays open in every auction of one price: asking for fewer cards than one
could use, in the hope of a lower price.

A span is cleared once, from the bids that stood at its close. A bid withdrawn later still set the price.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

from starverse.domain.pricing.windows import Window, epoch_second, instant_of, window_pieces
from starverse.domain.timespan import Timespan, utc

HOUR_SECONDS = 3600
_LONGEST_WINDOW = timedelta(hours=26)
"""A wall-clock window is less than a day; clocks that go back add an hour."""


@dataclass(frozen=True, slots=True)
class Bid:
    """A sealed bid: at most ``price`` (money per card-hour, not negative) for each of ``cards`` (>= 1).

    ``partial``: fewer cards are welcome too; else all of them or none. ``placed_at`` and then ``id`` decide
    between equal prices. Raises ``ValueError`` for what is no bid at all; a bid of nothing is one, and loses.
    """

    id: str
    price: Fraction
    cards: int
    partial: bool
    placed_at: datetime

    def __post_init__(self) -> None:
        if self.cards < 1:
            raise ValueError(f"bid {self.id} is for {self.cards} cards; at least one is needed")
        if self.price < 0:
            raise ValueError(f"bid {self.id} is negative ({self.price}); nothing is the least")


@dataclass(frozen=True, slots=True)
class Clearing:
    """The outcome for one span: ``price`` per card-hour, and the cards of each winning bid by its id."""

    price: Fraction
    accepted: dict[str, int]

    @property
    def cards_sold(self) -> int:
        return sum(self.accepted.values())

    @property
    def revenue_per_hour(self) -> Fraction:
        """What the winners pay an hour, all together, and what the operator receives."""
        return self.price * self.cards_sold


def clear(bids: Sequence[Bid], cards: int, floor: Fraction) -> Clearing:
    """Who gets how many of ``cards``, and the one price that all of them pay.

    Independent of the order of ``bids``; their ids must differ. O(n log n) in the number of bids.
    """
    left = max(0, cards)
    accepted: dict[str, int] = {}
    unserved: list[Bid] = []
    lowest: Bid | None = None
    for bid in _in_order(bids):
        if bid.price < floor:
            break
        given = bid.cards if bid.cards <= left else left if bid.partial else 0
        if given:
            accepted[bid.id] = given
            left -= given
            lowest = bid
        if given < bid.cards:
            unserved.append(bid)
            if left == 0:
                break  # whoever comes now bids no more and gets nothing either
    if lowest is None:
        # Without a card to sell everybody is outbid; cards that are left because nobody fits cost the floor.
        return Clearing(unserved[0].price if unserved and cards < 1 else floor, accepted)
    bound = lowest.price
    return Clearing(next((bid.price for bid in unserved if bid.price <= bound), floor), accepted)


def welfare_per_hour(bids: Iterable[Bid], accepted: dict[str, int]) -> Fraction:
    """What the cards are worth to those who got them, by their own bids."""
    return sum((bid.price * accepted.get(bid.id, 0) for bid in bids), Fraction(0))


def sale_span(instant: datetime, night: Window | None, zone: str) -> Timespan:
    """The span that an auction sells at ``instant``: the whole night window, or the hour of the wall clock.

    Hours begin where clocks in ``zone`` show a full hour and are cut where the night begins or ends, so that
    every instant lies in exactly one span, on days of a clock change too.
    """
    at = utc(instant)
    second = epoch_second(at)
    windows = () if night is None else (night,)
    around = int(_LONGEST_WINDOW.total_seconds())
    pieces = window_pieces(windows, second - around, second + around, zone)
    start, end, holding = next(piece for piece in pieces if piece[0] <= second < piece[1])
    if holding is not None:
        return Timespan(instant_of(start), instant_of(end))
    into_hour = (second + _offset_seconds(second, zone)) % HOUR_SECONDS
    start, end = max(start, second - into_hour), min(end, second - into_hour + HOUR_SECONDS)
    return Timespan(instant_of(start), instant_of(end))


def _offset_seconds(second: int, zone: str) -> int:
    offset = instant_of(second).astimezone(ZoneInfo(zone)).utcoffset()
    assert offset is not None, "an aware time always has an offset"
    return int(offset.total_seconds())


def _in_order(bids: Sequence[Bid]) -> list[Bid]:
    """Highest price first, then earliest, then by id; prices as integers of one unit, which sort fast."""
    unit = math.lcm(*{bid.price.denominator for bid in bids}) if bids else 1
    keys = [
        (-bid.price.numerator * (unit // bid.price.denominator), bid.placed_at, bid.id, position)
        for position, bid in enumerate(bids)
    ]
    keys.sort()
    return [bids[key[3]] for key in keys]
