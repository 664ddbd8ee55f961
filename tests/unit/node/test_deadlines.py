"""When a launcher announces the end: by the platform, for want of money, at the time limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from starverse.domain.workloads.launch import Desired, LaunchSpec
from starverse.node.deadlines import Notice, due_notice, funded_until, strengthen, time_limit_lead_seconds
from starverse.testing.launches import build_launch

READY = 1_000.0


def spec(**changes: Any) -> LaunchSpec:
    return build_launch(
        Path("/nowhere"),
        **{"grace_seconds": 120, "funded_seconds": 3600, "time_limit_seconds": 7200, **changes},
    )


@pytest.mark.parametrize(
    ("changes", "desired", "after_ready", "expected"),
    [
        ({}, Desired(), 3479.9, None),
        ({}, Desired(), 3480, ("funds", 3600, "unfunded")),
        ({}, Desired(), 9999, ("funds", 3600, "unfunded")),
        ({}, Desired(funded_until=READY + 7000), 3600, None),
        ({}, Desired(funded_until=READY + 90_000), 7080, ("time_limit", 7200, "time_limit")),
        ({"time_limit_seconds": 3500}, Desired(), 3380, ("time_limit", 3500, "time_limit")),
        ({}, Desired(notice_reason="reclaim", notice_deadline=READY + 50), 10, ("reclaim", 50, "notice")),
        ({}, Desired(notice_reason="reclaim"), 10, ("reclaim", 130, "notice")),
        (
            {"funded_seconds": 100},
            Desired(notice_reason="reclaim", notice_deadline=READY + 500),
            10,
            ("funds", 100, "unfunded"),
        ),
        ({"grace_seconds": 10}, Desired(funded_until=READY - 5), 1, ("funds", -5, "unfunded")),
        ({"ttl_seconds": 600}, Desired(), 599, None),
        ({"ttl_seconds": 600}, Desired(), 600, ("time_limit", 600, "time_limit")),
        ({"ttl_seconds": 600}, Desired(ttl_seconds=900), 600, None),
        ({"ttl_seconds": 600}, Desired(ttl_seconds=0), 3000, None),
        ({}, Desired(ttl_seconds=300), 2000, ("time_limit", 300, "time_limit")),
    ],
    ids=[
        "nothing is due a moment before the grace begins",
        "money: as the grace begins",
        "money: long overdue after a server's absence",
        "money: extended by the platform",
        "time limit: a grace before it",
        "time limit before the money's end",
        "reclaim at the platform's deadline",
        "reclaim without a deadline gets the grace from now",
        "of two, the one that ends first",
        "money withdrawn: at once",
        "time to live: nothing before its end",
        "time to live: at its end",
        "time to live: put off by its owner",
        "time to live: taken away by its owner",
        "time to live: given while it runs",
    ],
)
def test_due_notice(
    changes: dict[str, Any],
    desired: Desired,
    after_ready: float,
    expected: tuple[str, float, str] | None,
) -> None:
    found = due_notice(spec(**changes), desired, READY, READY + after_ready)
    wanted = None if expected is None else Notice(expected[0], READY + expected[1], expected[2])
    assert found == wanted


@pytest.mark.parametrize(
    ("changes", "lead"),
    [
        ({}, 120),
        ({"time_limit_seconds": 60}, 15),
        ({"signal_name": "USR1", "signal_seconds_before_end": 300}, 300),
        ({"signal_name": "USR1", "signal_seconds_before_end": 0}, 0),
    ],
    ids=["the grace", "a quarter of a short limit", "as --signal says", "--signal=USR1@0"],
)
def test_lead_of_the_time_limit(changes: dict[str, Any], lead: int) -> None:
    assert time_limit_lead_seconds(spec(**changes)) == lead


def test_funded_until_is_the_newest_word() -> None:
    assert funded_until(spec(), Desired(), READY) == READY + 3600
    assert funded_until(spec(), Desired(funded_until=5.0), READY) == 5.0


def test_a_notice_is_never_withdrawn_nor_put_off() -> None:
    early, late = Notice("reclaim", 10, "notice"), Notice("funds", 20, "unfunded")
    assert strengthen(None, None) is None
    assert strengthen(None, late) == late
    assert strengthen(late, early) == early
    assert strengthen(early, late) == early
    assert strengthen(early, None) == early
