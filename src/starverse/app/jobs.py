"""Jobs: look up, list, cancel, resume, explain, record. Submitting is in ``submission.py``."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from starverse.app import job_views, run_records
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.app.submission import submit
from starverse.app.views import JobFilter, JobView, Page
from starverse.app.waiting import explain_waiting
from starverse.db import allocations, events, jobs, teams, workspaces
from starverse.db.events import Event
from starverse.db.statements import in_chunks
from starverse.domain.errors import Conflict, FieldFault, Invalid, NotFound
from starverse.domain.ids import AccountId, is_uuid, parse_job_number
from starverse.domain.workloads.reasons import JobEndReason, WaitReason
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.states import ENDED_JOB_STATES, AllocationState, JobState

CANCEL_BATCH = 500
"""Tasks of an array that one transaction cancels."""

__all__ = ["cancel", "find_job", "get", "list_jobs", "record", "resume", "submit", "why"]


def find_job(connection: Connection, identity: Identity, ref: str) -> Job:
    """The one job that ``123``, ``123_4`` or an id names; raises ``NotFound`` also for another team's."""
    found = find_jobs(connection, identity, ref)
    if len(found) > 1:
        raise Invalid(
            f"job {ref} is an array of {len(found)} tasks; name one, such as {found[0].display_number}"
        )
    return found[0]


def find_jobs(connection: Connection, identity: Identity, ref: str) -> list[Job]:
    """What a reference names: one job, one task, or all tasks of an array; never empty."""
    found: list[Job] = []
    if is_uuid(ref):
        job = jobs.get(connection, ref)
        found = [job] if job else []
    else:
        try:
            found = jobs.by_number(connection, *parse_job_number(ref))
        except ValueError:
            found = []
    visible = [
        job
        for job in found
        if job.instance_id is None and (identity.operator or job.team_id == identity.team_id)
    ]
    if not visible:
        raise NotFound(f"There is no job {ref} in team {identity.team_name}; see `starverse job ls`.")
    return visible


def get(platform: Platform, identity: Identity, ref: str) -> JobView:
    """A job with its runs; for the number of an array, the whole of it."""
    with platform.database.read() as connection:
        found = find_jobs(connection, identity, ref)
        if len(found) > 1:
            return job_views.of_array(platform, connection, found)
        return job_views.with_allocations(platform, connection, found)[0]


def list_jobs(platform: Platform, identity: Identity, wanted: JobFilter) -> Page[JobView]:
    """Jobs of the team, newest first; with ``all_teams`` of every team the caller is in, or all there are."""
    before = _read_cursor(wanted.cursor)
    with platform.database.read() as connection:
        search = jobs.Search(
            team_ids=_teams_seen(connection, identity, wanted.all_teams),
            states=wanted.states,
            name=wanted.name,
            cost_label=wanted.label,
            array=wanted.array,
            since=wanted.since,
            until=wanted.until,
            before=before,
        )
        found = jobs.search(connection, search, wanted.limit + 1)
        page = found[: wanted.limit]
        cursor = _write_cursor(page[-1]) if len(found) > wanted.limit else None
        return Page(tuple(job_views.plain(platform, connection, page)), cursor)


def _teams_seen(connection: Connection, identity: Identity, all_teams: bool) -> tuple[str, ...] | None:
    if not all_teams or identity.scope != "account":
        return (identity.team_id,)
    if identity.operator:
        return None
    return tuple(of.team.id for of in teams.teams_of(connection, identity.account_id))


def cancel(platform: Platform, identity: Identity, ref: str) -> JobView:
    """Stop a job for good: at once while it waits, with TERM and then KILL while it runs.

    Cancelling what has ended raises ``Conflict``; cancelling twice is the same as once.
    """

    with platform.database.read() as connection:
        found = find_jobs(connection, identity, ref)
    alive = [job.id for job in found if job.state not in ENDED_JOB_STATES]
    if not alive:
        raise Conflict(f"job {ref} has ended already: {found[0].state.value}")
    cancelled = 0
    for some in in_chunks(alive, CANCEL_BATCH):
        who = f"cancelled by {identity.email}"
        act = partial(cancel_some, platform, who, identity.account_id, some)
        cancelled += platform.database.write_retrying(act)
        platform.wakeups.wake("observe", "schedule")
    if not cancelled:
        raise Conflict(f"job {ref} ended at this moment")
    return job_views.one(platform, alive[0]) if len(found) == 1 else get(platform, identity, ref)


def cancel_some(
    platform: Platform, who: str, account_id: AccountId | None, job_ids: Sequence[str], connection: Connection
) -> int:
    """Cancel those that have not ended; how many. A batch is short, so nobody waits long to write.

    ``who`` is told of each, ``account_id`` is whose wish it was.
    """
    now = platform.clock.now()
    alive = [job for job in jobs.get_many(connection, job_ids).values() if job.state not in ENDED_JOB_STATES]
    runs = allocations.of_jobs(connection, [job.id for job in alive])
    for job in alive:
        open_run = next((run for run in runs[job.id] if run.open), None)
        cancel_one(connection, job, open_run, who, now)
    events.record(
        connection,
        *(Event(now, "job", job.id, "cancel", "cancelled", who, job.team_id, account_id) for job in alive),
    )
    return len(alive)


def cancel_one(connection: Connection, job: Job, open_run: Allocation | None, who: str, now: datetime) -> Job:
    """End a job for good: at once without a run, else as its launcher stops it."""
    if open_run is not None:
        if open_run.stop_requested_at is None:
            running = open_run.state is AllocationState.RUNNING
            state = AllocationState.STOPPING if running else open_run.state
            allocations.change(connection, open_run, stop_requested_at=now, state=state)
        if job.cancel_requested_at is None:
            return jobs.change(connection, job, cancel_requested_at=now, message=who)
        return job
    return jobs.change(
        connection,
        job,
        state=JobState.CANCELLED,
        reason=JobEndReason.CANCELLED.value,
        message=who,
        ended_at=now,
        cancel_requested_at=now,
    )


def resume(platform: Platform, identity: Identity, ref: str) -> JobView:
    """Go on with a job that ended: a new job with the same script, workspace and checkpoints.

    The old one keeps its record. A waiting job is tried again at once; a running one, or one that another
    job resumes already, or one that succeeded, raises ``Conflict``.
    """

    def act(connection: Connection) -> str:
        job = find_job(connection, identity, ref)
        now = platform.clock.now()
        if job.state is JobState.RUNNING:
            raise Conflict(f"job {job.display_number} is running; cancel it first, or let it finish")
        if job.state is JobState.QUEUED:
            jobs.change(connection, job, not_before=None, failed_starts=0, message="tried again on request")
            return job.id
        successor = jobs.open_successor(connection, job.checkpoints_id)
        if successor is not None:
            raise Conflict(f"job {successor.display_number} goes on with it already")
        if workspaces.lock(connection, job.workspace_id) is not None:
            days = platform.settings.workspace_keep_days
            raise Conflict(
                f"the folder and checkpoints of job {job.display_number} are gone; they are kept {days} days",
                hint="submit the script again",
            )
        if job.state is JobState.SUCCEEDED:
            raise Conflict(
                f"job {job.display_number} succeeded; there is nothing left to go on with",
                hint="to run it once more, submit the script again",
            )
        again = dataclasses.replace(
            job,
            id=platform.ids.uuid7(),
            number=jobs.next_number(connection, "job"),
            array_index=None,
            task_number=None,
            account_id=identity.account_id,
            spec=dataclasses.replace(job.spec, array=None, begin=None),
            state=JobState.QUEUED,
            reason=WaitReason.NEW.value,
            message=f"resumes job {job.display_number}",
            submitted_at=now,
            generation=0,
            failed_starts=0,
            reclaims_without_checkpoint=0,
            not_before=None,
            cancel_requested_at=None,
            started_at=None,
            ended_at=None,
            exit_code=None,
            exit_signal=None,
        )
        jobs.insert_jobs(connection, [again])
        events.record(
            connection,
            Event(now, "job", again.id, "state", "queued", again.message, job.team_id, identity.account_id),
        )
        return again.id

    try:
        job_id = platform.database.write_retrying(act)
    except IntegrityError as error:
        raise Conflict(f"job {ref} was resumed at this very moment; see `starverse job ls`") from error
    platform.wakeups.wake("schedule")
    return job_views.one(platform, job_id)


def why(platform: Platform, identity: Identity, ref: str) -> dict[str, Any]:
    """Why a job waits, and what would help; for one that does not wait, its state and reason."""
    with platform.database.read() as connection:
        job = find_jobs(connection, identity, ref)[0]
    return explain_waiting(platform, job)


def record(platform: Platform, identity: Identity, ref: str) -> dict[str, Any]:
    """The run record: everything needed to reproduce the result (glossary)."""
    with platform.database.read() as connection:
        job = find_job(connection, identity, ref)
        view = job_views.with_allocations(platform, connection, [job])[0]
        return run_records.build(connection, job, view)


def _write_cursor(job: Job) -> str:
    index = -1 if job.array_index is None else job.array_index
    return base64.urlsafe_b64encode(json.dumps([job.number, index]).encode()).decode()


def _read_cursor(cursor: str | None) -> tuple[int, int] | None:
    if cursor is None:
        return None
    try:
        number, index = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        if type(number) is int and type(index) is int and 0 <= number < 2**63 and -1 <= index < 2**31:
            return number, index
    except (ValueError, TypeError, RecursionError):
        pass
    raise Invalid(faults=[FieldFault("cursor", cursor[:40], "the next_cursor of the page before")])
