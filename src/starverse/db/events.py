"""What happened, in the order it was recorded; written in the transaction of the change itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, insert, select

from starverse.db.prepared import Prepared
from starverse.db.tables import events


@dataclass(frozen=True, slots=True)
class Event:
    """``kind`` is ``state``, ``notice``, ``money``, ``warning``, ``admin`` ...; ``reason`` is typed text."""

    at: datetime
    subject_kind: str
    subject_id: str
    kind: str
    reason: str = ""
    message: str = ""
    team_id: str | None = None
    account_id: str | None = None


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event and its place in the order recorded."""

    id: int
    event: Event


_INSERT = Prepared(
    insert(events),
    ("at", "team_id", "account_id", "subject_kind", "subject_id", "kind", "reason", "message"),
)


def record(connection: Connection, *happened: Event) -> None:
    """Append events."""
    rows = [
        {
            "at": e.at,
            "team_id": e.team_id,
            "account_id": e.account_id,
            "subject_kind": e.subject_kind,
            "subject_id": e.subject_id,
            "kind": e.kind,
            "reason": e.reason,
            "message": e.message,
        }
        for e in happened
    ]
    _INSERT.run_many(connection, rows)


def newest(
    connection: Connection, limit: int, before_id: int | None = None, subject_id: str | None = None
) -> tuple[StoredEvent, ...]:
    """Newest first, those before ``before_id``; of one subject where given."""
    query = select(events).order_by(events.c.id.desc()).limit(limit)
    if before_id is not None:
        query = query.where(events.c.id < before_id)
    if subject_id is not None:
        query = query.where(events.c.subject_id == subject_id)
    return tuple(
        StoredEvent(
            row.id,
            Event(
                at=row.at,
                subject_kind=row.subject_kind,
                subject_id=row.subject_id,
                kind=row.kind,
                reason=row.reason,
                message=row.message,
                team_id=row.team_id,
                account_id=row.account_id,
            ),
        )
        for row in connection.execute(query)
    )


def exists(
    connection: Connection, subject_id: str, kind: str, reason: str, since: datetime | None = None
) -> bool:
    """Whether such an event of a subject was recorded, at or after ``since`` where given."""
    query = select(events.c.id).where(
        events.c.subject_id == subject_id, events.c.kind == kind, events.c.reason == reason
    )
    if since is not None:
        query = query.where(events.c.at >= since)
    return connection.execute(query.limit(1)).first() is not None
