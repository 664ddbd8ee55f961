"""When a launcher announces the end and when it ends: pure, from what is wanted and the time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from starverse.domain.workloads.launch import FUNDS_END, Desired, LaunchSpec


@dataclass(frozen=True, slots=True)
class Notice:
    """An announced stop. ``stopped_by`` as in ``LauncherState``; ``deadline`` is when TERM follows."""

    reason: str
    deadline: float
    stopped_by: str


def funded_until(spec: LaunchSpec, desired: Desired, ready_at: float) -> float:
    """Until when the money is held: the newest word of the platform, else what the spec says."""
    if desired.funded_until is not None:
        return desired.funded_until
    return ready_at + spec.funded_seconds


def ttl_end(spec: LaunchSpec, desired: Desired, ready_at: float) -> float:
    """When an instance has lived as long as its owner wants; no lead, as until then they may want more."""
    ttl_seconds = spec.ttl_seconds if desired.ttl_seconds is None else desired.ttl_seconds
    return ready_at + ttl_seconds if ttl_seconds else math.inf


def time_limit_lead_seconds(spec: LaunchSpec) -> int:
    """How long before the time limit its notice comes.

    As ``--signal`` says where it was given (sbatch manual page); else the grace, but never more than a
    quarter of the limit, so that a short job is not told to stop as it begins.
    """
    if spec.signal_name is not None:
        return spec.signal_seconds_before_end
    return min(spec.grace_seconds, spec.time_limit_seconds // 4)


def due_notice(spec: LaunchSpec, desired: Desired, ready_at: float, now: float) -> Notice | None:
    """The notice that must be standing at ``now``: of all that are due, the one that ends first."""
    due = []
    if desired.notice_reason:
        deadline = desired.notice_deadline
        due.append(
            Notice(
                desired.notice_reason, now + spec.grace_seconds if deadline is None else deadline, "notice"
            )
        )
    funded = funded_until(spec, desired, ready_at)
    if now >= funded - spec.grace_seconds:
        due.append(Notice(FUNDS_END, funded, "unfunded"))
    limit = ready_at + spec.time_limit_seconds
    if now >= limit - time_limit_lead_seconds(spec):
        due.append(Notice("time_limit", limit, "time_limit"))
    if now >= (ends := ttl_end(spec, desired, ready_at)):
        due.append(Notice("time_limit", ends, "time_limit"))
    return min(due, key=lambda notice: notice.deadline, default=None)


def strengthen(given: Notice | None, due: Notice | None) -> Notice | None:
    """What stands after ``due``: a notice once given is never withdrawn nor put off, only brought forward."""
    if given is None or (due is not None and due.deadline < given.deadline):
        return due
    return given
