"""Disks at instances: plugged in and out while they run, refused without a trace, never taken from another.

Scenario 18 in three stories: stopping B never takes A's disk; a detach is bounded, then visibly stuck; a
refused attach has no side effect and is not tried again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from starverse.app.disks import orders, plugging, snapshots
from starverse.app.disks.orders import NewDisk
from starverse.app.disks.plugging import AttachRequest
from starverse.app.disks.stuck import clear_stuck, list_stuck
from starverse.app.disks.views import AttachmentView, DiskView
from starverse.app.identity import Identity
from starverse.app.instances import starting, stopping, views
from starverse.app.instances.launching import DiskWish, LaunchRequest, launch
from starverse.app.instances.starting import StartRequest
from starverse.db import attachments as attachment_rows
from starverse.db import disks as disk_rows
from starverse.db import events, syncs
from starverse.db.syncs import Sync
from starverse.domain.catalog.disks import SyncDirection, SyncState
from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import Conflict, Invalid, NotFound, StarverseError
from starverse.domain.workloads.launch import Plug
from starverse.domain.workloads.states import AttachmentState, InstanceState
from starverse.engines.fake import FakeRun
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

FOR_EVER = FakeRun(run_seconds=float("inf"))


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data")


@pytest.fixture
def lab(world: World) -> Identity:
    return world.team("lab")


def disk(world: World, who: Identity, name: str = "home", kind: DiskKind = DiskKind.SHARED) -> DiskView:
    made = orders.create_disk(world.platform, who, NewDisk(name, kind, 1))
    world.follow_disks()
    return made


def instance(world: World, who: Identity, name: str, *disks: DiskWish, run: FakeRun = FOR_EVER) -> None:
    world.plan(name, run)
    launch(world.platform, who, LaunchRequest("rtx4090", 1, name=name, disks=disks, wait=True))
    world.run(3)


def attach(world: World, who: Identity, name: str, to: str, **more: object) -> DiskView:
    return plugging.attach(world.platform, who, name, AttachRequest(to, **more))  # type: ignore[arg-type]


def shown(world: World, who: Identity, name: str = "home") -> tuple[AttachmentView, ...]:
    return orders.get_disk(world.platform, who, name).attachments


def states(world: World, who: Identity, name: str = "home") -> list[tuple[str | None, AttachmentState]]:
    return [(one.instance, one.state) for one in shown(world, who, name)]


def plugged(world: World, who: Identity, name: str) -> dict[str, Plug]:
    """What the launcher of an instance really has, by path."""
    wanted = views.get(world.platform, who, name).id
    found: dict[str, Plug] = {}
    with world.database.read() as connection:
        run = attachment_rows.run_of_instance(connection, wanted)
    if run is not None:
        found = {plug.target: plug for plug in world.engine.launchers[run].plugs.there.values()}
    return found


def warnings(world: World, subject_id: str) -> list[str]:
    with world.database.read() as connection:
        found = events.newest(connection, 50, subject_id=subject_id)
    return [one.event.reason for one in found if one.event.kind == "warning"]


def had(world: World, who: Identity, name: str) -> list[str]:
    """The paths of what an instance has at each start."""
    with world.database.read() as connection:
        own = disk_rows.disks_of_instance(connection, views.get(world.platform, who, name).id)
    return [one.target for one in own]


def test_a_disk_is_plugged_into_what_runs_and_taken_out_again(world: World, lab: Identity) -> None:
    disk(world, lab)
    instance(world, lab, "box")
    attach(world, lab, "home", "box")
    assert states(world, lab) == [("box", AttachmentState.ATTACHING)]
    world.run(3)
    assert states(world, lab) == [("box", AttachmentState.ATTACHED)]
    assert list(plugged(world, lab, "box")) == ["/data/home"]

    plugging.detach(world.platform, lab, "home", "box")
    plugging.detach(world.platform, lab, "home", "box")
    assert states(world, lab) == [("box", AttachmentState.DETACHING)]
    world.run(3)
    assert states(world, lab) == [("box", AttachmentState.DETACHED)]
    assert plugged(world, lab, "box") == {}
    assert had(world, lab, "box") == []
    with pytest.raises(Conflict, match="not attached"):
        plugging.detach(world.platform, lab, "home", "box")


def test_what_is_attached_is_there_again_at_the_next_start(world: World, lab: Identity) -> None:
    disk(world, lab)
    instance(world, lab, "box")
    attach(world, lab, "home", "box", path="/data/in", read_only=True)
    world.run(3)
    stopping.stop(world.platform, lab, "box")
    world.run(12)
    assert states(world, lab) == [("box", AttachmentState.DETACHED)]
    assert had(world, lab, "box") == ["/data/in"]
    starting.start(world.platform, lab, "box", StartRequest())
    world.run(3)
    assert plugged(world, lab, "box")["/data/in"].read_only
    assert states(world, lab)[0] == ("box", AttachmentState.ATTACHED)


def test_a_disk_for_a_stopped_instance_waits_for_its_start(world: World, lab: Identity) -> None:
    disk(world, lab)
    instance(world, lab, "box")
    stopping.stop(world.platform, lab, "box")
    world.run(12)
    attach(world, lab, "home", "box")
    assert shown(world, lab) == ()
    assert had(world, lab, "box") == ["/data/home"]
    with pytest.raises(Conflict, match="instance box"):
        orders.delete_disk(world.platform, lab, "home")
    plugging.detach(world.platform, lab, "home", "box")
    assert had(world, lab, "box") == []
    orders.delete_disk(world.platform, lab, "home")


def test_story_one_stopping_b_never_takes_what_a_has(world: World, lab: Identity) -> None:
    disk(world, lab, kind=DiskKind.BLOCK)
    disk(world, lab, "both")
    instance(world, lab, "a", DiskWish("home"), DiskWish("both"))
    instance(world, lab, "b", DiskWish("both"))
    with pytest.raises(Conflict, match="instance a has it"):
        attach(world, lab, "home", "b")
    stopping.stop(world.platform, lab, "b")
    world.run(20)
    assert states(world, lab, "home") == [("a", AttachmentState.ATTACHED)]
    assert sorted(states(world, lab, "both"), key=str) == [
        ("a", AttachmentState.ATTACHED),
        ("b", AttachmentState.DETACHED),
    ]
    assert sorted(plugged(world, lab, "a")) == ["/data/both", "/data/home"]


def test_story_two_a_detach_is_bounded_then_stuck_and_an_operator_clears_it(
    world: World, lab: Identity
) -> None:
    made = disk(world, lab, kind=DiskKind.BLOCK)
    instance(world, lab, "box", DiskWish("home"), run=FakeRun(run_seconds=float("inf"), keeps_plugs=True))
    plugging.detach(world.platform, lab, "home", "box")
    world.run(3)
    (one,) = shown(world, lab)
    assert (one.state, one.message) == (AttachmentState.STUCK, "a file on it is open")
    assert warnings(world, made.id) == ["stuck"]
    instance(world, lab, "other")
    with pytest.raises(Conflict, match=r"instance box \(it is stuck there\) has it"):
        attach(world, lab, "home", "other")
    with pytest.raises(StarverseError):
        clear_stuck(world.platform, lab, one.id)

    operator = replace(world.team("operator"), operator=True)
    (stuck,) = list_stuck(world.platform, operator)
    assert (stuck.id, stuck.disk, stuck.team, stuck.instance) == (one.id, "home", "lab", "box")
    assert (stuck.message, len(stuck.nodes)) == ("a file on it is open", 1)
    with pytest.raises(StarverseError):
        list_stuck(world.platform, lab)
    clear_stuck(world.platform, operator, one.id)
    assert list_stuck(world.platform, operator) == ()
    assert states(world, lab) == [("box", AttachmentState.DETACHED)]
    # the lock on the file is the last word: what somebody still has mounted is refused on the node
    attach(world, lab, "home", "other")
    world.run(3)
    assert states(world, lab)[0] == ("other", AttachmentState.REFUSED)
    assert had(world, lab, "other") == []


def test_story_three_a_refused_attach_leaves_nothing_and_is_not_tried_again(
    world: World, lab: Identity
) -> None:
    made = disk(world, lab)
    instance(world, lab, "box", run=FakeRun(run_seconds=float("inf"), refuses_plugs="no such device"))
    attach(world, lab, "home", "box")
    world.run(30)
    (one,) = shown(world, lab)
    assert (one.state, one.message) == (AttachmentState.REFUSED, "no such device")
    assert warnings(world, made.id) == ["refused"]
    assert had(world, lab, "box") == []
    assert views.get(world.platform, lab, "box").state is InstanceState.RUNNING
    orders.delete_disk(world.platform, lab, "home")


def test_story_three_a_start_whose_disk_is_refused_ends_and_does_not_loop(
    world: World, lab: Identity
) -> None:
    disk(world, lab)
    instance(world, lab, "box", DiskWish("home"), run=FakeRun(refuses_plugs="no such device"))
    world.run(60)
    stopped = views.get(world.platform, lab, "box")
    assert stopped.state is InstanceState.STOPPED
    assert "no such device" in stopped.message
    assert [state for _, state in states(world, lab)] == [AttachmentState.REFUSED]
    assert world.bill(lab).charges == ()


def test_a_run_that_is_lost_has_its_disks_no_more(world: World, lab: Identity) -> None:
    disk(world, lab, kind=DiskKind.BLOCK)
    instance(world, lab, "a", DiskWish("home"))
    instance(world, lab, "b")
    world.engine.kill_launcher(next(iter(world.engine.launchers)))
    world.run(60)
    assert states(world, lab) == [("a", AttachmentState.DETACHED)]
    attach(world, lab, "home", "b")
    world.run(3)
    assert states(world, lab)[0] == ("b", AttachmentState.ATTACHED)


def test_of_two_that_attach_a_block_disk_at_once_one_gets_it(world: World, lab: Identity) -> None:
    disk(world, lab, kind=DiskKind.BLOCK)
    names = ["a", "b", "c", "d"]
    for name in names:
        instance(world, lab, name)
    got: list[str] = []
    refused: list[str] = []
    start = threading.Barrier(len(names))

    def one(name: str) -> None:
        start.wait()
        try:
            attach(world, lab, "home", name)
        except Conflict as why:
            refused.append(why.detail)
        else:
            got.append(name)

    threads = [threading.Thread(target=one, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(got), len(refused)) == (1, 3), (got, refused)
    world.run(3)
    assert states(world, lab) == [(got[0], AttachmentState.ATTACHED)]


def test_over_its_size_a_disk_is_attached_read_only_and_its_team_is_told_once(
    world: World, lab: Identity
) -> None:
    made = disk(world, lab)
    world.engine.storage.trees[made.id].used_bytes = 2 * 1024**3
    for _ in range(3):
        world.clock.advance(minutes=11)
        world.run_reconciler("disk_meter")
    assert orders.get_disk(world.platform, lab, "home").over_quota
    assert warnings(world, made.id) == ["over_quota"]
    instance(world, lab, "box")
    attach(world, lab, "home", "box")
    world.run(3)
    (one,) = shown(world, lab)
    assert (one.state, one.read_only) == (AttachmentState.ATTACHED, True)
    assert "read-only" in one.message
    assert plugged(world, lab, "box")["/data/home"].read_only


def test_what_one_team_has_another_cannot_attach(world: World, lab: Identity) -> None:
    rival = world.team("rival")
    disk(world, lab)
    disk(world, rival, "own")
    instance(world, lab, "box")
    for ref, to in [("home", "box"), ("own", "box")]:
        with pytest.raises(NotFound):
            attach(world, rival, ref, to)
    assert shown(world, lab) == ()


@pytest.mark.parametrize(
    "path", ["data/x", "/data", "/data/", "/data/../etc", "/etc", "/data/a/b", "/data/.x"]
)
def test_a_path_that_is_no_name_below_data_is_refused(world: World, lab: Identity, path: str) -> None:
    disk(world, lab)
    instance(world, lab, "box")
    with pytest.raises(Invalid):
        attach(world, lab, "home", "box", path=path)


def test_two_disks_cannot_have_one_path(world: World, lab: Identity) -> None:
    disk(world, lab)
    disk(world, lab, "more")
    instance(world, lab, "box")
    attach(world, lab, "home", "box")
    with pytest.raises(Conflict, match="already"):
        attach(world, lab, "home", "box", path="/data/again")
    with pytest.raises(Conflict, match="another disk"):
        attach(world, lab, "more", "box", path="/data/home")


def test_a_block_disk_grows_and_is_copied_while_nobody_has_it(world: World, lab: Identity) -> None:
    made = disk(world, lab, kind=DiskKind.BLOCK)
    instance(world, lab, "box", DiskWish("home"))
    with pytest.raises(Conflict, match="attached"):
        orders.change_disk(world.platform, lab, "home", orders.DiskChange(gib=2), None)
    with pytest.raises(Conflict, match="instance box has it"):
        snapshots.order_snapshot(world.platform, lab, "home", None, None)
    plugging.detach(world.platform, lab, "home", "box")
    world.run(3)
    orders.change_disk(world.platform, lab, "home", orders.DiskChange(gib=2), None)
    with pytest.raises(Conflict, match="being grown"):
        attach(world, lab, "home", "box")
    world.follow_disks()
    assert world.engine.storage.trees[made.id].tree.gib == 2
    snapshots.order_snapshot(world.platform, lab, "home", "before", None)
    with pytest.raises(Conflict, match="snapshot of it is being made"):
        attach(world, lab, "home", "box")
    world.follow_disks()
    attach(world, lab, "home", "box")


def test_a_block_disk_that_a_sync_has_is_nobody_elses(world: World, lab: Identity) -> None:
    own = disk(world, lab, "db", DiskKind.BLOCK)
    instance(world, lab, "box")
    now = world.clock.now()
    with world.database.write() as connection:
        sync = Sync(
            id=world.platform.ids.uuid7(),
            disk_id=own.id,
            team_id=lab.team_id,
            account_id=lab.account_id,
            direction=SyncDirection.PUSH,
            remote=":http,url='http://127.0.0.1:9':",
            folder="",
            secret_name=None,
            bytes_per_second_max=None,
            verify=False,
            asked_at=now,
        )
        syncs.add(connection, sync)
        running = syncs.take(connection, sync, "a server", 60, now)
    for refused in (
        lambda: attach(world, lab, "db", "box"),
        lambda: snapshots.order_snapshot(world.platform, lab, "db", None, None),
        lambda: orders.change_disk(world.platform, lab, "db", orders.DiskChange(gib=2), None),
        lambda: launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="b", disks=(DiskWish("db"),))),
    ):
        with pytest.raises(Conflict, match="a sync of it runs"):
            refused()
    assert shown(world, lab, "db") == ()
    with world.database.write() as connection:
        syncs.change(connection, running, state=SyncState.SUCCEEDED)
    attach(world, lab, "db", "box")
    world.run(3)
    assert states(world, lab, "db") == [("box", AttachmentState.ATTACHED)]


def test_who_has_a_disk_is_shown_however_many_had_it_since(world: World, lab: Identity) -> None:
    disk(world, lab)
    instance(world, lab, "box", DiskWish("home"))
    (held,) = shown(world, lab)
    world.clock.advance(seconds=60)
    with world.database.write() as connection:
        row = attachment_rows.get(connection, held.id)
        assert row is not None
        now = world.clock.now()
        over = replace(row, state=AttachmentState.DETACHED, asked_at=now, ended_at=now, generation=0)
        for _ in range(120):
            attachment_rows.insert_attachment(connection, replace(over, id=world.platform.ids.uuid7()))
    assert ("box", AttachmentState.ATTACHED) in states(world, lab)
    (listed,) = orders.list_disks(world.platform, lab)
    assert [one.state for one in listed.attachments] == [AttachmentState.ATTACHED]
