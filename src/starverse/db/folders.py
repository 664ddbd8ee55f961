"""Packed submit folders, kept once per content and team, and where workspaces start from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, and_, bindparam, delete, select, update
from sqlalchemy import exists as exists_where

from starverse.db.metadata import UtcTime
from starverse.db.prepared import Prepared
from starverse.db.statements import insert_new
from starverse.db.tables import folders, teams, workspaces
from starverse.domain.ids import FolderId, TeamId


@dataclass(frozen=True, slots=True)
class Folder:
    """``id`` is ``sha256:<hex>`` of the archive's bytes."""

    id: FolderId
    team_id: TeamId
    bytes: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Workspace:
    """The writable folder of a submission; ``removed_at``: its files were deleted."""

    id: str
    team_id: TeamId
    folder_id: FolderId | None
    removed_at: datetime | None
    unix_uid: int


_WORKSPACE = Prepared(
    select(
        workspaces.c.id,
        workspaces.c.team_id,
        workspaces.c.folder_id,
        workspaces.c.removed_at,
        teams.c.unix_uid,
    )
    .join(teams, teams.c.id == workspaces.c.team_id)
    .where(workspaces.c.id == bindparam("wanted"))
)


def find(connection: Connection, team_id: str, folder_id: str) -> Folder | None:
    row = connection.execute(
        select(folders).where(folders.c.team_id == team_id, folders.c.id == folder_id)
    ).one_or_none()
    return None if row is None else Folder(row.id, row.team_id, row.bytes, row.created_at)


def exists(connection: Connection, team_id: str, folder_id: str) -> bool:
    """Whether the team uploaded this folder; if so, it stays until the transaction ends."""
    found = connection.execute(
        select(folders.c.id)
        .where(folders.c.team_id == team_id, folders.c.id == folder_id)
        .with_for_update(read=True)
    ).one_or_none()
    return found is not None


def keep(connection: Connection, folder: Folder) -> bool:
    """Record a folder, or that one was uploaded again; whether it was there before."""
    values = {"team_id": folder.team_id, "id": folder.id, "bytes": folder.bytes}
    if insert_new(connection, folders, {**values, "created_at": folder.created_at}):
        return False
    connection.execute(update(folders).where(_is(folder)).values(created_at=folder.created_at))
    return True


def unused_since(connection: Connection, instant: datetime, limit: int) -> tuple[Folder, ...]:
    """Folders last uploaded before ``instant`` from which no workspace that is still there was made."""
    rows = _UNUSED.rows(connection, instant=instant, most=limit)
    return tuple(Folder(row.id, row.team_id, row.bytes, row.created_at) for row in rows)


def forget_unused(connection: Connection, folder: Folder, instant: datetime) -> bool:
    """Drop the record if it is unused still; the caller removes the archive in the same transaction."""
    connection.execute(select(folders.c.id).where(_is(folder)).with_for_update())
    return connection.execute(delete(folders).where(_is(folder), _is_unused(instant))).rowcount == 1


def _is(folder: Folder) -> ColumnElement[bool]:
    return and_(folders.c.team_id == folder.team_id, folders.c.id == folder.id)


def _is_unused(instant: Any) -> ColumnElement[bool]:
    kept = exists_where().where(
        workspaces.c.team_id == folders.c.team_id,
        workspaces.c.folder_id == folders.c.id,
        workspaces.c.removed_at.is_(None),
    )
    return and_(folders.c.created_at < instant, ~kept)


_UNUSED = Prepared(
    select(folders)
    .where(_is_unused(bindparam("instant", type_=UtcTime)))
    .order_by(folders.c.created_at)
    .limit(bindparam("most", type_=Integer))
)


def get_workspace(connection: Connection, workspace_id: str) -> Workspace | None:
    row = _WORKSPACE.first(connection, wanted=workspace_id)
    return None if row is None else Workspace(*row)
