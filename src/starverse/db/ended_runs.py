"""Runs that ended by themselves: what run times are told by."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, select

from starverse.db.metadata import UtcTime
from starverse.db.prepared import Prepared
from starverse.db.tables import allocations, jobs
from starverse.domain.workloads.reasons import EndCause

_BY_ITSELF = (EndCause.COMPLETED, EndCause.USER_CODE, EndCause.OUT_OF_MEMORY)

_CLOSED_SINCE = Prepared(
    select(
        allocations.c.id,
        allocations.c.team_id,
        allocations.c.card_count,
        jobs.c.name,
        allocations.c.ready_at,
        allocations.c.ended_at,
        allocations.c.closed_at,
    )
    .join(jobs, jobs.c.id == allocations.c.job_id)
    .where(
        allocations.c.closed_at >= bindparam("since", type_=UtcTime),
        allocations.c.ready_at.is_not(None),
        allocations.c.ended_at.is_not(None),
        allocations.c.cause.in_(_BY_ITSELF),
        jobs.c.instance_id.is_(None),
    )
    .order_by(allocations.c.closed_at, allocations.c.id)
)


def closed_since(connection: Connection, since: datetime) -> list[Any]:
    """(id, team_id, card_count, name, ready_at, ended_at, closed_at) of jobs' runs, in order of their end."""
    return _CLOSED_SINCE.rows(connection, since=since)
