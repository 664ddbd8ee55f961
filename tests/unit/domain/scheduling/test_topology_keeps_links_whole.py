"""Which cards of one node: linked first, then without breaking what others could use."""

from __future__ import annotations

import pytest

from starverse.domain.scheduling.snapshot import Link
from starverse.domain.scheduling.topology import link_graph, positions
from starverse.testing.snapshots import a_node, all_linked

PAIRS = all_linked([(0, 1), (2, 3), (4, 5), (6, 7)])
QUADS = all_linked([range(4), range(4, 8)])
NVLINK_PAIRS_ON_SWITCHES = (
    *all_linked([range(4), range(4, 8)], 50),
    Link(1, 2, 100),
    Link(5, 6, 100),
)


def chosen(
    links: tuple[Link, ...], free: tuple[int, ...], count: int, cards: int = 8
) -> tuple[int, ...] | None:
    choice = link_graph(a_node(cards=cards, links=links)).best(sum(1 << card for card in free), count)
    return None if choice is None else positions(choice.mask)


@pytest.mark.parametrize(
    ("case", "links", "free", "count", "expected"),
    [
        ("without links the lowest cards", (), (1, 3, 5, 7), 2, (1, 3)),
        ("a linked pair before two lower ones", PAIRS, (1, 3, 6, 7), 2, (6, 7)),
        ("one card from the pair that is broken already", PAIRS, (0, 1, 3), 1, (3,)),
        ("one card from the smaller group", QUADS, (0, 1, 2, 5, 6), 1, (5,)),
        ("two cards from the smaller group", QUADS, (0, 1, 2, 3, 6, 7), 2, (6, 7)),
        ("two cards over the best link", NVLINK_PAIRS_ON_SWITCHES, tuple(range(8)), 2, (1, 2)),
        ("four cards inside one switch", NVLINK_PAIRS_ON_SWITCHES, tuple(range(8)), 4, (0, 1, 2, 3)),
        ("eight cards are all of them", QUADS, tuple(range(8)), 8, tuple(range(8))),
        ("three when four are asked", QUADS, (0, 1, 2), 4, None),
        ("none", QUADS, (0, 1), 0, ()),
    ],
)
def test_the_choice(
    case: str, links: tuple[Link, ...], free: tuple[int, ...], count: int, expected: tuple[int, ...] | None
) -> None:
    assert chosen(links, free, count) == expected, case


def test_sixteen_cards_are_grown_into_a_linked_group_without_looking_at_all_choices() -> None:
    links = all_linked([range(0, 16, 2), range(1, 16, 2)])
    assert chosen(links, tuple(range(16)), 8, cards=16) == tuple(range(0, 16, 2))


def test_equal_layouts_share_one_graph() -> None:
    assert link_graph(a_node("n1", links=QUADS)) is link_graph(a_node("n2", links=QUADS[::-1]))


def test_a_link_to_a_card_that_is_not_there_is_passed_over() -> None:
    assert chosen((Link(0, 9, 100), *PAIRS), (0, 2, 3), 2) == (2, 3)
