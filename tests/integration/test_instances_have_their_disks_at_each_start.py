"""Disks that an instance has at each start: taken with its place, or nothing is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.app.disks.orders import NewDisk, create_disk
from starverse.app.disks.plugging import AttachRequest, attach, detach
from starverse.app.instances import starting, stopping, views
from starverse.app.instances.launching import DiskWish, LaunchRequest, launch
from starverse.app.instances.starting import ResizeRequest, StartRequest
from starverse.db import attachments
from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import Conflict, Invalid
from starverse.domain.workloads.states import InstanceState
from starverse.engines.fake import FakeRun
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

FOR_EVER = FakeRun(run_seconds=float("inf"))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with fresh_database("sqlite", tmp_path) as database:
        yield World(database, tmp_path / "data")


def test_a_block_disk_goes_with_its_instance_from_start_to_start(world: World) -> None:
    lab = world.team("lab")
    for name in ("box", "other"):
        world.plan(name, FOR_EVER)
    create_disk(world.platform, lab, NewDisk("home", DiskKind.BLOCK, 1))
    create_disk(world.platform, lab, NewDisk("pool", DiskKind.SHARED, 1))
    world.round()
    wanted = (DiskWish("home"), DiskWish("pool", "/data/all", read_only=True))
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box", disks=wanted))
    world.run(5)
    shown = views.get(world.platform, lab, "box")
    assert [(d.name, d.target, d.read_only, d.state) for d in shown.disks] == [
        ("pool", "/data/all", True, "attached"),
        ("home", "/data/home", False, "attached"),
    ]
    with pytest.raises(Conflict, match="one writer, and instance box has it"):
        launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="other", disks=(DiskWish("home"),)))
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="other", disks=(DiskWish("pool"),)))

    starting.resize(world.platform, lab, "box", ResizeRequest(2))
    world.run(15)
    resized = views.get(world.platform, lab, "box")
    assert (resized.state, resized.cards) == (InstanceState.RUNNING, 2)
    assert {d.state for d in resized.disks} == {"attached"}
    assert {d.state for d in views.get(world.platform, lab, "other").disks} == {"attached"}

    stopping.stop(world.platform, lab, "box")
    world.run(1)
    starting.start(world.platform, lab, "box", StartRequest(no_gpu=True))
    world.run(15)
    again = views.get(world.platform, lab, "box")
    assert again.state is InstanceState.RUNNING and {d.state for d in again.disks} == {"attached"}


def test_what_was_plugged_in_and_out_while_it_ran_holds_where_it_starts_elsewhere(world: World) -> None:
    """Scenario 15: after a reclaim it has its disks, those of now and no others."""
    lab, rival = world.team("lab"), world.team("rival")
    for name in ("box", "urgent"):
        world.plan(name, FOR_EVER)
    for name in ("first", "later"):
        create_disk(world.platform, lab, NewDisk(name, DiskKind.BLOCK, 1))
    world.round()
    asked = LaunchRequest(
        "rtx4090", 8, name="box", tariff="spot", restart="elsewhere", disks=(DiskWish("first"),)
    )
    launch(world.platform, lab, asked)
    world.run(5)
    attach(world.platform, lab, "later", AttachRequest("box"))
    detach(world.platform, lab, "first", "box")
    world.run(5)
    launch(world.platform, rival, LaunchRequest("rtx4090", 8, name="urgent"))
    world.run(200, step=5)
    assert views.get(world.platform, lab, "box").state is InstanceState.QUEUED
    stopping.stop(world.platform, rival, "urgent")
    world.run(60)
    again = views.get(world.platform, lab, "box")
    assert again.state is InstanceState.RUNNING
    assert [(disk.name, disk.state) for disk in again.disks] == [("later", "attached")]
    (run,) = (run for run in world.engine.launchers.values() if not run.ended and run.spec.interactive)
    assert [plug.target for plug in run.spec.plugs] == ["/data/later"]


def test_of_two_that_want_one_block_disk_at_once_the_later_is_stopped_with_the_reason(world: World) -> None:
    lab = world.team("lab")
    for name in ("box", "other"):
        world.plan(name, FOR_EVER)
    create_disk(world.platform, lab, NewDisk("home", DiskKind.BLOCK, 1))
    world.round()
    for name in ("box", "other"):
        launch(world.platform, lab, LaunchRequest("rtx4090", 1, name=name, disks=(DiskWish("home"),)))
    world.run(5)
    first, second = (views.get(world.platform, lab, name) for name in ("box", "other"))
    assert (first.state, second.state) == (InstanceState.RUNNING, InstanceState.STOPPED)
    assert second.reason == "disk_in_use" and "instance box has it" in second.message
    with world.platform.database.read() as connection:
        assert len(attachments.all_open(connection)) == 1, "the refused one has no side effect"
    with pytest.raises(Conflict, match="one writer"):
        starting.start(world.platform, lab, "other", StartRequest())
    stopping.stop(world.platform, lab, "box")
    world.run(10)
    starting.start(world.platform, lab, "other", StartRequest())
    world.run(5)
    assert views.get(world.platform, lab, "other").state is InstanceState.RUNNING


@pytest.mark.parametrize("path", ["/root", "/data", "/data/../etc", "relative", "/data/a/b", "/data/"])
def test_a_path_outside_of_data_is_refused(world: World, path: str) -> None:
    lab = world.team("lab")
    create_disk(world.platform, lab, NewDisk("home", DiskKind.SHARED, 1))
    world.round()
    with pytest.raises(Invalid, match="/data"):
        launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box", disks=(DiskWish("home", path),)))


def test_a_disk_of_another_team_is_none(world: World) -> None:
    lab, rival = world.team("lab"), world.team("rival")
    made = create_disk(world.platform, rival, NewDisk("theirs", DiskKind.SHARED, 1))
    world.round()
    for ref in ("theirs", made.id):
        with pytest.raises(Invalid, match="starverse disk ls"):
            launch(world.platform, lab, LaunchRequest("rtx4090", 1, disks=(DiskWish(ref),)))
