"""What taking an allocation back costs: cards, lost work, bid."""

from __future__ import annotations

from fractions import Fraction

import pytest

from starverse.domain.scheduling.reclaim import Cost, cost_of, lost_seconds
from starverse.domain.scheduling.snapshot import RunningAllocation
from starverse.testing.snapshots import NOW, a_share, an_allocation, at

PAIR = a_share("n1", 0, 1)


@pytest.mark.parametrize(
    ("allocation", "cost"),
    [
        (an_allocation("x", PAIR, bid=Fraction(3), newest_verified_checkpoint_at=at(-30)), (2, 60, 6)),
        (an_allocation("x", PAIR, bid=Fraction(3), ready_at=at(-50)), (2, 100, 6)),
        (an_allocation("x", PAIR, bid=Fraction(1, 3), ready_at=None), (2, 0, Fraction(2, 3))),
        (an_allocation("x", PAIR, a_share("n2", 0), bid=Fraction(2), ready_at=NOW), (3, 0, 6)),
    ],
)
def test_cards_then_lost_card_seconds_then_bid(allocation: RunningAllocation, cost: Cost) -> None:
    assert cost_of(allocation, NOW) == cost


def test_no_bid_costs_more_than_any_bid() -> None:
    priced = an_allocation("x", PAIR, bid=Fraction(10**9), ready_at=None)
    unpriced = an_allocation("y", PAIR, bid=None, ready_at=None)
    assert cost_of(priced, NOW) < cost_of(unpriced, NOW)


def test_a_checkpoint_of_an_earlier_run_saves_nothing_of_this_one() -> None:
    allocation = an_allocation("x", PAIR, ready_at=at(-50), newest_verified_checkpoint_at=at(-500))
    assert lost_seconds(allocation, NOW) == 50
