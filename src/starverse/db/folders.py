"""Packed submit folders, kept once per content and team, and where workspaces start from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy import exists as exists_where

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


def find(connection: Connection, team_id: str, folder_id: str) -> Folder | None:
    row = connection.execute(
        select(folders).where(folders.c.team_id == team_id, folders.c.id == folder_id)
    ).one_or_none()
    return None if row is None else Folder(row.id, row.team_id, row.bytes, row.created_at)


def exists(connection: Connection, team_id: str, folder_id: str) -> bool:
    """Whether the team uploaded this folder."""
    return find(connection, team_id, folder_id) is not None


def add(connection: Connection, folder: Folder) -> None:
    """Record a folder; one that is there already is left alone, as its content is the same."""
    if exists(connection, folder.team_id, folder.id):
        return
    connection.execute(
        insert(folders).values(
            team_id=folder.team_id, id=folder.id, bytes=folder.bytes, created_at=folder.created_at
        )
    )


def unused_since(connection: Connection, instant: datetime, limit: int) -> tuple[Folder, ...]:
    """Folders uploaded before ``instant`` from which no workspace that is still there was made."""
    kept = exists_where().where(
        workspaces.c.team_id == folders.c.team_id,
        workspaces.c.folder_id == folders.c.id,
        workspaces.c.removed_at.is_(None),
    )
    rows = connection.execute(
        select(folders)
        .where(folders.c.created_at < instant, ~kept)
        .order_by(folders.c.created_at)
        .limit(limit)
    )
    return tuple(Folder(row.id, row.team_id, row.bytes, row.created_at) for row in rows)


def forget(connection: Connection, folder: Folder) -> None:
    """Drop the record; the caller removes the archive afterwards."""
    connection.execute(delete(folders).where(folders.c.team_id == folder.team_id, folders.c.id == folder.id))


def get_workspace(connection: Connection, workspace_id: str) -> Workspace | None:
    row = connection.execute(
        select(workspaces, teams.c.unix_uid)
        .join(teams, teams.c.id == workspaces.c.team_id)
        .where(workspaces.c.id == workspace_id)
    ).one_or_none()
    if row is None:
        return None
    return Workspace(row.id, row.team_id, row.folder_id, row.removed_at, row.unix_uid)
