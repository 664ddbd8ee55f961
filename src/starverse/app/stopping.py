"""Notices that the world makes due: a window closes, a card is faulty, the money or the cost limit ends."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection

from starverse.app import funding
from starverse.app.apply_decision import give_notice
from starverse.app.observing import unfunded_reason
from starverse.app.one_by_one import Round
from starverse.app.platform import Platform
from starverse.db import allocations, events, jobs, metering
from starverse.db.events import Event
from starverse.domain.errors import Conflict
from starverse.domain.ids import CardId
from starverse.domain.pricing.open_hours import window_end
from starverse.domain.workloads.reasons import NoticeReason
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.states import AllocationState

AHEAD_SECONDS = 5
"""A notice for the end of funds is given this much before launchers give it by themselves: they cannot say
why the funds end."""

TEXTS = {
    NoticeReason.WINDOW_CLOSED: "its window closes",
    NoticeReason.NO_MONEY: "the money of the team ends",
    NoticeReason.COST_MAX: "its --cost-max is reached",
    NoticeReason.CARD_FAULT: "a card of it is faulty",
}


def give_due_notices(platform: Platform) -> str:
    """One round over everything that runs; says what it did.

    What is under notice already is looked at for its window alone: a price book that closes it earlier
    brings the notice forward.
    """
    with platform.database.read() as connection:
        running = [
            a
            for a in allocations.open_ones(connection)
            if a.state in (AllocationState.RUNNING, AllocationState.STOPPING) and not a.stop_requested_at
        ]
        owners = jobs.get_many(connection, {a.job_id for a in running})
        nodes = platform.nodes.read(connection)
        faulty_cards = {card.id for node in nodes for card in node.cards if not card.usable}
        due: list[tuple[Allocation, NoticeReason, datetime]] = []

        def look(allocation: Allocation) -> str:
            faulty = not faulty_cards.isdisjoint(map(CardId, allocation.cards))
            found = _due(connection, platform, allocation, owners[allocation.job_id], faulty)
            if found is not None:
                due.append((allocation, *found))
            return ""

        round_ = Round()
        round_.act_on(running, look)
    round_.act_on(due, lambda found: _say(found[0], found[1]) if _give(platform, *found) else "")
    return ", ".join(round_.end())


def _say(allocation: Allocation, reason: NoticeReason) -> str:
    return f"{allocation.id}: {reason.value}"


def _due(
    connection: Connection, platform: Platform, allocation: Allocation, job: Job, faulty: bool
) -> tuple[NoticeReason, datetime] | None:
    now = platform.clock.now()
    grace, ahead = timedelta(seconds=platform.settings.grace_seconds), timedelta(seconds=AHEAD_SECONDS)
    given = allocation.notice_deadline if allocation.notice_reason is not None else None
    if faulty and given is None:
        return NoticeReason.CARD_FAULT, now + grace
    if job.spec.window is not None:
        end = window_end(metering.load_books(connection).books, job.spec.window, now)
        stop = now if end is None else max(now, end - timedelta(seconds=platform.settings.kill_after_seconds))
        if now >= stop - grace and (given is None or stop < given):
            return NoticeReason.WINDOW_CLOSED, stop
    if given is not None:
        return None
    until = funding.stops_by(allocation, job, platform.settings.kill_after_seconds)
    if until is not None and now >= until - grace - ahead and not _ends_by_time_limit(allocation, job, until):
        return unfunded_reason(connection, platform, allocation, job), until
    return None


def _ends_by_time_limit(allocation: Allocation, job: Job, until: datetime) -> bool:
    if allocation.ready_at is None:
        return False
    return until >= allocation.ready_at + timedelta(seconds=job.spec.time_limit_seconds)


def _give(platform: Platform, allocation: Allocation, reason: NoticeReason, deadline: datetime) -> bool:
    def act(connection: Connection) -> bool:
        current = allocations.get(connection, allocation.id)
        if current is None or current.notice_deadline != allocation.notice_deadline:
            return False
        if current.state is not allocation.state or current.stop_requested_at is not None:
            return False
        if current.funded_until != allocation.funded_until and reason in (
            NoticeReason.NO_MONEY,
            NoticeReason.COST_MAX,
        ):
            return False
        now, text = platform.clock.now(), TEXTS.get(reason, reason.value)
        if current.notice_reason is None:
            give_notice(connection, platform, current, reason, now, text, deadline=deadline)
        else:
            _bring_forward(connection, current, reason, now, text, deadline)
        return True

    try:
        return platform.database.write_retrying(act)
    except Conflict:
        return False


def _bring_forward(
    connection: Connection,
    noticed: Allocation,
    reason: NoticeReason,
    now: datetime,
    text: str,
    deadline: datetime,
) -> None:
    """A stop that was announced comes earlier: delivered by ``observe`` as a notice is."""
    allocations.change(connection, noticed, notice_reason=reason, notice_deadline=deadline)
    events.record(
        connection,
        Event(now, "job", noticed.job_id, "notice_earlier", reason.value, text, noticed.team_id),
    )
