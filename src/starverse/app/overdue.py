"""Launchers that should be over by now and hang: what each of them does by itself is enforced here.

A launcher stops its workload at every deadline, and speaks each second. One that does not is ended from
outside, long after anything that works would have done it: its cards and the money held for it must not
hang on a process that hangs.

The witness of how much time has passed is the launcher's own clock, which does not jump: where the wall clock
is set an hour ahead, nothing is overdue that was not before.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

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


@dataclass(frozen=True, slots=True)
class Witness:
    """What is known of a living launcher. ``silent``: how long it has said nothing new. ``past``: how long it
    has lived, by its own clock, since it was first seen past what it was told."""

    silent: timedelta = timedelta(0)
    past: timedelta = timedelta(0)


class Watch:
    """How long each launcher has said nothing new or gone on in spite of what it was told; only this process
    knows."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[float, datetime, int]] = {}
        self._past: dict[str, tuple[datetime, float]] = {}

    def look(self, allocation: Allocation, alive_at: float, now: datetime) -> Witness:
        """At an allocation whose launcher's newest heartbeat is ``alive_at``."""
        return Witness(
            self.silence(allocation.id, alive_at, now), self._lived_past(allocation, alive_at, now)
        )

    def silence(self, allocation_id: str, alive_at: float, now: datetime) -> timedelta:
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
        for known in set(self._past) - set(allocation_ids):
            del self._past[known]

    def _lived_past(self, allocation: Allocation, alive_at: float, now: datetime) -> timedelta:
        due = min((due for due, _ in _told(allocation)), default=None)
        if due is None or now < due:
            self._past.pop(allocation.id, None)
            return timedelta(0)
        seen_for, since = self._past.setdefault(allocation.id, (due, alive_at))
        if due < seen_for:  # brought forward: it was past this one already
            self._past[allocation.id] = (due, since)
        return timedelta(seconds=alive_at - since)


def why_overdue(
    allocation: Allocation, job: Job, state: LauncherState, witness: Witness, settings: Settings
) -> str:
    """Why a living launcher should have ended long ago, in words; ``""``: it should not."""
    if witness.silent >= timedelta(seconds=SILENT_LEASES * settings.lease_seconds):
        return f"has said nothing for {int(witness.silent.total_seconds())} s"
    if state.ended_at is not None:
        return "does not finish" if state.alive_at - state.ended_at >= FINISH_SECONDS_MAX else ""
    slack = settings.kill_after_seconds + MARGIN_SECONDS
    if witness.past >= timedelta(seconds=slack):
        return min(_told(allocation))[1]
    if state.ready_at is not None and state.alive_at - state.ready_at >= job.spec.time_limit_seconds + slack:
        return "does not stop at its time limit"
    return ""


def _told(allocation: Allocation) -> list[tuple[datetime, str]]:
    """Until when the launcher was told to go on, and what to say where it goes on for much longer."""
    dues = (
        (allocation.stop_requested_at, "does not stop, though told to"),
        (allocation.notice_deadline, "does not stop at the deadline of its notice"),
    )
    return [(due, why) for due, why in dues if due is not None]
