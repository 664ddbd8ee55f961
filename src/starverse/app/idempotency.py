"""Repeating a create safely: a key is claimed in the transaction that makes the resource.

So a crash leaves either both or neither. The stored thing is the id of what was made; the answer to a
repeat is built anew from it, and no secret is ever stored in clear.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from starverse.db import idempotency as keys
from starverse.db.idempotency import KeyUse
from starverse.domain.errors import Conflict
from starverse.domain.ids import AccountId

KEPT = timedelta(days=2)
"""How long a key is remembered."""


@dataclass(frozen=True, slots=True)
class Once:
    """The caller's ``Idempotency-Key`` and a digest of the request that came with it."""

    key: str
    request_digest: str


def claim(
    connection: Connection, account_id: AccountId, once: Once | None, resource_id: str, now: datetime
) -> str | None:
    """Claim the key for a resource about to be made; ``None``: go on and make it.

    Otherwise the id of what this very request made before. Raises :class:`Conflict` when the key came with
    another request. ``once`` ``None`` (the caller sent no key) always goes on.
    """
    if once is None:
        return None
    before = keys.claim(connection, account_id, once.key, KeyUse(once.request_digest, resource_id), now)
    return _made(before, once)


def made_before(connection: Connection, account_id: AccountId, once: Once | None) -> str | None:
    """What this very request made before, without claiming anything: asked before a request is checked.

    A repeat is answered by what it made, whatever became of money, room or names since.
    """
    return None if once is None else _made(keys.find(connection, account_id, once.key), once)


def _made(before: KeyUse | None, once: Once) -> str | None:
    if before is None:
        return None
    if before.request_digest != once.request_digest:
        raise Conflict(
            "This Idempotency-Key came with another request before.",
            hint="Use a new key for a new request; repeat a request byte for byte to use its key again.",
        )
    return before.resource_id


def forget_old(connection: Connection, now: datetime) -> int:
    """Drop keys older than :data:`KEPT`; how many. For the retention reconciler."""
    return keys.forget(connection, now - KEPT)
