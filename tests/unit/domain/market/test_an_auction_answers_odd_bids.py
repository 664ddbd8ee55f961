"""Worked auctions: odd bids, ties, cards that do not fit, and the spans that are sold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from starverse.domain.market.auction import Bid, clear, sale_span
from starverse.domain.pricing.windows import Window

NOON = datetime(2026, 3, 10, 4, tzinfo=UTC)
NIGHT = Window("night", 23 * 3600, 8 * 3600, Fraction(1, 2))
FLOOR = Fraction(1, 3)


def bid(name: str, price: str | int, cards: int = 1, *, partial: bool = True, after: int = 0) -> Bid:
    return Bid(name, Fraction(price), cards, partial, NOON + timedelta(seconds=after))


TABLE = {
    "cards for everybody cost the floor": ([bid("a", 5), bid("b", 2)], 2, FLOOR, {"a": 1, "b": 1}),
    "the first who is outbid sets the price": ([bid("a", 5), bid("b", 2)], 1, Fraction(2), {"a": 1}),
    "who gets a part sets the price": ([bid("a", 5, 1), bid("b", 2, 3)], 2, Fraction(2), {"a": 1, "b": 1}),
    "of equal bids the earlier wins": (
        [bid("a", 2, after=1), bid("b", 2)],
        1,
        Fraction(2),
        {"b": 1},
    ),
    "of equal bids of one moment the lower id wins": ([bid("b", 2), bid("a", 2)], 1, Fraction(2), {"a": 1}),
    "a bid of nothing loses": ([bid("a", 0)], 4, FLOOR, {}),
    "a bid of nothing wins without a floor": ([bid("a", 0)], 4, Fraction(0), {"a": 1}),
    "a bid of 10^9 pays what the others would": (
        [bid("a", 10**9), bid("b", 2)],
        1,
        Fraction(2),
        {"a": 1},
    ),
    "all or nothing is passed over": (
        [bid("a", 5, 2, partial=False), bid("b", 4, 2, partial=False), bid("c", 1)],
        3,
        FLOOR,
        {"a": 2, "c": 1},
    ),
    "what nobody fits into costs the floor": ([bid("a", 5, 4, partial=False)], 3, FLOOR, {}),
    "without cards everybody is outbid": ([bid("a", 5), bid("b", 9)], 0, Fraction(9), {}),
    "without bids the floor": ([], 8, FLOOR, {}),
}


@pytest.mark.parametrize("case", TABLE)
def test_worked_auctions(case: str) -> None:
    market, cards, price, accepted = TABLE[case]
    outcome = clear(market, cards, FLOOR if price != 0 else Fraction(0))
    assert (outcome.price, outcome.accepted) == (price, accepted)


@pytest.mark.parametrize(("price", "cards"), [(-1, 1), (1, 0), (1, -3)])
def test_what_is_no_bid_is_refused(price: int, cards: int) -> None:
    with pytest.raises(ValueError, match="bid a"):
        bid("a", price, cards)


@pytest.mark.parametrize(
    ("at", "start", "end"),
    [
        ("2026-03-10T10:20:30+08:00", "2026-03-10T10:00:00+08:00", "2026-03-10T11:00:00+08:00"),
        ("2026-03-10T22:59:59+08:00", "2026-03-10T22:00:00+08:00", "2026-03-10T23:00:00+08:00"),
        ("2026-03-10T23:00:00+08:00", "2026-03-10T23:00:00+08:00", "2026-03-11T08:00:00+08:00"),
        ("2026-03-11T07:59:59+08:00", "2026-03-10T23:00:00+08:00", "2026-03-11T08:00:00+08:00"),
    ],
)
def test_an_hour_is_sold_by_day_and_the_night_as_one(at: str, start: str, end: str) -> None:
    span = sale_span(datetime.fromisoformat(at), NIGHT, "Asia/Shanghai")
    assert (span.start, span.end) == (datetime.fromisoformat(start), datetime.fromisoformat(end))


@pytest.mark.parametrize(
    "day", [datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)]
)
def test_spans_tile_a_day_on_which_clocks_change(day: datetime) -> None:
    at, ends = day, day + timedelta(days=2)
    while at < ends:
        span = sale_span(at, NIGHT, "Europe/Berlin")
        assert span.start <= at < span.end
        assert sale_span(span.end - timedelta(seconds=1), NIGHT, "Europe/Berlin") == span
        at = span.end
