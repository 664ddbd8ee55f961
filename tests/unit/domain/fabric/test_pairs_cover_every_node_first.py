"""Pairs to measure: each node once before any twice, the oldest figures first."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starverse.domain.fabric.pairs import choose_pairs

OLD, NEW = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("story", "nodes", "last", "most", "expected"),
    [
        ("nobody to measure with", ["a"], {}, 4, ()),
        ("nothing asked for", ["a", "b"], {}, 0, ()),
        ("one pair is all there is", ["b", "a"], {}, 4, (("a", "b"),)),
        ("each node once first", ["a", "b", "c", "d"], {}, 2, (("a", "b"), ("c", "d"))),
        ("an odd one comes too", ["a", "b", "c"], {}, 2, (("a", "b"), ("a", "c"))),
        ("all pairs, none twice", ["a", "b", "c"], {}, 9, (("a", "b"), ("a", "c"), ("b", "c"))),
        ("who was never measured first", ["a", "b", "c", "d"], {("a", "b"): NEW}, 1, (("c", "d"),)),
        (
            "then the oldest",
            ["a", "b", "c", "d"],
            {("a", "b"): NEW, ("c", "d"): OLD},
            1,
            (("a", "c"),),
        ),
    ],
)
def test_which_pairs(
    story: str,
    nodes: list[str],
    last: dict[tuple[str, str], datetime],
    most: int,
    expected: tuple[tuple[str, str], ...],
) -> None:
    assert choose_pairs(nodes, {frozenset(pair): at for pair, at in last.items()}, most) == expected, story


@given(st.sets(st.text("abcdefgh", min_size=1, max_size=2), max_size=12), st.integers(0, 80))
def test_pairs_are_different_and_cover_evenly(nodes: set[str], most: int) -> None:
    pairs = choose_pairs(nodes, {}, most)
    assert len(set(pairs)) == len(pairs) <= most
    assert all(first < second and {first, second} <= nodes for first, second in pairs)
    assert len(pairs) == min(most, len(nodes) * (len(nodes) - 1) // 2)
    if pairs and len(pairs) * 2 <= len(nodes):
        assert len({node for pair in pairs for node in pair}) == 2 * len(pairs)
