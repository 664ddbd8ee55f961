"""The path of a job through the platform on the fake engine: placed, run, reclaimed, resumed, billed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from starverse.app import jobs
from starverse.app.views import SubmitRequest
from starverse.domain.errors import Conflict, Invalid, NoCapacity, NotEnoughMoney
from starverse.domain.money import Money
from starverse.domain.workloads.reasons import EndCause
from starverse.domain.workloads.states import JobState
from starverse.testing.node_reports import node_report
from starverse.testing.platforms import POSTGRES_VARIABLE, fresh_database
from starverse.testing.worlds import SCRIPT, World


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "postgresql" and not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    with fresh_database(request.param, tmp_path) as database:
        yield World(database, tmp_path / "data")


def test_a_job_runs_and_is_charged_from_ready_to_its_end(world: World) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=100)
    job = world.submit(lab, name="train")
    world.run(110, step=5)

    done = world.job(lab, job.number)
    assert done.state is JobState.SUCCEEDED
    assert [run.cause for run in done.allocations] == [EndCause.COMPLETED]
    with pytest.raises(Conflict, match="succeeded") as refused:
        jobs.resume(world.platform, lab, job.number)
    assert "submit the script again" in str(refused.value.hint)
    bill = world.bill(lab)
    # 100 s of one rtx4090 at 1.66 an hour, rounded down
    assert bill.total == Money(1_660_000 * 100 // 3600)
    world.assert_sound()


def test_spot_yields_to_on_demand_and_resumes_from_its_checkpoint(world: World) -> None:
    lab, rival = world.team("lab"), world.team("rival")
    world.plan("train", run_seconds=600, checkpoint_seconds=60)
    world.plan("urgent", run_seconds=30)
    spot = world.submit(lab, "--tariff=spot", "--gres=gpu:rtx4090:2", name="train")
    world.run(90, step=5)
    assert world.job(lab, spot.number).state is JobState.RUNNING
    urgent = world.submit(rival, "--gres=gpu:rtx4090:8", name="urgent")
    world.run(60, step=5)

    assert world.job(rival, urgent.number).state is JobState.SUCCEEDED
    world.run(700, step=10)
    done = world.job(lab, spot.number)
    assert done.state is JobState.SUCCEEDED
    first, second = done.allocations
    assert (first.cause, second.cause) == (EndCause.RECLAIMED, EndCause.COMPLETED)
    assert second.resume_from.endswith("-a1")
    assert first.lost_work_seconds <= 1
    assert world.bill(lab).total < world.bill(lab).on_demand_total
    world.assert_sound()


def test_a_failed_start_costs_nothing_and_is_tried_again(world: World) -> None:
    lab = world.team("lab", "5")
    world.plan("train", failure="no such image")
    job = world.submit(lab, name="train")
    world.run(5)
    waiting = world.job(lab, job.number)
    assert (waiting.state, waiting.reason) == (JobState.QUEUED, "start_failed")
    assert "no such image" in waiting.message
    world.run(400, step=20)
    assert world.job(lab, job.number).state is JobState.FAILED
    assert world.bill(lab).total == Money(0)
    world.assert_sound()


def test_cancelling_at_every_step_of_a_start_leaves_nothing_running_and_nothing_charged(world: World) -> None:
    steps = ["inventory", "schedule", "launch", "observe"]
    for stop_after in range(len(steps) + 1):
        lab = world.team(f"lab{stop_after}")
        world.plan("train", start_seconds=1000)
        job = world.submit(lab, "--gres=gpu:rtx4090:8", name="train")
        for name in steps[:stop_after]:
            world.run_reconciler(name)

        jobs.cancel(world.platform, lab, job.number)
        world.run(20, step=5)
        assert world.job(lab, job.number).state is JobState.CANCELLED, stop_after
        assert world.engine.running() == ()
        assert world.bill(lab).total == Money(0)
        with pytest.raises(Conflict, match="ended already"):
            jobs.cancel(world.platform, lab, job.number)
    world.assert_sound()


def test_hours_are_held_ahead_and_charged_one_by_one(world: World) -> None:
    lab = world.team("lab", "20")
    world.plan("train", run_seconds=3 * 3600 + 60)
    job = world.submit(lab, name="train")
    world.run(3 * 3600 + 120, step=60)
    assert world.job(lab, job.number).state is JobState.SUCCEEDED
    bill = world.bill(lab)
    assert len(bill.charges) == 4
    assert bill.total == Money(1_660_000 * (3 * 3600 + 60) // 3600)
    world.assert_sound()


def test_when_money_ends_the_job_is_checkpointed_and_waits_for_more(world: World) -> None:
    lab = world.team("lab", "2")
    world.plan("train", run_seconds=5 * 3600, checkpoint_seconds=600)
    job = world.submit(lab, name="train")
    world.run(2 * 3600, step=300)
    waiting = world.job(lab, job.number)
    assert (waiting.state, waiting.reason) == (JobState.QUEUED, "no_money")
    assert waiting.allocations[0].cause is EndCause.MONEY
    bill = world.bill(lab)
    assert Money(1_600_000) < bill.total <= Money(2_000_000)
    assert sum(charge.written_off.micro for charge in bill.charges) == 0
    world.assert_sound()


def test_a_lost_launcher_frees_its_cards_and_gives_the_lost_seconds_back(world: World) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=600, checkpoint_seconds=100, dies_at_seconds=250)
    job = world.submit(lab, name="train")
    world.run(300, step=5)
    lost = world.job(lab, job.number)
    assert lost.allocations[0].cause is EndCause.NODE_LOST
    assert 45 <= lost.allocations[0].lost_work_seconds <= 50
    bill = world.bill(lab)
    assert bill.credit_back > Money(0)
    world.assert_sound()


def test_a_window_job_runs_only_inside_its_window(world: World) -> None:
    lab = world.team("lab")
    world.plan("nightly", run_seconds=30 * 3600, checkpoint_seconds=1800)
    job = world.submit(lab, "--window=night", "--time=2-00:00:00", name="nightly")
    world.run(60, step=60)
    assert world.job(lab, job.number).reason == "window_closed"
    world.run(13 * 3600 + 60, step=3600)  # 10:00 -> 23:01
    assert world.job(lab, job.number).state is JobState.RUNNING
    world.run(10 * 3600, step=900)  # -> 09:01
    waiting = world.job(lab, job.number)
    assert (waiting.state, waiting.reason) == (JobState.QUEUED, "window_closed")
    rates = {
        segment.rate_micro_per_card_hour for charge in world.bill(lab).charges for segment in charge.segments
    }
    assert rates == {"830000"}
    world.assert_sound()


def test_a_cost_limit_is_never_passed(world: World) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=10 * 3600, checkpoint_seconds=600)
    job = world.submit(lab, "--cost-max=2.50", name="train")
    world.run(3600, step=600)
    world.run(3600, step=120)
    done = world.job(lab, job.number)
    assert (done.state, done.reason) == (JobState.FAILED, "cost_max")
    total = world.bill(lab).total
    assert Money(2_400_000) < total <= Money(2_500_000)
    world.assert_sound()


def test_submitting_names_every_fault_and_what_would_fit(world: World) -> None:
    lab = world.team("lab", "10")
    with pytest.raises(Invalid) as wrong:
        world.submit(lab, "--dataset=nothing", "--window=noon", "--dependency=afterok:77")
    assert [fault.field for fault in wrong.value.faults] == ["--window", "--dataset", "--dependency"]
    with pytest.raises(NoCapacity, match="9 rtx4090"):
        world.submit(lab, "--gres=gpu:rtx4090:9")
    with pytest.raises(NotEnoughMoney, match=r"13\.28") as money:
        world.submit(lab, "--gres=gpu:rtx4090:8")
    assert "3.984" in str(money.value.hint)
    assert "6.64" in str(money.value.hint)


@pytest.mark.parametrize(
    ("options", "field", "expected"),
    [
        (("--gres=gpu:rtx4090:1", "--constraint=ib"), "--constraint", "eth, which rtx4090 have here"),
        (("--gres=gpu:1", "--constraint=ib"), "--constraint", "eth, which cards have here"),
        (("--gres=gpu:h900:1",), "--gres", "cards with a price: the price book has none for h900/eth"),
    ],
    ids=["a network of other cards", "a network of no cards", "cards without a price"],
)
def test_a_refusal_names_what_keeps_the_cards_that_are_here(
    kind: str, tmp_path: Path, options: tuple[str, ...], field: str, expected: str
) -> None:
    with fresh_database(kind, tmp_path) as database:
        world = World(
            database, tmp_path / "data", nodes=(node_report(), node_report("node-2", model="h900", cards=4))
        )
        with pytest.raises(Invalid) as refused:
            world.submit(world.team("lab"), *options)
        assert [fault.field for fault in refused.value.faults] == [field]
        assert expected in refused.value.faults[0].expected


@pytest.mark.parametrize(
    ("zone", "hour"),
    [("UTC", 16), ("Asia/Tokyo", 7), ("Nowhere/City", 8), ("../../etc/passwd", 8), ("America", 8), (None, 8)],
)
def test_a_time_without_a_zone_is_read_by_the_clock_of_who_typed_it(
    kind: str, tmp_path: Path, zone: str | None, hour: int
) -> None:
    with fresh_database(kind, tmp_path) as database:
        world = World(database, tmp_path / "data", timezone="Asia/Shanghai")
        words = ("--gres=gpu:rtx4090:1", "--begin=2030-01-01T16:00")
        request = SubmitRequest(script=SCRIPT, argv=words, environment={"TZ": zone} if zone else {})
        job = jobs.submit(world.platform, world.team("lab"), request).job
        assert job is not None
        assert job.begin_at == datetime(2030, 1, 1, hour, tzinfo=UTC)


def test_a_refusal_for_money_lists_only_what_the_money_there_would_pay(world: World) -> None:
    poor = world.team("poor", "5")
    with pytest.raises(NotEnoughMoney) as night_is_too_dear:
        world.submit(poor, "--gres=gpu:rtx4090:8", "--time=3:00:00")
    hint = str(night_is_too_dear.value.hint)
    assert "--tariff spot: CNY 3.984 an hour" in hint
    assert "night" not in hint
    with pytest.raises(NotEnoughMoney, match=r"its time limit costs CNY 6\.64") as half_an_hour:
        world.submit(poor, "--gres=gpu:rtx4090:8", "--time=30:00")
    assert "--window night: CNY 3.32 for 00:30:00" in str(half_an_hour.value.hint)
    poorer = world.team("poorer", "1")
    with pytest.raises(NotEnoughMoney) as fewer:
        world.submit(poorer, "--gres=gpu:rtx4090:4", "--tariff=spot", "--time=3:00:00")
    assert "2 x rtx4090: CNY 0.996 an hour" in str(fewer.value.hint)


def test_arrays_run_within_their_limit_and_dependencies_in_their_order(world: World) -> None:
    lab = world.team("lab")
    world.plan("sweep", run_seconds=20)
    world.plan("after", run_seconds=5)
    sweep = world.submit(lab, "--array=0-5%2", name="sweep")
    number = sweep.number.split("_")[0]
    after = world.submit(lab, f"--dependency=afterok:{number}", name="after")
    world.run(5)
    assert world.job(lab, number).tasks == {"running": 2, "queued": 4}
    assert world.job(lab, after.number).reason == "dependency"
    world.run(120, step=4)
    assert world.job(lab, number).tasks == {"succeeded": 6}
    assert world.job(lab, after.number).state is JobState.SUCCEEDED
    world.assert_sound()
