"""Syncs of disks with remotes: asked for, by schedule, running, ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, bindparam, insert, select, update

from starverse.db.disk_tables import disk_syncs as table
from starverse.db.disk_tables import disks
from starverse.db.leases import clock
from starverse.db.prepared import Prepared
from starverse.db.session import LostRace, database_micros
from starverse.domain.catalog.disks import SyncDirection, SyncState
from starverse.domain.catalog.syncs import SYNC_TRANSITIONS, Progress
from starverse.domain.disk_kind import DiskKind
from starverse.domain.workloads.states import advance

c = table.c


@dataclass(frozen=True, slots=True)
class Sync:
    """One sync, or (with ``schedule``) what others are made from: that stays ``queued`` and never runs.

    ``due_at``: not before then; of a schedule its next run. ``attempts`` are tries in a row that got nowhere.
    ``holder`` runs it until ``lease_until`` by the database's clock. ``generation`` counts the writes.
    """

    id: str
    disk_id: str
    team_id: str
    account_id: str
    direction: SyncDirection
    remote: str
    folder: str
    secret_name: str | None
    bytes_per_second_max: int | None
    verify: bool
    asked_at: datetime
    schedule: str | None = None
    due_at: datetime | None = None
    state: SyncState = SyncState.QUEUED
    message: str = ""
    generation: int = 0
    attempts: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    bytes_done: int = 0
    bytes_total: int | None = None
    files_done: int = 0
    files_total: int | None = None
    bytes_per_second: int | None = None
    verified_at: datetime | None = None
    schedule_of: str | None = None
    holder: str | None = None
    lease_until: datetime | None = None


_FIELDS = tuple(Sync.__dataclass_fields__)
_IN_ORDER = select(table).order_by(c.asked_at, c.id)
_MOST = bindparam("most", type_=Integer)
_DUE_SCHEDULES = Prepared(
    _IN_ORDER.where(c.state == SyncState.QUEUED, c.schedule.is_not(None), c.due_at <= bindparam("now")).limit(
        _MOST
    )
)
_ABANDONED = Prepared(_IN_ORDER.where(c.state == SyncState.RUNNING, c.lease_until <= database_micros()))


def _waiting() -> Prepared:
    running = table.alias()
    kind = select(disks.c.kind).where(disks.c.id == c.disk_id).correlate(table).scalar_subquery()
    busy = select(running.c.id).where(
        running.c.disk_id == c.disk_id,
        running.c.state == SyncState.RUNNING,
        (running.c.direction == c.direction) | (kind == DiskKind.BLOCK),
    )
    due = c.due_at.is_(None) | (c.due_at <= bindparam("now"))
    query = _IN_ORDER.where(c.state == SyncState.QUEUED, c.schedule.is_(None), due, ~busy.exists())
    return Prepared(query.limit(_MOST))


_WAITING = _waiting()


def add(connection: Connection, sync: Sync) -> None:
    """A new one."""
    connection.execute(insert(table).values({name: getattr(sync, name) for name in _FIELDS}))


def get(connection: Connection, sync_id: str) -> Sync | None:
    return next(iter(_read(connection, c.id == sync_id)), None)


def of_disk(connection: Connection, disk_id: str, limit: int, before: str | None = None) -> tuple[Sync, ...]:
    """The newest first, those whose id is before ``before``: ids are in the order of their making."""
    where = c.disk_id == disk_id if before is None else (c.disk_id == disk_id) & (c.id < before)
    query = select(table).where(where).order_by(c.id.desc()).limit(limit)
    return tuple(_sync(row) for row in connection.execute(query))


def open_of_disk(connection: Connection, disk_id: str) -> tuple[Sync, ...]:
    """Schedules, and syncs that wait or run."""
    return _read(connection, (c.disk_id == disk_id) & c.state.in_((SyncState.QUEUED, SyncState.RUNNING)))


def runs_on(connection: Connection, disk_id: str) -> bool:
    """Whether one reads or writes the disk now, by the record."""
    return bool(_read(connection, (c.disk_id == disk_id) & (c.state == SyncState.RUNNING), 1))


def open_of_schedule(connection: Connection, sync_id: str) -> tuple[Sync, ...]:
    """Runs of a schedule that wait or run."""
    return _read(connection, (c.schedule_of == sync_id) & c.state.in_((SyncState.QUEUED, SyncState.RUNNING)))


def due_schedules(connection: Connection, now: datetime, limit: int) -> tuple[Sync, ...]:
    """Schedules whose time has come."""
    return _syncs(_DUE_SCHEDULES.rows(connection, now=now, most=limit))


def waiting(connection: Connection, now: datetime, limit: int) -> tuple[Sync, ...]:
    """Syncs that can be begun, the oldest first: none runs on that disk in that direction, and none at all on
    a block disk, which has one writer."""
    return _syncs(_WAITING.rows(connection, now=now, most=limit))


def abandoned(connection: Connection) -> tuple[Sync, ...]:
    """Syncs that run on record and whose holder said nothing for so long that it holds them no more."""
    return _syncs(_ABANDONED.rows(connection))


def change(connection: Connection, sync: Sync, **values: Any) -> Sync:
    """Write some fields; a new ``state`` has to be one that may follow. Raises :class:`LostRace` where it
    changed meanwhile."""
    state = values.get("state", sync.state)
    if state is not sync.state:
        advance(SYNC_TRANSITIONS, sync.state, state)
    if state is not SyncState.RUNNING:
        values |= {"holder": None, "lease_until": None}
    row = connection.execute(
        update(table)
        .where(c.id == sync.id, c.generation == sync.generation)
        .values(**values, generation=sync.generation + 1)
        .returning(table)
    ).one_or_none()
    if row is None:
        raise LostRace()
    return _sync(row)


def take(connection: Connection, sync: Sync, holder: str, seconds: float, now: datetime) -> Sync:
    """Have it run by ``holder`` for so long; raises ``IntegrityError`` where another one of that disk and
    direction runs."""
    return change(
        connection,
        sync,
        state=SyncState.RUNNING,
        holder=holder,
        lease_until=clock(connection) + timedelta(seconds=seconds),
        started_at=sync.started_at or now,
        message="",
        bytes_done=0,
        bytes_total=None,
        files_done=0,
        files_total=None,
        bytes_per_second=None,
    )


def renew(
    connection: Connection, sync_id: str, holder: str, seconds: float, progress: Progress
) -> Sync | None:
    """Keep it for so long and note how far it is; ``None``: it is no longer this holder's."""
    row = connection.execute(
        update(table)
        .where(c.id == sync_id, c.holder == holder, c.state == SyncState.RUNNING)
        .values(
            lease_until=clock(connection) + timedelta(seconds=seconds),
            bytes_done=progress.bytes_done,
            bytes_total=progress.bytes_total,
            files_done=progress.files_done,
            files_total=progress.files_total,
            bytes_per_second=progress.bytes_per_second,
            message="compares what was copied" if progress.checking else "",
        )
        .returning(table)
    ).one_or_none()
    return None if row is None else _sync(row)


def _read(connection: Connection, where: ColumnElement[bool], limit: int | None = None) -> tuple[Sync, ...]:
    return _syncs(connection.execute(_IN_ORDER.where(where).limit(limit)))


def _syncs(rows: Iterable[Any]) -> tuple[Sync, ...]:
    return tuple(_sync(row) for row in rows)


def _sync(row: Any) -> Sync:
    return Sync(**{name: getattr(row, name) for name in _FIELDS})
