"""How an instance follows its run: in the very transaction that moves the run's job.

So an instance never says anything else than its run, at whatever moment a server dies. What its owner asked
for that had to wait for the end of the run (a start with other cards, a release) is begun here too.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection

from starverse.app.instances.runs import insert_run
from starverse.app.platform import Platform
from starverse.db import events, instances
from starverse.db.events import Event
from starverse.domain.workloads.instances import (
    Instance,
    InstanceReason,
    Next,
    reason_of,
    reason_of_refusal,
)
from starverse.domain.workloads.reasons import EndCause
from starverse.domain.workloads.records import Job
from starverse.domain.workloads.states import InstanceState, JobState


def follow_placed(connection: Connection, job: Job, allocation_id: str, now: datetime) -> None:
    """Its run is assigned cards: the idle clock begins anew, under the same write."""
    if job.instance_id is not None:
        instances.begin_idle_clock(connection, job.instance_id, allocation_id, now)


def follow_ready(connection: Connection, job: Job, ready_at: datetime, now: datetime) -> None:
    """Its run accepts SSH."""
    instance = _of(connection, job)
    if instance is None or instance.state is not InstanceState.QUEUED:
        return
    being_stopped = job.cancel_requested_at is not None
    instances.change(
        connection,
        instance,
        state=InstanceState.RUNNING,
        reason=instance.reason if being_stopped else "",
        message=instance.message if being_stopped else "",
        first_ready_at=instance.first_ready_at or ready_at,
    )
    _tell(connection, instance, now, "running", f"start {instance.starts} is running")


def follow_end(
    connection: Connection, platform: Platform, job: Job, cause: EndCause | None, now: datetime
) -> None:
    """Its run ended, or waits for another place; ``cause`` ``None``: it never had one."""
    instance = _of(connection, job)
    if instance is None or instance.state not in (InstanceState.QUEUED, InstanceState.RUNNING):
        return
    if job.state in (JobState.QUEUED, JobState.RUNNING):
        _wait_again(connection, instance, job, now)
        return
    stopped = _stop(connection, platform, instance, job, cause, now)
    if stopped.afterwards is None:
        return
    if stopped.afterwards.what is Next.RELEASE:
        release(connection, stopped, now)
    elif stopped.afterwards.start is not None:
        insert_run(connection, platform, stopped, stopped.afterwards.start, now)


def release(connection: Connection, stopped: Instance, now: datetime) -> Instance:
    """It is no more: its name and its disks are free; its files go once nothing of its runs is left."""
    released = instances.change(
        connection,
        stopped,
        state=InstanceState.RELEASED,
        reason="",
        message="released",
        released_at=now,
        release_at=None,
        afterwards=None,
    )
    instances.forget_disks(connection, stopped.id)
    _tell(connection, released, now, "released", "its own files are removed")
    return released


def _of(connection: Connection, job: Job) -> Instance | None:
    """The instance whose present run the job is."""
    if job.instance_id is None:
        return None
    found = instances.get(connection, job.instance_id)
    return found if found is not None and found.run_id == job.id else None


def _wait_again(connection: Connection, instance: Instance, job: Job, now: datetime) -> None:
    if instance.state is InstanceState.QUEUED:
        return
    text = f"starts elsewhere: {job.message}"
    instances.change(connection, instance, state=InstanceState.QUEUED, reason="", message=text)
    _tell(connection, instance, now, job.reason, text)


def _stop(
    connection: Connection,
    platform: Platform,
    instance: Instance,
    job: Job,
    cause: EndCause | None,
    now: datetime,
) -> Instance:
    reason, message = reason_of_refusal(job.reason) if cause is None else reason_of(cause), job.message
    if job.cancel_requested_at is not None and instance.reason:  # why it was asked for is known since then
        reason, message = InstanceReason(instance.reason), instance.message
    elif cause is EndCause.TIME_LIMIT:  # its launcher minds the time to live too, while no platform does
        policy = instances.policy_of(connection, instance.id)
        if policy.ttl_seconds is not None:
            reason, message = InstanceReason.TTL, policy.ttl_text
    stopped = instances.change(
        connection,
        instance,
        state=InstanceState.STOPPED,
        reason=reason.value,
        message=message,
        stopped_at=now,
        release_at=now + timedelta(days=platform.settings.instance_keep_days),
        release_warned_at=None,
    )
    _tell(connection, stopped, now, reason.value, message)
    return stopped


def _tell(connection: Connection, instance: Instance, now: datetime, reason: str, message: str) -> None:
    event = Event(
        now, "instance", instance.id, "state", reason, message, instance.team_id, instance.account_id
    )
    events.record(connection, event)
