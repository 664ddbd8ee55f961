"""``job why``: what a waiting job waits for and what would help, decided afresh on the present picture.

Of a job that does not wait it says since when it runs, or how it ended.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from starverse.app import start_estimate
from starverse.app.disk_space import may_start_anything
from starverse.app.platform import Platform
from starverse.app.snapshot import take_snapshot
from starverse.domain.ids import JobId
from starverse.domain.scheduling.decide import decide
from starverse.domain.scheduling.snapshot import Snapshot
from starverse.domain.scheduling.why import explain
from starverse.domain.timespan import format_instant
from starverse.domain.workloads.records import Job
from starverse.domain.workloads.states import JobState

_ENDED = {
    JobState.SUCCEEDED: "succeeded",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "was cancelled",
}


def explain_waiting(platform: Platform, job: Job) -> dict[str, Any]:
    """Typed reason, message, facts, what would help, and the earliest start where it is known."""
    plain: dict[str, Any] = {
        "job": job.display_number,
        "state": job.state.value,
        "reason": job.reason,
        "message": job.message if job.state is JobState.QUEUED else course(job),
        "facts": [],
        "what_helps": [],
        "earliest_start_at": None,
        "start_estimate": None,
    }
    if job.state is not JobState.QUEUED:
        return plain
    now = platform.clock.now()
    snapshot = take_snapshot(platform, now, may_start_anything(platform))
    if not any(waiting.job_id == job.id for waiting in snapshot.waiting):
        return plain
    why = explain(snapshot, decide(snapshot, now), JobId(job.id))
    return plain | {
        "reason": why.reason.value if why.reason else job.reason,
        "message": why.message,
        "facts": list(why.facts),
        "what_helps": list(why.what_helps),
        "earliest_start_at": format_instant(why.start_estimate) if why.start_estimate else None,
        "start_estimate": _estimate(platform, snapshot, JobId(job.id), now),
    }


def _estimate(platform: Platform, snapshot: Snapshot, job_id: JobId, now: datetime) -> dict[str, str] | None:
    found = start_estimate.of_waiting(platform, snapshot, job_id, now)
    if found is None:
        return None
    return {
        "earliest_at": format_instant(found.earliest_at),
        "expected_at": format_instant(found.expected_at),
        "latest_at": format_instant(found.latest_at),
    }


def course(job: Job) -> str:
    """How it goes or went, for a job that does not wait: since when it runs, or when and how it ended."""
    if job.ended_at is None:
        begun = f" since {_clock(job.started_at)}" if job.started_at else ""
        again = f", in its run {job.attempts}" if job.attempts > 1 else ""
        asked = f"; {job.message}" if job.message else ""
        return f"it runs{begun}{again}{asked}"
    code = "" if job.exit_code is None else f" with exit code {job.exit_code}"
    ending = code if job.exit_signal is None else f" by signal {job.exit_signal}"
    why = f": {job.message}" if job.message else ""
    return f"it {_ENDED[job.state]} at {_clock(job.ended_at)}{ending}{why}"


def _clock(instant: datetime) -> str:
    return format_instant(instant.replace(microsecond=0))
