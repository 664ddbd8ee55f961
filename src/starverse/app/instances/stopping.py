"""Ending the present run of an instance: asked for by people, by its own rules, or to start it otherwise."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from starverse.app.identity import Identity
from starverse.app.instances import views
from starverse.app.instances.finding import find
from starverse.app.instances.following import follow_end, release
from starverse.app.jobs import cancel_one
from starverse.app.platform import Platform
from starverse.db import allocations, events, instances, jobs
from starverse.db.events import Event
from starverse.domain.errors import Conflict, InvariantBroken
from starverse.domain.workloads.instances import Afterwards, Instance, InstanceReason, Next
from starverse.domain.workloads.states import InstanceState

STANDING = (InstanceState.QUEUED, InstanceState.RUNNING)


def stop(platform: Platform, identity: Identity, ref: str) -> views.InstanceView:
    """Stop it; its files and disks stay. A start that was to follow does not. Twice is the same as once."""

    def act(connection: Connection) -> str:
        instance = find(connection, identity, ref)
        if instance.state not in STANDING:
            raise Conflict(f"instance {instance.name} is {instance.state.value} already")
        text = f"stopped by {identity.email}"
        stop_run(connection, platform, instance, InstanceReason.ASKED, text, None)
        return instance.id

    return _done(platform, platform.database.write_retrying(act))


def remove(platform: Platform, identity: Identity, ref: str) -> None:
    """Release it with its own files; a running one is stopped first, and released as it ends.

    Disks of the team stay, whatever was attached here.
    """

    def act(connection: Connection) -> None:
        now = platform.clock.now()
        instance = find(connection, identity, ref)
        if instance.state is InstanceState.RELEASED:
            raise Conflict(f"instance {instance.name} is released already")
        text = f"released by {identity.email}"
        happened = Event(
            now, "instance", instance.id, "release", "asked", text, instance.team_id, identity.account_id
        )
        events.record(connection, happened)
        if instance.state in STANDING:
            after = Afterwards(Next.RELEASE)
            stop_run(connection, platform, instance, InstanceReason.ASKED, text, after)
        else:
            release(connection, instance, now)

    platform.database.write_retrying(act)
    platform.wakeups.wake("observe", "schedule", "release")


def stop_run(
    connection: Connection,
    platform: Platform,
    instance: Instance,
    reason: InstanceReason,
    message: str,
    afterwards: Afterwards | None,
) -> None:
    """Have the present run end; at once where it has no place yet, else as its launcher stops it.

    Why, and what follows, is on record before anything is stopped.
    """
    now = platform.clock.now()
    job = None if instance.run_id is None else jobs.get(connection, instance.run_id)
    if job is None:
        raise InvariantBroken(f"instance {instance.id} is {instance.state.value} without a run")
    instances.change(connection, instance, reason=reason.value, message=message, afterwards=afterwards)
    open_run = next((run for run in allocations.of_jobs(connection, [job.id])[job.id] if run.open), None)
    ended = cancel_one(connection, job, open_run, message, now)
    if job.cancel_requested_at is None:
        happened = Event(now, "instance", instance.id, "stop", reason.value, message, instance.team_id)
        events.record(connection, happened)
    if open_run is None:
        follow_end(connection, platform, ended, None, now)


def stop_standing(
    platform: Platform, instance: Instance, reason: InstanceReason, message: str, now: datetime
) -> bool:
    """The same from a loop: only if it is still the run that was looked at, and goes on."""

    def act(connection: Connection) -> bool:
        current = instances.get(connection, instance.id)
        if current is None or current.run_id != instance.run_id or current.state not in STANDING:
            return False
        if current.reason:
            return False  # it is being stopped
        stop_run(connection, platform, current, reason, message, None)
        return True

    stopped = platform.database.write_retrying(act)
    if stopped:
        platform.wakeups.wake("observe", "schedule")
    return stopped


def _done(platform: Platform, instance_id: str) -> views.InstanceView:
    platform.wakeups.wake("observe", "schedule")
    return views.one(platform, instance_id)
