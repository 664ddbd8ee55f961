"""About when a job will start, by the queue as it is and how long jobs ran; also before it is submitted."""

from __future__ import annotations

from datetime import datetime

from starverse.app.disk_space import may_start_anything
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.app.snapshot import take_snapshot
from starverse.app.views import StartEstimate
from starverse.domain.ids import JobId, TeamId
from starverse.domain.scheduling.snapshot import Snapshot, WaitingJob
from starverse.domain.scheduling.when_will_i_start import Outlook, StartBand
from starverse.domain.workloads.specs import JobSpec

_NEW = JobId("not-submitted")


def of_waiting(platform: Platform, snapshot: Snapshot, job_id: JobId, now: datetime) -> StartEstimate | None:
    """Of a job that waits in the snapshot; ``None``: it may not start yet, or nothing is large enough."""
    return _told(_outlook(platform, snapshot, now).waiting(job_id))


def of_new(platform: Platform, identity: Identity, spec: JobSpec, now: datetime) -> StartEstimate | None:
    """Of a job that would be submitted now; reads the scheduler's whole picture."""
    snapshot = take_snapshot(platform, now, may_start_anything(platform))
    job = WaitingJob(
        job_id=_NEW,
        number="",
        team_id=TeamId(identity.team_id),
        tariff=spec.tariff,
        resources=spec.resources,
        submitted_at=now,
        time_limit_seconds=spec.time_limit_seconds,
        script=spec.name,
    )
    return _told(_outlook(platform, snapshot, now).not_submitted(job))


def _outlook(platform: Platform, snapshot: Snapshot, now: datetime) -> Outlook:
    with platform.database.read() as connection:
        times = platform.runs.times(connection, now)
    return Outlook(snapshot, times, now)


def _told(band: StartBand | None) -> StartEstimate | None:
    return None if band is None else StartEstimate(band.earliest, band.expected, band.latest)
