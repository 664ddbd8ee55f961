"""Attachments: which allocation has which disk, where, and how far that is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, bindparam, insert, select, update

from starverse.db.disk_tables import attachments, disks
from starverse.db.instance_tables import instances
from starverse.db.prepared import Prepared, among
from starverse.db.session import LostRace
from starverse.db.statements import in_chunks
from starverse.db.tables import allocations, jobs
from starverse.domain.disk_kind import DiskKind
from starverse.domain.ids import format_job_number
from starverse.domain.workloads.states import (
    ATTACHMENT_TRANSITIONS,
    OPEN_ALLOCATION_STATES,
    OPEN_ATTACHMENT_STATES,
    AttachmentState,
    advance,
)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A disk at an allocation, which owns it. ``generation`` counts the writes: changes are conditional.

    ``exclusive``: of a block disk. ``detach_by``: when it counts as stuck.
    """

    id: str
    disk_id: str
    allocation_id: str
    team_id: str
    target: str
    read_only: bool
    exclusive: bool
    state: AttachmentState
    asked_at: datetime
    reason: str = ""
    message: str = ""
    generation: int = 0
    attached_at: datetime | None = None
    detach_by: datetime | None = None
    ended_at: datetime | None = None

    @property
    def open(self) -> bool:
        return self.state in OPEN_ATTACHMENT_STATES


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a launcher is to be told of an attachment."""

    id: str
    disk_id: str
    kind: DiskKind
    target: str
    read_only: bool
    state: AttachmentState


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose run an allocation is. ``instance`` ``None``: a job's."""

    allocation_id: str
    job: str
    instance: str | None
    instance_id: str | None

    @property
    def named(self) -> str:
        return f"job {self.job}" if self.instance is None else f"instance {self.instance}"


_OF_ALLOCATIONS = Prepared(
    select(
        attachments.c.id,
        attachments.c.allocation_id,
        attachments.c.disk_id,
        disks.c.kind,
        attachments.c.target,
        attachments.c.read_only,
        attachments.c.state,
    )
    .join(disks, disks.c.id == attachments.c.disk_id)
    .where(among(attachments.c.allocation_id, "ids"))
    .order_by(attachments.c.target, attachments.c.id)
)
_FIELDS = tuple(Attachment.__dataclass_fields__)
_IS_OPEN = attachments.c.state.in_(OPEN_ATTACHMENT_STATES)
_IN_ORDER = select(attachments).order_by(attachments.c.asked_at, attachments.c.id)
_OPEN_OF_ENDED = Prepared(
    _IN_ORDER.join(allocations, allocations.c.id == attachments.c.allocation_id)
    .where(_IS_OPEN, allocations.c.cleaned_at.is_not(None))
    .limit(bindparam("most", type_=Integer))
)
_LATE = (attachments.c.state == AttachmentState.DETACHING) & (attachments.c.detach_by <= bindparam("now"))
_UNANSWERED = (attachments.c.state == AttachmentState.ATTACHING) & (
    attachments.c.asked_at <= bindparam("asked_before")
)
_OVERDUE = Prepared(_IN_ORDER.where(_LATE | _UNANSWERED))
_OPEN_OF_MANY = Prepared(_IN_ORDER.where(among(attachments.c.allocation_id, "ids"), _IS_OPEN))
_WANTED = (AttachmentState.ATTACHING, AttachmentState.ATTACHED)


def insert_attachment(connection: Connection, attachment: Attachment) -> None:
    """Raises ``IntegrityError`` where a block disk is attached elsewhere, or the path is taken."""
    connection.execute(insert(attachments).values({name: getattr(attachment, name) for name in _FIELDS}))


def change(
    connection: Connection, attachment: Attachment, state: AttachmentState, **values: Any
) -> Attachment:
    """Move it on; raises :class:`LostRace` where it changed meanwhile."""
    advance(ATTACHMENT_TRANSITIONS, attachment.state, state)
    row = connection.execute(
        update(attachments)
        .where(attachments.c.id == attachment.id, attachments.c.generation == attachment.generation)
        .values(state=state, **values, generation=attachment.generation + 1)
        .returning(attachments)
    ).one_or_none()
    if row is None:
        raise LostRace()
    return _attachment(row)


def get(connection: Connection, attachment_id: str) -> Attachment | None:
    return next(iter(_read(connection, attachments.c.id == attachment_id)), None)


def open_of_allocation(connection: Connection, allocation_id: str) -> tuple[Attachment, ...]:
    return _read(connection, (attachments.c.allocation_id == allocation_id) & _IS_OPEN)


def open_of_allocations(
    connection: Connection, allocation_ids: Collection[str]
) -> dict[str, tuple[Attachment, ...]]:
    """By allocation; those without one are left out."""
    found: dict[str, list[Attachment]] = {}
    for row in _OPEN_OF_MANY.rows(connection, ids=allocation_ids) if allocation_ids else ():
        found.setdefault(row.allocation_id, []).append(_attachment(row))
    return {key: tuple(own) for key, own in found.items()}


def open_of_disk(connection: Connection, disk_id: str) -> tuple[Attachment, ...]:
    return _read(connection, (attachments.c.disk_id == disk_id) & _IS_OPEN)


def newest_over_of_disk(connection: Connection, disk_id: str, limit: int) -> tuple[Attachment, ...]:
    """Those that are over, the newest first."""
    query = (
        select(attachments)
        .where(attachments.c.disk_id == disk_id, ~_IS_OPEN)
        .order_by(attachments.c.asked_at.desc(), attachments.c.id.desc())
        .limit(limit)
    )
    return tuple(_attachment(row) for row in connection.execute(query))


def owners_of(connection: Connection, allocation_ids: Collection[str]) -> dict[str, Owner]:
    """Whose run each allocation is."""
    query = (
        select(allocations.c.id, jobs.c.number, jobs.c.array_index, jobs.c.instance_id, instances.c.name)
        .join(jobs, jobs.c.id == allocations.c.job_id)
        .outerjoin(instances, instances.c.id == jobs.c.instance_id)
    )
    return {
        row.id: Owner(row.id, format_job_number(row.number, row.array_index), row.name, row.instance_id)
        for some in in_chunks(allocation_ids)
        for row in connection.execute(query.where(allocations.c.id.in_(some)))
    }


def run_of_instance(connection: Connection, instance_id: str) -> str | None:
    """The open allocation of an instance; ``None``: it does not run."""
    query = (
        select(allocations.c.id)
        .join(jobs, jobs.c.id == allocations.c.job_id)
        .where(jobs.c.instance_id == instance_id, allocations.c.state.in_(OPEN_ALLOCATION_STATES))
    )
    return connection.execute(query.limit(1)).scalar()


def all_stuck(connection: Connection) -> tuple[Attachment, ...]:
    """Of every team, those that wait for an operator, the oldest first."""
    return _read(connection, attachments.c.state == AttachmentState.STUCK)


def all_open(connection: Connection) -> tuple[Attachment, ...]:
    return _read(connection, _IS_OPEN)


def wanted(connection: Connection, allocation_ids: Collection[str]) -> Mapping[str, tuple[Wanted, ...]]:
    """What each allocation is to have, by path; those that never had an attachment are left out."""
    found: dict[str, list[Wanted]] = {}
    if allocation_ids:
        for row in _OF_ALLOCATIONS.rows(connection, ids=allocation_ids):
            own = found.setdefault(row.allocation_id, [])
            if row.state in _WANTED:
                own.append(Wanted(row.id, row.disk_id, row.kind, row.target, row.read_only, row.state))
    return {key: tuple(own) for key, own in found.items()}


def open_of_ended(connection: Connection, limit: int) -> tuple[Attachment, ...]:
    """Those whose allocation was cleaned up: nothing can have them any more."""
    return _attachments(_OPEN_OF_ENDED.rows(connection, most=limit))


def overdue(connection: Connection, now: datetime, asked_before: datetime) -> tuple[Attachment, ...]:
    """Those that are detaching past their time, and those that a run was asked to attach long ago."""
    return _attachments(_OVERDUE.rows(connection, now=now, asked_before=asked_before))


def _read(connection: Connection, where: ColumnElement[bool]) -> tuple[Attachment, ...]:
    return _attachments(connection.execute(_IN_ORDER.where(where)))


def _attachments(rows: Iterable[Any]) -> tuple[Attachment, ...]:
    return tuple(_attachment(row) for row in rows)


def _attachment(row: Any) -> Attachment:
    return Attachment(**{name: getattr(row, name) for name in _FIELDS})
