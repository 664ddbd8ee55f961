"""Workspaces: what they start from, which were kept long enough, and what goes with them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    and_,
    bindparam,
    exists,
    func,
    insert,
    select,
    update,
)

from starverse.db.instance_tables import instances
from starverse.db.metadata import UtcTime
from starverse.db.prepared import Prepared
from starverse.db.statements import in_chunks
from starverse.db.tables import allocations, jobs, workspaces
from starverse.domain.workloads.states import ENDED_JOB_STATES

_INSERT = Prepared(insert(workspaces), ("id", "team_id", "folder_id", "created_at"))


@dataclass(frozen=True, slots=True)
class Remains:
    """What lies on disk because of a workspace: its jobs' logs and checkpoints, its runs' folders."""

    job_ids: tuple[str, ...]
    allocation_ids: tuple[str, ...]


def insert_workspace(
    connection: Connection, workspace_id: str, team_id: str, folder_id: str | None, now: datetime
) -> None:
    """Record a workspace; its files are unpacked when the first run starts in it."""
    _INSERT.run(connection, id=workspace_id, team_id=team_id, folder_id=folder_id, created_at=now)


def folder_of(connection: Connection, workspace_id: str) -> str | None:
    """The packed folder that a workspace starts from; ``None``: it starts empty."""
    folder: str | None = connection.execute(
        select(workspaces.c.folder_id).where(workspaces.c.id == workspace_id)
    ).scalar_one()
    return folder


def ended_before(connection: Connection, instant: datetime, limit: int) -> tuple[str, ...]:
    """Workspaces still on disk whose jobs have all ended, the last of them before ``instant``; those of
    instances go with their instance."""
    return tuple(row.id for row in _ENDED_BEFORE.rows(connection, instant=instant, most=limit))


def claim_removal(connection: Connection, workspace_id: str, instant: datetime, now: datetime) -> bool:
    """Note that its files go, if it is still due; from then on nothing starts in it. Then delete them."""
    lock(connection, workspace_id)
    claimed = connection.execute(
        update(workspaces)
        .where(workspaces.c.id == workspace_id, _is_due(instant))
        .values(removed_at=now)
        .returning(workspaces.c.id)
    ).one_or_none()
    return claimed is not None


def give_up(connection: Connection, workspace_id: str, now: datetime) -> None:
    """Note that the files of a workspace go, whose owner is no more."""
    connection.execute(
        update(workspaces)
        .where(workspaces.c.id == workspace_id, workspaces.c.removed_at.is_(None))
        .values(removed_at=now)
    )


def lock(connection: Connection, workspace_id: str) -> datetime | None:
    """Keep others from removing or reviving it until the transaction ends; when it was removed."""
    removed_at: datetime | None = connection.execute(
        select(workspaces.c.removed_at).where(workspaces.c.id == workspace_id).with_for_update()
    ).scalar_one()
    return removed_at


def removed_among(connection: Connection, workspace_ids: Collection[str]) -> tuple[str, ...]:
    """Those of the workspaces whose removal was claimed."""
    removed = select(workspaces.c.id).where(workspaces.c.removed_at.is_not(None))
    return tuple(
        row.id
        for some in in_chunks(workspace_ids)
        for row in connection.execute(removed.where(workspaces.c.id.in_(some)))
    )


def remains_of(connection: Connection, workspace_id: str) -> Remains:
    own = select(jobs.c.id).where(jobs.c.workspace_id == workspace_id)
    runs = select(allocations.c.id).where(allocations.c.job_id.in_(own))
    return Remains(
        tuple(row.id for row in connection.execute(own)), tuple(row.id for row in connection.execute(runs))
    )


def _is_due(instant: Any) -> ColumnElement[bool]:
    of_it = jobs.c.workspace_id == workspaces.c.id
    going_on = exists().where(of_it, jobs.c.state.not_in(ENDED_JOB_STATES))
    last_end = select(func.max(jobs.c.ended_at)).where(of_it).scalar_subquery()
    unsettled = exists().where(
        of_it,
        allocations.c.job_id == jobs.c.id,
        allocations.c.cleaned_at.is_(None) | allocations.c.closed_at.is_(None),
    )
    of_instance = exists().where(instances.c.workspace_id == workspaces.c.id)
    old = and_(workspaces.c.removed_at.is_(None), workspaces.c.created_at < instant, ~of_instance)
    return and_(old, ~going_on, last_end < instant, ~unsettled)


_ENDED_BEFORE = Prepared(
    select(workspaces.c.id)
    .where(_is_due(bindparam("instant", type_=UtcTime)))
    .order_by(workspaces.c.created_at)
    .limit(bindparam("most", type_=Integer))
)
