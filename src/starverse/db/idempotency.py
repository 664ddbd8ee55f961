"""Idempotency keys: which request made which resource, written in the transaction that made it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, delete, select

from starverse.db.prepared import Prepared
from starverse.db.statements import insert_new
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
    row = {
        "account_id": account_id,
        "key": key,
        "request_digest": use.request_digest,
        "resource_id": use.resource_id,
        "created_at": now,
    }
    return None if insert_new(connection, idempotency_keys, row) else find(connection, account_id, key)


def find(connection: Connection, account_id: AccountId, key: str) -> KeyUse | None:
    """What a key was used for; ``None`` when it is free."""
    row = _FIND.first(connection, account=account_id, wanted=key)
    return None if row is None else KeyUse(row.request_digest, row.resource_id)


_FIND = Prepared(
    select(idempotency_keys.c.request_digest, idempotency_keys.c.resource_id).where(
        idempotency_keys.c.account_id == bindparam("account"), idempotency_keys.c.key == bindparam("wanted")
    )
)


def forget(connection: Connection, before: datetime) -> int:
    """Drop keys older than an instant; how many."""
    return _FORGET.run(connection, before=before)


_FORGET = Prepared(delete(idempotency_keys).where(idempotency_keys.c.created_at < bindparam("before")))
