"""A disk as its team sees it: what it is, who has it, what it holds and what it costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from starverse.app.platform import Platform
from starverse.db import accounts, attachments, disks, metering, snapshots, teams
from starverse.db.attachments import Attachment
from starverse.db.disks import Disk
from starverse.db.snapshots import Snapshot
from starverse.domain.catalog.disks import DiskState, SnapshotState, restorable_until
from starverse.domain.disk_kind import DiskKind
from starverse.domain.ids import TeamId
from starverse.domain.money import Money
from starverse.domain.pricing.storage import gib_month_price
from starverse.domain.workloads.states import AttachmentState

ENDED_SHOWN = 5
"""How many attachments that are over a disk shows."""


@dataclass(frozen=True, slots=True)
class AttachmentView:
    """A disk at a run. ``instance`` is its name, ``None``: a job's; ``job`` is the run's number."""

    id: str
    instance: str | None
    instance_id: str | None
    job: str
    allocation_id: str
    target: str
    read_only: bool
    state: AttachmentState
    reason: str
    message: str
    asked_at: datetime
    attached_at: datetime | None
    detach_by: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class HadByView:
    """An instance that has the disk at each start."""

    instance: str
    instance_id: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """A copy of a disk; ``bytes`` are those copied, ``gib`` the size that the disk had."""

    id: str
    name: str
    state: SnapshotState
    message: str
    scheduled: bool
    bytes: int | None
    gib: int
    asked_at: datetime
    made_at: datetime | None


@dataclass(frozen=True, slots=True)
class DiskView:
    """``price_month`` is what a whole month costs without the team's free GiB. ``restorable_until`` is set
    while it is deleted. ``over_quota``: attachments made now are read-only."""

    id: str
    name: str
    team: str
    account: str
    kind: DiskKind
    gib: int
    state: DiskState
    message: str
    made_from: str | None
    created_at: datetime
    deleted_at: datetime | None
    restorable_until: datetime | None
    used_bytes: int | None
    used_files: int | None
    used_at: datetime | None
    hard_quota: bool
    growing: bool
    over_quota: bool
    snapshot_schedule: str | None
    snapshots_kept: int | None
    snapshot_due_at: datetime | None
    price_month: Money
    attachments: tuple[AttachmentView, ...]
    instances: tuple[HadByView, ...]


def views_of(
    connection: Connection, platform: Platform, found: Sequence[Disk], *, history: bool = False
) -> tuple[DiskView, ...]:
    """``history``: also attachments that are over, the newest few."""
    book = metering.load_books(connection).books.at(platform.clock.now())
    names = {
        team_id: getattr(teams.get_team(connection, TeamId(team_id)), "name", "")
        for team_id in {disk.team_id for disk in found}
    }
    mails = accounts.emails_of(connection, {disk.account_id for disk in found})
    had = {disk.id: disks.instances_of_disk(connection, disk.id) for disk in found}
    held: dict[str, tuple[Attachment, ...]] = defaultdict(tuple)
    for disk in found:
        shown = attachments.open_of_disk(connection, disk.id)
        if history:
            shown += attachments.newest_over_of_disk(connection, disk.id, ENDED_SHOWN)
        held[disk.id] = tuple(sorted(shown, key=lambda one: (one.asked_at, one.id), reverse=True))
    owners = attachments.owners_of(connection, {a.allocation_id for own in held.values() for a in own})
    return tuple(
        DiskView(
            id=disk.id,
            name=disk.name,
            team=names[disk.team_id],
            account=mails.get(disk.account_id, ""),
            kind=disk.kind,
            gib=disk.gib,
            state=disk.state,
            message=disk.message,
            made_from=disk.made_from,
            created_at=disk.created_at,
            deleted_at=disk.deleted_at,
            restorable_until=_until(disk),
            used_bytes=disk.used_bytes,
            used_files=disk.used_files,
            used_at=disk.used_at,
            hard_quota=disk.hard_quota,
            growing=disk.state is DiskState.READY and disk.growing,
            over_quota=disk.over_quota,
            snapshot_schedule=disk.snapshot_schedule,
            snapshots_kept=disk.snapshots_kept,
            snapshot_due_at=disk.snapshot_due_at,
            price_month=Money(gib_month_price(book, disk.kind).micro * disk.gib),
            attachments=tuple(_attachment(one, owners[one.allocation_id]) for one in held[disk.id]),
            instances=tuple(
                HadByView(name, terms.instance_id, terms.target, terms.read_only)
                for name, terms in had[disk.id]
            ),
        )
        for disk in found
    )


def view_of(connection: Connection, platform: Platform, disk: Disk) -> DiskView:
    """One disk, with attachments that are over."""
    return views_of(connection, platform, [disk], history=True)[0]


def snapshot_view(snapshot: Snapshot) -> SnapshotView:
    return SnapshotView(
        id=snapshot.id,
        name=snapshot.name,
        state=snapshot.state,
        message=snapshot.message,
        scheduled=snapshot.scheduled,
        bytes=snapshot.bytes,
        gib=snapshot.gib,
        asked_at=snapshot.asked_at,
        made_at=snapshot.made_at,
    )


def snapshots_of(connection: Connection, disk_id: str) -> tuple[SnapshotView, ...]:
    """Those that were not removed, the oldest first."""
    return tuple(map(snapshot_view, snapshots.of_disk(connection, disk_id)))


def _until(disk: Disk) -> datetime | None:
    deleted = disk.state is DiskState.DELETED and disk.deleted_at is not None
    return restorable_until(disk.deleted_at) if deleted and disk.deleted_at else None


def _attachment(one: Attachment, owner: attachments.Owner) -> AttachmentView:
    return AttachmentView(
        id=one.id,
        instance=owner.instance,
        instance_id=owner.instance_id,
        job=owner.job,
        allocation_id=one.allocation_id,
        target=one.target,
        read_only=one.read_only,
        state=one.state,
        reason=one.reason,
        message=one.message,
        asked_at=one.asked_at,
        attached_at=one.attached_at,
        detach_by=one.detach_by,
        ended_at=one.ended_at,
    )
