"""What makes instances stop by themselves: the end of their time to live, and idleness after a warning."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from starverse.app.instances.stopping import stop_standing
from starverse.app.instances.views import idleness, is_warned
from starverse.app.one_by_one import each
from starverse.app.platform import Platform
from starverse.db import allocations, events, instances
from starverse.db.events import Event
from starverse.db.instances import IdleClock
from starverse.domain.timespan import format_instant
from starverse.domain.workloads.idleness import Evidence, Idleness, Verdict
from starverse.domain.workloads.instances import Instance, InstanceReason, Policy
from starverse.domain.workloads.records import Allocation
from starverse.domain.workloads.states import AllocationState, InstanceState


@dataclass(frozen=True, slots=True)
class _Seen:
    """``run`` ``None``: it waits for another place. Its time to live counts since ``first_ready_at``."""

    instance: Instance
    policy: Policy
    first_ready_at: datetime
    clock: IdleClock | None
    run: Allocation | None
    evidence: tuple[Evidence, ...]


def watch_all(platform: Platform) -> str:
    """One round over every instance that runs, or did and waits for another place; what it did."""
    with platform.database.read() as connection:
        seen = _look(connection)
    now = platform.clock.now()
    return ", ".join(each(seen, lambda one: _act_on(platform, one, now)))


def _look(connection: Connection) -> list[_Seen]:
    standing = instances.in_state(connection, InstanceState.RUNNING, InstanceState.QUEUED)
    starts = [i.run_id for i in standing if i.run_id is not None and not i.reason]
    first_ready = allocations.first_ready(connection, starts)
    found = {i.run_id: i for i in standing if i.run_id in first_ready}
    ids = [instance.id for instance in found.values()]
    policies, clocks = instances.policies_of(connection, ids), instances.idle_clocks(connection, ids)
    runs = {
        job_id: run
        for job_id, own in allocations.of_jobs(connection, list(first_ready)).items()
        for run in own
        if run.state is AllocationState.RUNNING and run.stop_requested_at is None
    }
    evidence = instances.evidence_of(connection, [run.id for run in runs.values()])
    seen = []
    for job_id, first in first_ready.items():
        instance, run = found[job_id], runs.get(job_id)
        own = () if run is None else evidence[run.id]
        seen.append(_Seen(instance, policies[instance.id], first, clocks.get(instance.id), run, own))
    return seen


def _act_on(platform: Platform, seen: _Seen, now: datetime) -> str:
    name = seen.instance.name
    ends = seen.policy.stops_at(seen.first_ready_at)
    if ends is not None and now >= ends:
        return _stopped(platform, seen, InstanceReason.TTL, seen.policy.ttl_text, now)
    if seen.run is None:
        return ""
    found = idleness(platform, seen.policy, seen.clock, seen.run, seen.evidence, now)
    if found is None:
        return ""
    warned = is_warned(seen.clock, found)
    if found.verdict is Verdict.DUE and (warned or seen.clock is None):
        minutes = (found.limit_seconds or 0) / 60
        text = f"idle since {_clock(found.since)}, for {minutes:.0f} min; {evidence_text(seen.evidence)}"
        return _stopped(platform, seen, InstanceReason.IDLE, text, now)
    if found.verdict in (Verdict.WARNED, Verdict.DUE) and not warned:
        return f"warned {name}" if _warn(platform, seen, found, now) else ""
    return ""


def evidence_text(evidence: tuple[Evidence, ...]) -> str:
    """Each source with its last activity, in words."""
    if not evidence:
        return "no source showed any activity"
    parts = [
        f"{one.source} last active {_clock(one.last_at)}" if one.last_at else f"{one.source} never active"
        for one in evidence
    ]
    return "; ".join(parts)


def _stopped(platform: Platform, seen: _Seen, reason: InstanceReason, text: str, now: datetime) -> str:
    stopped = stop_standing(platform, seen.instance, reason, text, now)
    return f"stopped {seen.instance.name}: {reason.value}" if stopped else ""


def _warn(platform: Platform, seen: _Seen, found: Idleness, now: datetime) -> bool:
    if seen.clock is None or found.stops_at is None:
        return False
    clock, instance = seen.clock, seen.instance
    when = _clock(max(found.stops_at, now))
    text = f"idle since {_clock(found.since)}; it stops at {when}: {evidence_text(seen.evidence)}"

    def act(connection: Connection) -> bool:
        if not instances.note_warned(connection, clock, now):
            return False
        warning = Event(
            now, "instance", instance.id, "warning", "idle", text, instance.team_id, instance.account_id
        )
        events.record(connection, warning)
        return True

    return platform.database.write_retrying(act)


def _clock(instant: datetime) -> str:
    return format_instant(instant.replace(microsecond=0))
