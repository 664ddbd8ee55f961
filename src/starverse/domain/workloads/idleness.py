"""Whether an instance is idle: by evidence, source by source, never by one sign alone.

A source (``cards``, ``cpu``, ``disk``, ``network``, ``ssh``, ``jupyter``) tells when it last showed activity;
the newest of them counts. The clock begins anew with every assignment, and with every change of what its
owner wants; nobody is stopped on stale evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from starverse.domain.workloads.instances import IdleStop, Policy

WARN_SHARE = 0.8
FRESH_SECONDS = 30
"""Launchers speak each second and look every ten; when nothing was heard for longer, nothing is known."""

SETTLE_SECONDS = 60
"""Nothing is called idle sooner: after 0 seconds means as soon as a minute shows nothing."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """When a source last showed activity (``None``: never), and what was seen."""

    source: str
    last_at: datetime | None
    detail: str = ""


class Verdict(StrEnum):
    """``unknown``: there is no fresh evidence. ``warned``: 80 % of its time are over. ``due``: all of it."""

    UNKNOWN = "unknown"
    ACTIVE = "active"
    IDLE = "idle"
    WARNED = "warned"
    DUE = "due"


@dataclass(frozen=True, slots=True)
class Idleness:
    """``since``: the last activity of any source, or when the clock began. ``stops_at`` ``None``: idleness
    does not stop it. ``limit_seconds`` is how long it may be idle."""

    verdict: Verdict
    since: datetime
    limit_seconds: int | None
    warns_at: datetime | None
    stops_at: datetime | None


def idle_limit_seconds(policy: Policy, default_seconds: int) -> int | None:
    """How long it may be idle; ``None``: for ever. ``default_seconds`` is the operator's, for ``default``."""
    if policy.idle_stop is IdleStop.DEFAULT:
        return max(SETTLE_SECONDS, default_seconds)
    if policy.idle_stop is IdleStop.AFTER:
        return max(SETTLE_SECONDS, policy.idle_seconds or 0)
    return None


def judge(
    policy: Policy,
    default_seconds: int,
    clock_began_at: datetime,
    seen_at: datetime | None,
    evidence: Sequence[Evidence],
    now: datetime,
) -> Idleness:
    """The verdict at ``now``. ``clock_began_at``: the assignment, or *ready* of its run; ``seen_at``: when
    its launcher last spoke."""
    signs = [each.last_at for each in evidence if each.last_at is not None]
    begins = [clock_began_at, *([policy.changed_at] if policy.changed_at is not None else [])]
    since = min(now, max([*begins, *signs]))
    limit = idle_limit_seconds(policy, default_seconds)
    warns_at = None if limit is None else since + timedelta(seconds=limit * WARN_SHARE)
    stops_at = None if limit is None else since + timedelta(seconds=limit)
    if seen_at is None or now - seen_at > timedelta(seconds=FRESH_SECONDS):
        verdict = Verdict.UNKNOWN
    elif stops_at is not None and now >= stops_at:
        verdict = Verdict.DUE
    elif warns_at is not None and now >= warns_at:
        verdict = Verdict.WARNED
    elif now - since >= timedelta(seconds=SETTLE_SECONDS):
        verdict = Verdict.IDLE
    else:
        verdict = Verdict.ACTIVE
    return Idleness(verdict, since, limit, warns_at, stops_at)
