"""Workspaces that were kept long enough."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, exists, func, select, update

from starverse.db.tables import jobs, workspaces
from starverse.domain.workloads.states import ENDED_JOB_STATES


def ended_before(connection: Connection, instant: datetime, limit: int) -> tuple[str, ...]:
    """Workspaces still on disk whose jobs have all ended, the last of them before ``instant``."""
    of_it = jobs.c.workspace_id == workspaces.c.id
    going_on = exists().where(of_it, jobs.c.state.not_in(ENDED_JOB_STATES))
    last_end = select(func.max(jobs.c.ended_at)).where(of_it).scalar_subquery()
    rows = connection.execute(
        select(workspaces.c.id)
        .where(workspaces.c.removed_at.is_(None), ~going_on, last_end < instant)
        .order_by(workspaces.c.created_at)
        .limit(limit)
    )
    return tuple(row.id for row in rows)


def note_removed(connection: Connection, workspace_id: str, now: datetime) -> None:
    """Its files are gone."""
    connection.execute(update(workspaces).where(workspaces.c.id == workspace_id).values(removed_at=now))
