"""Launchers that should be over by now and hang: what each of them does by itself is enforced here.

A launcher stops its workload at every deadline, and speaks each second. One that does not is ended from
outside, long after anything that works would have done it: its cards and the money held for it must not
hang on a process that hangs.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from starverse.app.platform import Settings
from starverse.domain.workloads.launch import LauncherState
from starverse.domain.workloads.records import Allocation, Job

SILENT_LEASES = 4
"""A claim that is held counts for more than a heartbeat: so many leases without one are waited."""

LOOKS_MIN = 10
"""So often in a row it must have said nothing new: a clock that jumps is no silence."""

MARGIN_SECONDS = 60
FINISH_SECONDS_MAX = 3600
"""After its script ended, a launcher copies outputs and the last checkpoint before it reports."""


class Silence:
    """How long each launcher has said nothing new, by the platform's clock; only this process knows."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[float, datetime, int]] = {}

    def of(self, allocation_id: str, alive_at: float, now: datetime) -> timedelta:
        """Since it was first seen with this heartbeat; nothing before it was looked at a few times."""
        newest, since, looks = self._heard.get(allocation_id, (None, now, 0))
        if newest != alive_at:
            since, looks = now, 0
        self._heard[allocation_id] = (alive_at, since, looks + 1)
        return now - since if looks >= LOOKS_MIN else timedelta(0)

    def keep_only(self, allocation_ids: Collection[str]) -> None:
        """Forget all others: they are over."""
        for known in set(self._heard) - set(allocation_ids):
            del self._heard[known]


def why_overdue(
    allocation: Allocation,
    job: Job,
    state: LauncherState,
    silent: timedelta,
    settings: Settings,
    now: datetime,
) -> str:
    """Why a living launcher should have ended long ago, in words; ``""``: it should not."""
    if silent >= timedelta(seconds=SILENT_LEASES * settings.lease_seconds):
        return f"has said nothing for {int(silent.total_seconds())} s"
    if state.ended_at is not None:
        over = now - datetime.fromtimestamp(state.ended_at, UTC)
        return "does not finish" if over >= timedelta(seconds=FINISH_SECONDS_MAX) else ""
    slack = timedelta(seconds=settings.kill_after_seconds + MARGIN_SECONDS)
    limit = timedelta(seconds=job.spec.time_limit_seconds)
    dues = {
        "does not stop, though told to": allocation.stop_requested_at,
        "does not stop at the deadline of its notice": allocation.notice_deadline,
        "does not stop at its time limit": None
        if allocation.ready_at is None
        else allocation.ready_at + limit,
    }
    return next((why for why, due in dues.items() if due is not None and now >= due + slack), "")
