"""Evidence that instances are in use, as their launchers report it: recorded where it is news."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

from sqlalchemy import Connection

from starverse.app.platform import Platform
from starverse.db import instances
from starverse.domain.workloads.launch import Activity, LauncherState
from starverse.domain.workloads.records import Allocation, Job


def note_activity(platform: Platform, allocation: Allocation, job: Job, state: LauncherState) -> bool:
    """Record when each source last showed activity; cheap where nothing is new. Whether anything was."""
    if job.instance_id is None or not state.activity:
        return False
    with platform.database.read() as connection:
        evidence = instances.evidence_of(connection, [allocation.id])[allocation.id]
    known = {one.source: one.last_at for one in evidence}
    news: list[tuple[Activity, datetime]] = []
    for activity in state.activity:
        with contextlib.suppress(ValueError, OverflowError, OSError):  # a time that is none
            last_at = datetime.fromtimestamp(activity.last_at, UTC)
            before = known.get(activity.source)
            if before is None or before < last_at:
                news.append((activity, last_at))
    if not news:
        return False

    def act(connection: Connection) -> None:
        instances.note_activity(connection, allocation.id, news, platform.clock.now())

    platform.database.write_retrying(act)
    return True
