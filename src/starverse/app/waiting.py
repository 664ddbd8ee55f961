"""``job why``: what a waiting job waits for and what would help, decided afresh on the present picture."""

from __future__ import annotations

from typing import Any

from starverse.app.disk_space import may_start_anything
from starverse.app.platform import Platform
from starverse.app.snapshot import take_snapshot
from starverse.domain.ids import JobId
from starverse.domain.scheduling.decide import decide
from starverse.domain.scheduling.why import explain
from starverse.domain.timespan import format_instant
from starverse.domain.workloads.records import Job
from starverse.domain.workloads.states import JobState


def explain_waiting(platform: Platform, job: Job) -> dict[str, Any]:
    """Typed reason, message, facts, what would help, and the earliest start where it is known."""
    plain: dict[str, Any] = {
        "job": job.display_number,
        "state": job.state.value,
        "reason": job.reason,
        "message": job.message,
        "facts": [],
        "what_helps": [],
        "earliest_start_at": None,
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
    }
