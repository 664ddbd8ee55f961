"""The queue played forward: of waiting jobs and of one that is not submitted, earliest to latest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from starverse.domain.ids import JobId
from starverse.domain.scheduling.queue_order import short_first
from starverse.domain.scheduling.run_times import RunFeatures, RunTimes
from starverse.domain.scheduling.snapshot import Pool, Snapshot
from starverse.domain.scheduling.when_will_i_start import Ahead, CardTimes, play_forward, when_will_i_start
from starverse.domain.workloads.specs import Resources
from starverse.testing.snapshots import NOW, a_job, a_node, a_share, an_allocation, at

POOL = Pool("bj1", "rtx4090", "eth")
DAY = 86_400
ON_ALL = Resources(cards_per_node=8)
KNOWN = RunTimes()
for _ in range(50):
    KNOWN.observe(RunFeatures("lab", 8, "train"), 7200)


@pytest.mark.parametrize(
    ("queue", "starts"),
    [
        ([(8, 100)], [50.0]),
        ([(2, 30), (8, 100), (1, 10)], [0.0, 50.0, 150.0]),
        ([(4, 100), (4, 10), (4, 10)], [10.0, 50.0, 60.0]),
        ([(9, 1)], [None]),
    ],
)
def test_cards_that_come_free_first_are_taken_first(
    queue: list[tuple[int, float]], starts: list[float | None]
) -> None:
    times = {POOL: CardTimes(2, [(10.0, 2), (50.0, 4)])}
    assert play_forward(times, [Ahead([POOL], cards, seconds) for cards, seconds in queue]) == starts


def test_a_job_waits_for_those_that_run_and_those_before_it() -> None:
    running = an_allocation(
        "r", a_share("n1", *range(8)), team="lab", placed_at=at(-3600), ready_at=at(-3600)
    )
    running = replace(running, script="train", expected_end_at=at(86_400))
    same: dict[str, Any] = {"team": "lab", "resources": ON_ALL, "script": "train", "time_limit_seconds": DAY}
    first, second = (
        a_job("first", submitted_at=at(-20), **same),
        a_job("second", submitted_at=at(-10), **same),
    )
    snapshot = Snapshot((a_node(),), (running,), (first, second))
    bands = [when_will_i_start(snapshot, job, KNOWN, NOW) for job in (first, second)]
    later = when_will_i_start(snapshot, replace(second, job_id=JobId("x"), submitted_at=NOW), KNOWN, NOW)
    found = [(band.expected - NOW).total_seconds() for band in [*bands, later] if band is not None]
    assert found == pytest.approx([3600, 3600 + 7200, 3600 + 2 * 7200], rel=0.1)
    for band in bands:
        assert band is not None
        assert band.earliest <= band.expected <= band.latest


def test_no_time_limit_is_outlived_and_what_no_pool_holds_has_no_start() -> None:
    running = an_allocation("r", a_share("n1", *range(8)), expected_end_at=at(60))
    job = a_job("j", resources=ON_ALL)
    band = when_will_i_start(Snapshot((a_node(),), (running,), (job,)), job, RunTimes(), NOW)
    assert band is not None
    assert band.latest <= at(60)
    huge = a_job("h", resources=Resources(nodes=2, cards_per_node=8))
    assert when_will_i_start(Snapshot((a_node(),), (), (huge,)), huge, RunTimes(), NOW) is None


def test_short_jobs_go_first_until_a_wait_reaches_the_bound() -> None:
    waits = [(10.0, 500.0), (99.0, 9e9), (100.0, 9e9), (120.0, 9e9), (0.0, 5.0)]
    order = sorted(waits, key=lambda job: short_first(job[0], 100.0, job[1]))
    assert order == [waits[3], waits[2], waits[4], waits[0], waits[1]]
