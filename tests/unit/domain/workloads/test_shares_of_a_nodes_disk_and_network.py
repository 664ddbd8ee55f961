"""A node's disk and network are divided so that nobody's part is taken by a neighbour."""

from __future__ import annotations

import pytest

from starverse.domain.workloads.shares import rate_of_workload


@pytest.mark.parametrize(
    ("limit", "node_rate", "places", "rate"),
    [
        (None, None, [(1, 8)], None),  # nothing was said: as much as there is
        (100, None, [(1, 8)], 100),
        (None, 900, [(1, 8)], 100),
        (None, 900, [(8, 8)], 800),  # the rest is for workloads without cards
        (None, 900, [(0, 8)], 100),
        (None, 900, [(0, 0)], 450),
        (None, 900, [(1, 1)], 450),
        (50, 900, [(8, 8)], 50),  # the smaller one counts
        (None, 900, [(4, 8), (1, 8)], 100),  # a gang has everywhere what its smallest member has
        (None, 900, [(4, 2)], 720),  # cards that the node does not show any more
        (None, 900, [], None),  # a node that is gone: its launch fails anyway
        (None, 3, [(1, 8)], 1),  # never nothing
    ],
)
def test_a_workload_has_the_part_of_its_cards(
    limit: int | None, node_rate: int | None, places: list[tuple[int, int]], rate: int | None
) -> None:
    assert rate_of_workload(limit, node_rate, places) == rate


@pytest.mark.parametrize("cards", range(1, 17))
def test_the_cards_and_one_without_fit_into_what_the_node_has(cards: int) -> None:
    held = [1] * cards + [0]
    rates = [rate_of_workload(None, 1_000_003, [(own, cards)]) or 0 for own in held]
    assert 1_000_003 - len(held) <= sum(rates) <= 1_000_003
