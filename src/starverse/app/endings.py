"""The end of an allocation, in one transaction: state, cards free, last usage charged, the job's next state.

What depends on its checkpoints (credit for lost work, reclaims without one) is settled by
:func:`settle_checkpoints` once they are verified: nobody waits for bytes to be read. Late news passes
through every state between (``states.path``); a repeat changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from starverse.app import metering
from starverse.app.disks import attachments
from starverse.app.instances.following import follow_end, follow_ready
from starverse.app.platform import Platform
from starverse.db import accounts, allocations, checkpoints, events, instances, inventory, jobs, nodes
from starverse.db import metering as meter_rows
from starverse.db.events import Event
from starverse.domain.errors import InvariantBroken
from starverse.domain.ids import AllocationId
from starverse.domain.recovery.follow import Follow, JobFacts, what_follows
from starverse.domain.timespan import ceil_to_second
from starverse.domain.workloads.instances import Restart
from starverse.domain.workloads.launch import UncleanCard
from starverse.domain.workloads.reasons import EndCause
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.states import ALLOCATION_TRANSITIONS, AllocationState, JobState, path


@dataclass(frozen=True, slots=True)
class End:
    """How an allocation ended. ``state`` is ended, failed_to_start or lost; times as the launcher told.

    ``unclean`` are cards of it that nobody may have as they are: they are quarantined with its end.
    """

    state: AllocationState
    cause: EndCause
    message: str
    ended_at: datetime
    ready_at: datetime | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    unclean: tuple[UncleanCard, ...] = ()


def record_ready(platform: Platform, allocation_id: str, ready_at: datetime, alive_at: datetime) -> bool:
    """The script's first exec: the allocation runs, the job runs, the clock of the bill starts."""

    def act(connection: Connection) -> bool:
        allocation = allocations.get(connection, allocation_id)
        if allocation is None or allocation.state is not AllocationState.STARTING:
            return False
        _become_ready(connection, platform, allocation, ready_at, alive_at)
        return True

    return platform.database.write_retrying(act)


def _become_ready(
    connection: Connection, platform: Platform, allocation: Allocation, ready_at: datetime, alive_at: datetime
) -> Allocation:
    now = platform.clock.now()
    held = meter_rows.held_seconds(connection, allocation.id)
    running = allocations.change(
        connection,
        allocation,
        state=AllocationState.RUNNING,
        ready_at=ready_at,
        alive_at=alive_at,
        funded_until=ceil_to_second(ready_at) + timedelta(seconds=held),
    )
    job = _job_of(connection, allocation)
    if job.state is JobState.QUEUED:
        job = jobs.change(
            connection,
            job,
            state=JobState.RUNNING,
            reason="",
            message="",
            failed_starts=0,
            not_before=None,
            started_at=job.started_at or ready_at,
        )
    follow_ready(connection, job, ready_at, now)
    events.record(
        connection,
        Event(
            now, "job", job.id, "state", "running", f"attempt {allocation.attempt} is running", job.team_id
        ),
    )
    return running


def record_end(platform: Platform, allocation_id: str, end: End) -> bool:
    """Record an end once; false when the allocation was over already."""

    def act(connection: Connection) -> bool:
        allocation = allocations.get(connection, allocation_id)
        if allocation is None or not allocation.open:
            return False
        _record(connection, platform, allocation, end)
        return True

    ended = platform.database.write_retrying(act)
    if ended:
        platform.wakeups.wake("schedule", "sweep", "checkpoint")
    return ended


def _record(connection: Connection, platform: Platform, allocation: Allocation, end: End) -> None:
    now = platform.clock.now()
    ended_at = end.ended_at if end.ready_at is None else max(end.ended_at, end.ready_at)
    if allocation.state is AllocationState.STARTING and end.ready_at is not None:
        allocation = _become_ready(connection, platform, allocation, end.ready_at, ended_at)
    way = path(ALLOCATION_TRANSITIONS, allocation.state, end.state)
    if way is None:
        raise InvariantBroken(f"allocation {allocation.id} is {allocation.state}, it cannot be {end.state}")
    for step in way[:-1]:
        allocation = allocations.change(connection, allocation, state=step)
    over = allocations.change(
        connection,
        allocation,
        state=way[-1],
        cause=end.cause,
        message=end.message,
        ended_at=ended_at if allocation.ready_at is None else max(ended_at, allocation.ready_at),
        exit_code=end.exit_code,
        exit_signal=end.exit_signal,
        closed_at=now,
        examined_at=now if allocation.ready_at is None else None,
    )
    _quarantine(connection, over, end.unclean, now)
    inventory.count_release(connection, over.nodes)
    attachments.begin_end(connection, over.id, now)
    accounts.revoke_allocation_tokens(connection, AllocationId(over.id), now)
    job = _job_of(connection, over)
    metering.settle(connection, over, job, now, platform.ids)
    follow = what_follows(end.cause, _facts(connection, job, over, None))
    job = _advance_job(connection, job, over, follow, now)
    follow_end(connection, platform, job, end.cause, now)


def _quarantine(
    connection: Connection, over: Allocation, unclean: tuple[UncleanCard, ...], now: datetime
) -> None:
    """Before the cards are free: those that are not fit to be lent go to nobody, and operators hear of it."""
    why = {(card.node, card.index): card.why for card in unclean}
    for card in inventory.load_cards(connection, over.cards).values() if why else ():
        text = why.get((card.node_id, card.index))
        if text:
            nodes.set_quarantined(connection, card.id, True, text)
            message = f"out of use until an operator has looked: after allocation {over.id} {text}"
            events.record(connection, Event(now, "card", card.id, "warning", "quarantined", message))


def settle_checkpoints(platform: Platform, allocation_id: str) -> bool:
    """What follows from the checkpoints of an allocation that is over, now that all of them are verified.

    False when it was settled before.
    """

    def act(connection: Connection) -> bool:
        over = allocations.get(connection, allocation_id)
        if over is None or over.open or over.examined_at is not None or over.cause is None:
            return False
        now, job = platform.clock.now(), _job_of(connection, over)
        allocations.change(connection, over, examined_at=now)
        published = checkpoints.newest_verified_before(connection, [job.checkpoints_id])
        checkpoint_at = published.get((job.checkpoints_id, over.attempt))
        follow = what_follows(over.cause, _facts(connection, job, over, checkpoint_at))
        if follow.credit_back:
            metering.credit_back(connection, over, job, checkpoint_at, now, platform.ids)
        reclaims = follow.reclaims_without_checkpoint
        if reclaims != job.reclaims_without_checkpoint:
            jobs.change(connection, job, reclaims_without_checkpoint=reclaims)
        if follow.warn_owner:
            text = f"{reclaims} reclaims in a row without a new checkpoint"
            warning = Event(now, "job", job.id, "warning", "no_checkpoint", text, job.team_id, job.account_id)
            events.record(connection, warning)
        return True

    return platform.database.write_retrying(act)


def _facts(
    connection: Connection, job: Job, allocation: Allocation, checkpoint_at: datetime | None
) -> JobFacts:
    requeue = job.spec.requeue or allocation.ready_at is None
    if job.instance_id is not None:
        requeue = instances.policy_of(connection, job.instance_id).restart is Restart.ELSEWHERE
    return JobFacts(
        requeue=requeue,
        interactive=job.instance_id is not None,
        cancel_requested=job.cancel_requested_at is not None,
        failed_starts=job.failed_starts,
        reclaims_without_checkpoint=job.reclaims_without_checkpoint,
        checkpointed=checkpoint_at is not None,
        exit_code=allocation.exit_code,
        exit_signal=allocation.exit_signal,
        message=allocation.message,
    )


def _advance_job(
    connection: Connection, job: Job, allocation: Allocation, follow: Follow, now: datetime
) -> Job:
    over = follow.state in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
    way: tuple[JobState, ...] = (follow.state,)
    if job.state is JobState.QUEUED and follow.state is JobState.SUCCEEDED:
        way = (JobState.RUNNING, follow.state)
    for step in way[:-1]:
        job = jobs.change(connection, job, state=step, started_at=allocation.ready_at)
    job = jobs.change(
        connection,
        job,
        state=way[-1],
        reason=follow.reason.value,
        message=follow.message,
        ended_at=allocation.ended_at if over else None,
        exit_code=allocation.exit_code if over else None,
        exit_signal=allocation.exit_signal if over else None,
        failed_starts=job.failed_starts + 1
        if allocation.cause is EndCause.START_FAILED
        else job.failed_starts,
        not_before=now + timedelta(seconds=follow.delay_seconds) if follow.delay_seconds else None,
    )
    text = f"attempt {allocation.attempt} ended ({allocation.cause}): {follow.message}"
    events.record(
        connection,
        Event(now, "job", job.id, "state", follow.reason.value, text, job.team_id, job.account_id),
    )
    return job


def _job_of(connection: Connection, allocation: Allocation) -> Job:
    job = jobs.get(connection, allocation.job_id)
    if job is None:
        raise InvariantBroken(f"allocation {allocation.id} belongs to no job")
    return job
