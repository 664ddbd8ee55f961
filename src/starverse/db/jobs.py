"""Jobs. Every change is conditional on the generation: a lost race is a ``LostRace``."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, func, insert, or_, select, update

from starverse.db import job_specs
from starverse.db.prepared import Prepared, among
from starverse.db.session import LostRace
from starverse.db.statements import in_chunks, insert_new
from starverse.db.tables import accounts, counters, jobs
from starverse.domain.workloads.records import Job
from starverse.domain.workloads.states import JOB_TRANSITIONS, JobState, advance

_FIELDS = tuple(f.name for f in dataclasses.fields(Job) if f.name != "spec")

_WAITING = Prepared(select(jobs.c.id, jobs.c.reason, jobs.c.message).where(jobs.c.state == JobState.QUEUED))
_TAKE_NUMBER = Prepared(
    update(counters)
    .where(counters.c.name == bindparam("wanted"))
    .values(value=counters.c.value + bindparam("many"))
    .returning(counters.c.value)
)
_INSERT = Prepared(insert(jobs), (*_FIELDS, "name", "cost_label", "tariff", "spec_id"))
_GET = Prepared(select(jobs).where(jobs.c.id == bindparam("wanted")))
_GET_MANY = Prepared(select(jobs).where(among(jobs.c.id, "ids")))
_BY_NUMBER = Prepared(
    select(jobs)
    .where(or_(jobs.c.number == bindparam("wanted"), jobs.c.task_number == bindparam("wanted")))
    .order_by(jobs.c.array_index)
)
_QUEUED = Prepared(
    select(jobs).where(jobs.c.state == JobState.QUEUED).order_by(jobs.c.submitted_at, jobs.c.id)
)
_COUNT_QUEUED = Prepared(
    select(func.count().label("waiting")).where(
        jobs.c.team_id == bindparam("team"), jobs.c.state == JobState.QUEUED
    )
)
_NOTE_WAITING = Prepared(
    update(jobs).where(jobs.c.id == bindparam("wanted"), jobs.c.state == JobState.QUEUED),
    ("reason", "message"),
)
_POSTPONE = Prepared(
    update(jobs).where(jobs.c.id == bindparam("wanted"), jobs.c.state == JobState.QUEUED), ("not_before",)
)


@cache
def _changing(*columns: str) -> Prepared:
    """The conditional update that sets these columns."""
    statement = update(jobs).where(
        jobs.c.id == bindparam("wanted"),
        jobs.c.generation == bindparam("seen"),
        jobs.c.state == bindparam("old_state"),
    )
    return Prepared(statement, columns)


def next_number(connection: Connection, name: str, first: int = 1, many: int = 1) -> int:
    """The next number of a counter that people see, such as ``job``; never given twice.

    With ``many`` a block: the number returned and those after it.
    """
    taken = _TAKE_NUMBER.first(connection, wanted=name, many=many)
    if taken is None and insert_new(connection, counters, {"name": name, "value": first + many - 1}):
        return first
    last = taken or _TAKE_NUMBER.first(connection, wanted=name, many=many)
    return int(last.value) - many + 1


def insert_jobs(connection: Connection, new: Iterable[Job]) -> None:
    """Insert jobs as they are; jobs with an equal specification share one row of it."""
    given = list(new)
    specs = job_specs.keep(connection, (job.spec for job in given))
    rows = []
    for job in given:
        row = {name: getattr(job, name) for name in _FIELDS}
        copied = {"name": job.spec.name, "cost_label": job.spec.cost_label, "tariff": job.spec.tariff}
        rows.append({**row, **copied, "spec_id": specs[id(job.spec)]})
    _INSERT.run_many(connection, rows)


def get(connection: Connection, job_id: str) -> Job | None:
    return next(iter(_made(connection, _GET.rows(connection, wanted=job_id))), None)


def get_many(connection: Connection, job_ids: Collection[str]) -> dict[str, Job]:
    """Those of the jobs that exist, by id."""
    if not job_ids:
        return {}
    return {job.id: job for job in _made(connection, _GET_MANY.rows(connection, ids=job_ids))}


def by_number(connection: Connection, number: int, array_index: int | None = None) -> list[Job]:
    """The job, the one task, or (no index given) all tasks of an array, by index.

    A task is named by the number of its array and its index, or by its own number alone.
    """
    if array_index is None:
        return _made(connection, _BY_NUMBER.rows(connection, wanted=number))
    return _read(connection, _all().where(jobs.c.number == number, jobs.c.array_index == array_index))


def queued(connection: Connection) -> list[Job]:
    """Jobs of all teams that wait, oldest first."""
    return _made(connection, _QUEUED.rows(connection))


def in_state(connection: Connection, *states: JobState) -> list[Job]:
    """Jobs of all teams in these states, oldest first."""
    return _read(connection, _all().where(jobs.c.state.in_(states)).order_by(jobs.c.submitted_at, jobs.c.id))


def accounts_to_stop(connection: Connection) -> list[str]:
    """Disabled accounts with jobs or instances that go on, and that nobody has asked to end yet."""
    query = (
        select(jobs.c.account_id)
        .join(accounts, accounts.c.id == jobs.c.account_id)
        .where(
            accounts.c.disabled.is_(True),
            jobs.c.state.in_((JobState.QUEUED, JobState.RUNNING)),
            jobs.c.cancel_requested_at.is_(None),
        )
        .distinct()
    )
    return sorted(connection.execute(query).scalars())


def dependency_facts(
    connection: Connection, numbers: Collection[int]
) -> list[tuple[int, tuple[JobState, int | None, datetime | None, datetime | None]]]:
    """(number, (state, array index, first start, end)) of jobs others depend on; no specs are read.

    A task counts under the number of its array and, where that is asked for, under its own.
    """
    columns = (jobs.c.state, jobs.c.array_index, jobs.c.started_at, jobs.c.ended_at)
    return [
        (row[0], (row.state, row.array_index, row.started_at, row.ended_at))
        for some in in_chunks(numbers)
        for number in (jobs.c.number, jobs.c.task_number)
        for row in connection.execute(select(number, *columns).where(number.in_(some)))
    ]


def count_queued(connection: Connection, team_id: str) -> int:
    """How many jobs of a team wait."""
    return int(_COUNT_QUEUED.first(connection, team=team_id).waiting)


def open_of_name(connection: Connection, team_id: str, name: str, before: int) -> tuple[int, ...]:
    """Numbers of jobs of a team and name, submitted before this number, that have not ended."""
    rows = connection.execute(
        select(jobs.c.number).where(
            jobs.c.team_id == team_id,
            jobs.c.name == name,
            jobs.c.number < before,
            jobs.c.instance_id.is_(None),
            jobs.c.state.in_([JobState.QUEUED, JobState.RUNNING]),
        )
    )
    return tuple(sorted({row.number for row in rows}))


@dataclasses.dataclass(frozen=True, slots=True)
class Search:
    """Which jobs; ``None`` and empty mean any. ``array``: the tasks of that array. ``since``/``until``: jobs
    that existed in that span. ``before``: (number, array index or -1) of the last one seen."""

    team_ids: tuple[str, ...] | None = None
    states: Collection[JobState] = ()
    name: str | None = None
    cost_label: str | None = None
    array: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: tuple[int, int] | None = None


def search(connection: Connection, wanted: Search, limit: int) -> list[Job]:
    """Newest first; the tasks of an array by their index. Starts of instances are no jobs of people."""
    query = _all().where(jobs.c.instance_id.is_(None))
    task = func.coalesce(jobs.c.array_index, -1)
    if wanted.team_ids is not None:
        query = query.where(jobs.c.team_id.in_(wanted.team_ids))
    if wanted.states:
        query = query.where(jobs.c.state.in_(wanted.states))
    if wanted.name is not None:
        query = query.where(jobs.c.name == wanted.name)
    if wanted.cost_label is not None:
        query = query.where(jobs.c.cost_label == wanted.cost_label)
    if wanted.array is not None:
        query = query.where(jobs.c.number == wanted.array, jobs.c.array_index.is_not(None))
    if wanted.since is not None:
        query = query.where(jobs.c.ended_at.is_(None) | (jobs.c.ended_at >= wanted.since))
    if wanted.until is not None:
        query = query.where(jobs.c.submitted_at < wanted.until)
    if wanted.before is not None:
        number, index = wanted.before
        query = query.where((jobs.c.number < number) | and_(jobs.c.number == number, task > index))
    return _read(connection, query.order_by(jobs.c.number.desc(), task).limit(limit))


def open_successor(connection: Connection, checkpoints_id: str) -> Job | None:
    """A job that has not ended and goes on from these checkpoints."""
    waiting = jobs.c.state.in_([JobState.QUEUED, JobState.RUNNING])
    found = _read(connection, _all().where(jobs.c.checkpoints_id == checkpoints_id, waiting))
    return next(iter(found), None)


def change(connection: Connection, job: Job, **changes: Any) -> Job:
    """Write changed fields if nobody wrote since ``job`` was read; raises ``LostRace`` otherwise.

    A new ``state`` must be a transition of the table.
    """
    state = changes.get("state")
    if state is not None and state != job.state:
        advance(JOB_TRANSITIONS, job.state, state)
    seen = {"wanted": job.id, "seen": job.generation, "old_state": job.state}
    changing = _changing(*changes, "generation")
    if changing.run(connection, **seen, **changes, generation=job.generation + 1) != 1:
        raise LostRace(f"job {job.display_number} was changed by someone else at the same moment")
    return dataclasses.replace(job, **changes, generation=job.generation + 1)


def waiting_notes(connection: Connection) -> dict[str, tuple[str, str]]:
    """Job id -> (reason, message) of all that are queued."""
    return {job_id: (reason, message) for job_id, reason, message in _WAITING.rows(connection)}


def set_waiting(connection: Connection, notes: Iterable[tuple[str, str, str]]) -> None:
    """Note why queued jobs wait: (job id, reason, message). Not a transition: no generation is used up."""
    rows = ({"wanted": job_id, "reason": why, "message": message} for job_id, why, message in notes)
    _NOTE_WAITING.run_many(connection, rows)


def postpone(connection: Connection, job_ids: Collection[str], until: datetime) -> None:
    """Pass queued jobs over until an instant. Not a transition: no generation is used up."""
    _POSTPONE.run_many(connection, ({"wanted": job_id, "not_before": until} for job_id in job_ids))


def _all() -> Select[Any]:
    return select(jobs)


def _read(connection: Connection, query: Select[Any]) -> list[Job]:
    return _made(connection, connection.execute(query).all())


def _made(connection: Connection, rows: Sequence[Any]) -> list[Job]:
    if not rows:
        return []
    specs = job_specs.load(connection, {row.spec_id for row in rows})
    return [Job(**{name: getattr(row, name) for name in _FIELDS}, spec=specs[row.spec_id]) for row in rows]
