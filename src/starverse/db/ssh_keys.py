"""Public keys of accounts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, update

from starverse.db.instance_tables import ssh_keys
from starverse.domain.ids import AccountId


@dataclass(frozen=True, slots=True)
class SshKey:
    """A public key in OpenSSH's form; ``fingerprint`` is ``SHA256:...``; ``last_used_at`` ``None``: never."""

    id: str
    account_id: AccountId
    name: str
    public_key: str
    fingerprint: str
    created_at: datetime
    last_used_at: datetime | None = None


def add(connection: Connection, key: SshKey) -> None:
    """Raises ``IntegrityError`` when the account has this key or a key of this name."""
    connection.execute(
        insert(ssh_keys).values(
            id=key.id,
            account_id=key.account_id,
            name=key.name,
            public_key=key.public_key,
            fingerprint=key.fingerprint,
            created_at=key.created_at,
            last_used_at=key.last_used_at,
        )
    )


def of_account(connection: Connection, account_id: AccountId) -> tuple[SshKey, ...]:
    """Oldest first."""
    query = select(ssh_keys).where(ssh_keys.c.account_id == account_id)
    rows = connection.execute(query.order_by(ssh_keys.c.created_at, ssh_keys.c.id))
    return tuple(SshKey(**row._asdict()) for row in rows)


def remove(connection: Connection, account_id: AccountId, key_id: str) -> SshKey | None:
    """Delete one of the account's keys; ``None`` when it has none of this id."""
    row = connection.execute(
        delete(ssh_keys)
        .where(ssh_keys.c.id == key_id, ssh_keys.c.account_id == account_id)
        .returning(*ssh_keys.c)
    ).one_or_none()
    return None if row is None else SshKey(**row._asdict())


def note_use(connection: Connection, key_id: str, now: datetime) -> None:
    connection.execute(update(ssh_keys).where(ssh_keys.c.id == key_id).values(last_used_at=now))


def holders(connection: Connection, fingerprint: str) -> dict[str, bool]:
    """The accounts that have this key; true: it came into an instance of theirs before."""
    query = select(ssh_keys.c.account_id, ssh_keys.c.last_used_at).where(
        ssh_keys.c.fingerprint == fingerprint
    )
    return {row.account_id: row.last_used_at is not None for row in connection.execute(query)}
