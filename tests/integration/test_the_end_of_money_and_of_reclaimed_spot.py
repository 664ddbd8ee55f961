"""Who stops when money ends, what reclaimed spot costs, and what comes back after a fault of the platform."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection, event

from starverse.app import funding, metering
from starverse.app.running_meters import meter_all
from starverse.db import allocations, jobs
from starverse.domain.money import Money
from starverse.domain.workloads.reasons import EndCause, NoticeReason
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.states import AllocationState, JobState
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data")


def only_run(world: World) -> tuple[Allocation, Job]:
    with world.database.read() as connection:
        run = allocations.open_ones(connection)[0]
        return run, jobs.get_many(connection, {run.job_id})[run.job_id]


@pytest.mark.parametrize(
    ("deadline", "charged"),
    [(1800, 1800), (3600, 3600), (5000, 5000), (9000, 7000)],
    ids=["inside the first hour", "at its end", "inside the second hour", "beyond its exit"],
)
@pytest.mark.parametrize("meter_every", [600, 10_000])
def test_spot_is_charged_to_its_deadline_at_most_whenever_the_meter_runs(
    world: World, deadline: int, charged: int, meter_every: int
) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=10 * 3600)
    world.submit(lab, "--tariff=spot", name="train")
    world.run(3)
    run, job = only_run(world)
    assert run.ready_at is not None
    ready = run.ready_at
    run = replace(
        run, notice_reason=NoticeReason.RECLAIM, notice_deadline=ready + timedelta(seconds=deadline)
    )
    with world.database.write() as connection:
        for _ in range(2):
            held = funding.take_next(connection, run, job, ready, world.platform.ids)
            assert isinstance(held, funding.Funded)
        for seconds in range(meter_every, 7000, meter_every):
            now = ready + timedelta(seconds=seconds)
            seen = replace(run, alive_at=now)
            metering.close_full_hours(connection, seen, job, now, world.platform.ids)
        end = ready + timedelta(seconds=7000)
        over = replace(run, ended_at=end, alive_at=end, state=AllocationState.ENDED)
        total = metering.settle(connection, over, job, end, world.platform.ids)
    assert total == Money(498_000 * charged // 3600)
    world.assert_sound()


def test_of_equal_claims_the_newest_stops_first_so_that_the_older_goes_on(world: World) -> None:
    lab = world.team("lab", "4.50")
    world.plan("older", run_seconds=10 * 3600, checkpoint_seconds=600)
    world.plan("newer", run_seconds=10 * 3600, checkpoint_seconds=600)
    older = world.submit(lab, name="older")
    world.run(600, step=60)
    newer = world.submit(lab, name="newer")
    world.run(3300, step=30)
    assert world.job(lab, older.number).state is JobState.RUNNING
    stopped = world.job(lab, newer.number)
    assert (stopped.state, stopped.reason) == (JobState.QUEUED, "no_money")
    assert [run.cause for run in stopped.allocations] == [EndCause.MONEY]
    world.assert_sound()


@pytest.mark.parametrize("limit", ["--time=00:20:00", "--cost-max=0.40"])
def test_what_its_own_limits_end_is_not_asked_again_and_again_by_a_writer(world: World, limit: str) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=3600)
    world.submit(lab, limit, name="train")
    world.run(700, step=60)
    writes: list[bool] = []

    def note(connection: Connection) -> None:
        writes.append(connection.get_execution_options().get("starverse_write", False))

    event.listen(world.database.engine, "begin", note)
    assert meter_all(world.platform) == ""
    assert set(writes) == {False}
    with world.database.write():
        assert writes[-1]


def test_only_what_was_paid_comes_back_after_a_fault(world: World) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=3600)
    world.submit(lab, "--cost-max=0.50", name="train")
    world.run(3)
    run, job = only_run(world)
    assert run.ready_at is not None
    end = run.ready_at + timedelta(seconds=2000)
    lost = replace(run, state=AllocationState.LOST, ended_at=end)
    with world.database.write() as connection:
        charged = metering.settle(connection, lost, job, end, world.platform.ids)
        back = metering.credit_back(connection, lost, job, None, end, world.platform.ids)
    assert charged == Money(1_660_000 * 2000 // 3600)
    assert back == Money.parse("0.50")
    world.assert_sound()
