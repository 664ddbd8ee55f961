"""Servers that are away, clocks set back, scripts that ignore TERM: the bill is that of the true run.

Each was a seed of the simulation that failed; here it is by its kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from starverse.app import admin_accounts
from starverse.app.admin_accounts import Grant
from starverse.app.ports import SystemClock
from starverse.domain.money import Money
from starverse.domain.workloads.reasons import EndCause
from starverse.domain.workloads.states import JobState
from starverse.engines.fake import Call, Trouble
from starverse.main import make_reconcilers
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

MICRO_A_SECOND = 1_660_000 / 3600
"""One rtx4090 on demand by day."""


class TroubledEngine:
    """Answers as told."""

    def __init__(self) -> None:
        self.away = False

    def __call__(self, call: Call, _allocation_id: str) -> Trouble | None:
        return Trouble.UNAVAILABLE if self.away and call is not Call.NODES else None


@pytest.fixture
def trouble() -> TroubledEngine:
    return TroubledEngine()


@pytest.fixture
def world(kind: str, tmp_path: Path, trouble: TroubledEngine) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data", trouble=trouble)


def away(world: World, seconds: float) -> None:
    """The server is down for so long; what runs goes on. Then a new one starts."""
    world.clock.advance(seconds=seconds)
    world.engine.advance()
    world.restart()


@pytest.mark.parametrize("first", ["meter", "observe"])
def test_a_run_that_ended_while_the_server_was_down_is_charged_for_its_seconds(
    world: World, first: str
) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=600)
    world.submit(lab, name="train")
    world.run(5)
    away(world, 2 * 3600)
    world.run_reconciler(first)
    world.run(5)
    assert world.bill(lab).total == Money(int(600 * MICRO_A_SECOND))
    world.assert_sound()


@pytest.mark.parametrize("first", ["meter", "observe"])
def test_a_launcher_that_died_while_the_server_was_down_is_charged_to_its_last_sign(
    world: World, first: str
) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=3000, dies_at_seconds=500, checkpoint_seconds=100)
    job = world.submit(lab, "--no-requeue", name="train")
    world.run(5)
    away(world, 3600)
    world.run_reconciler(first)
    world.run(5)
    assert world.job(lab, job.number).allocations[0].cause is EndCause.NODE_LOST
    charged = world.bill(lab).total
    assert charged <= Money(int(500 * MICRO_A_SECOND))
    world.assert_sound()


def test_a_start_seen_late_is_no_late_start(world: World) -> None:
    """The script was ready in time; that nobody looked for an hour is no reason to stop it."""
    lab = world.team("lab")
    world.plan("train", run_seconds=3000)
    job = world.submit(lab, name="train")
    for name in ("schedule", "launch"):
        world.run_reconciler(name)
    away(world, 1800)
    world.run(2000, step=20)
    done = world.job(lab, job.number)
    assert [run.cause for run in done.allocations] == [EndCause.COMPLETED]


def test_cards_placed_while_the_engine_is_away_are_given_back_in_time(
    world: World, trouble: TroubledEngine
) -> None:
    """The hold was priced for a start within two minutes: later the placement is withdrawn, at nobody's cost.

    However long the engine is away, the job is not given up.
    """
    lab = world.team("lab")
    world.plan("train", run_seconds=60)
    job = world.submit(lab, "--no-requeue", name="train")
    trouble.away = True
    world.run(1800, step=10)
    waiting = world.job(lab, job.number)
    assert waiting.state is JobState.QUEUED
    assert {run.cause for run in waiting.allocations if run.cause} <= {EndCause.PLATFORM}
    trouble.away = False
    world.run(200, step=10)
    assert world.job(lab, job.number).state is JobState.SUCCEEDED
    assert world.bill(lab).total == Money(int(60 * MICRO_A_SECOND))
    world.assert_sound()


def test_gifts_at_any_fraction_of_a_second_keep_usage_payable(world: World) -> None:
    lab = world.team("lab", "10")
    operator = world.team("operator")
    world.plan("train", run_seconds=1000)
    world.submit(lab, name="train")
    world.run(100.25, step=5)
    for kind in ("coupon", "credit"):
        gift = Grant(kind, Money.parse("5"), "a gift", world.clock.now() + timedelta(seconds=300.5))
        admin_accounts.grant(world.platform, operator, lab.team_name, gift)
    world.run(1000, step=20)
    bill = world.bill(lab)
    assert bill.total == bill.coupon + bill.credit + bill.cash == Money(int(1000 * MICRO_A_SECOND))
    # given at 100.25 s for 300.5 s: the coupon pays its share of the 299 whole seconds between
    assert bill.coupon == Money(int(0.3 * 299 * MICRO_A_SECOND))
    world.assert_sound()


@pytest.mark.parametrize("minutes", [1, 90])
def test_a_clock_set_back_shortens_no_run(kind: str, tmp_path: Path, minutes: float) -> None:
    with fresh_database(kind, tmp_path) as database:
        world = World(database, tmp_path / "data")
        behind = timedelta(0)
        clock = SystemClock(lambda: world.clock.now() - behind, lambda: world.clock.now().timestamp())
        world.platform = replace(world.platform, clock=clock)
        world.reconcilers = make_reconcilers(world.platform)
        lab = world.team("lab")
        world.plan("train", run_seconds=1200)
        job = world.submit(lab, name="train")
        world.run(600, step=10)
        behind = timedelta(minutes=minutes)
        world.run(900, step=10)
        done = world.job(lab, job.number)
        assert [run.cause for run in done.allocations] == [EndCause.COMPLETED]
        assert world.bill(lab).total == Money(int(1200 * MICRO_A_SECOND))
        world.assert_sound()


@pytest.mark.parametrize("step", [20, 60, 400])
def test_seconds_up_to_a_kill_are_charged_however_often_the_meter_runs(world: World, step: float) -> None:
    """A script that ignores TERM runs ten seconds past its time limit, which its last hold does not cover."""
    lab = world.team("lab")
    world.plan("train", run_seconds=9000, ignores_term=True, obeys_notice=False)
    world.submit(lab, "--time=20", name="train")
    world.run(2400, step=step)
    assert world.bill(lab).total == Money(int(1210 * MICRO_A_SECOND))
    world.assert_sound()


def test_no_second_is_run_that_no_money_is_held_for(world: World) -> None:
    """Even a script that ignores TERM is gone when its funds end: TERM comes a KILL earlier."""
    lab = world.team("lab", "2")
    world.plan("train", run_seconds=9000, ignores_term=True, obeys_notice=False)
    world.submit(lab, "--time=180", name="train")
    world.run(3 * 3600, step=120)
    bill = world.bill(lab)
    assert bill.written_off == Money(0)
    assert bill.total <= Money.parse("2")
    world.assert_sound()


def test_no_second_is_run_outside_the_window(world: World) -> None:
    lab = world.team("lab")
    world.clock.advance(hours=13, minutes=5)  # 23:05
    world.plan("nightly", run_seconds=90_000, ignores_term=True, obeys_notice=False)
    world.submit(lab, "--window=night", "--time=2-00:00:00", name="nightly")
    world.run(9.5 * 3600, step=300)
    rates = {s.rate_micro_per_card_hour for c in world.bill(lab).charges for s in c.segments}
    assert rates == {"830000"}


def test_a_window_about_to_close_starts_nothing(world: World) -> None:
    lab = world.team("lab")
    world.clock.advance(hours=21, minutes=57, seconds=55)  # 07:57:55, two minutes to start in
    job = world.submit(lab, "--window=night", name="nightly")
    world.run(20, step=5)
    assert world.job(lab, job.number).reason == "window_closed"
    assert world.engine.running() == ()


def test_a_cost_limit_holds_to_the_second_of_the_kill(world: World) -> None:
    """Its time limit costs just its limit; the ten seconds up to the KILL are the platform's."""
    lab = world.team("lab")
    world.plan("train", run_seconds=9000, ignores_term=True, obeys_notice=False)
    job = world.submit(lab, "--time=20", "--cost-max=0.554", name="train")
    world.run(1300, step=20)
    assert world.job(lab, job.number).state is JobState.FAILED
    bill = world.bill(lab)
    assert bill.written_off > Money(0)
    assert bill.total - bill.written_off == Money.parse("0.554")
    world.assert_sound()


def test_the_end_of_a_whole_time_limit_is_no_lack_of_money(world: World) -> None:
    """Ready at a whole second, its funds and its time limit end together: the server is away, and the cause
    is still the time limit."""
    lab = world.team("lab")
    world.plan("train", start_seconds=1.0, run_seconds=9000)
    job = world.submit(lab, "--time=10", name="train")
    for name in ("schedule", "launch"):
        world.run_reconciler(name)
    away(world, 1200)
    world.run(5)
    done = world.job(lab, job.number)
    assert done.allocations[0].cause is EndCause.TIME_LIMIT


def test_a_run_that_nobody_saw_keeps_the_cause_of_its_end(world: World) -> None:
    """The server is away from its start until its window has closed: the window ended it, not the wallet."""
    lab = world.team("lab")
    world.clock.advance(hours=21, minutes=40)  # 07:40
    world.plan("nightly", run_seconds=9000, notice_exit_code=99)
    job = world.submit(lab, "--window=night", name="nightly")
    for name in ("schedule", "launch"):
        world.run_reconciler(name)
    away(world, 3600)
    world.run(5)
    waiting = world.job(lab, job.number)
    assert waiting.allocations[0].cause is EndCause.WINDOW
    assert (waiting.state, waiting.reason) == (JobState.QUEUED, "window_closed")
