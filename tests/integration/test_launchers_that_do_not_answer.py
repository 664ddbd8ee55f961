"""Launchers that hear nothing of their disks: an attach is refused, a detach is stuck, in bounded time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.app.disks import orders, plugging
from starverse.app.disks.orders import NewDisk
from starverse.app.disks.plugging import AttachRequest
from starverse.app.identity import Identity
from starverse.app.instances.launching import DiskWish, LaunchRequest, launch
from starverse.domain.disk_kind import DiskKind
from starverse.domain.workloads.states import AttachmentState
from starverse.engines.fake import Call, FakeRun, Trouble
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World


class Deaf:
    """Whether what is wanted of launchers is lost on its way."""

    on = False

    def __call__(self, call: Call, _name: str) -> Trouble | None:
        return Trouble.UNAVAILABLE if self.on and call is Call.STEER else None


@pytest.fixture
def deaf() -> Deaf:
    return Deaf()


@pytest.fixture
def world(kind: str, tmp_path: Path, deaf: Deaf) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data", trouble=deaf)


@pytest.fixture
def lab(world: World) -> Identity:
    who = world.team("lab")
    orders.create_disk(world.platform, who, NewDisk("home", DiskKind.BLOCK, 1))
    world.follow_disks()
    return who


def instance(world: World, who: Identity, *disks: DiskWish) -> None:
    world.plan("box", FakeRun(run_seconds=float("inf")))
    launch(world.platform, who, LaunchRequest("rtx4090", 1, name="box", disks=disks, idle_stop="off"))
    world.run(3)


def state(world: World, who: Identity) -> tuple[AttachmentState, str]:
    newest = orders.get_disk(world.platform, who, "home").attachments[0]
    return newest.state, newest.message


def test_an_attach_that_nobody_answers_is_refused_within_a_minute(
    world: World, lab: Identity, deaf: Deaf
) -> None:
    instance(world, lab)
    deaf.on = True
    plugging.attach(world.platform, lab, "home", AttachRequest("box"))
    world.run(50, step=5)
    assert state(world, lab)[0] is AttachmentState.ATTACHING
    world.run(15, step=5)
    assert state(world, lab) == (AttachmentState.REFUSED, "its launcher did not answer")
    deaf.on = False
    world.run(5)
    assert state(world, lab)[0] is AttachmentState.REFUSED
    (run,) = world.engine.launchers.values()
    assert run.plugs.there == {}, "what was refused is not asked for later"
    plugging.attach(world.platform, lab, "home", AttachRequest("box"))
    world.run(3)
    assert state(world, lab)[0] is AttachmentState.ATTACHED


def test_a_detach_that_nobody_answers_is_stuck_and_heals_by_itself(
    world: World, lab: Identity, deaf: Deaf
) -> None:
    instance(world, lab, DiskWish("home"))
    deaf.on = True
    plugging.detach(world.platform, lab, "home", "box")
    world.run(20, step=5)
    assert state(world, lab)[0] is AttachmentState.DETACHING
    world.run(20, step=5)
    assert state(world, lab) == (AttachmentState.STUCK, "its launcher did not answer")
    deaf.on = False
    world.run(5)
    assert state(world, lab) == (AttachmentState.DETACHED, ""), "nothing holds it any more"
