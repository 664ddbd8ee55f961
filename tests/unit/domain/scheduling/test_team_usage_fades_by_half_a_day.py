"""Card-seconds with a 24 h half-life."""

from __future__ import annotations

import math

import pytest

from starverse.domain.ids import TeamId
from starverse.domain.scheduling.team_usage import UsageSpan, decayed, decayed_usage, with_commitments
from starverse.testing.snapshots import NOW, a_share, an_allocation, at

DAY = 86_400


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (UsageSpan(2, at(-1), at(0)), 2.0),
        (UsageSpan(2, at(-DAY - 1), at(-DAY)), 1.0),
        (UsageSpan(8, at(-3 * DAY - 1), at(-3 * DAY)), 1.0),
        (UsageSpan(1, at(-DAY), at(0)), DAY / math.log(2) / 2),
    ],
)
def test_a_span_counts_half_after_each_day(span: UsageSpan, expected: float) -> None:
    assert decayed_usage([span], NOW) == pytest.approx(expected, rel=1e-4)


def test_splitting_a_span_changes_nothing() -> None:
    whole = decayed_usage([UsageSpan(3, at(-5000), at(-10))], NOW)
    parts = decayed_usage([UsageSpan(3, at(-5000), at(-777)), UsageSpan(3, at(-777), at(-10))], NOW)
    assert parts == pytest.approx(whole)


def test_decaying_later_is_the_same_as_counting_later() -> None:
    span = UsageSpan(4, at(-5000), at(-10))
    assert decayed(decayed_usage([span], NOW), 3600) == pytest.approx(decayed_usage([span], at(3600)))


@pytest.mark.parametrize(("placed", "extra"), [(0, 7200.0), (-600, 6000.0), (-3600, 0.0), (-9000, 0.0)])
def test_a_fresh_placement_counts_for_its_first_hour(placed: int, extra: float) -> None:
    running = an_allocation("x", a_share("n1", 0, 1), team="lab", placed_at=at(placed))
    assert with_commitments({TeamId("lab"): 5.0}, [running], NOW) == {"lab": 5.0 + extra}
