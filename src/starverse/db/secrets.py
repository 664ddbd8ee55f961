"""Secrets of teams, as they are sealed; what seals them lies elsewhere."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, select, update

from starverse.db.instance_tables import secrets
from starverse.db.statements import in_chunks, insert_new


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret's name and dates; its value is nowhere in the clear."""

    id: str
    name: str
    created_at: datetime
    changed_at: datetime


def put(connection: Connection, team_id: str, secret: Secret, sealed: str) -> Secret:
    """Set a secret; one that is there keeps its id and the date of its making. As it is now."""
    row = {
        "id": secret.id,
        "team_id": team_id,
        "name": secret.name,
        "sealed": sealed,
        "created_at": secret.created_at,
        "changed_at": secret.changed_at,
    }
    if not insert_new(connection, secrets, row):
        connection.execute(
            update(secrets)
            .where(secrets.c.team_id == team_id, secrets.c.name == secret.name)
            .values(sealed=sealed, changed_at=secret.changed_at)
        )
    return next(one for one in list_all(connection, team_id) if one.name == secret.name)


def list_all(connection: Connection, team_id: str) -> tuple[Secret, ...]:
    """Every secret of a team, by name."""
    rows = connection.execute(select(secrets).where(secrets.c.team_id == team_id).order_by(secrets.c.name))
    return tuple(Secret(row.id, row.name, row.created_at, row.changed_at) for row in rows)


def sealed_of(connection: Connection, team_id: str, names: Collection[str]) -> dict[str, str]:
    """What is sealed under each of the names; those that there are not are left out."""
    found: dict[str, str] = {}
    for some in in_chunks(sorted(set(names))):
        query = select(secrets.c.name, secrets.c.sealed).where(
            secrets.c.team_id == team_id, secrets.c.name.in_(some)
        )
        found |= {row.name: row.sealed for row in connection.execute(query)}
    return found


def count(connection: Connection, team_id: str) -> int:
    """How many secrets a team has."""
    query = select(func.count()).select_from(secrets).where(secrets.c.team_id == team_id)
    return int(connection.execute(query).scalar_one())


def remove(connection: Connection, team_id: str, name: str) -> str | None:
    """Forget a secret; its id, ``None`` where there is none."""
    done = connection.execute(
        delete(secrets).where(secrets.c.team_id == team_id, secrets.c.name == name).returning(secrets.c.id)
    ).one_or_none()
    return None if done is None else str(done.id)
