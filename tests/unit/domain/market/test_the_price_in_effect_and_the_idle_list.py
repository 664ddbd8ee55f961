"""The spot price over time, and what the evening's list of idle cards offers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from starverse.domain.market.idle_list import Freed, idle_offers, idle_price, published_at, tomorrow
from starverse.domain.market.posted import (
    PricedSpan,
    cleared_price,
    posted_price,
    price_pieces,
    rate_in_effect,
)
from starverse.domain.timespan import Timespan

NOON = datetime(2026, 3, 10, 4, tzinfo=UTC)
POSTED = Fraction("0.498")


def hours(start: int, end: int) -> Timespan:
    return Timespan(NOON + timedelta(hours=start), NOON + timedelta(hours=end))


def test_a_cleared_price_holds_for_its_span_and_the_posted_one_elsewhere() -> None:
    cleared = [PricedSpan(hours(2, 3), Fraction(1)), PricedSpan(hours(1, 2), Fraction(1))]
    pieces = price_pieces(hours(0, 5), cleared, POSTED)
    assert pieces == [(hours(0, 1), POSTED), (hours(1, 3), Fraction(1)), (hours(3, 5), POSTED)]


def test_two_prices_for_one_instant_are_refused() -> None:
    with pytest.raises(ValueError, match="must not overlap"):
        price_pieces(hours(0, 5), [PricedSpan(hours(1, 3), POSTED), PricedSpan(hours(2, 4), POSTED)], POSTED)


@pytest.mark.parametrize(("clearing", "price"), [("0", "0.332"), ("0.5", "0.5"), ("1000000000", "1.66")])
def test_a_cleared_price_lies_between_floor_and_list(clearing: str, price: str) -> None:
    assert cleared_price(Fraction(clearing), Fraction("1.66"), Fraction("0.2")) == Fraction(price)


def test_posted_price_and_members() -> None:
    assert posted_price(Fraction("1.66"), Fraction("0.3"), Fraction("0.2")) == POSTED
    member = rate_in_effect(POSTED, Fraction("1.66"), Fraction("0.9"), Fraction("0.2"))
    assert member == Fraction("0.4482")
    assert rate_in_effect(Fraction("0.332"), Fraction("1.66"), Fraction("0.9"), Fraction("0.2")) == Fraction(
        "0.332"
    )


@pytest.mark.parametrize(
    ("now", "published"),
    [
        ("2026-03-10T20:00:00+08:00", "2026-03-10T20:00:00+08:00"),
        ("2026-03-10T19:59:59+08:00", "2026-03-09T20:00:00+08:00"),
        ("2026-03-11T00:30:00+08:00", "2026-03-10T20:00:00+08:00"),
    ],
)
def test_the_list_in_effect_is_that_of_the_latest_evening(now: str, published: str) -> None:
    found = published_at(datetime.fromisoformat(now), "Asia/Shanghai")
    assert found == datetime.fromisoformat(published)


def test_only_cards_given_back_and_still_free_are_offered() -> None:
    day = tomorrow(NOON, "Asia/Shanghai")
    assert day.start == datetime.fromisoformat("2026-03-11T00:00:00+08:00")
    morning = Timespan(day.start, day.start + timedelta(hours=12))
    rest = Timespan(morning.end, day.end)
    freed = [
        Freed("rtx4090/eth", 4, Timespan(NOON, rest.end), "booking cancelled"),
        Freed("rtx4090/eth", 8, Timespan(NOON, morning.end), "package ended"),
        Freed("a100-80g/ib", 8, day, "booking cancelled"),
    ]
    free = {"rtx4090/eth": [(Timespan(NOON, day.end + timedelta(days=3)), 10)], "a100-80g/ib": [(day, 0)]}
    price = idle_price(POSTED, Fraction("0.9"))
    offers = idle_offers(freed, free, day, {"rtx4090/eth": price, "a100-80g/ib": price})
    assert [(each.cards, each.span, each.price) for each in offers] == [
        (10, morning, Fraction("0.4482")),
        (4, rest, Fraction("0.4482")),
    ]
    assert offers[0].reasons == ("booking cancelled", "package ended")
