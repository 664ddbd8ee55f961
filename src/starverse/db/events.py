"""What happened, in the order it was recorded; written in the transaction of the change itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, insert

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
    if rows:
        connection.execute(insert(events), rows)
