"""What people order of disks: a new one, another size, a schedule of snapshots, its deletion and its return.

Each is one transaction that records what is wanted; ``app/disks/storage.py`` makes storage follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from starverse.app.disk_space import require_space
from starverse.app.disks.finding import find_disk, lock_disk, require_ready, require_served
from starverse.app.disks.schedules import first_due
from starverse.app.disks.sizes import require_a_day, set_size
from starverse.app.disks.views import DiskView, view_of, views_of
from starverse.app.etags import require_version
from starverse.app.idempotency import Once, claim
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.db import attachments, disks, events, snapshots, syncs
from starverse.db.disks import Disk
from starverse.db.events import Event
from starverse.domain.catalog.disks import (
    GIB,
    SNAPSHOTS_KEPT_DEFAULT,
    SNAPSHOTS_MAX,
    SYNCING_TEXT,
    DiskState,
    name_fault,
    resize_fault,
    restorable_until,
    size_fault,
)
from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import Conflict, FieldFault, Invalid, NotFound
from starverse.domain.ids import AccountId

DISKS_MAX = 200
"""Of one team."""


@dataclass(frozen=True, slots=True)
class NewDisk:
    """``from_snapshot`` is the id of a made snapshot of the team, ``None``: empty."""

    name: str
    kind: DiskKind
    gib: int
    from_snapshot: str | None = None
    once: Once | None = None


@dataclass(frozen=True, slots=True)
class DiskChange:
    """What is to be changed; ``None``: not that. ``snapshot_schedule`` ``""``: no schedule any more."""

    name: str | None = None
    gib: int | None = None
    snapshot_schedule: str | None = None
    snapshots_kept: int | None = None


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """What its owner chose of a disk: its version, for ``If-Match``."""

    id: str
    name: str
    gib: int
    snapshot_schedule: str | None
    snapshots_kept: int | None


def settings_of(disk: Disk | DiskView) -> DiskSettings:
    return DiskSettings(disk.id, disk.name, disk.gib, disk.snapshot_schedule, disk.snapshots_kept)


def create_disk(platform: Platform, identity: Identity, wanted: NewDisk) -> DiskView:
    """Order a disk; it is ready once storage has it, and charged from then on."""
    _check_new(wanted)
    require_served(platform.engine.capabilities, wanted.kind)
    require_space(platform, 0)
    disk_id = platform.ids.uuid7()

    def act(connection: Connection) -> DiskView:
        now = platform.clock.now()
        before = claim(connection, AccountId(identity.account_id), wanted.once, disk_id, now)
        if before is not None:
            return view_of(connection, platform, find_disk(connection, identity, before))
        disk = Disk(
            id=disk_id,
            team_id=identity.team_id,
            account_id=identity.account_id,
            name=wanted.name,
            kind=wanted.kind,
            gib=wanted.gib,
            state=DiskState.MAKING,
            created_at=now,
            made_from=wanted.from_snapshot,
        )
        _check_source(connection, identity, wanted)
        disks.lock_money(connection, disk.team_id)
        if len(disks.of_team(connection, disk.team_id)) >= DISKS_MAX:
            raise Conflict(f"A team has at most {DISKS_MAX} disks.")
        require_a_day(connection, platform, disk, disk.gib)
        disks.insert_disk(connection, disk)
        record(connection, identity, disk, "ordered", f"{disk.kind.value}, {disk.gib} GiB", now)
        return view_of(connection, platform, disk)

    made = _naming(wanted.name, lambda: platform.database.write_retrying(act))
    platform.wakeups.wake("disks", "disk_copies")
    return made


def get_disk(platform: Platform, identity: Identity, ref: str) -> DiskView:
    with platform.database.read() as connection:
        return view_of(connection, platform, find_disk(connection, identity, ref))


def list_disks(platform: Platform, identity: Identity, *, deleted: bool = False) -> tuple[DiskView, ...]:
    """The team's disks by name; with ``deleted`` also those that can be restored."""
    with platform.database.read() as connection:
        found = disks.of_team(connection, identity.team_id, deleted=deleted)
        return views_of(connection, platform, found)


def change_disk(
    platform: Platform, identity: Identity, ref: str, wanted: DiskChange, version: str | None
) -> DiskView:
    """Change what is named. A block disk grows while nothing has it attached."""
    _check_change(wanted)

    def act(connection: Connection) -> DiskView:
        now = platform.clock.now()
        disk = lock_disk(connection, identity, ref)
        require_version(version, settings_of(disk))
        require_ready(disk)
        values: dict[str, Any] = {}
        if wanted.name is not None:
            values["name"] = wanted.name
        if wanted.gib is not None and wanted.gib != disk.gib:
            _check_resize(connection, platform, disk, wanted.gib)
            values["gib"] = wanted.gib
        values |= _schedule(platform, disk, wanted, now)
        changed = disks.change(connection, disk, **values) if values else disk
        if "gib" in values:
            set_size(connection, disk, changed.gib, now)
            record(connection, identity, disk, "resized", f"{disk.gib} -> {changed.gib} GiB", now)
        return view_of(connection, platform, changed)

    changed = _naming(wanted.name or "", lambda: platform.database.write_retrying(act))
    platform.wakeups.wake("disks", "disk_copies")
    return changed


def delete_disk(platform: Platform, identity: Identity, ref: str) -> DiskView:
    """Give a disk up: it costs nothing from now on, and can be restored for seven days."""

    def act(connection: Connection) -> DiskView:
        now = platform.clock.now()
        disk = lock_disk(connection, identity, ref)
        if disk.state is DiskState.DELETED:
            return view_of(connection, platform, disk)
        if disk.state is DiskState.FAILED:  # there is nothing that could come back
            gone = disks.change(connection, disk, state=DiskState.PURGED, deleted_at=now)
            return view_of(connection, platform, gone)
        require_ready(disk)
        _require_unused(connection, disk)
        deleted = disks.change(connection, disk, state=DiskState.DELETED, deleted_at=now)
        set_size(connection, disk, 0, now)
        until = restorable_until(now).date().isoformat()
        record(connection, identity, disk, "deleted", f"can be restored until {until}", now)
        return view_of(connection, platform, deleted)

    return platform.database.write_retrying(act)


def restore_disk(platform: Platform, identity: Identity, ref: str, name: str | None = None) -> DiskView:
    """Have a deleted disk again, with all that was in it, under its name or another one."""
    fault = None if name is None else name_fault(name)
    if fault is not None:
        raise Invalid(faults=[fault])

    def act(connection: Connection) -> DiskView:
        now = platform.clock.now()
        deleted = disks.find_deleted(connection, identity.team_id, ref)
        disk = lock_disk(connection, identity, ref if deleted is None else deleted.id)
        if disk.state is not DiskState.DELETED or disk.deleted_at is None:
            hint = "See `starverse disk ls --deleted` for those that can be restored."
            raise Conflict(f"The disk {disk.name} is not deleted: it is {disk.state.value}.", hint=hint)
        if now >= restorable_until(disk.deleted_at):
            raise NotFound(f"The disk {disk.name} was deleted too long ago.")
        disks.lock_money(connection, disk.team_id)
        require_a_day(connection, platform, disk, disk.gib)
        back = disks.change(connection, disk, state=DiskState.READY, deleted_at=None, name=name or disk.name)
        set_size(connection, disk, disk.gib, now)
        record(connection, identity, disk, "restored", "", now)
        return view_of(connection, platform, back)

    return _naming(name or ref, lambda: platform.database.write_retrying(act))


def record(
    connection: Connection, identity: Identity | None, disk: Disk, reason: str, message: str, now: datetime
) -> None:
    """An event of a disk; ``identity`` ``None``: the platform did it."""
    account_id = None if identity is None else identity.account_id
    events.record(connection, Event(now, "disk", disk.id, "state", reason, message, disk.team_id, account_id))


def _naming(name: str, act: Callable[[], DiskView]) -> DiskView:
    try:
        return act()
    except IntegrityError as taken:
        raise Conflict(
            f"The team has a disk {name!r} already.", hint="Choose another name; see `starverse disk ls`."
        ) from taken


def _check_new(wanted: NewDisk) -> None:
    faults = [fault for fault in (name_fault(wanted.name), size_fault(wanted.gib)) if fault]
    if faults:
        raise Invalid(faults=faults)


def _check_source(connection: Connection, identity: Identity, wanted: NewDisk) -> None:
    if wanted.from_snapshot is None:
        return
    source = snapshots.find_in_team(connection, identity.team_id, wanted.from_snapshot)
    origin = None if source is None else disks.get(connection, source.disk_id)
    if source is None or origin is None or origin.state is DiskState.PURGED:
        raise NotFound(f"There is no snapshot {wanted.from_snapshot[:80]!r} in team {identity.team_name}.")
    faults = []
    if origin.kind is not wanted.kind:
        faults.append(FieldFault("kind", wanted.kind.value, f"{origin.kind.value}, as the snapshot"))
    least = source.gib if wanted.kind is DiskKind.BLOCK else -(-(source.bytes or 0) // GIB)
    if wanted.gib < least:
        faults.append(FieldFault("gib", str(wanted.gib), f"at least {least}, as the snapshot holds"))
    if faults:
        raise Invalid(faults=faults)


def _check_change(wanted: DiskChange) -> None:
    faults = [
        fault
        for fault in (
            None if wanted.name is None else name_fault(wanted.name),
            None if wanted.gib is None else size_fault(wanted.gib),
        )
        if fault
    ]
    kept = wanted.snapshots_kept
    if kept is not None and not 1 <= kept <= SNAPSHOTS_MAX:
        faults.append(FieldFault("snapshots_kept", str(kept), f"between 1 and {SNAPSHOTS_MAX}"))
    if faults:
        raise Invalid(faults=faults)


def _check_resize(connection: Connection, platform: Platform, disk: Disk, gib: int) -> None:
    why = resize_fault(disk.kind, disk.gib, gib, disk.used_bytes)
    if why is not None:
        raise Conflict(f"The disk {disk.name} cannot have {gib} GiB: {why}.")
    if disk.kind is DiskKind.BLOCK:
        if attachments.open_of_disk(connection, disk.id):
            raise Conflict(
                f"The disk {disk.name} is attached.",
                hint="A block disk grows while nothing has it: detach it.",
            )
        if syncs.runs_on(connection, disk.id):
            raise Conflict(f"The disk {disk.name} cannot have {gib} GiB now: {SYNCING_TEXT}.")
        if disk.growing or snapshots.is_making(connection, disk.id):
            raise Conflict(f"The disk {disk.name} is being grown or copied; try again in a moment.")
    if gib > disk.gib:
        disks.lock_money(connection, disk.team_id)
        require_a_day(connection, platform, disk, gib)


def _schedule(platform: Platform, disk: Disk, wanted: DiskChange, now: datetime) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if wanted.snapshots_kept is not None:
        values["snapshots_kept"] = wanted.snapshots_kept
    if wanted.snapshot_schedule == "":
        return values | {"snapshot_schedule": None, "snapshot_due_at": None}
    if wanted.snapshot_schedule is not None:
        due = first_due(wanted.snapshot_schedule, platform.settings.timezone, now)
        values |= {"snapshot_schedule": wanted.snapshot_schedule, "snapshot_due_at": due}
        if disk.snapshots_kept is None and wanted.snapshots_kept is None:
            values["snapshots_kept"] = SNAPSHOTS_KEPT_DEFAULT
    return values


def _require_unused(connection: Connection, disk: Disk) -> None:
    held = attachments.open_of_disk(connection, disk.id)
    owners = attachments.owners_of(connection, [one.allocation_id for one in held])
    names = {owner.named for owner in owners.values()}
    names |= {f"instance {name}" for name, _ in disks.instances_of_disk(connection, disk.id)}
    if names:
        who = ", ".join(sorted(names))
        raise Conflict(f"The disk {disk.name} belongs to {who}.", hint="Detach it there first.")
