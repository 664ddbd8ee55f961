"""The few facts that followers of a log wait for, read for many jobs at once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from starverse.db.tables import allocations, jobs
from starverse.domain.workloads.states import (
    ENDED_JOB_STATES,
    OPEN_ALLOCATION_STATES,
    AllocationState,
    JobState,
)


@dataclass(frozen=True, slots=True)
class JobPulse:
    """``attempt`` is the newest run (0: none yet) and ``running`` whether it is open, with its notice."""

    job_id: str
    state: JobState
    reason: str
    exit_code: int | None
    exit_signal: int | None
    attempt: int
    running: bool
    notice: tuple[str, datetime] | None = None

    @property
    def ended(self) -> bool:
        return self.state in ENDED_JOB_STATES and not self.running


def pulses(connection: Connection, job_ids: Collection[str]) -> dict[str, JobPulse]:
    """Job id -> its pulse; unknown ids are left out."""
    found = {
        row.id: JobPulse(row.id, row.state, row.reason, row.exit_code, row.exit_signal, 0, False)
        for row in connection.execute(
            select(jobs.c.id, jobs.c.state, jobs.c.reason, jobs.c.exit_code, jobs.c.exit_signal).where(
                jobs.c.id.in_(job_ids)
            )
        )
    }
    runs = connection.execute(
        select(
            allocations.c.job_id,
            allocations.c.attempt,
            allocations.c.state,
            allocations.c.notice_reason,
            allocations.c.notice_deadline,
        )
        .where(allocations.c.job_id.in_(job_ids))
        .order_by(allocations.c.attempt)
    )
    for row in runs:
        job = found[row.job_id]
        notice = None
        if row.notice_reason is not None and row.notice_deadline is not None:
            notice = (row.notice_reason.value, row.notice_deadline)
        state: AllocationState = row.state
        found[row.job_id] = JobPulse(
            job.job_id,
            job.state,
            job.reason,
            job.exit_code,
            job.exit_signal,
            row.attempt,
            state in OPEN_ALLOCATION_STATES,
            notice,
        )
    return found
