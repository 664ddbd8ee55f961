"""Each invariant of disks is broken on purpose once, and noticed by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from starverse.app.disks import orders
from starverse.app.disks.orders import NewDisk
from starverse.app.instances.launching import DiskWish, LaunchRequest, launch
from starverse.domain.disk_kind import DiskKind
from starverse.domain.workloads.launch import Plug
from starverse.engines.fake import FakeRun
from starverse.testing.disk_invariants import DiskInspector
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

Fault = Callable[[World, Connection], None]
LARGE, BLOCK = "large", "block"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two instances run; one has a block disk and a shared one, for hours."""
    with fresh_database("sqlite", tmp_path) as database:
        world = World(database, tmp_path / "data")
        lab = world.team("lab")
        orders.create_disk(world.platform, lab, NewDisk(LARGE, DiskKind.SHARED, 200))
        orders.create_disk(world.platform, lab, NewDisk(BLOCK, DiskKind.BLOCK, 1))
        world.follow_disks()
        for name, disks in (("a", (DiskWish(LARGE), DiskWish(BLOCK))), ("b", ())):
            world.plan(name, FakeRun(run_seconds=float("inf")))
            launch(world.platform, lab, LaunchRequest("rtx4090", 1, name=name, disks=disks, idle_stop="off"))
        world.run(5)
        world.run(3700, step=300)
        yield world


def sql(*statements: str) -> Fault:
    def plant(_world: World, connection: Connection) -> None:
        for statement in statements:
            connection.execute(text(statement))

    return plant


def mount_twice(world: World, _connection: Connection) -> None:
    has, other = sorted(world.engine.launchers.values(), key=lambda run: not run.plugs.there)
    other.plugs.there |= {key: plug for key, plug in has.plugs.there.items() if plug.kind == "block"}


def mount_what_nobody_knows(world: World, _connection: Connection) -> None:
    run = next(iter(world.engine.launchers.values()))
    run.plugs.there["x"] = Plug("x", "/data/x", "shared", "/nowhere")


def lose_the_bytes(world: World, _connection: Connection) -> None:
    world.engine.storage.trees.clear()


PLANTS: dict[str, tuple[str, Fault]] = {
    "a second writer": (
        "block_disks_have_one_writer",
        sql(
            "DROP INDEX uq_attachments_one_writer",
            "DROP INDEX uq_attachments_one_per_target",
            "INSERT INTO attachments SELECT 'second', disk_id, allocation_id, team_id, '/data/second', "
            "read_only, exclusive, state, reason, message, generation, asked_at, attached_at, detach_by, "
            "ended_at FROM attachments WHERE exclusive",
        ),
    ),
    "a second mount": ("block_disks_have_one_writer", mount_twice),
    "a mount that is not on record": ("plugs_are_on_record", mount_what_nobody_knows),
    "recorded as out and still in": (
        "detached_is_out",
        sql("UPDATE attachments SET state = 'detached', ended_at = asked_at"),
    ),
    "had by a run that was cleaned up": (
        "no_run_no_disk",
        sql("UPDATE allocations SET cleaned_at = placed_at"),
    ),
    "an end without a time": ("ends_have_times", sql("UPDATE attachments SET state = 'refused'")),
    "a deleted disk that is had": (
        "only_ready_disks_are_had",
        sql("UPDATE disks SET state = 'deleted', deleted_at = created_at"),
    ),
    "lost bytes": ("disks_are_kept", lose_the_bytes),
    "bytes of a purged disk": (
        "purged_disks_are_gone",
        sql("UPDATE disks SET state = 'purged', deleted_at = created_at, purged_at = created_at"),
    ),
    "a state that cannot follow": ("legal_transitions", sql("UPDATE attachments SET state = 'attaching'")),
    "a charge of another amount": (
        "disks_charged_as_sized",
        sql("UPDATE disk_charges SET total_micro = total_micro + 1, cash_micro = cash_micro + 1"),
    ),
    "a size that was changed afterwards": (
        "disks_charged_as_sized",
        sql("UPDATE disk_sizes SET gib = gib + 1"),
    ),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_fault_is_noticed(world: World, plant: str) -> None:
    inspector = DiskInspector(world)
    assert inspector.tick() == [], "before it is planted all is well"
    name, fault = PLANTS[plant]
    with world.database.write() as connection:
        fault(world, connection)
    assert name in {broken.name for broken in inspector.tick()}


def test_what_is_under_way_for_ever_is_noticed(world: World) -> None:
    inspector = DiskInspector(world)
    assert inspector.end() == []
    with world.database.write() as connection:
        connection.execute(text("UPDATE attachments SET state = 'detaching'"))
        connection.execute(text("UPDATE disks SET made_gib = gib + 1"))
    assert {broken.name for broken in inspector.end()} == {
        "attachments_come_to_rest",
        "disks_come_to_rest",
    }
