"""Races: parallel launches, starts, stops and resizes, on both databases."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from starverse.app.identity import Identity
from starverse.app.instances import changing, starting, stopping, views
from starverse.app.instances.changing import InstanceChange
from starverse.app.instances.launching import LaunchRequest, launch
from starverse.app.instances.starting import ResizeRequest, StartRequest
from starverse.db import instances
from starverse.domain.errors import Conflict, StarverseError
from starverse.domain.workloads.states import InstanceState
from starverse.engines.fake import FakeRun
from starverse.testing.node_reports import node_report
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

FOR_EVER = FakeRun(run_seconds=float("inf"))
LAUNCHES = 200


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with fresh_database(kind, tmp_path, durable=False) as database:
        yield World(database, tmp_path / "data", nodes=tuple(node_report(f"n{i}") for i in range(3)))


def at_once(*acts: Callable[[], object]) -> list[str]:
    """All at one moment; the codes of those that were refused."""
    barrier = threading.Barrier(len(acts))

    def run(act: Callable[[], object]) -> str:
        barrier.wait()
        try:
            act()
        except StarverseError as refused:
            return refused.code
        return ""

    with ThreadPoolExecutor(len(acts)) as pool:
        return [code for code in pool.map(run, acts) if code]


def launching(world: World, who: Identity, request: LaunchRequest) -> Callable[[], object]:
    return lambda: launch(world.platform, who, request)


def test_parallel_launches_keep_every_policy_through_refreshes(world: World) -> None:
    """Scenario 12: 200 launches at once, seen and refreshed meanwhile, keep 200 policies."""
    lab = world.team("lab", "100000")
    wanted = {f"box-{i}": (60 + i, 3600 + i) for i in range(LAUNCHES)}

    def one(name: str) -> None:
        idle_stop, ttl = wanted[name]
        request = LaunchRequest(
            "rtx4090", 1, name=name, idle_stop=idle_stop, ttl_seconds=ttl, restart="elsewhere", wait=True
        )
        launch(world.platform, lab, request)

    with ThreadPoolExecutor(20) as pool:
        done = list(pool.map(one, wanted))
    assert len(done) == LAUNCHES
    for _ in range(3):
        world.clock.advance(seconds=2)
        world.engine.advance()
        world.round()
    shown = views.list_instances(world.platform, lab, views.InstanceFilter(limit=1000)).items
    assert {one.name: (one.policy.idle_stop, one.policy.ttl_seconds) for one in shown} == wanted
    assert {one.policy.restart for one in shown} == {"elsewhere"}
    assert sum(one.state is InstanceState.RUNNING for one in shown) == 24, "as many as there are cards"


def test_of_two_launches_of_one_name_one_is_made(world: World) -> None:
    lab = world.team("lab")
    request = LaunchRequest("rtx4090", 1, name="box", wait=True)
    assert at_once(*(launching(world, lab, request) for _ in range(4))) == ["conflict"] * 3
    assert len(views.list_instances(world.platform, lab, views.InstanceFilter()).items) == 1


def test_of_many_starts_at_once_one_is_made(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box"))
    world.run(3)
    stopping.stop(world.platform, lab, "box")
    world.run(3)
    starts = [lambda: starting.start(world.platform, lab, "box", StartRequest()) for _ in range(4)]
    assert at_once(*starts) == ["conflict"] * 3
    world.run(3)
    assert len(world.engine.launchers) == 2


def test_a_stop_and_a_resize_at_once_leave_one_run_at_most(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box"))
    world.run(3)
    for cards in (2, 4, 2):
        at_once(
            lambda: stopping.stop(world.platform, lab, "box"),
            lambda cards=cards: starting.resize(world.platform, lab, "box", ResizeRequest(cards)),  # type: ignore[misc]
            lambda: changing.change(world.platform, lab, "box", InstanceChange(ttl_seconds=7200), None),
        )
        world.run(5)
        shown = views.get(world.platform, lab, "box")
        alive = [run for run in world.engine.launchers.values() if not run.ended]
        assert len(alive) == (1 if shown.state is InstanceState.RUNNING else 0)
        assert shown.state in (InstanceState.RUNNING, InstanceState.STOPPED)
        assert shown.policy.ttl_seconds == 7200
        if shown.state is InstanceState.STOPPED:
            starting.start(world.platform, lab, "box", StartRequest())
            world.run(3)


def test_a_release_and_a_start_at_once_agree(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    made = launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box"))
    world.run(3)
    stopping.stop(world.platform, lab, "box")
    world.run(3)
    at_once(
        lambda: stopping.remove(world.platform, lab, made.id),
        lambda: starting.start(world.platform, lab, made.id, StartRequest()),
    )
    world.run(20)
    shown = views.get(world.platform, lab, made.id)
    assert shown.state is InstanceState.RELEASED
    assert world.engine.running() == ()
    with world.platform.database.read() as connection:
        found = instances.get(connection, made.id)
    assert found is not None and found.afterwards is None
    with pytest.raises(Conflict, match="released"):
        starting.start(world.platform, lab, made.id, StartRequest())
