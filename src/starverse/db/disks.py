"""Disks and their sizes over time: what each is, and what is charged of it from an instant on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, Row, bindparam, insert, or_, select, update

from starverse.db.disk_tables import disk_sizes, disks, instance_disks
from starverse.db.instance_tables import instances
from starverse.db.prepared import Prepared
from starverse.db.session import LostRace
from starverse.db.statements import in_chunks
from starverse.db.tables import teams
from starverse.domain.catalog.disks import DISK_TRANSITIONS, DiskState, over_quota
from starverse.domain.disk_kind import DiskKind
from starverse.domain.workloads.states import advance


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk as it stands. ``generation`` counts the writes: changes are conditional on it.

    ``gib`` is what its owner wants and pays, ``made_gib`` what its storage has (``None``: none yet).
    ``made_from`` is the snapshot that it began as. ``used_*`` are as last measured. ``snapshot_schedule`` is
    a cron line, ``snapshots_kept`` how many of its snapshots are kept, ``snapshot_due_at`` when the next is
    made.
    """

    id: str
    team_id: str
    account_id: str
    name: str
    kind: DiskKind
    gib: int
    state: DiskState
    created_at: datetime
    message: str = ""
    generation: int = 0
    made_from: str | None = None
    deleted_at: datetime | None = None
    purged_at: datetime | None = None
    made_gib: int | None = None
    used_bytes: int | None = None
    used_files: int | None = None
    used_at: datetime | None = None
    hard_quota: bool = False
    snapshot_schedule: str | None = None
    snapshots_kept: int | None = None
    snapshot_due_at: datetime | None = None

    @property
    def growing(self) -> bool:
        """Whether its storage has another size than was asked for."""
        return self.made_gib != self.gib

    @property
    def over_quota(self) -> bool:
        return over_quota(self.kind, self.gib, self.used_bytes)


@dataclass(frozen=True, slots=True)
class InstanceDisk:
    """A disk that an instance has at each start."""

    instance_id: str
    disk_id: str
    target: str
    read_only: bool
    since: datetime


@dataclass(frozen=True, slots=True)
class Size:
    """What is charged of a disk from ``since`` on; 0 GiB: nothing any more."""

    disk_id: str
    since: datetime
    gib: int


_KEPT = (DiskState.MAKING, DiskState.READY, DiskState.FAILED)
_FIELDS = tuple(Disk.__dataclass_fields__)
_MOST = bindparam("most", type_=Integer)


def _selecting(where: ColumnElement[bool], *, most: bool = False) -> Prepared:
    """Disks by name, ``most`` of them where that is to be said."""
    query = select(disks).where(where).order_by(disks.c.name, disks.c.id)
    return Prepared(query.limit(_MOST) if most else query)


_MAKING, _READY = disks.c.state == DiskState.MAKING, disks.c.state == DiskState.READY
_GET = _selecting(disks.c.id == bindparam("wanted"))
_LOCK = Prepared(select(disks).where(disks.c.id == bindparam("wanted")).with_for_update())
_UNMADE_COPIES = _selecting(_MAKING & disks.c.made_from.is_not(None), most=True)
_UNMADE = _selecting(
    (_MAKING & disks.c.made_from.is_(None)) | (_READY & (disks.c.made_gib != disks.c.gib)), most=True
)
_TO_REMOVE = _selecting((disks.c.state == DiskState.PURGED) & disks.c.purged_at.is_(None), most=True)
_DELETED_BEFORE = _selecting(
    (disks.c.state == DiskState.DELETED) & (disks.c.deleted_at <= bindparam("instant")), most=True
)
_MEASURED_BEFORE = Prepared(
    select(disks)
    .where(_READY, disks.c.used_at.is_(None) | (disks.c.used_at < bindparam("instant")))
    .order_by(disks.c.used_at.is_not(None), disks.c.used_at, disks.c.id)
    .limit(_MOST)
)
_WITH_DUE_SNAPSHOT = _selecting(_READY & (disks.c.snapshot_due_at <= bindparam("now")), most=True)


@cache
def _changing(*columns: str) -> Prepared:
    """The conditional update that sets these columns."""
    same = (disks.c.id == bindparam("wanted")) & (disks.c.generation == bindparam("seen"))
    return Prepared(update(disks).where(same).returning(disks), columns)


def insert_disk(connection: Connection, disk: Disk) -> None:
    """Raises ``IntegrityError`` where the team has a disk of that name."""
    connection.execute(insert(disks).values({name: getattr(disk, name) for name in _FIELDS}))


def change(connection: Connection, disk: Disk, **values: Any) -> Disk:
    """Write some fields; a new ``state`` has to be one that may follow. Raises :class:`LostRace` where it
    changed meanwhile."""
    if "state" in values and values["state"] is not disk.state:
        advance(DISK_TRANSITIONS, disk.state, values["state"])
    changing = _changing(*values, "generation")
    row = changing.first(
        connection, wanted=disk.id, seen=disk.generation, **values, generation=disk.generation + 1
    )
    if row is None:
        raise LostRace()
    return _disk(row)


def note_usage(
    connection: Connection, disk_id: str, used_bytes: int, used_files: int | None, now: datetime
) -> None:
    """What was measured of it; nothing that others decide by, so that no change of theirs is lost."""
    connection.execute(
        update(disks)
        .where(disks.c.id == disk_id)
        .values(used_bytes=used_bytes, used_files=used_files, used_at=now)
    )


def note_not_measured(connection: Connection, disk_id: str, now: datetime) -> None:
    """It was tried, so that others come first; what was measured before stands."""
    connection.execute(update(disks).where(disks.c.id == disk_id).values(used_at=now))


def add_usage(connection: Connection, disk_id: str, more_bytes: int) -> None:
    """Count what the platform itself wrote or removed until it is measured again; how many files there are is
    not known until then."""
    left = disks.c.used_bytes + more_bytes
    connection.execute(
        update(disks)
        .where(disks.c.id == disk_id, disks.c.used_bytes.is_not(None), left >= 0)
        .values(used_bytes=left, used_files=None)
    )


def get(connection: Connection, disk_id: str) -> Disk | None:
    row = _GET.first(connection, wanted=disk_id)
    return None if row is None else _disk(row)


def lock(connection: Connection, disk_id: str) -> Disk | None:
    """The disk, which nobody else changes or attaches until the transaction ends."""
    row = _LOCK.first(connection, wanted=disk_id)
    return None if row is None else _disk(row)


def lock_money(connection: Connection, team_id: str) -> None:
    """Nobody else changes what the team's disks are charged, or charges it, until the transaction ends."""
    connection.execute(select(teams.c.id).where(teams.c.id == team_id).with_for_update())


def find(connection: Connection, team_id: str, ref: str) -> Disk | None:
    """A disk of a team by its id, also a deleted one, or by its name."""
    named = (disks.c.name == ref) & disks.c.deleted_at.is_(None)
    found = _read(connection, (disks.c.team_id == team_id) & or_(disks.c.id == ref, named))
    return next(iter(found), None)


def find_deleted(connection: Connection, team_id: str, name: str) -> Disk | None:
    """The disk of this name that was deleted last and can still be restored."""
    own = (disks.c.team_id == team_id) & (disks.c.name == name) & (disks.c.state == DiskState.DELETED)
    found = connection.execute(select(disks).where(own).order_by(disks.c.deleted_at.desc()).limit(1)).first()
    return None if found is None else _disk(found)


def of_team(connection: Connection, team_id: str, *, deleted: bool = False) -> tuple[Disk, ...]:
    """By name; with ``deleted`` also those that can be restored."""
    states = (*_KEPT, DiskState.DELETED) if deleted else _KEPT
    return _read(connection, (disks.c.team_id == team_id) & disks.c.state.in_(states))


def get_many(connection: Connection, disk_ids: Collection[str]) -> dict[str, Disk]:
    """Id -> disk."""
    return {disk.id: disk for some in in_chunks(disk_ids) for disk in _read(connection, disks.c.id.in_(some))}


def unmade(connection: Connection, limit: int, *, copied: bool) -> tuple[Disk, ...]:
    """Disks whose storage is not as asked for. ``copied``: those that begin as a snapshot and are not made
    yet; else those that begin empty, and those of another size."""
    return _disks((_UNMADE_COPIES if copied else _UNMADE).rows(connection, most=limit))


def is_made_from(connection: Connection, snapshot_id: str) -> bool:
    """Whether a disk is being made from a snapshot now."""
    waiting = (disks.c.made_from == snapshot_id) & (disks.c.state == DiskState.MAKING)
    return connection.execute(select(disks.c.id).where(waiting).limit(1)).first() is not None


def to_remove(connection: Connection, limit: int) -> tuple[Disk, ...]:
    """Disks that are no more and whose bytes may still be there."""
    return _disks(_TO_REMOVE.rows(connection, most=limit))


def deleted_before(connection: Connection, instant: datetime, limit: int) -> tuple[Disk, ...]:
    """Disks whose time to be restored is over."""
    return _disks(_DELETED_BEFORE.rows(connection, instant=instant, most=limit))


def measured_before(connection: Connection, instant: datetime, limit: int) -> tuple[Disk, ...]:
    """Ready disks that were measured before an instant or never, the longest ago first."""
    return _disks(_MEASURED_BEFORE.rows(connection, instant=instant, most=limit))


def with_due_snapshot(connection: Connection, now: datetime, limit: int) -> tuple[Disk, ...]:
    return _disks(_WITH_DUE_SNAPSHOT.rows(connection, now=now, most=limit))


# -- sizes


def set_size(connection: Connection, size: Size) -> None:
    """What is charged from ``since`` on, which no earlier size may follow."""
    same = (disk_sizes.c.disk_id == size.disk_id) & (disk_sizes.c.since == size.since)
    if connection.execute(update(disk_sizes).where(same).values(gib=size.gib)).rowcount == 0:
        connection.execute(insert(disk_sizes).values(disk_id=size.disk_id, since=size.since, gib=size.gib))


def sizes_of_team(connection: Connection, team_id: str) -> tuple[Size, ...]:
    """Every size that a disk of the team ever had, by time."""
    query = (
        select(disk_sizes)
        .join(disks, disks.c.id == disk_sizes.c.disk_id)
        .where(disks.c.team_id == team_id)
        .order_by(disk_sizes.c.since, disk_sizes.c.disk_id)
    )
    return tuple(Size(row.disk_id, row.since, row.gib) for row in connection.execute(query))


# -- what instances have at each start


def insert_instance_disk(connection: Connection, row: InstanceDisk) -> None:
    """Raises ``IntegrityError`` where the instance has the disk, or another one at that path."""
    connection.execute(
        insert(instance_disks).values(
            {name: getattr(row, name) for name in InstanceDisk.__dataclass_fields__}
        )
    )


def delete_instance_disk(
    connection: Connection, instance_id: str, disk_id: str, since: datetime | None = None
) -> bool:
    """Whether it had it; with ``since`` only where it has it from that instant on."""
    c = instance_disks.c
    query = instance_disks.delete().where(c.instance_id == instance_id, c.disk_id == disk_id)
    if since is not None:
        query = query.where(c.since == since)
    return connection.execute(query).rowcount > 0


def disks_of_instance(connection: Connection, instance_id: str) -> tuple[InstanceDisk, ...]:
    """By target."""
    return _instance_disks(connection, instance_disks.c.instance_id == instance_id)


def instances_of_disk(connection: Connection, disk_id: str) -> tuple[tuple[str, InstanceDisk], ...]:
    """The instances that are not released and have it at each start: name and terms, by name."""
    query = (
        select(instances.c.name.label("instance_name"), instance_disks)
        .join(instances, instances.c.id == instance_disks.c.instance_id)
        .where(instance_disks.c.disk_id == disk_id, instances.c.released_at.is_(None))
        .order_by(instances.c.name)
    )
    return tuple((row.instance_name, _instance_disk(row)) for row in connection.execute(query))


def _instance_disks(connection: Connection, where: ColumnElement[bool]) -> tuple[InstanceDisk, ...]:
    query = select(instance_disks).where(where).order_by(instance_disks.c.target)
    return tuple(_instance_disk(row) for row in connection.execute(query))


def _instance_disk(row: Row[*tuple[Any, ...]]) -> InstanceDisk:
    return InstanceDisk(row.instance_id, row.disk_id, row.target, row.read_only, row.since)


def _read(connection: Connection, where: ColumnElement[bool]) -> tuple[Disk, ...]:
    return _disks(connection.execute(select(disks).where(where).order_by(disks.c.name, disks.c.id)))


def _disks(rows: Iterable[Any]) -> tuple[Disk, ...]:
    return tuple(_disk(row) for row in rows)


def _disk(row: Any) -> Disk:
    return Disk(**{name: getattr(row, name) for name in _FIELDS})
