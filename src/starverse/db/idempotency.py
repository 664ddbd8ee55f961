"""Idempotency keys: which request made which resource, written in the transaction that made it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from starverse.db.tables import idempotency_keys
from starverse.domain.ids import AccountId


@dataclass(frozen=True, slots=True)
class KeyUse:
    """What a key was used for."""

    request_digest: str
    resource_id: str


def claim(
    connection: Connection, account_id: AccountId, key: str, use: KeyUse, now: datetime
) -> KeyUse | None:
    """Take a key for a use; ``None`` when it was free, else what it was used for before.

    On PostgreSQL a rival's uncommitted claim is waited for.
    """
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    taken = connection.execute(
        insert(idempotency_keys)
        .values(
            account_id=account_id,
            key=key,
            request_digest=use.request_digest,
            resource_id=use.resource_id,
            created_at=now,
        )
        .on_conflict_do_nothing()
        .returning(idempotency_keys.c.key)
    ).one_or_none()
    if taken is not None:
        return None
    return find(connection, account_id, key)


def find(connection: Connection, account_id: AccountId, key: str) -> KeyUse | None:
    """What a key was used for; ``None`` when it is free."""
    row = connection.execute(
        select(idempotency_keys.c.request_digest, idempotency_keys.c.resource_id).where(
            idempotency_keys.c.account_id == account_id, idempotency_keys.c.key == key
        )
    ).one_or_none()
    return None if row is None else KeyUse(row.request_digest, row.resource_id)


def forget(connection: Connection, before: datetime) -> int:
    """Drop keys older than an instant; how many."""
    done = connection.execute(delete(idempotency_keys).where(idempotency_keys.c.created_at < before))
    return done.rowcount
