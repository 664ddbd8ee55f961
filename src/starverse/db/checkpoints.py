"""Published checkpoints of jobs, as the platform found and verified them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, select, update

from starverse.db.statements import in_chunks, insert_new
from starverse.db.tables import checkpoints
from starverse.domain.workloads.states import CheckpointState


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """``folder`` is its name in the job's checkpoint folder; ``verified_at`` ``None``: bytes do not match."""

    id: str
    job_id: str
    folder: str
    attempt: int
    step: int
    state: CheckpointState
    bytes: int
    published_at: datetime
    verified_at: datetime | None
    loaded_at: datetime | None
    message: str
    removed_at: datetime | None = None


def insert_found(connection: Connection, found: Iterable[CheckpointRow]) -> None:
    """Record checkpoints; one that is known already is left alone."""
    for row in found:
        values = {name: getattr(row, name) for name in CheckpointRow.__dataclass_fields__}
        insert_new(connection, checkpoints, values)


def of_job(connection: Connection, job_id: str) -> list[CheckpointRow]:
    """All that were ever published for a job, oldest first, removed ones included."""
    return _read(connection, checkpoints.c.job_id == job_id)


def of_jobs(connection: Connection, job_ids: Collection[str]) -> dict[str, list[CheckpointRow]]:
    """:func:`of_job` for many, by job."""
    found: dict[str, list[CheckpointRow]] = {job_id: [] for job_id in job_ids}
    for row in _of_jobs(connection, job_ids):
        found[row.job_id].append(row)
    return found


def newest_verified(connection: Connection, job_ids: Collection[str]) -> dict[str, CheckpointRow]:
    """Job id -> its newest verified checkpoint that is still there."""
    there = checkpoints.c.verified_at.is_not(None) & checkpoints.c.removed_at.is_(None)
    rows = _of_jobs(connection, job_ids, there)
    return {row.job_id: row for row in rows}


def newest_verified_before(
    connection: Connection, job_ids: Collection[str]
) -> dict[tuple[str, int], datetime]:
    """(job id, attempt) -> when the newest verified checkpoint of that attempt was published."""
    rows = _of_jobs(connection, job_ids, checkpoints.c.verified_at.is_not(None))
    return {(row.job_id, row.attempt): row.published_at for row in rows}


def note_loaded(connection: Connection, job_id: str, folder: str, loaded_at: datetime) -> None:
    """A run reported that it loaded this checkpoint."""
    connection.execute(
        update(checkpoints)
        .where(
            checkpoints.c.job_id == job_id, checkpoints.c.folder == folder, checkpoints.c.loaded_at.is_(None)
        )
        .values(loaded_at=loaded_at)
    )


def note_removed(connection: Connection, job_id: str, folders: Collection[str], now: datetime) -> None:
    """These are not on disk any more."""
    connection.execute(
        update(checkpoints)
        .where(
            checkpoints.c.job_id == job_id,
            checkpoints.c.folder.in_(folders),
            checkpoints.c.removed_at.is_(None),
        )
        .values(removed_at=now)
    )


def _of_jobs(
    connection: Connection, job_ids: Collection[str], *where: ColumnElement[bool]
) -> list[CheckpointRow]:
    return [
        row
        for some in in_chunks(job_ids)
        for row in _read(connection, and_(checkpoints.c.job_id.in_(some), *where))
    ]


def _read(connection: Connection, where: ColumnElement[bool]) -> list[CheckpointRow]:
    rows: Any = connection.execute(
        select(checkpoints).where(where).order_by(checkpoints.c.attempt, checkpoints.c.step)
    )
    return [CheckpointRow(**row._mapping) for row in rows]
