"""Jobs of a window run inside it only, to the second, whatever a price book does to it while they run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from starverse.app.identity import Identity
from starverse.app.price_books import add_price_book
from starverse.db import allocations
from starverse.domain.pricing.price_book_yaml import shipped_price_book_text
from starverse.domain.timespan import format_instant
from starverse.domain.workloads.records import Allocation
from starverse.domain.workloads.states import JobState
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

GRACE = 30
NIGHT = datetime(2026, 3, 10, 15, tzinfo=UTC)
"""23:00 in Shanghai, where the shipped book's night begins."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with fresh_database("sqlite", tmp_path) as database:
        yield World(database, tmp_path / "data", grace_seconds=GRACE)


@pytest.fixture
def lab(world: World) -> Identity:
    world.clock.at = NIGHT + timedelta(hours=1)
    return world.team("lab")


def publish(world: World, window: str, takes_effect: datetime) -> None:
    """The shipped book again with another night (``""``: none)."""
    text = shipped_price_book_text()
    old = 'night: {from: "23:00", to: "08:00", factor: "0.50"}'
    assert old in text
    begins = next(line for line in text.splitlines() if line.startswith("effective_from"))
    text = text.replace(begins, f"effective_from: {format_instant(takes_effect)}")
    operator = world.team(f"operator-{takes_effect.timestamp():.0f}")
    add_price_book(world.platform, operator, text.replace(old, window))


def night(begins: str, ends: str) -> str:
    return f'night: {{from: "{begins}", to: "{ends}", factor: "0.50"}}'


def run_of(world: World, who: Identity, number: str) -> Allocation:
    """The last run."""
    with world.platform.database.read() as connection:
        found = allocations.of_jobs(connection, [world.job(who, number).id])
    return next(iter(found.values()))[-1]


@pytest.mark.parametrize(
    ("lead", "obeys"), [(60, True), (60, False), (31, False), (12, False), (1, False), (1, True)]
)
def test_a_book_that_closes_the_window_while_a_job_runs(
    world: World, lab: Identity, lead: int, obeys: bool
) -> None:
    world.plan("nightly", run_seconds=20_000, obeys_notice=obeys, ignores_term=not obeys)
    job = world.submit(lab, "--window=night", name="nightly")
    world.run(3)
    closes = (world.clock.now() + timedelta(seconds=lead)).replace(microsecond=0)
    publish(world, night("02:00", "08:00"), closes)
    world.run(lead + 15)
    run = run_of(world, lab, job.number)
    told_at, deadline = run.notice_at, run.notice_deadline
    assert told_at is not None and deadline is not None and run.ended_at is not None
    ahead = min(GRACE + world.platform.settings.kill_after_seconds, lead)
    assert closes - told_at >= timedelta(seconds=ahead - 2), "at once, and with the grace before the edge"
    assert deadline <= max(told_at, closes - timedelta(seconds=world.platform.settings.kill_after_seconds))
    assert world.job(lab, job.number).state is JobState.QUEUED
    assert charged_until(world, lab, job.number) <= closes
    world.assert_sound()


def charged_until(world: World, who: Identity, number: str) -> datetime:
    return max(charge.end for charge in world.bill(who, number).charges)


def test_a_book_that_closes_it_earlier_than_the_notice_that_stands(world: World, lab: Identity) -> None:
    world.clock.at = NIGHT + timedelta(hours=8, minutes=54)
    world.plan("nightly", run_seconds=20_000, obeys_notice=False, ignores_term=True)
    job = world.submit(lab, "--window=night", name="nightly")
    world.run(310, step=62)
    world.run(21, step=3)
    before = run_of(world, lab, job.number)
    assert before.notice_deadline == NIGHT + timedelta(hours=9) - timedelta(seconds=10)
    closes = (world.clock.now() + timedelta(seconds=15)).replace(microsecond=0)
    publish(world, night("08:30", "09:00"), closes)
    world.run(30)
    after = run_of(world, lab, job.number)
    assert after.notice_deadline == closes - timedelta(seconds=10)
    assert after.ended_at is not None and after.ended_at <= closes
    assert charged_until(world, lab, job.number) <= closes


def test_a_book_that_opens_the_window_lets_what_waits_begin(world: World) -> None:
    lab = world.team("lab")
    world.plan("nightly", run_seconds=20_000)
    job = world.submit(lab, "--window=night", name="nightly")
    opens = world.clock.now() + timedelta(minutes=5)
    publish(world, night("10:00", "11:00"), opens)
    world.run(290, step=58)
    world.run(20)
    ready = run_of(world, lab, job.number).ready_at
    assert ready is not None and opens <= ready <= opens + timedelta(seconds=5)
    world.run(3240, step=30)
    world.run(60, step=5)
    assert charged_until(world, lab, job.number) <= opens.replace(hour=3, minute=0)


@pytest.mark.parametrize("fraction", [0.001, 0.5, 0.999])
def test_a_round_a_fraction_of_a_second_before_the_window_opens_starts_nothing(
    world: World, fraction: float
) -> None:
    lab = world.team("lab")
    world.clock.at = NIGHT - timedelta(seconds=fraction)
    job = world.submit(lab, "--window=night", name="nightly")
    world.round()
    assert not world.job(lab, job.number).allocations
    world.clock.at = NIGHT
    world.round()
    (run,) = world.job(lab, job.number).allocations
    assert run.placed_at == NIGHT
