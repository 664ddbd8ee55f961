"""Snapshots of disks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, bindparam, func, insert, select, update

from starverse.db.disk_tables import disk_snapshots
from starverse.db.prepared import Prepared
from starverse.db.session import LostRace
from starverse.domain.catalog.disks import SNAPSHOT_TRANSITIONS, SnapshotState
from starverse.domain.workloads.states import advance


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of a disk. ``account_id`` ``None``: its schedule asked for it. ``gib`` is the disk's size then,
    ``bytes`` what was copied."""

    id: str
    disk_id: str
    team_id: str
    account_id: str | None
    name: str
    state: SnapshotState
    scheduled: bool
    gib: int
    asked_at: datetime
    message: str = ""
    bytes: int | None = None
    made_at: datetime | None = None
    removed_at: datetime | None = None


_FIELDS = tuple(Snapshot.__dataclass_fields__)


def _some(where: ColumnElement[bool]) -> Prepared:
    """Snapshots, ``most`` of them, the oldest first."""
    c = disk_snapshots.c
    query = select(disk_snapshots).where(where).order_by(c.asked_at, c.id)
    return Prepared(query.limit(bindparam("most", type_=Integer)))


_UNMADE = _some(disk_snapshots.c.state == SnapshotState.MAKING)
_TO_REMOVE = _some((disk_snapshots.c.state == SnapshotState.REMOVED) & disk_snapshots.c.bytes.is_not(None))


def insert_snapshot(connection: Connection, snapshot: Snapshot) -> None:
    """Raises ``IntegrityError`` where the disk has one of that name."""
    connection.execute(insert(disk_snapshots).values({name: getattr(snapshot, name) for name in _FIELDS}))


def change(connection: Connection, snapshot: Snapshot, state: SnapshotState, **values: Any) -> Snapshot:
    """Move it on; raises :class:`LostRace` where it changed meanwhile."""
    advance(SNAPSHOT_TRANSITIONS, snapshot.state, state)
    row = connection.execute(
        update(disk_snapshots)
        .where(disk_snapshots.c.id == snapshot.id, disk_snapshots.c.state == snapshot.state)
        .values(state=state, **values)
        .returning(disk_snapshots)
    ).one_or_none()
    if row is None:
        raise LostRace()
    return _snapshot(row)


def get(connection: Connection, snapshot_id: str) -> Snapshot | None:
    return next(iter(_read(connection, disk_snapshots.c.id == snapshot_id)), None)


def find(connection: Connection, disk_id: str, ref: str) -> Snapshot | None:
    """One that was not removed, by id or name."""
    c = disk_snapshots.c
    named = (c.id == ref) | (c.name == ref)
    return next(iter(_read(connection, (c.disk_id == disk_id) & named & c.removed_at.is_(None))), None)


def find_in_team(connection: Connection, team_id: str, snapshot_id: str) -> Snapshot | None:
    """A made one of any disk of the team."""
    c = disk_snapshots.c
    own = (c.team_id == team_id) & (c.id == snapshot_id) & (c.state == SnapshotState.MADE)
    return next(iter(_read(connection, own)), None)


def of_disk(connection: Connection, disk_id: str) -> tuple[Snapshot, ...]:
    """Those that were not removed, the oldest first."""
    c = disk_snapshots.c
    return _read(connection, (c.disk_id == disk_id) & c.removed_at.is_(None))


def count_of_disk(connection: Connection, disk_id: str) -> int:
    c = disk_snapshots.c
    query = select(func.count()).where(c.disk_id == disk_id, c.removed_at.is_(None))
    return connection.execute(query).scalar_one()


def is_making(connection: Connection, disk_id: str) -> bool:
    c = disk_snapshots.c
    query = select(c.id).where(c.disk_id == disk_id, c.state == SnapshotState.MAKING).limit(1)
    return connection.execute(query).first() is not None


def unmade(connection: Connection, limit: int) -> tuple[Snapshot, ...]:
    """Those that wait for their copy, the oldest first."""
    return _snapshots(_UNMADE.rows(connection, most=limit))


def to_remove(connection: Connection, limit: int) -> tuple[Snapshot, ...]:
    """Removed ones whose bytes may still be there."""
    return _snapshots(_TO_REMOVE.rows(connection, most=limit))


def note_gone(connection: Connection, snapshot_id: str) -> None:
    """Its bytes are gone."""
    connection.execute(update(disk_snapshots).where(disk_snapshots.c.id == snapshot_id).values(bytes=None))


def _read(connection: Connection, where: ColumnElement[bool]) -> tuple[Snapshot, ...]:
    c = disk_snapshots.c
    return _snapshots(connection.execute(select(disk_snapshots).where(where).order_by(c.asked_at, c.id)))


def _snapshots(rows: Iterable[Any]) -> tuple[Snapshot, ...]:
    return tuple(_snapshot(row) for row in rows)


def _snapshot(row: Any) -> Snapshot:
    return Snapshot(**{name: getattr(row, name) for name in _FIELDS})
