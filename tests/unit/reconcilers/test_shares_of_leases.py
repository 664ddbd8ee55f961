"""How many loops one of several servers runs: a fair share, never one that another still holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from starverse.db.leases import Lease
from starverse.reconcilers.leadership import share_out

NOW = datetime(2026, 3, 10, tzinfo=UTC)
LATER = NOW + timedelta(seconds=5)


def rows(holders: str, expires_at: datetime = LATER) -> list[Lease]:
    """One lease for each letter: whose it is, ``-`` nobody's."""
    return [Lease(f"l{i}", h.replace("-", ""), 3, expires_at) for i, h in enumerate(holders)]


@pytest.mark.parametrize(
    ("holders", "living", "keep", "take", "let_go"),
    [
        ("----------", 1, 0, 10, 0),
        ("----------", 2, 0, 5, 0),
        ("----------", 3, 0, 4, 0),
        ("aaaaaaaaaa", 1, 10, 0, 0),
        ("aaaaaaaaaa", 2, 5, 0, 5),
        ("aaaaabbbbb", 2, 5, 0, 0),
        ("aaaaa-----", 2, 5, 0, 0),
        ("aaa-------", 2, 3, 2, 0),
        ("bbbbbbbbbb", 2, 0, 0, 0),
    ],
)
def test_a_share_is_what_everybody_can_have(
    holders: str, living: int, keep: int, take: int, let_go: int
) -> None:
    shares = share_out(rows(holders), "a", living, (), NOW)
    assert (len(shares.keep), len(shares.take), len(shares.let_go)) == (keep, take, let_go)


def test_what_ran_out_is_free_and_what_is_mine_is_not_taken_again() -> None:
    shares = share_out(rows("abb", expires_at=NOW), "a", 1, (), NOW)
    assert [lease.name for lease in shares.keep] == ["l0"]
    assert [lease.name for lease in shares.take] == ["l1", "l2"]


def test_a_loop_in_its_round_is_not_let_go() -> None:
    shares = share_out(rows("aaaa"), "a", 2, ("l3", "l2"), NOW)
    assert [lease.name for lease in shares.let_go] == ["l1", "l0"]
