"""Snapshots that people order and drop."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from starverse.app.disk_space import require_space
from starverse.app.disks.finding import find_disk, lock_disk, require_ready
from starverse.app.disks.views import SnapshotView, snapshot_view, snapshots_of
from starverse.app.idempotency import Once, claim
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.db import attachments, disks, events, snapshots, syncs
from starverse.db.disks import Disk
from starverse.db.events import Event
from starverse.db.snapshots import Snapshot
from starverse.domain.catalog.disks import SNAPSHOTS_MAX, SYNCING_TEXT, DiskState, SnapshotState, name_fault
from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import Conflict, Invalid, LimitExceeded, NotFound
from starverse.domain.ids import AccountId


def order_snapshot(
    platform: Platform, identity: Identity, ref: str, name: str | None, once: Once | None
) -> SnapshotView:
    """Have a disk copied as it is. A block disk must not be attached: its file system would be copied
    while it changes. Of a shared one each file is whole, as of some moment of the copying."""
    fault = None if name is None else name_fault(name)
    if fault is not None:
        raise Invalid(faults=[fault])
    require_space(platform, 0)
    snapshot_id = platform.ids.uuid7()

    def act(connection: Connection) -> SnapshotView:
        now = platform.clock.now()
        disk = lock_disk(connection, identity, ref)
        before = claim(connection, AccountId(identity.account_id), once, snapshot_id, now)
        made = None if before is None else snapshots.get(connection, before)
        if made is not None:
            return snapshot_view(made)
        require_ready(disk)
        why = why_no_snapshot(connection, disk)
        if why is not None:
            raise Conflict(f"No snapshot of {disk.name} is made: {why}.")
        if snapshots.count_of_disk(connection, disk.id) >= SNAPSHOTS_MAX:
            raise LimitExceeded(f"A disk has at most {SNAPSHOTS_MAX} snapshots; delete some.")
        snapshot = Snapshot(
            id=snapshot_id,
            disk_id=disk.id,
            team_id=disk.team_id,
            account_id=identity.account_id,
            name=name or default_name(now, "snapshot"),
            state=SnapshotState.MAKING,
            scheduled=False,
            gib=disk.gib,
            asked_at=now,
        )
        snapshots.insert_snapshot(connection, snapshot)
        return snapshot_view(snapshot)

    try:
        ordered = platform.database.write_retrying(act)
    except IntegrityError as taken:
        raise Conflict(f"The disk has a snapshot {name!r} already.") from taken
    platform.wakeups.wake("disk_copies")
    return ordered


def list_snapshots(platform: Platform, identity: Identity, ref: str) -> tuple[SnapshotView, ...]:
    """Those of a disk that were not removed, the oldest first."""
    with platform.database.read() as connection:
        return snapshots_of(connection, find_disk(connection, identity, ref).id)


def remove_snapshot(platform: Platform, identity: Identity, ref: str, snapshot_ref: str) -> None:
    """Drop a snapshot; its bytes go soon."""

    def act(connection: Connection) -> None:
        disk = lock_disk(connection, identity, ref)
        snapshot = snapshots.find(connection, disk.id, snapshot_ref)
        if snapshot is None:
            raise NotFound(f"The disk {disk.name} has no snapshot {snapshot_ref[:80]!r}.")
        if snapshot.state is SnapshotState.MAKING:
            raise Conflict(f"The snapshot {snapshot.name} is being made; try again in a moment.")
        if disks.is_made_from(connection, snapshot.id):
            raise Conflict(f"A disk is being made from the snapshot {snapshot.name}; try again in a moment.")
        drop(connection, snapshot, platform.clock.now())

    platform.database.write_retrying(act)
    platform.wakeups.wake("disk_copies")


def drop(connection: Connection, snapshot: Snapshot, now: datetime) -> None:
    """Record that a snapshot goes; its bytes follow."""
    snapshots.change(connection, snapshot, SnapshotState.REMOVED, removed_at=now)


def why_no_snapshot(connection: Connection, disk: Disk) -> str | None:
    """Why a disk cannot be copied now; ``None``: it can. The disk's row is locked."""
    if disk.state is not DiskState.READY:
        return f"the disk is {disk.state.value}"
    if disk.kind is DiskKind.SHARED:
        return None
    if disk.growing:
        return "its file system is being grown"
    held = attachments.open_of_disk(connection, disk.id)
    if held:
        owners = attachments.owners_of(connection, [one.allocation_id for one in held])
        return f"{next(iter(owners.values())).named} has it attached"
    return SYNCING_TEXT if syncs.runs_on(connection, disk.id) else None


def default_name(now: datetime, word: str) -> str:
    """``snapshot-20260310T020000Z``."""
    return f"{word}-{now:%Y%m%dT%H%M%S}Z"


def tell(connection: Connection, disk: Disk, reason: str, message: str, now: datetime) -> None:
    """Warn the team about its disk."""
    happened = Event(now, "disk", disk.id, "warning", reason, message, disk.team_id, disk.account_id)
    events.record(connection, happened)
