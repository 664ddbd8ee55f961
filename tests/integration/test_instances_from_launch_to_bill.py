"""The path of an instance through the platform on the fake engine: launched, stopped, started, billed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.app import jobs
from starverse.app.instances import starting, stopping, views
from starverse.app.instances.launching import LaunchRequest, launch
from starverse.app.instances.starting import ResizeRequest, StartRequest
from starverse.app.views import JobFilter
from starverse.domain.errors import Conflict, Invalid, NoCapacity, NotEnoughMoney, NotFound
from starverse.domain.money import Money
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.states import InstanceState
from starverse.engines.fake import FakeRun
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

FOR_EVER = FakeRun(run_seconds=float("inf"))


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(
            database,
            tmp_path / "data",
            disk_node_bytes_per_second=9000,
            network_node_bytes_per_second=900,
            network_bytes_per_second=500,
        )


def test_an_instance_runs_until_it_is_stopped_and_is_charged_from_ready(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    made = launch(world.platform, lab, LaunchRequest("rtx4090", 2, name="box"))
    assert made.state is InstanceState.QUEUED
    assert made.price_hour == Money.parse("3.32")
    world.run(101)

    running = views.get(world.platform, lab, "box")
    assert (running.state, running.reason, running.node) == (InstanceState.RUNNING, "", "n1")
    assert running.cost_so_far == Money(3_320_000 * 100 // 3600)
    stopping.stop(world.platform, lab, "box")
    world.run(5)

    stopped = views.get(world.platform, lab, "box")
    assert (stopped.state, stopped.reason) == (InstanceState.STOPPED, "asked")
    assert stopped.message == f"stopped by {lab.email}"
    assert stopped.release_at is not None and stopped.stopped_at is not None
    assert (stopped.release_at - stopped.stopped_at).days == 15
    assert world.bill(lab).total == stopped.cost_so_far == Money(3_320_000 * 100 // 3600)
    world.run(3600, step=600)
    assert world.bill(lab).total == stopped.cost_so_far, "stopped, it costs nothing"
    world.assert_sound()


def test_without_cards_it_is_the_same_instance_at_the_price_that_is_shown(world: World) -> None:
    """pricing.md, worked example 7: an hour of an instance of 8 x rtx4090 without cards."""
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    launch(world.platform, lab, LaunchRequest("rtx4090", 8, name="box"))
    world.run(3)
    stopping.stop(world.platform, lab, "box")
    world.run(3)
    before = world.bill(lab).total
    started = starting.start(world.platform, lab, "box", StartRequest(no_gpu=True))
    assert (started.tariff, started.no_gpu) == (Tariff.NO_GPU, True)
    assert started.price_hour == Money(498_000)
    world.run(1)
    running = next(iter(run for run in world.engine.launchers.values() if not run.ended))
    assert running.spec.cards == ()
    assert (running.spec.limits.cpus, running.spec.limits.memory_bytes) == (0.5, 2 * 1024**3)
    rates = [
        (limits.disk_bytes_per_second, limits.network_bytes_per_second)
        for limits in (run.spec.limits for run in world.engine.launchers.values())
    ]
    assert rates == [(8000, 500), (1000, 100)], "a part for each card of the node, one for those without"
    world.run(3600, step=60)
    stopping.stop(world.platform, lab, "box")
    world.run(3)
    assert world.bill(lab).total - before == Money(498_000)
    assert world.bill(lab).charges[-1].job == "instance box"
    shown = views.get(world.platform, lab, "box")
    assert (shown.cards, shown.tariff, shown.no_gpu) == (8, Tariff.ON_DEMAND, False), "its own cards again"
    world.assert_sound()


def test_every_start_has_the_same_files_and_another_allocation(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box"))
    world.run(3)
    first = next(iter(world.engine.launchers.values())).spec
    assert first.output == "", "nothing of ours lies among its owner's files"
    (Path(first.home) / "notes.txt").write_text("mine")
    stopping.stop(world.platform, lab, "box")
    world.run(3)
    starting.start(world.platform, lab, "box", StartRequest())
    world.run(3)
    specs = [run.spec for run in world.engine.launchers.values()]
    assert [len(spec.cards) for spec in specs] == [1, 1]
    assert len({spec.allocation_id for spec in specs}) == 2
    assert len({(spec.home, spec.workspace) for spec in specs}) == 1
    assert (Path(specs[1].home) / "notes.txt").read_text() == "mine"
    assert all(spec.interactive for spec in specs)


def test_it_is_not_started_on_other_files_when_its_own_are_gone(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box"))
    world.run(3)
    home = Path(next(iter(world.engine.launchers.values())).spec.home)
    stopping.stop(world.platform, lab, "box")
    world.run(3)
    home.rename(home.with_name("elsewhere"))
    with pytest.raises(Conflict, match="are gone"):
        starting.start(world.platform, lab, "box", StartRequest())
    home.with_name("elsewhere").rename(home)
    starting.start(world.platform, lab, "box", StartRequest())
    world.run_reconciler("schedule")
    home.rename(home.with_name("elsewhere"))
    world.run(5)
    failed = views.get(world.platform, lab, "box")
    assert (failed.state, failed.reason) == (InstanceState.STOPPED, "start_failed")
    assert "gone" in failed.message
    assert not home.exists(), "no other files were made in their place"


def test_a_resize_is_one_wish_that_a_crash_does_not_split(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    launch(world.platform, lab, LaunchRequest("rtx4090", 2, name="box"))
    world.run(3)
    resized = starting.resize(world.platform, lab, "box", ResizeRequest(4))
    assert (resized.state, resized.cards, resized.reason) == (InstanceState.RUNNING, 4, "resized")
    world.restart()
    world.run(5)
    shown = views.get(world.platform, lab, "box")
    assert (shown.state, shown.cards, shown.reason) == (InstanceState.RUNNING, 4, "")
    assert [len(run.spec.cards) for run in world.engine.launchers.values()] == [2, 4]
    assert len({run.spec.home for run in world.engine.launchers.values()}) == 1
    with pytest.raises(Invalid, match="at most 8"):
        starting.resize(world.platform, lab, "box", ResizeRequest(9))
    world.assert_sound()


def test_a_start_fails_with_no_cards_unless_it_is_to_wait(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    world.plan("late", FOR_EVER)
    launch(world.platform, lab, LaunchRequest("rtx4090", 8, name="box"))
    world.run(3)
    with pytest.raises(NoCapacity, match="free now"):
        launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="late"))
    with pytest.raises(NotFound):
        views.get(world.platform, lab, "late")
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="late", wait=True))
    world.run(3)
    waiting = views.get(world.platform, lab, "late")
    assert waiting.state is InstanceState.QUEUED and "rtx4090" in waiting.message
    stopping.stop(world.platform, lab, "box")
    world.run(5)
    assert views.get(world.platform, lab, "late").state is InstanceState.RUNNING


def test_what_lost_its_cards_to_a_rival_at_once_is_stopped_with_the_reason(world: World) -> None:
    lab, rival = world.team("lab"), world.team("rival")
    world.plan("box", FOR_EVER)
    launch(world.platform, lab, LaunchRequest("rtx4090", 8, name="box"))
    launch(world.platform, rival, LaunchRequest("rtx4090", 8, name="box"))
    world.run(3)
    both = [views.get(world.platform, who, "box") for who in (lab, rival)]
    assert sorted(one.state for one in both) == [InstanceState.RUNNING, InstanceState.STOPPED]
    loser = next(one for one in both if one.state is InstanceState.STOPPED)
    assert loser.reason == "no_cards" and loser.cost_so_far == Money(0)


def test_a_start_that_fails_costs_nothing_and_says_why(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", failure="no such image")
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box"))
    world.run(5)
    shown = views.get(world.platform, lab, "box")
    assert (shown.state, shown.reason) == (InstanceState.STOPPED, "start_failed")
    assert "no such image" in shown.message
    assert world.bill(lab).total == Money(0)


def test_money_for_an_hour_is_asked_for_before_anything_is_made(world: World) -> None:
    lab = world.team("lab", "2")
    with pytest.raises(NotEnoughMoney, match=r"one hour costs CNY 13\.28"):
        launch(world.platform, lab, LaunchRequest("rtx4090", 8, name="box"))
    assert views.list_instances(world.platform, lab, views.InstanceFilter()).items == ()


def test_stopping_at_every_step_of_a_start_leaves_nothing_running_and_nothing_charged(world: World) -> None:
    steps = ["inventory", "schedule", "launch", "observe"]
    for stop_after in range(len(steps) + 1):
        lab = world.team(f"lab{stop_after}")
        world.plan("box", start_seconds=1000)
        launch(world.platform, lab, LaunchRequest("rtx4090", 8, name="box"))
        for name in steps[:stop_after]:
            world.run_reconciler(name)
        stopping.stop(world.platform, lab, "box")
        world.run(20)
        assert views.get(world.platform, lab, "box").state is InstanceState.STOPPED, stop_after
        assert world.engine.running() == ()
        assert world.bill(lab).total == Money(0)
    world.assert_sound()


def test_starts_of_instances_are_no_jobs_of_people(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box"))
    world.run(3)
    assert jobs.list_jobs(world.platform, lab, JobFilter()).items == ()
    number = next(iter(world.engine.launchers.values())).spec.job_number
    with pytest.raises(NotFound):
        jobs.cancel(world.platform, lab, number)
