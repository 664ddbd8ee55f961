"""Published checkpoints of jobs, as the platform found and verified them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, select, update

from starverse.db.prepared import Prepared, among
from starverse.db.statements import insert_new
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


_COLUMNS = tuple(CheckpointRow.__dataclass_fields__)


def _selecting(*where: ColumnElement[bool]) -> Prepared:
    columns = (checkpoints.c[name] for name in _COLUMNS)
    query = select(*columns).where(among(checkpoints.c.job_id, "jobs"), *where)
    return Prepared(query.order_by(checkpoints.c.attempt, checkpoints.c.step))


_ALL = _selecting()
_THERE = _selecting(checkpoints.c.verified_at.is_not(None), checkpoints.c.removed_at.is_(None))
_VERIFIED = _selecting(checkpoints.c.verified_at.is_not(None))


def of_job(connection: Connection, job_id: str) -> list[CheckpointRow]:
    """All that were ever published for a job, oldest first, removed ones included."""
    return _read(connection, _ALL, (job_id,))


def of_jobs(connection: Connection, job_ids: Collection[str]) -> dict[str, list[CheckpointRow]]:
    """:func:`of_job` for many, by job."""
    found: dict[str, list[CheckpointRow]] = {job_id: [] for job_id in job_ids}
    for row in _read(connection, _ALL, job_ids):
        found[row.job_id].append(row)
    return found


def newest_verified(connection: Connection, job_ids: Collection[str]) -> dict[str, CheckpointRow]:
    """Job id -> its newest verified checkpoint that is still there."""
    return {row.job_id: row for row in _read(connection, _THERE, job_ids)}


def newest_verified_before(
    connection: Connection, job_ids: Collection[str]
) -> dict[tuple[str, int], datetime]:
    """(job id, attempt) -> when the newest verified checkpoint of that attempt was published."""
    rows = _read(connection, _VERIFIED, job_ids)
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


def _read(connection: Connection, query: Prepared, job_ids: Collection[str]) -> list[CheckpointRow]:
    return [CheckpointRow(*row) for row in query.rows(connection, jobs=job_ids)] if job_ids else []
