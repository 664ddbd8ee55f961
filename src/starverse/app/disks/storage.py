"""Storage follows what is recorded of disks: made, grown, copied, removed, measured.

The record comes first, then storage is asked, then what became of it is recorded. Every call of storage may
be repeated, so that a server which dies anywhere between leaves nothing that the next round does not mend.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection

from starverse.app.disks.finding import tree_of
from starverse.app.disks.orders import record
from starverse.app.disks.schedules import next_due
from starverse.app.disks.sizes import set_size
from starverse.app.disks.snapshots import default_name, drop, tell, why_no_snapshot
from starverse.app.one_by_one import Round
from starverse.app.platform import Platform
from starverse.db import disks, snapshots
from starverse.db.disks import Disk
from starverse.db.snapshots import Snapshot
from starverse.domain.catalog.disks import (
    GIB,
    RESTORE_DAYS,
    SNAPSHOTS_KEPT_DEFAULT,
    SNAPSHOTS_MAX,
    DiskState,
    ScheduledSnapshot,
    SnapshotState,
    over_quota,
    snapshots_to_remove,
)
from starverse.engines.base import DiskTree, StorageFailed

BATCH = 20
MEASURE_EVERY = timedelta(minutes=10)
MEASURE_SECONDS_MAX = 20.0
"""For one disk. One that takes longer is told as not measured, and asked again after the others."""
MEASURED_IN_A_ROUND = 5


def follow(platform: Platform) -> list[str]:
    """One round over what is quickly made so, whatever its size; what was done, in words."""
    now = platform.clock.now()
    with platform.database.read() as connection:
        unmade = disks.unmade(connection, BATCH, copied=False)
        expired = disks.deleted_before(connection, now - timedelta(days=RESTORE_DAYS), BATCH)
        due = disks.with_due_snapshot(connection, now, BATCH)
    round_ = Round()
    round_.act_on(unmade, lambda disk: _have(platform, disk))
    round_.act_on(due, lambda disk: _order_due(platform, disk))
    round_.act_on(expired, lambda disk: _purge(platform, disk))
    if due or expired:
        platform.wakeups.wake("disk_copies")
    return round_.end()


def follow_bytes(platform: Platform) -> list[str]:
    """One round over what takes as long as there are bytes: copying and deleting. What was done, in words."""
    with platform.database.read() as connection:
        unmade = disks.unmade(connection, BATCH, copied=True)
        copies = snapshots.unmade(connection, BATCH)
        purged = disks.to_remove(connection, BATCH)
        dropped = snapshots.to_remove(connection, BATCH)
    round_ = Round()
    round_.act_on(unmade, lambda disk: _have(platform, disk))
    round_.act_on(copies, lambda snapshot: _copy(platform, snapshot))
    round_.act_on(purged, lambda disk: _remove(platform, disk.id))
    round_.act_on(dropped, lambda snapshot: _remove_snapshot(platform, snapshot))
    return round_.end()


def measure_some(platform: Platform) -> list[str]:
    """Measure those disks that were measured longest ago; tell a team once when one is over its size."""
    with platform.database.read() as connection:
        before = platform.clock.now() - MEASURE_EVERY
        due = disks.measured_before(connection, before, MEASURED_IN_A_ROUND)
    round_ = Round()
    round_.act_on(due, lambda disk: _measure(platform, disk))
    return round_.end()


def _have(platform: Platform, disk: Disk) -> str:
    with platform.database.read() as connection:
        tree = tree_of(connection, platform, disk)
        source = None if disk.made_from is None else snapshots.get(connection, disk.made_from)
    if disk.state is DiskState.READY:
        return _grow(platform, disk, tree)
    try:
        snapshot = None if source is None else (source.disk_id, source.id)
        hard = platform.engine.disks.make(tree, snapshot)
    except StorageFailed as failed:
        _note_failed(platform, disk, failed.detail)
        return f"disk {disk.name} could not be made"

    def made(connection: Connection) -> str:
        now = platform.clock.now()
        current = disks.lock(connection, disk.id)
        if current is None or current.state is not DiskState.MAKING:
            return ""
        disks.change(connection, current, state=DiskState.READY, made_gib=disk.gib, hard_quota=hard)
        set_size(connection, current, disk.gib, now)
        record(connection, None, current, "ready", "", now)
        return f"made disk {disk.name}"

    return platform.database.write_retrying(made)


def _note_failed(platform: Platform, disk: Disk, message: str) -> None:
    def failed(connection: Connection) -> None:
        current = disks.lock(connection, disk.id)
        if current is not None and current.state is DiskState.MAKING:
            disks.change(connection, current, state=DiskState.FAILED, message=message)
            tell(connection, current, "not_made", message, platform.clock.now())

    platform.database.write_retrying(failed)


def _grow(platform: Platform, disk: Disk, tree: DiskTree) -> str:
    """Where storage cannot, the disk has the size that it had, and costs that."""
    message = ""
    try:
        platform.engine.disks.grow(tree)
    except StorageFailed as failed:
        message = failed.detail

    def grown(connection: Connection) -> str:
        now = platform.clock.now()
        current = disks.lock(connection, disk.id)
        if current is None or current.gib != disk.gib or not current.growing:
            return ""
        if not message:
            disks.change(connection, current, made_gib=disk.gib)
            return f"disk {disk.name} has {disk.gib} GiB"
        disks.change(connection, current, gib=current.made_gib)
        set_size(connection, current, current.made_gib or 0, now)
        tell(connection, current, "not_grown", f"it keeps {current.made_gib} GiB: {message}", now)
        return f"disk {disk.name} was not grown"

    return platform.database.write_retrying(grown)


def _copy(platform: Platform, snapshot: Snapshot) -> str:
    with platform.database.read() as connection:
        disk = disks.get(connection, snapshot.disk_id)
        assert disk is not None
        tree = tree_of(connection, platform, disk)
    copied, message = 0, ""
    try:
        copied = platform.engine.disks.take_snapshot(tree, snapshot.id)
    except StorageFailed as failed:
        message = failed.detail

    def done(connection: Connection) -> str:
        now = platform.clock.now()
        current = snapshots.get(connection, snapshot.id)
        if current is None or current.state is not SnapshotState.MAKING:
            return ""
        if message:
            snapshots.change(connection, current, SnapshotState.FAILED, message=message)
            tell(connection, disk, "no_snapshot", f"{current.name}: {message}", now)
            return f"snapshot {current.name} of disk {disk.name} failed"
        snapshots.change(connection, current, SnapshotState.MADE, bytes=copied, made_at=now)
        if current.scheduled:
            _prune(connection, disk, now)
        return f"made snapshot {current.name} of disk {disk.name}"

    return platform.database.write_retrying(done)


def _prune(connection: Connection, disk: Disk, now: datetime) -> None:
    """Of those that the schedule made, the newest few stay."""
    there = [one for one in snapshots.of_disk(connection, disk.id) if one.scheduled and one.made_at]
    made = [ScheduledSnapshot(one.id, one.made_at) for one in there if one.made_at]
    for snapshot_id in snapshots_to_remove(made, disk.snapshots_kept or SNAPSHOTS_KEPT_DEFAULT):
        drop(connection, next(one for one in there if one.id == snapshot_id), now)


def _order_due(platform: Platform, disk: Disk) -> str:
    """Ask for the snapshot that a schedule names; those that were missed meanwhile are not made up for."""

    def act(connection: Connection) -> str:
        now = platform.clock.now()
        current = disks.lock(connection, disk.id)
        if current is None or current.snapshot_due_at is None or current.snapshot_due_at > now:
            return ""
        line = current.snapshot_schedule or ""
        due = next_due(line, platform.settings.timezone, now)
        disks.change(connection, current, snapshot_due_at=due)
        why = why_no_snapshot(connection, current)
        if why is None and snapshots.count_of_disk(connection, disk.id) >= SNAPSHOTS_MAX:
            why = f"it has {SNAPSHOTS_MAX} snapshots; delete some"
        if why is not None:
            tell(connection, current, "no_snapshot", f"its schedule made none: {why}", now)
            return f"no snapshot of disk {disk.name}: {why}"
        snapshots.insert_snapshot(
            connection,
            Snapshot(
                id=platform.ids.uuid7(),
                disk_id=disk.id,
                team_id=disk.team_id,
                account_id=None,
                name=default_name(now, "scheduled"),
                state=SnapshotState.MAKING,
                scheduled=True,
                gib=current.gib,
                asked_at=now,
            ),
        )
        return f"a snapshot of disk {disk.name} is due"

    return platform.database.write_retrying(act)


def _purge(platform: Platform, disk: Disk) -> str:
    """First the record: from here on it cannot come back."""

    def act(connection: Connection) -> str:
        current = disks.lock(connection, disk.id)
        if current is None or current.state is not DiskState.DELETED or current.deleted_at != disk.deleted_at:
            return ""
        disks.change(connection, current, state=DiskState.PURGED)
        record(connection, None, current, "purged", "", platform.clock.now())
        return f"disk {disk.name} is not kept any longer"

    return platform.database.write_retrying(act)


def _remove(platform: Platform, disk_id: str) -> str:
    with platform.database.read() as connection:
        disk = disks.get(connection, disk_id)
    if disk is None or disk.state is not DiskState.PURGED or disk.purged_at is not None:
        return ""
    platform.engine.disks.remove(disk.id)

    def removed(connection: Connection) -> None:
        current = disks.lock(connection, disk.id)
        if current is not None and current.purged_at is None:
            disks.change(connection, current, purged_at=platform.clock.now())

    platform.database.write_retrying(removed)
    return f"removed disk {disk.name}"


def _remove_snapshot(platform: Platform, snapshot: Snapshot) -> str:
    platform.engine.disks.remove_snapshot(snapshot.disk_id, snapshot.id)
    with platform.database.write() as connection:
        snapshots.note_gone(connection, snapshot.id)
    return f"removed snapshot {snapshot.name}"


def _measure(platform: Platform, disk: Disk) -> str:
    with platform.database.read() as connection:
        tree = tree_of(connection, platform, disk)
    try:
        use = platform.engine.disks.measure(tree, MEASURE_SECONDS_MAX)
    except StorageFailed as failed:
        use, why = None, failed.detail
    else:
        why = f"it took longer than {MEASURE_SECONDS_MAX:.0f} s"

    def measured(connection: Connection) -> str:
        now = platform.clock.now()
        current = disks.lock(connection, disk.id)
        if current is None or current.state is not DiskState.READY:
            return ""
        if use is None:
            disks.note_not_measured(connection, disk.id, now)
            return f"disk {disk.name} was not measured: {why}"
        disks.note_usage(connection, disk.id, use.bytes, use.files, now)
        over = over_quota(current.kind, current.gib, use.bytes)
        if over and not current.over_quota:
            text = (
                f"it holds {use.bytes / GIB:.1f} of {current.gib} GiB; until it holds less or is resized, "
                "it is attached read-only"
            )
            tell(connection, current, "over_quota", text, now)
            return f"disk {disk.name} is over its size"
        return ""

    return platform.database.write_retrying(measured)
