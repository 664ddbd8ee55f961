"""Where no workload can have a block disk, nobody comes to pay for one; shared disks are not concerned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from starverse.app.disks import orders, plugging
from starverse.app.disks.orders import NewDisk
from starverse.app.disks.plugging import AttachRequest
from starverse.app.instances.launching import DiskWish, LaunchRequest, launch
from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import Conflict, Invalid
from starverse.engines.fake import FakeRun
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

WHY = "block disks without root need /dev/fuse: chmod 666 /dev/fuse (as udev sets it)"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with fresh_database("sqlite", tmp_path) as database:
        yield World(database, tmp_path / "data")


def test_they_are_refused_with_doctors_reason_wherever_they_are_asked_for(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FakeRun(run_seconds=float("inf")))
    orders.create_disk(world.platform, lab, NewDisk("early", DiskKind.BLOCK, 1))
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box"))
    world.run(10, step=5)
    world.engine.no_block_disks = WHY
    asked: dict[str, Callable[[], object]] = {
        "create": lambda: orders.create_disk(world.platform, lab, NewDisk("db", DiskKind.BLOCK, 1)),
        "attach": lambda: plugging.attach(world.platform, lab, "early", AttachRequest("box")),
        "launch": lambda: launch(
            world.platform, lab, LaunchRequest("rtx4090", 1, name="more", disks=(DiskWish("early"),))
        ),
    }
    for how, ask in asked.items():
        with pytest.raises(Conflict, match="without root need /dev/fuse") as refused:
            ask()
        assert refused.value.hint is not None and "chmod 666 /dev/fuse" in refused.value.hint, how
    with pytest.raises(Invalid, match="/dev/fuse"):
        world.submit(lab, "--disk=early", name="job")
    assert [disk.name for disk in orders.list_disks(world.platform, lab)] == ["early"]
    orders.create_disk(world.platform, lab, NewDisk("data", DiskKind.SHARED, 1))
