"""What an auction promises, on small random markets, beside every possible way to deal the cards."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from starverse.domain.market.auction import Bid, clear, welfare_per_hour

NOON = datetime(2026, 3, 10, 4, tzinfo=UTC)
SMALL = settings(max_examples=60, deadline=None)


@st.composite
def bids(draw: st.DrawFn, *, only_partial: bool = False) -> list[Bid]:
    count = draw(st.integers(0, 5))
    return [
        Bid(
            f"bid-{number}",
            Fraction(draw(st.sampled_from([0, 1, 2, 3, 5, 10**9])), draw(st.sampled_from([1, 3]))),
            draw(st.integers(1, 4)),
            only_partial or draw(st.booleans()),
            NOON + timedelta(seconds=draw(st.integers(0, 2))),
        )
        for number in range(count)
    ]


cards_to_sell = st.integers(0, 7)
floors = st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(2)])


@SMALL
@given(bids(), cards_to_sell, floors)
def test_budget_balances_and_nobody_pays_more_than_they_bid(
    market: list[Bid], cards: int, floor: Fraction
) -> None:
    outcome = clear(market, cards, floor)
    by_id = {bid.id: bid for bid in market}
    assert outcome.cards_sold <= cards
    assert outcome.price >= floor
    for bid_id, given_cards in outcome.accepted.items():
        bid = by_id[bid_id]
        assert outcome.price <= bid.price
        assert given_cards == bid.cards or (bid.partial and 0 < given_cards < bid.cards)
    paid = sum((outcome.price * n for n in outcome.accepted.values()), Fraction(0))
    assert paid == outcome.revenue_per_hour <= welfare_per_hour(market, outcome.accepted)
    assert clear(market[::-1], cards, floor) == outcome


@SMALL
@given(bids(), cards_to_sell, floors, st.data())
def test_raising_a_bid_never_loses_it_cards(
    market: list[Bid], cards: int, floor: Fraction, data: st.DataObject
) -> None:
    if not market:
        return
    position = data.draw(st.integers(0, len(market) - 1))
    raised = replace(market[position], price=market[position].price + data.draw(st.integers(1, 4)))
    before = clear(market, cards, floor)
    after = clear([*market[:position], raised, *market[position + 1 :]], cards, floor)
    assert after.accepted.get(raised.id, 0) >= before.accepted.get(raised.id, 0)
    if all(bid.partial for bid in market):
        assert after.price >= before.price


@SMALL
@given(bids(only_partial=True), cards_to_sell, floors)
def test_cards_go_where_they_are_worth_most(market: list[Bid], cards: int, floor: Fraction) -> None:
    outcome = clear(market, cards, floor)
    assert welfare_per_hour(market, outcome.accepted) == best_welfare(market, cards, floor)
    for bid in market:
        if bid.price > outcome.price and cards:
            assert outcome.accepted.get(bid.id) == bid.cards, "nobody who would pay more is left out"


@SMALL
@given(bids(), cards_to_sell, floors)
def test_passing_over_what_does_not_fit_costs_less_than_one_bid(
    market: list[Bid], cards: int, floor: Fraction
) -> None:
    outcome = clear(market, cards, floor)
    relaxed = [replace(bid, partial=True) for bid in market]
    missed = best_welfare(relaxed, cards, floor) - welfare_per_hour(market, outcome.accepted)
    passed_over = [bid.price * min(bid.cards, cards) for bid in market if bid.id not in outcome.accepted]
    assert missed <= max(passed_over, default=Fraction(0))


@SMALL
@given(bids(only_partial=True), cards_to_sell, floors, st.data())
def test_a_bid_in_parts_gets_what_it_would_get_whole(
    market: list[Bid], cards: int, floor: Fraction, data: st.DataObject
) -> None:
    wide = [bid for bid in market if bid.cards > 1]
    if not wide:
        return
    whole = data.draw(st.sampled_from(wide))
    first = data.draw(st.integers(1, whole.cards - 1))
    parts = [
        replace(whole, id=f"{whole.id}.1", cards=first),
        replace(whole, id=f"{whole.id}.2", cards=whole.cards - first),
    ]
    before = clear(market, cards, floor)
    after = clear([bid for bid in market if bid != whole] + parts, cards, floor)
    assert after.price == before.price
    assert sum(after.accepted.get(part.id, 0) for part in parts) == before.accepted.get(whole.id, 0)


def best_welfare(market: Sequence[Bid], cards: int, floor: Fraction) -> Fraction:
    """The most that any dealing of whole cards is worth: the linear programme's optimum, by trying all."""
    worthy = [bid for bid in market if bid.price >= floor]
    best = Fraction(0)
    for dealt in itertools.product(*(range(bid.cards + 1) for bid in worthy)):
        if sum(dealt) <= cards:
            best = max(best, sum((bid.price * n for bid, n in zip(worthy, dealt, strict=True)), Fraction(0)))
    return best
